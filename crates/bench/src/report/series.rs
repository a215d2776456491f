//! Curves of a run that are too long for its summary: `series.json`, schema `fulcrum.bench.series/1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::sample::{GapSketch, LevelId, Row};
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

/// Collects what distributions are drawn from, level by level: two sketches each, whatever the number of requests.
///
/// All whole answers count, those of the warm-up too: a plot shows what a window leaves out.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    levels: BTreeMap<LevelId, [GapSketch; 2]>,
}

impl Curves {
    /// A request has ended.
    pub fn take(&mut self, row: &Row) {
        let [ttft, itl] = self.levels.entry(row.level).or_default();
        if let Some(value) = row.ttft {
            ttft.add(value);
        }
        itl.merge(&row.gaps);
    }

    /// The distributions so far.
    pub fn ecdf(&self) -> Vec<LevelEcdf> {
        let metrics = [Metric::Ttft, Metric::Itl];
        let levels = self.levels.iter().flat_map(|(level, sketches)| {
            metrics
                .iter()
                .zip(sketches)
                .map(|(&metric, sketch)| LevelEcdf::of(level.0 as usize, metric, in_ms(sketch)))
        });
        levels.filter(|ecdf| !ecdf.points.is_empty()).collect()
    }
}

fn in_ms(sketch: &GapSketch) -> impl Iterator<Item = (f64, u64)> {
    let buckets = sketch.buckets();
    buckets.map(|(bucket, num)| (GapSketch::middle(bucket) * 1e3, num))
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
    /// The curves of a run that took `end_s` seconds: a point a second, or 1,200 points if it took longer.
    pub fn of(ledger: &Ledger, end_s: f64, curves: &Curves) -> Series {
        // A second or two of a run are a picture, too.
        let num = (end_s.ceil() as usize).clamp(10, TIMELINE_POINTS_MAX);
        let half = end_s / num as f64 / 2.0;
        let moments = match end_s > 0.0 {
            true => ledger.moments(0.0, end_s, num),
            false => Vec::new(),
        };
        let timeline = moments.iter().map(|moment| TimelinePoint {
            at_s: moment.at - half,
            tokens_per_s: moment.tokens_per_s,
            requests_per_s: moment.requests_per_s,
            in_flight: moment.in_flight,
        });
        Series {
            timeline: timeline.collect(),
            ecdf: curves.ecdf(),
            ..Series::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerConfig;
    use crate::observe::Status;
    use crate::sample::{AskId, ClassId};
    use crate::slo::Slo;
    use crate::workload::Class;

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

    fn row(level: u32, ttft: f64, gaps: &[f64]) -> Row {
        let mut sketch = GapSketch::default();
        gaps.iter().for_each(|&gap| sketch.add(gap));
        Row {
            id: AskId {
                conversation: 0,
                turn: 0,
            },
            level: LevelId(level),
            class: ClassId(0),
            status: Status::Ok,
            due: 0.0,
            sent: 0.0,
            ended: 1.0,
            connect: None,
            queue: None,
            ttft: Some(ttft),
            ttfo: None,
            e2e: None,
            tpot: None,
            residual: None,
            num_prompt: None,
            num_cached: None,
            num_output: None,
            num_prompt_wanted: None,
            num_prompt_shared: 0,
            num_output_wanted: None,
            gaps: sketch,
        }
    }

    #[test]
    fn distributions_are_of_their_level_and_in_ms() {
        let mut curves = Curves::default();
        curves.take(&row(0, 0.2, &[0.02, 0.04]));
        curves.take(&row(1, 0.4, &[]));
        curves.take(&row(1, 0.8, &[]));
        let ecdf = curves.ecdf();
        let kinds: Vec<(usize, Metric, usize)> = ecdf
            .iter()
            .map(|ecdf| (ecdf.level, ecdf.metric, ecdf.points.len()))
            .collect();
        assert_eq!(
            kinds,
            [
                (0, Metric::Ttft, 1),
                (0, Metric::Itl, 2),
                (1, Metric::Ttft, 2)
            ]
        );
        let (ms, share) = ecdf[2].points[0];
        assert!(
            (ms / 400.0 - 1.0).abs() < 0.006 && share == 0.5,
            "{ms} {share}"
        );
    }

    #[test]
    fn a_run_of_no_time_has_no_timeline() {
        let ledger = Ledger::new(LedgerConfig {
            classes: vec![Class {
                name: "default".to_owned(),
                slo: Slo::default(),
                shared_share: None,
                share: 1.0,
                arrivals: None,
            }],
            slo: Slo::default(),
            seed: 1,
        });
        assert_eq!(
            Series::of(&ledger, 0.0, &Curves::default()),
            Series::default()
        );
        let series = Series::of(&ledger, 7_200.0, &Curves::default());
        assert_eq!(series.timeline.len(), TIMELINE_POINTS_MAX);
        assert_eq!(series.timeline[0].at_s, 3.0);
    }
}
