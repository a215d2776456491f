//! Where to run a server: from measured levels of load to a load, with its interval.
//!
//! Not here: how a level is measured (`load`), and which of its seconds are steady (`stats`).

use crate::sample::Pacing;

/// What one level of load tells of a server: the steady window of one `summary::Level`, before it is condensed.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPoint {
    /// Whether `load` counts users or requests a second.
    pub pacing: Pacing,
    /// Closed loop: users; open loop: requests a second that were due. Positive.
    pub load: f64,
    /// The steady window in time blocks of equal length (20 or so), in order. Empty if nothing was steady.
    pub blocks: Vec<Block>,
    /// TTFT in seconds of whole answers of the window: all of them, or an evenly thinned sample, in time order.
    pub ttft: Vec<f64>,
    /// E2E in seconds of the same requests, in the same order.
    pub e2e: Vec<f64>,
}

/// The throughput of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Tokens that arrived, a second; none if nobody counts tokens.
    pub tokens_per_s: Option<f64>,
    /// Whole answers a second.
    pub requests_per_s: f64,
}
