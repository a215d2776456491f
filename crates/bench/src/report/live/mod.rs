//! A run while it goes on: a page for terminals, lines for everything else.
//!
//! The one idea: the driver fills a [`LiveView`] a few times a second, and what is shown is a pure function of it
//! ([`draw`], [`line()`]). Only [`LiveTerminal`] touches a terminal, and gives it back whatever happens.
//!
//! Not here: how running figures come about, and what stopping means (the driver's).

// The page.
mod draw;
// The terminal, borrowed.
mod terminal;

use super::words::{self, number};
use crate::summary::{Counts, Level};

pub use self::draw::draw;
pub use self::terminal::{LiveTerminal, Wish};

/// What the run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client measures itself.
    Calibrating,
    /// Load is on, but not yet steady.
    WarmingUp,
    /// The steady window.
    Measuring,
    /// No more requests are sent; those in flight end.
    Draining,
    /// The same, because the user said so.
    Stopping,
}

/// What is known of a run while it goes on. Texts may be foreign.
#[derive(Clone, Debug)]
pub struct LiveView {
    /// The address that is measured.
    pub endpoint: String,
    /// The model as named in requests; empty if none is.
    pub model: String,
    /// The workload's name.
    pub workload: String,
    /// What the run is at.
    pub phase: Phase,
    /// The load: `8 users`, `0.5 req/s`.
    pub load: String,
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Seconds since the level began.
    pub level_elapsed_s: f64,
    /// How long the level will last, if it ends by time.
    pub level_planned_s: Option<f64>,
    /// Seconds that the run will still take, if that can be told.
    pub left_s: Option<f64>,
    /// Requests sent and not ended.
    pub in_flight: u64,
    /// How the level's requests ended so far.
    pub requests: Counts,
    /// Tokens (or events) a second, over the last seconds.
    pub tokens_per_s: f64,
    /// The same, second by second, the latest last.
    pub tokens_per_s_before: Vec<f64>,
    /// TTFT of the level so far, in ms: p50, p95.
    pub ttft_ms: [Option<f64>; 2],
    /// TPOT of the level so far, in ms: p50, p95.
    pub tpot_ms: [Option<f64>; 2],
    /// Levels that ended, in order.
    pub levels: Vec<LiveLevel>,
    /// What the user should know, the latest last.
    pub warnings: Vec<String>,
}

/// A level that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveLevel {
    /// Its load in words.
    pub load: String,
    /// Whole answers.
    pub num_ok: u64,
    /// All other outcomes.
    pub num_failed: u64,
    /// Whole answers a second.
    pub requests_per_s: f64,
    /// Tokens (or events) a second.
    pub tokens_per_s: f64,
    /// Medians and 95th percentiles in ms.
    pub ttft_ms: [Option<f64>; 2],
    /// Of time per token.
    pub tpot_ms: [Option<f64>; 2],
}

impl LiveLevel {
    /// A level's figures in short.
    pub fn of(level: &Level) -> LiveLevel {
        LiveLevel {
            load: words::load(level),
            num_ok: level.requests.ok,
            num_failed: words::num_failed(&level.requests),
            requests_per_s: level.requests_per_s,
            tokens_per_s: level.output_tokens_per_s.unwrap_or(level.events_per_s),
            ttft_ms: [level.ttft_ms.p50, level.ttft_ms.p95],
            tpot_ms: [level.tpot_ms.p50, level.tpot_ms.p95],
        }
    }
}

impl Phase {
    fn words(self) -> &'static str {
        match self {
            Phase::Calibrating => "calibrating the client",
            Phase::WarmingUp => "warming up",
            Phase::Measuring => "measuring",
            Phase::Draining => "waiting for the answers in flight",
            Phase::Stopping => "stopping: waiting for the answers in flight",
        }
    }
}

/// The moment in one line, for logs: no escape codes, no line end.
pub fn line(view: &LiveView) -> String {
    if view.phase == Phase::Calibrating {
        return format!("[{}] {}", clock(view.elapsed_s), view.phase.words());
    }
    let mut text = format!(
        "[{}] {}, {}: {} in flight, {} ok, {} failed, {} tok/s",
        clock(view.elapsed_s),
        view.load,
        view.phase.words(),
        view.in_flight,
        view.requests.ok,
        words::num_failed(&view.requests),
        number(Some(view.tokens_per_s))
    );
    for (name, figures) in [("TTFT", view.ttft_ms), ("TPOT", view.tpot_ms)] {
        if figures[0].is_some() {
            text += &format!(", {name} p50 {} ms", number(figures[0]));
        }
    }
    if let Some(left) = view.left_s {
        text += &format!(", {} left", clock(left));
    }
    text
}

/// A level that ended in one line.
pub fn level_line(level: &LiveLevel) -> String {
    format!(
        "{}: {} ok, {} failed, {} req/s, {} tok/s, TTFT p50 {} p95 {} ms, TPOT p50 {} p95 {} ms",
        level.load,
        level.num_ok,
        level.num_failed,
        number(Some(level.requests_per_s)),
        number(Some(level.tokens_per_s)),
        number(level.ttft_ms[0]),
        number(level.ttft_ms[1]),
        number(level.tpot_ms[0]),
        number(level.tpot_ms[1])
    )
}

/// `m:ss`, or `h:mm:ss`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests;
