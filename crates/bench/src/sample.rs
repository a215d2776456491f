//! One request, as the run saw it: what was asked, when, and what came of it.
//!
//! A [`Sample`] is whole, with every arrival; it lives until it is written down. A [`Row`] is what statistics
//! need of it, in a size that does not depend on the length of the answer.
//!
//! All times are seconds: moments since the run began, spans as such.

use serde::{Deserialize, Serialize};

use crate::observe::{Flag, Record, Status};
use crate::workload::OutputLength;

/// Which level of load a request belongs to: the one during which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LevelId(pub u32);

/// Which class of its workload: an index into [`crate::workload::Workload::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassId(pub u16);

/// Names a request within a run. The same seed, workload and level ask the same under the same name, so two runs pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AskId {
    /// The conversation.
    pub conversation: u64,
    /// Its turn, from 0.
    pub turn: u32,
}

/// How its load was paced: latency counts from when a request was due, and only an open loop has due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Users who wait for an answer: latencies begin when a request is sent.
    Closed,
    /// Arrivals that wait for nobody.
    Open,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which.
    pub id: AskId,
    /// During which level it was sent.
    pub level: LevelId,
    /// Of which class.
    pub class: ClassId,
    /// How its load was paced.
    pub pacing: Pacing,
    /// When it should have been sent: by the schedule, or when its user had thought after the answer before.
    pub due: f64,
    /// How many seconds it waited for a place, because as many requests were in flight as may be.
    pub held: f64,
    /// When it was handed to its connection, or to what opens one.
    pub handed: f64,
    /// When its first byte was handed to the socket (or would have been).
    pub sent: f64,
    /// When the books were told of it, which is just before that: they close what they opened.
    pub told: f64,
    /// How long its connection took to open; none if it was there already.
    pub connect: Option<f64>,
    /// Prompt tokens as the workload meant them, if it knows.
    pub num_prompt_wanted: Option<u64>,
    /// Of those, shared with other requests by declaration.
    pub num_prompt_shared: u64,
    /// Answer tokens as the workload meant them.
    pub num_output_wanted: Option<u64>,
    /// Whether it meant exactly as many.
    pub output: OutputLength,
    /// What came. Its times are since `sent`.
    pub record: Record,
}

impl Sample {
    /// By how many seconds the client was late: from due until it was handed over, less the wait for a place, which is
    /// the bound that the user set, and not the connecting, which takes two sides.
    pub fn lag(&self) -> f64 {
        (self.handed - self.due - self.held).max(0.0)
    }

    /// Seconds before `sent` at which latencies begin: users who wait for an answer feel nothing before they ask.
    pub fn waited(&self) -> f64 {
        match self.pacing {
            Pacing::Closed => 0.0,
            Pacing::Open => (self.sent - self.due).max(0.0),
        }
    }

    /// What statistics need.
    pub fn row(&self) -> Row {
        let record = &self.record;
        let is_ok = record.status == Status::Ok;
        let waited = self.waited();
        let since_due = |at: std::time::Duration| waited + at.as_secs_f64();
        let mut gaps = GapSketch::default();
        if is_ok && !record.flags.contains(&Flag::Buffered) {
            record.token_gaps().for_each(|gap| gaps.add(gap));
        }
        Row {
            id: self.id,
            level: self.level,
            class: self.class,
            status: record.status,
            due: self.due,
            held: self.held,
            lag: self.lag(),
            sent: self.sent,
            ended: self.sent + record.ended.as_secs_f64(),
            connect: self.connect,
            queue: record.queue.map(|queue| queue.as_secs_f64()),
            ttft: record.first_token.filter(|_| is_ok).map(since_due),
            ttfo: record.first_answer.filter(|_| is_ok).map(since_due),
            e2e: record.last_token.filter(|_| is_ok).map(since_due),
            tpot: record.tpot().filter(|_| is_ok),
            residual: gaps
                .quantile(0.5)
                .and_then(|median| record.residual(median))
                .filter(|_| is_ok),
            num_prompt: record.num_prompt_tokens,
            num_cached: record.num_cached_tokens,
            num_output: record.num_tokens,
            num_prompt_wanted: self.num_prompt_wanted,
            num_prompt_shared: self.num_prompt_shared,
            num_output_wanted: self.num_output_wanted,
            gaps,
        }
    }
}

/// One request, in constant size.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub id: AskId,
    /// During which level it was sent.
    pub level: LevelId,
    /// Of which class.
    pub class: ClassId,
    /// How it ended.
    pub status: Status,
    /// When it should have been sent.
    pub due: f64,
    /// How long it waited for a place.
    pub held: f64,
    /// How late the client was: see [`Sample::lag`].
    pub lag: f64,
    /// When it was.
    pub sent: f64,
    /// When its last byte was there, or it was given up.
    pub ended: f64,
    /// How long its connection took to open, if it was opened for it.
    pub connect: Option<f64>,
    /// How long the server says that it queued.
    pub queue: Option<f64>,
    /// From due (open) or sent (closed) to the first content. Like all latencies: only of whole answers.
    pub ttft: Option<f64>,
    /// The same, to the first content that is not reasoning.
    pub ttfo: Option<f64>,
    /// The same, to the last content.
    pub e2e: Option<f64>,
    /// Per token after the first event.
    pub tpot: Option<f64>,
    /// What a steady stream at its own median gap does not explain of its E2E.
    pub residual: Option<f64>,
    /// Prompt tokens by the server's count.
    pub num_prompt: Option<u64>,
    /// Of those, found in a cache.
    pub num_cached: Option<u64>,
    /// Answer tokens.
    pub num_output: Option<u64>,
    /// Prompt tokens as meant.
    pub num_prompt_wanted: Option<u64>,
    /// Of those, shared by declaration.
    pub num_prompt_shared: u64,
    /// Answer tokens as meant.
    pub num_output_wanted: Option<u64>,
    /// Gaps between its tokens.
    pub gaps: GapSketch,
}

/// Gaps between tokens, counted by size: buckets grow by 1 %, so a quantile is right within 0.5 %.
///
/// ```text
/// bucket 0: below 1 us (tokens of one read) | bucket i: 1 us * 1.01^(i-1) up to 1 us * 1.01^i | last: above 5,000 s
/// ```
///
/// Only buckets that hold something are kept, sorted: some tens for one answer, at most [`GapSketch::BUCKETS`] ever.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GapSketch {
    counts: Vec<(u16, u32)>,
}

const SMALLEST_S: f64 = 1e-6;
const GROWTH: f64 = 1.01;

impl GapSketch {
    /// Buckets that there are.
    pub const BUCKETS: usize = 2_250;

    /// Counts one gap in seconds.
    pub fn add(&mut self, gap: f64) {
        self.add_many(bucket_of(gap), 1);
    }

    /// Counts everything that `other` has counted.
    ///
    /// # Cost
    ///
    /// Linear in the buckets of `other`, times a search; for many sketches see [`GapSketch::count_into`].
    pub fn merge(&mut self, other: &GapSketch) {
        for &(bucket, num) in &other.counts {
            self.add_many(bucket, num);
        }
    }

    /// Adds the counts to a dense array of [`GapSketch::BUCKETS`], `times` over: what a bootstrap resamples with.
    ///
    /// # Panics
    ///
    /// If `dense` is shorter.
    pub fn count_into(&self, dense: &mut [u64], times: u64) {
        for &(bucket, num) in &self.counts {
            dense[usize::from(bucket)] += u64::from(num) * times;
        }
    }

    /// Buckets in use with their counts, smallest gap first.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        self.counts
            .iter()
            .map(|&(bucket, num)| (usize::from(bucket), u64::from(num)))
    }

    /// How many gaps were counted.
    pub fn len(&self) -> u64 {
        self.counts.iter().map(|&(_, num)| u64::from(num)).sum()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The gap in seconds that a share `q` of gaps does not exceed.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        quantile_of_counts(self.buckets(), self.len(), q)
    }

    /// The gap in seconds that bucket `idx` stands for: its geometric middle.
    pub fn middle(idx: usize) -> f64 {
        match idx {
            0 => 0.0,
            _ => SMALLEST_S * GROWTH.powf(idx as f64 - 0.5),
        }
    }

    fn add_many(&mut self, bucket: u16, num: u32) {
        match self.counts.binary_search_by_key(&bucket, |&(idx, _)| idx) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(num),
            Err(at) => self.counts.insert(at, (bucket, num)),
        }
    }
}

/// The gap that a share `q` of `total` counted gaps does not exceed; none if there are none.
pub fn quantile_of_counts(
    buckets: impl Iterator<Item = (usize, u64)>,
    total: u64,
    q: f64,
) -> Option<f64> {
    let rank = (q * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (idx, num) in buckets {
        seen += num;
        if num > 0 && seen >= rank {
            return Some(GapSketch::middle(idx));
        }
    }
    None
}

fn bucket_of(gap: f64) -> u16 {
    if gap.is_nan() || gap < SMALLEST_S {
        return 0;
    }
    // A float beyond the integers becomes the largest of them.
    let idx = ((gap / SMALLEST_S).ln() / GROWTH.ln()).floor() as usize;
    idx.saturating_add(1).min(GapSketch::BUCKETS - 1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_knows_a_gap_within_half_a_percent() {
        for gap in [2e-6, 1.5e-3, 0.02, 0.8, 60.0, 4_000.0] {
            let mut sketch = GapSketch::default();
            sketch.add(gap);
            let told = sketch.quantile(0.5).expect("one gap");
            assert!((told / gap - 1.0).abs() < 0.0051, "{gap} told as {told}");
        }
    }

    #[test]
    fn gaps_within_one_read_are_zero_and_count() {
        let mut sketch = GapSketch::default();
        sketch.add(0.0);
        sketch.add(0.0);
        sketch.add(0.02);
        assert_eq!((sketch.len(), sketch.quantile(0.5)), (3, Some(0.0)));
    }

    #[test]
    fn merged_sketches_are_the_sketch_of_all() {
        let (mut left, mut right, mut all) = <(GapSketch, GapSketch, GapSketch)>::default();
        for idx in 1..200 {
            let gap = f64::from(idx) * 1e-3;
            if idx % 3 == 0 { &mut left } else { &mut right }.add(gap);
            all.add(gap);
        }
        left.merge(&right);
        assert_eq!(left, all);
    }

    #[test]
    fn a_gap_of_any_size_has_a_bucket() {
        for gap in [f64::NAN, -1.0, f64::INFINITY, 1e300] {
            assert!(usize::from(bucket_of(gap)) < GapSketch::BUCKETS);
        }
    }
}
