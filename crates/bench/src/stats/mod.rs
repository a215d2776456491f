//! What numbers support: percentiles, their intervals, and which stretch of a level is steady.
//!
//! The one idea: a figure that its values cannot support with the confidence asked is absent, not approximate.
//! Nothing here assumes a distribution of latencies; intervals come from order statistics, from batch means, or
//! from resampling whole requests and whole stretches of time, because neighbours in either resemble each other.
//!
//! Pure: no clock, and chance is a seed. Not here: what is measured (`ledger`), monotone fits (`operating_point`).

// A share of values, and how sure.
mod order;
// Means and rates of values that depend on their neighbours.
mod batch;
// Drawing again what was seen.
mod resample;
// Where a warm-up ends, and whether anything grows.
mod steady;

pub use self::batch::{batches, mean, mean_interval, t_interval};
pub use self::order::{interval_ranks, needed_for, quantile, quantile_interval, share_interval};
pub use self::resample::Resampler;
pub use self::steady::{Rise, is_growing, mser, trend, warm_up};

/// How sure intervals are, everywhere.
pub const CONFIDENCE: f64 = 0.95;
