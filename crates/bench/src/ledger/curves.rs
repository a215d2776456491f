//! What a picture shows that a summary does not: the run over time, and whole distributions.

use super::Ledger;
use super::view::{ValueOf, View};
use crate::report::{LevelEcdf, Series, TimelinePoint};
use crate::sample::{GapSketch, LevelId};
use crate::slo::Metric;

/// Stretches that a run is told in.
const NUM_MOMENTS: usize = 600;

impl Ledger {
    /// Levels in the order in which they began.
    pub fn level_ids(&self) -> impl Iterator<Item = LevelId> + use<> {
        (0..self.books.len() as u32).map(LevelId)
    }

    /// The curves of the first `duration_s` seconds.
    ///
    /// # Cost
    ///
    /// Sorts every row.
    pub fn series(&self, duration_s: f64) -> Series {
        let mut series = Series::default();
        let step_s = duration_s / NUM_MOMENTS as f64;
        series.timeline = self
            .moments(0.0, duration_s, NUM_MOMENTS)
            .iter()
            .map(|moment| TimelinePoint {
                at_s: moment.at - step_s / 2.0,
                tokens_per_s: moment.tokens_per_s,
                requests_per_s: moment.requests_per_s,
                in_flight: moment.in_flight,
            })
            .collect();
        for (idx, id) in self.level_ids().enumerate() {
            self.distributions(idx, id, &mut series.ecdf);
        }
        series
    }

    fn distributions(&self, idx: usize, id: LevelId, ecdf: &mut Vec<LevelEcdf>) {
        let window = self.window(id);
        let view = View::of(self.book(id), &window, None);
        let of_answer: [(Metric, ValueOf); 3] = [
            (Metric::Ttft, |answer| answer.row.ttft),
            (Metric::Tpot, |answer| answer.row.tpot),
            (Metric::E2e, |answer| answer.row.e2e),
        ];
        for (metric, value) in of_answer {
            let mut values: Vec<f64> = view.answers().filter_map(value).collect();
            values.sort_by(f64::total_cmp);
            let counts = values.iter().map(|value| (value * 1e3, 1));
            ecdf.push(LevelEcdf::of(idx, metric, counts));
        }
        let mut gaps = vec![0; GapSketch::BUCKETS];
        for answer in view.answers() {
            answer.row.gaps.count_into(&mut gaps, 1);
        }
        let counts = gaps.iter().enumerate();
        let counts = counts.map(|(bucket, &num)| (GapSketch::middle(bucket) * 1e3, num));
        ecdf.push(LevelEcdf::of(idx, Metric::Itl, counts));
    }
}
