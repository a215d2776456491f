//! Curves of a run that are too long for its summary: `series.json`, schema `fulcrum.bench.series/1`.

use serde::{Deserialize, Serialize};

use crate::slo::Metric;

/// The schema's name.
pub const SERIES_SCHEMA: &str = "fulcrum.bench.series/1";

/// Points that a distribution keeps: more than a plot has pixels for a step.
const ECDF_POINTS_MAX: usize = 400;

/// The curves of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// [`SERIES_SCHEMA`].
    pub schema: String,
    /// Throughput and load over the run, in order of time.
    pub timeline: Vec<TimelinePoint>,
    /// Distributions.
    pub ecdf: Vec<LevelEcdf>,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            schema: SERIES_SCHEMA.to_owned(),
            timeline: Vec::new(),
            ecdf: Vec::new(),
        }
    }
}

/// A moment of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// The middle of the interval that the point stands for, in seconds since the run began.
    pub at_s: f64,
    /// Tokens that arrived in it, a second; `null` if nobody counts tokens.
    pub tokens_per_s: Option<f64>,
    /// Whole answers that ended in it, a second.
    pub requests_per_s: f64,
    /// Requests in flight, on average.
    pub in_flight: f64,
}

/// The distribution of a metric within a level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelEcdf {
    /// An index into [`crate::summary::Summary::levels`].
    pub level: usize,
    /// Of what.
    pub metric: Metric,
    /// Milliseconds, and the share of values that do not exceed them; both ascend.
    pub points: Vec<(f64, f64)>,
}

impl LevelEcdf {
    /// The distribution of counted values in milliseconds, ascending: thinned, but never of its ends.
    pub fn of(level: usize, metric: Metric, counts: impl Iterator<Item = (f64, u64)>) -> LevelEcdf {
        let counts: Vec<(f64, u64)> = counts.filter(|&(_, num)| num > 0).collect();
        let total: u64 = counts.iter().map(|&(_, num)| num).sum();
        let mut seen = 0;
        let mut told = 0.0;
        let mut points = Vec::new();
        for (idx, &(value, num)) in counts.iter().enumerate() {
            seen += num;
            let share = seen as f64 / total as f64;
            let is_end = idx == 0 || idx + 1 == counts.len();
            if is_end || share - told >= 1.0 / ECDF_POINTS_MAX as f64 {
                points.push((value, share));
                told = share;
            }
        }
        LevelEcdf {
            level,
            metric,
            points,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_its_ends_and_its_shape_when_thinned() {
        let values = (1..=100_000).map(|value| (f64::from(value), 1));
        let ecdf = LevelEcdf::of(0, Metric::Ttft, values);
        assert!(
            ecdf.points.len() <= ECDF_POINTS_MAX + 2,
            "{}",
            ecdf.points.len()
        );
        assert_eq!(ecdf.points.first(), Some(&(1.0, 1e-5)));
        assert_eq!(ecdf.points.last(), Some(&(100_000.0, 1.0)));
        for (value, share) in ecdf.points {
            assert!((share - value / 100_000.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_distribution_of_nothing_has_no_points() {
        assert_eq!(LevelEcdf::of(0, Metric::Itl, std::iter::empty()).points, []);
    }
}
