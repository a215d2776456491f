//! Two runs against each other: by how much is B slower or faster than A, and how sure is that?
//!
//! The one idea: runs of the same workload, seed and load ask the same under the same [`AskId`](crate::sample::AskId), so requests pair, and
//! what makes one prompt slower than another drops out. A *paired cluster bootstrap* resamples conversations (turns of
//! one conversation are no independent witnesses), takes both sides' figure of the same conversations, and divides:
//!
//! ```text
//! ratio = B / A     1.10: B's figure is 10 % larger      interval: percentiles 2.5 and 97.5 of the resampled ratios
//!
//!         1-m   1   1+m
//! ---------|----|----|-------  m: the margin within which a difference does not matter
//!            [----]            equivalent: the whole interval is within the margins
//!               [-------]      worse (of a latency): all of it is beyond 1
//!       [----------]           inconclusive
//! ```
//!
//! "Equivalent" with a 95 % interval is a pair of one-sided tests at 2.5 % (TOST, Schuirmann 1987). "Not different" is
//! never concluded from a wide interval.
//!
//! Throughput has no requests to pair: its ratio is of the summaries' rates, and its interval from blocks of time,
//! resampled on each side. Intervals hold one by one; [`Comparison::chance`] tells how many of them would exclude 1
//! by chance alone.
//!
//! Not here: reading run directories (`directory`), and what a process exits with.

// Which requests of A and B are compared.
mod pair;
// Figures of resampled conversations, and of resampled time.
mod resample;
// What must not get worse.
mod fail_on;
// Tables for people, forges and test reports.
mod show;
// Two endpoints in turn.
mod abba;
// Their table.
mod abba_show;

pub use abba::{AbbaMetric, AbbaReport, Round, Side, abba};
pub use fail_on::{Beyond, FailOn, FailOnError, FailOutcome, Ruling};

use serde::{Deserialize, Serialize};

use crate::sample::Row;
use crate::summary::{Level, Summary, Warning};
use pair::{Compared, Pairing};
use resample::Ratio;

/// One side.
#[derive(Clone, Debug)]
pub struct Run {
    /// What to call it: its directory.
    pub name: String,
    /// Its figures.
    pub summary: Summary,
    /// Its requests; [`Row::level`] is an index into the summary's levels.
    pub rows: Vec<Row>,
}

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffOptions {
    /// Ratios within 1 ± this are the same to whoever asks (0.05).
    pub margin: f64,
    /// Draws the resampling.
    pub seed: u64,
    /// What must not be.
    pub fail_on: Vec<FailOn>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// To the first content, in ms.
    Ttft,
    /// Per token after it, in ms.
    Tpot,
    /// Gaps between tokens, pooled, in ms.
    Itl,
    /// To the last content, in ms.
    E2e,
    /// Answer tokens a second.
    Throughput,
    /// Whole answers a second.
    Requests,
}

impl Measure {
    /// As written in rules and tables.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Ttft => "ttft",
            Measure::Tpot => "tpot",
            Measure::Itl => "itl",
            Measure::E2e => "e2e",
            Measure::Throughput => "throughput",
            Measure::Requests => "requests",
        }
    }

    /// Whether more of it is better: of rates, not of times.
    pub fn is_rate(self) -> bool {
        matches!(self, Measure::Throughput | Measure::Requests)
    }
}

/// Which figure of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stat {
    /// The arithmetic mean.
    Mean,
    /// The median.
    P50,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// Of a rate: itself.
    Rate,
}

impl Stat {
    /// Those of a distribution, in the order of tables.
    pub const OF_TIMES: [Stat; 4] = [Stat::Mean, Stat::P50, Stat::P95, Stat::P99];

    /// As written in rules and tables.
    pub fn name(self) -> &'static str {
        match self {
            Stat::Mean => "mean",
            Stat::P50 => "p50",
            Stat::P95 => "p95",
            Stat::P99 => "p99",
            Stat::Rate => "rate",
        }
    }

    /// Requests that it takes: of fewer, all lie below the percentile with a probability of more than 2.5 %, and no
    /// interval has an upper end. Two for a mean.
    pub fn needs(self) -> usize {
        match self {
            Stat::Mean | Stat::Rate => 2,
            Stat::P50 => 6,
            Stat::P95 => 72,
            Stat::P99 => 368,
        }
    }
}

/// What a ratio comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// B is better than A for certain, and perhaps by more than the margin.
    Better,
    /// B is worse.
    Worse,
    /// The same within the margin.
    Equivalent,
    /// The interval holds 1 and more than the margin, or there are too few requests.
    Inconclusive,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Of what.
    pub metric: Measure,
    /// Which figure.
    pub stat: Stat,
    /// A's: ms, or a second.
    pub a: Option<f64>,
    /// B's.
    pub b: Option<f64>,
    /// B over A; `null` if there are too few requests, or A's is 0.
    pub ratio: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// B minus A, in their unit.
    pub difference: Option<f64>,
    /// The difference's 95 % interval.
    pub difference_ci95: Option<[f64; 2]>,
    /// Requests (pairs, if paired) that it rests on.
    pub n: u64,
    /// What it comes to.
    pub verdict: Change,
    /// Why there is no ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The resampled ratios, ascending: what one-sided bounds are read from.
    #[serde(skip)]
    pub(crate) resampled: Vec<f64>,
}

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelComparison {
    /// Users or requests a second.
    pub load: f64,
    /// Whether requests were paired.
    pub paired: bool,
    /// Pairs in which both are whole answers.
    pub num_pairs: u64,
    /// A's whole answers in its steady window.
    pub num_a: u64,
    /// B's.
    pub num_b: u64,
    /// A's share of attempted requests that failed.
    pub failed_a: f64,
    /// B's.
    pub failed_b: f64,
    /// Times first, then rates.
    pub metrics: Vec<MetricComparison>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `fulcrum.bench.diff/1`.
    pub schema: String,
    /// A's name.
    pub a: String,
    /// B's.
    pub b: String,
    /// Ratios within 1 ± this are equivalent.
    pub margin: f64,
    /// Loads that both runs measured, in A's order.
    pub levels: Vec<LevelComparison>,
    /// How many intervals there are, and how many of them exclude 1 by chance even if nothing differs.
    pub chance: String,
    /// Rules and what came of them.
    pub fail_on: Vec<FailOutcome>,
    /// What to know before trusting it.
    pub warnings: Vec<Warning>,
}

/// The schema's name.
pub const SCHEMA: &str = "fulcrum.bench.diff/1";

impl Comparison {
    /// Whether a rule of [`DiffOptions::fail_on`] is broken.
    pub fn is_failed(&self) -> bool {
        self.fail_on
            .iter()
            .any(|outcome| outcome.ruling == Ruling::Broken)
    }
}

/// Compares `b` with `a`, load by load.
///
/// # Cost
///
/// Some hundred passes over the requests of both.
pub fn diff(a: &Run, b: &Run, options: &DiffOptions) -> Comparison {
    let mut warnings = pair::warnings(a, b);
    let pairing = Pairing::of(a, b);
    let mut levels = Vec::new();
    for (idx_a, idx_b) in pair::common_levels(&a.summary, &b.summary) {
        let compared = Compared::of((a, idx_a), (b, idx_b), pairing);
        let level = compare(&compared, options, idx_a as u64);
        warnings.extend(pair::level_warnings(&level, pairing));
        levels.push(level);
    }
    if levels.is_empty() {
        warnings.push(pair::warning(
            "no_common_load",
            "no load was measured by both runs".to_owned(),
            "run both with the same --users or --rate",
        ));
    }
    let num = levels
        .iter()
        .flat_map(|level| &level.metrics)
        .filter(|metric| metric.ci95.is_some())
        .count();
    let fail_on = options
        .fail_on
        .iter()
        .map(|rule| rule.judge(&levels))
        .collect();
    Comparison {
        schema: SCHEMA.to_owned(),
        a: a.name.clone(),
        b: b.name.clone(),
        margin: options.margin,
        levels,
        chance: format!(
            "{num} intervals of 95 % each: about {:.1} of them exclude 1 by chance if nothing differs",
            num as f64 * 0.05
        ),
        fail_on,
        warnings,
    }
}

fn compare(compared: &Compared<'_>, options: &DiffOptions, level_idx: u64) -> LevelComparison {
    let seed = options.seed ^ (level_idx << 32);
    let mut metrics = Vec::new();
    for metric in [Measure::Ttft, Measure::Tpot, Measure::Itl, Measure::E2e] {
        let (ratios, num) = resample::times(compared, metric, seed);
        for (stat, ratio) in Stat::OF_TIMES.into_iter().zip(ratios) {
            metrics.push(judged(metric, stat, ratio, (num, options.margin)));
        }
    }
    for metric in [Measure::Throughput, Measure::Requests] {
        let ratio = resample::rates(compared, metric, seed);
        let num = compared.num_ended();
        metrics.push(judged(metric, Stat::Rate, ratio, (num, options.margin)));
    }
    LevelComparison {
        load: compared.load,
        paired: compared.is_paired(),
        num_pairs: compared.num_pairs() as u64,
        num_a: compared.a.num_ok() as u64,
        num_b: compared.b.num_ok() as u64,
        failed_a: compared.a.failed,
        failed_b: compared.b.failed,
        metrics,
    }
}

fn judged(metric: Measure, stat: Stat, ratio: Ratio, basis: (usize, f64)) -> MetricComparison {
    let (num, margin) = basis;
    let mut told = MetricComparison {
        metric,
        stat,
        a: ratio.a,
        b: ratio.b,
        ratio: None,
        ci95: None,
        difference: None,
        difference_ci95: None,
        n: num as u64,
        verdict: Change::Inconclusive,
        because: None,
        resampled: Vec::new(),
    };
    let (Some(a), Some(b)) = (ratio.a, ratio.b) else {
        told.because = Some("nothing to compare".to_owned());
        return told;
    };
    if num < stat.needs() {
        told.because = Some(format!("{num} requests: it takes {}", stat.needs()));
        return told;
    }
    told.difference = Some(b - a);
    told.difference_ci95 = interval(&ratio.differences);
    if a <= 0.0 || ratio.ratios.is_empty() {
        told.because = Some("A's is 0: there is no ratio".to_owned());
        return told;
    }
    told.ratio = Some(b / a);
    told.ci95 = interval(&ratio.ratios);
    told.verdict = told
        .ci95
        .map_or(Change::Inconclusive, |ci95| change(ci95, margin, metric));
    told.resampled = ratio.ratios;
    told
}

fn change([low, high]: [f64; 2], margin: f64, metric: Measure) -> Change {
    if low >= 1.0 - margin && high <= 1.0 + margin {
        Change::Equivalent
    } else if low > 1.0 {
        if metric.is_rate() {
            Change::Better
        } else {
            Change::Worse
        }
    } else if high < 1.0 {
        if metric.is_rate() {
            Change::Worse
        } else {
            Change::Better
        }
    } else {
        Change::Inconclusive
    }
}

fn interval(ascending: &[f64]) -> Option<[f64; 2]> {
    Some([at_share(ascending, 0.025)?, at_share(ascending, 0.975)?])
}

/// The value below which a share of an ascending sequence lies, linear between neighbours.
pub(crate) fn at_share(ascending: &[f64], share: f64) -> Option<f64> {
    let rank = share * ascending.len().checked_sub(1)? as f64;
    let below = ascending[rank.floor() as usize];
    let above = ascending[rank.ceil() as usize];
    Some(below + (above - below) * rank.fract())
}

fn load_of(level: &Level) -> Option<f64> {
    level.users.map(f64::from).or(level.offered_rps)
}

#[cfg(test)]
mod tests;
