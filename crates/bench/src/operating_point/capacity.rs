//! The largest load that keeps a promise.
//!
//! A level meets an SLO if every objective does: so many of the *attempted* requests must be good, so a request that
//! failed was too slow. What a percentile that is `null` would be is not guessed, but it can be known to be missed (a
//! smaller percentile is over the limit) or met (all of enough requests are below it).

use super::search::Candidates;
use super::{Next, Search};
use crate::sample::Pacing;
use crate::slo::{Metric, Objective, Slo};
use crate::summary::{Figure, Level, SloLevel, SloOutcome};

/// Which levels meet `slo`, the largest that does, and where between it and the next the limit lies: log-log on the
/// metric that is missed first.
pub fn slo_capacity(levels: &[Level], slo: &Slo) -> SloOutcome {
    let mut judged: Vec<(f64, &Level, Judgement)> = levels
        .iter()
        .filter_map(|level| Some((load_of(level)?, level, judge(level, slo))))
        .collect();
    judged.sort_by(|left, right| left.0.total_cmp(&right.0));
    let largest = judged
        .iter()
        .rposition(|(_, _, judgement)| judgement.outcome == Outcome::Met);
    let missed = largest.and_then(|met| {
        judged[met..]
            .iter()
            .position(|(_, _, judgement)| judgement.outcome == Outcome::Missed)
            .map(|after| met + after)
    });
    let estimate = largest.zip(missed).and_then(|(met, missed)| {
        let from = (judged[met].0, judged[met].1);
        let to = (judged[missed].0, judged[missed].1);
        between(from, to, &judged[missed].2)
    });
    SloOutcome {
        slo: slo.to_string(),
        largest: largest.map(|idx| judged[idx].0),
        estimate,
        levels: judged
            .iter()
            .enumerate()
            .map(|(idx, (load, _, judgement))| SloLevel {
                load: *load,
                outcome: judgement.outcome.name().to_owned(),
                because: judgement
                    .because(largest.filter(|&met| met > idx).map(|met| judged[met].0)),
            })
            .collect(),
    }
}

/// The load to measure next for [`slo_capacity`]: the planned levels until one misses `slo`, then doubling, then the
/// middle (in logarithms) between the largest level below that does not and the one that does. None if that is enough.
///
/// `tested` are the loads measured so far, those without a level included: none of them comes again.
pub fn next_level_for_slo(
    levels: &[Level],
    tested: &[f64],
    slo: &Slo,
    search: &Search,
) -> Option<Next> {
    if tested.len() >= search.levels_max {
        return None;
    }
    let open = levels.iter().any(|level| level.users.is_none());
    let candidates = Candidates {
        tested,
        search,
        pacing: if open { Pacing::Open } else { Pacing::Closed },
    };
    let outcome = slo_capacity(levels, slo);
    let met = outcome.largest.unwrap_or(0.0);
    let of = |wanted: Outcome| {
        let levels = outcome.levels.iter();
        levels.filter(move |level| level.outcome == wanted.name())
    };
    let missed = of(Outcome::Missed).find(|level| level.load > met);
    let missed = missed.map(|level| level.load);
    // Low loads have few answers in the same time, so too few say little: only a load that misses ends the climb.
    let below = of(Outcome::Unknown)
        .map(|level| level.load)
        .filter(|&load| missed.is_some_and(|missed| load < missed))
        .fold(met, f64::max);
    let next = match missed {
        Some(missed) if below > 0.0 => Next {
            load: candidates.rounded((below * missed).sqrt()),
            reason: format!("{below:.4} is not known to miss {slo}, {missed:.4} misses it"),
        },
        Some(missed) => Next {
            load: candidates.rounded(missed / 4.0),
            reason: format!("the lowest load, {missed:.4}, misses {slo}"),
        },
        None => Next {
            load: planned_or_doubled(tested, search)?,
            reason: format!("no load so far misses {slo}"),
        },
    };
    let narrow = missed.is_some_and(|above| below > 0.0 && above <= below * search.narrow_ratio);
    let cost = levels.iter().filter_map(residence_s).fold(0.0, f64::max) * 2.0 + search.level_s;
    (!narrow && candidates.is_new(next.load) && candidates.is_affordable(cost)).then_some(next)
}

/// None once the largest load was tested.
fn planned_or_doubled(tested: &[f64], search: &Search) -> Option<f64> {
    let largest = tested.iter().copied().fold(0.0, f64::max);
    let planned = search.first.iter().copied().find(|&load| load > largest);
    planned
        .or_else(|| (largest > 0.0).then_some(largest * 2.0))
        .map(|load| load.min(search.load_max))
        .filter(|&load| load > largest)
}

fn residence_s(level: &Level) -> Option<f64> {
    Some(level.e2e_ms.mean? / 1e3)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Met,
    Unknown,
    Missed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::Unknown => "unknown",
            Outcome::Missed => "missed",
        }
    }
}

struct Judgement {
    outcome: Outcome,
    reasons: Vec<String>,
    /// Objectives whose own percentile is over the limit.
    over: Vec<Objective>,
}

impl Judgement {
    fn because(&self, met_beyond: Option<f64>) -> Vec<String> {
        let mut reasons = self.reasons.clone();
        if let (Outcome::Missed, Some(load)) = (self.outcome, met_beyond) {
            reasons.push(format!("not monotone: the larger load {load:.4} meets it"));
        }
        reasons
    }
}

fn judge(level: &Level, slo: &Slo) -> Judgement {
    let mut judgement = Judgement {
        outcome: Outcome::Met,
        reasons: Vec::new(),
        over: Vec::new(),
    };
    let attempted = level.requests.attempted();
    for objective in &slo.objectives {
        let (outcome, reason) = if attempted == 0 {
            (Outcome::Unknown, format!("{objective}: no request ended"))
        } else {
            judge_objective(level, objective)
        };
        let fit = figure(level, objective.metric);
        let over = percentile(fit, objective.quantile)
            .is_some_and(|value| value >= objective.limit_s * 1e3);
        judgement.over.extend(over.then_some(*objective));
        if outcome != Outcome::Met {
            judgement.reasons.push(reason);
        }
        judgement.outcome = worse(judgement.outcome, outcome);
    }
    judgement
}

fn worse(left: Outcome, right: Outcome) -> Outcome {
    match (left, right) {
        (Outcome::Missed, _) | (_, Outcome::Missed) => Outcome::Missed,
        (Outcome::Unknown, _) | (_, Outcome::Unknown) => Outcome::Unknown,
        _ => Outcome::Met,
    }
}

/// What the level tells of one objective; `level` has attempted requests.
fn judge_objective(level: &Level, objective: &Objective) -> (Outcome, String) {
    let attempted = level.requests.attempted();
    let failed = (attempted - level.requests.ok) as f64 / attempted as f64;
    // A hair more than allowed, for shares are not exact in binary.
    if failed > 1.0 - objective.quantile + 1e-9 {
        let text = format!("{objective}: {:.1} % of requests failed", failed * 100.0);
        return (Outcome::Missed, text);
    }
    let figure = figure(level, objective.metric);
    let limit_ms = objective.limit_s * 1e3;
    if let Some(value) = percentile(figure, objective.quantile) {
        let outcome = if value < limit_ms {
            Outcome::Met
        } else {
            Outcome::Missed
        };
        return (outcome, format!("{objective}: it is {value:.4} ms"));
    }
    let smaller = known(figure)
        .into_iter()
        .rfind(|&(quantile, value)| quantile < objective.quantile && value >= limit_ms);
    if let Some((quantile, value)) = smaller {
        let percent = quantile * 100.0;
        return (
            Outcome::Missed,
            format!("{objective}: p{percent} is {value:.4} ms already"),
        );
    }
    // A larger percentile below the limit says the same of a smaller one.
    let larger = known(figure)
        .into_iter()
        .find(|&(quantile, value)| quantile > objective.quantile && value < limit_ms);
    if larger.is_some() {
        return (Outcome::Met, String::new());
    }
    // If the percentile were over the limit, all of n requests would be below it with probability q^n.
    let luck = objective.quantile.powf(figure.n as f64);
    if figure.max.is_some_and(|max| max < limit_ms)
        && luck <= 0.05
        && objective.metric != Metric::Itl
    {
        return (Outcome::Met, String::new());
    }
    let needs = (0.05_f64.ln() / objective.quantile.ln()).ceil();
    let text = format!(
        "{objective}: {} values support no such percentile (it takes {needs})",
        figure.n
    );
    (Outcome::Unknown, text)
}

fn figure(level: &Level, metric: Metric) -> &Figure {
    match metric {
        Metric::Ttft => &level.ttft_ms,
        Metric::Tpot => &level.tpot_ms,
        Metric::Itl => &level.itl_ms,
        Metric::E2e => &level.e2e_ms,
    }
}

/// Percentiles that the figure has, in ms, ascending.
fn known(figure: &Figure) -> Vec<(f64, f64)> {
    [
        (0.5, figure.p50),
        (0.9, figure.p90),
        (0.95, figure.p95),
        (0.99, figure.p99),
    ]
    .into_iter()
    .filter_map(|(quantile, value)| Some((quantile, value?)))
    .collect()
}

fn percentile(figure: &Figure, quantile: f64) -> Option<f64> {
    if quantile >= 1.0 {
        return figure.max;
    }
    let found = known(figure)
        .into_iter()
        .find(|(known, _)| (known - quantile).abs() < 1e-9)?;
    Some(found.1)
}

fn load_of(level: &Level) -> Option<f64> {
    level.users.map(f64::from).or(level.offered_rps)
}

/// Where the first of the missed objectives reaches its limit, between a level that meets them and one that does not.
fn between(from: (f64, &Level), to: (f64, &Level), judgement: &Judgement) -> Option<f64> {
    judgement
        .over
        .iter()
        .filter_map(|objective| {
            let limit_ms = objective.limit_s * 1e3;
            let before = percentile(figure(from.1, objective.metric), objective.quantile)?;
            let after = percentile(figure(to.1, objective.metric), objective.quantile)?;
            let share = (limit_ms / before).ln() / (after / before).ln();
            let load = from.0 * (to.0 / from.0).powf(share);
            load.is_finite().then_some(load)
        })
        .min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_that_is_not_told_is_judged_by_its_neighbours() {
        let mut level = Level {
            users: Some(4),
            ..Level::default()
        };
        level.requests.ok = 10_000;
        level.ttft_ms = Figure {
            n: 10_000,
            p50: Some(300.0),
            p90: Some(450.0),
            max: Some(900.0),
            ..Figure::default()
        };
        for (slo, outcome) in [
            ("ttft:p75<500ms", "met"),
            ("ttft:p75<200ms", "missed"),
            ("ttft:p75<400ms", "unknown"),
        ] {
            let told = slo_capacity(std::slice::from_ref(&level), &slo.parse().expect("an SLO"));
            assert_eq!(told.levels[0].outcome, outcome, "{slo}");
        }
    }
}
