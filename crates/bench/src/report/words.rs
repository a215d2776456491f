//! Cells, sentences and definitions that every form of the report shares.
//!
//! Figures are told with three digits where a plot would not show a fourth; the files have them whole.

use std::collections::BTreeMap;

use crate::summary::{
    ClassFigures, Counts, Figure, Level, OperatingPoint, SloOutcome, Summary, Verdict,
};

/// What stands where a figure has too little to rest on.
pub const ABSENT: &str = "n/a";

/// A figure with three digits, or [`ABSENT`].
pub fn number(value: Option<f64>) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(value) if !value.is_finite() => ABSENT.to_owned(),
        Some(value) if value.abs() >= 99.95 => format!("{value:.0}"),
        Some(value) if value.abs() >= 9.995 => format!("{value:.1}"),
        Some(0.0) => "0".to_owned(),
        Some(value) if value.abs() < 0.0095 => format!("{value:.1e}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// A share as a percentage.
pub fn percent(share: Option<f64>) -> String {
    match share {
        Some(share) => format!("{:.1} %", share * 100.0),
        None => ABSENT.to_owned(),
    }
}

/// A figure's percentile in a table: its value times `scale`, or how many values it lacks (`n<368`).
pub fn cell(figure: &Figure, name: &str, scale: f64) -> String {
    match (percentile(figure, name), figure.needs.get(name)) {
        (Some(value), _) => number(Some(value * scale)),
        (None, Some(needs)) => format!("n<{needs}"),
        (None, None) => ABSENT.to_owned(),
    }
}

/// The load of a level: `8 users`, `0.5 req/s`.
pub fn load(level: &Level) -> String {
    match (level.users, level.offered_rps) {
        (Some(1), _) => "1 user".to_owned(),
        (Some(users), _) => format!("{users} users"),
        (None, Some(rps)) => format!("{} req/s", number(Some(rps))),
        (None, None) => "trace".to_owned(),
    }
}

/// How many requests failed. Cancelled ones did not: the run ended.
pub fn num_failed(counts: &Counts) -> u64 {
    counts.attempted() - counts.ok
}

/// `3 timeout, 1 http_error`; empty if nothing failed.
pub fn failures(counts: &Counts) -> String {
    let kinds = [
        ("truncated", counts.truncated),
        ("error_event", counts.error_event),
        ("http_error", counts.http_error),
        ("timeout", counts.timeout),
        ("connect", counts.connect),
        ("protocol", counts.protocol),
        ("empty", counts.empty),
    ];
    let told: Vec<String> = kinds
        .iter()
        .filter(|(_, num)| *num > 0)
        .map(|(kind, num)| format!("{num} {kind}"))
        .collect();
    told.join(", ")
}

/// A percentile by its name in `summary.json`.
pub fn percentile(figure: &Figure, name: &str) -> Option<f64> {
    match name {
        "mean" => figure.mean,
        "p50" => figure.p50,
        "p90" => figure.p90,
        "p95" => figure.p95,
        "p99" => figure.p99,
        "max" => figure.max,
        _ => None,
    }
}

/// What the columns mean, one line each.
pub const DEFINITIONS: &[(&str, &str)] = &[
    (
        "ok/failed",
        "whole answers / all other outcomes; requests given up because the run ended are neither",
    ),
    ("req/s", "whole answers a second, over the steady window"),
    (
        "out tok/s",
        "answer tokens a second, by when they arrived, over the steady window",
    ),
    (
        "in tok/s",
        "prompt tokens of the answers begun, a second, by the server's count",
    ),
    (
        "TTFT",
        "first content minus due (open loop) or sent (closed loop); whole answers only",
    ),
    (
        "TPOT",
        "per request (E2E - TTFT) / (tokens - tokens of the first event)",
    ),
    (
        "ITL",
        "gaps between consecutive tokens, pooled over requests",
    ),
    ("E2E", "last content minus due or sent; whole answers only"),
];

/// What the rows of the longer tables mean.
pub const MORE_DEFINITIONS: &[(&str, &str)] = &[
    (
        "TTFO",
        "first content that is not reasoning, minus due or sent",
    ),
    ("lag", "sent minus due: how late the client was"),
    (
        "connect",
        "to open a connection, of the requests that had to",
    ),
    ("queue", "before the server began, by its own account"),
    (
        "residual",
        "E2E - (TTFT + (tokens - tokens of the first event) x its own median gap): what a steady stream does not explain",
    ),
    (
        "attained",
        "requests that met every objective, of those attempted; failures are attempts",
    ),
    ("good req/s", "requests a second that met every objective"),
    (
        "steady window",
        "the part of a level that rates are over: warm-up and drain left out",
    ),
    (
        "client's own floor",
        "by how much the client told an arrival too late, against its own loop-back server at the run's concurrency",
    ),
    (
        "N*",
        "X_max x R_0: users beyond which somebody must wait, whatever the server does",
    ),
];

/// What `n<368` in a cell means, if one stands there.
pub fn needs(summary: &Summary) -> Option<String> {
    let mut needs: BTreeMap<&str, u64> = BTreeMap::new();
    let figures = summary.levels.iter().flat_map(level_figures);
    for (name, num) in figures.flat_map(|figure| &figure.needs) {
        let most = needs.entry(name).or_default();
        *most = (*most).max(*num);
    }
    let told: Vec<String> = needs
        .iter()
        .map(|(name, num)| format!("{name} needs {num}"))
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "n<...: n/a, too few whole answers at that load to be 95 % sure ({})",
            told.join(", ")
        )
    })
}

fn level_figures(level: &Level) -> impl Iterator<Item = &Figure> {
    let classes = level.classes.values();
    [&level.ttft_ms, &level.tpot_ms, &level.itl_ms, &level.e2e_ms]
        .into_iter()
        .chain(
            classes
                .flat_map(|class| [&class.ttft_ms, &class.tpot_ms, &class.itl_ms, &class.e2e_ms]),
        )
}

/// The operating point in a sentence.
pub fn operating_point(point: &OperatingPoint) -> String {
    let (value, unit) = match (point.users, point.rps) {
        (Some(users), _) => (Some(users), "users"),
        (None, rps) => (rps, "req/s"),
    };
    let low = number(Some(point.low));
    let high = number(Some(point.high));
    let mut text = match point.verdict {
        Verdict::Clear | Verdict::Cliff => {
            format!(
                "Operating point: {} {unit} (95 %: {low} to {high})",
                number(value)
            )
        }
        Verdict::Interval => format!("Operating point: somewhere from {low} to {high} {unit}"),
        Verdict::NotReached => format!("Operating point: not reached up to {high} {unit}"),
    };
    let verdict = match point.verdict {
        Verdict::Clear => "clear",
        Verdict::Interval => "interval",
        Verdict::NotReached => "not reached",
        Verdict::Cliff => "cliff",
    };
    text += &format!(", verdict: {verdict}.");
    if let (Some(tokens), Verdict::Clear | Verdict::Cliff) =
        (point.output_tokens_per_s, point.verdict)
    {
        text += &format!(" There: {} tok/s", number(Some(tokens)));
        match point.ttft_ms_p95 {
            Some(ttft) => text += &format!(", TTFT p95 {} ms.", number(Some(ttft))),
            None => text.push('.'),
        }
    }
    if let Some(n_star) = point.n_star {
        text += &format!(" Bound N* = X_max * R_0: {} users.", number(Some(n_star)));
    }
    if !point.because.is_empty() {
        text += &format!(" Why: {}", sentence(&point.because));
    }
    text
}

/// What became of the SLO, a line each.
pub fn slo(outcome: &SloOutcome, unit: &str) -> Vec<String> {
    let mut lines = vec![match (outcome.largest, outcome.estimate) {
        (Some(largest), Some(estimate)) => format!(
            "SLO {}: met up to {} {unit} (estimated limit {})",
            outcome.slo,
            number(Some(largest)),
            number(Some(estimate))
        ),
        (Some(largest), None) => {
            format!(
                "SLO {}: met up to {} {unit}",
                outcome.slo,
                number(Some(largest))
            )
        }
        (None, _) => format!("SLO {}: met by no level", outcome.slo),
    }];
    for level in outcome.levels.iter().filter(|level| level.outcome != "met") {
        let because = match level.because.is_empty() {
            true => String::new(),
            false => format!(": {}", level.because.join("; ")),
        };
        lines.push(format!(
            "  {} at {} {unit}{because}",
            level.outcome,
            number(Some(level.load))
        ));
    }
    lines
}

/// `users` or `req/s`: what the run's load is told in.
pub fn load_unit(summary: &Summary) -> &'static str {
    match summary.levels.iter().any(|level| level.users.is_some()) {
        true => "users",
        false => "req/s",
    }
}

/// What the run was, in two lines.
pub fn headline(summary: &Summary) -> String {
    format!(
        "{} · {} · {} · {}\nworkload {} (hash {}, prompt tokens from {}) · seed {} · {} s from {}",
        summary.endpoint,
        summary.model.as_deref().unwrap_or("no model named"),
        summary.api,
        summary.protocol,
        summary.workload.name,
        summary.workload.hash,
        summary.workload.prompt_tokens_from,
        summary.seed,
        number(Some(summary.duration_s)),
        summary.started,
    )
}

/// Whether classes say more than the levels do.
pub fn has_classes(summary: &Summary) -> bool {
    summary.levels.iter().any(|level| level.classes.len() > 1)
}

/// The classes of all levels: level, name, figures.
pub fn class_rows(summary: &Summary) -> impl Iterator<Item = (&Level, &str, &ClassFigures)> {
    summary.levels.iter().flat_map(|level| {
        level
            .classes
            .iter()
            .map(move |(name, class)| (level, name.as_str(), class))
    })
}

/// What to know about the figures, over all levels: `missing_done: 24`.
pub fn flags(summary: &Summary) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for flag in summary.levels.iter().flat_map(|level| &level.flags) {
        let (name, num) = flag.rsplit_once(':').unwrap_or((flag, "1"));
        *counts.entry(name).or_default() += num.parse::<u64>().unwrap_or(1);
    }
    counts
        .iter()
        .map(|(name, num)| format!("{name}: {num}"))
        .collect()
}

/// Failures in the server's words, over all levels, the most frequent first.
pub fn errors(summary: &Summary) -> Vec<(&str, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (error, num) in summary.levels.iter().flat_map(|level| &level.errors) {
        *counts.entry(error).or_default() += num;
    }
    let mut told: Vec<(&str, u64)> = counts.into_iter().collect();
    told.sort_by_key(|&(_, num)| std::cmp::Reverse(num));
    told
}

/// A text with a stop at its end.
pub fn sentence(text: &str) -> String {
    match text.ends_with(['.', '!', '?']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.004, "4.0e-3"),
            (0.054, "0.05"),
            (1.234, "1.23"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (1234.5, "1234"),
        ];
        for (value, told) in cases {
            assert_eq!(number(Some(value)), told);
        }
        assert_eq!(number(None), "n/a");
        assert_eq!(number(Some(f64::NAN)), "n/a");
    }
}
