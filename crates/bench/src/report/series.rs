//! Curves of a run that are too long for its summary: `series.json`, schema `fulcrum.bench.series/1`.

use serde::{Deserialize, Serialize};

use crate::slo::Metric;

/// The schema's name.
pub const SERIES_SCHEMA: &str = "fulcrum.bench.series/1";

/// Points that a distribution keeps: more than a plot has pixels for a step.
const ECDF_POINTS_MAX: usize = 400;

/// Points that a timeline keeps.
const TIMELINE_POINTS_MAX: usize = 1_200;

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
    /// Tokens (or events, if nobody counts tokens) that arrived in it, a second.
    pub tokens_per_s: f64,
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

impl Series {
    /// Joins neighbours until the timeline has at most 1,200 points: a day of seconds is a plot, not a list.
    pub fn thin(&mut self) {
        let together = self.timeline.len().div_ceil(TIMELINE_POINTS_MAX).max(1);
        let mean = |points: &[TimelinePoint], of: fn(&TimelinePoint) -> f64| {
            points.iter().map(of).sum::<f64>() / points.len() as f64
        };
        self.timeline = self
            .timeline
            .chunks(together)
            .map(|points| TimelinePoint {
                at_s: mean(points, |point| point.at_s),
                tokens_per_s: mean(points, |point| point.tokens_per_s),
                in_flight: mean(points, |point| point.in_flight),
            })
            .collect();
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

    #[test]
    fn a_thinned_timeline_keeps_the_tokens_that_arrived() {
        let points = (0..6_000).map(|idx| TimelinePoint {
            at_s: f64::from(idx),
            tokens_per_s: f64::from(idx % 7),
            in_flight: 3.0,
        });
        let mut series = Series {
            timeline: points.collect(),
            ..Series::default()
        };
        let mean = |series: &Series| {
            let sum: f64 = series.timeline.iter().map(|point| point.tokens_per_s).sum();
            sum / series.timeline.len() as f64
        };
        let before = mean(&series);
        series.thin();
        assert_eq!(series.timeline.len(), TIMELINE_POINTS_MAX);
        assert!((mean(&series) - before).abs() < 1e-9);
        assert!(series.timeline.iter().all(|point| point.in_flight == 3.0));
    }
}
