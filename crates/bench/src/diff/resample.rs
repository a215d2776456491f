//! Figures of resampled conversations, and of resampled blocks of time.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Measure;
use super::pair::{Compared, Half};
use crate::sample::{GapSketch, Row};

/// One figure on both sides, and what it could have been.
#[derive(Clone, Debug, Default)]
pub(super) struct Ratio {
    /// In ms or a second; none if nothing was measured.
    pub(super) a: Option<f64>,
    pub(super) b: Option<f64>,
    /// B over A of each replicate, ascending.
    pub(super) ratios: Vec<f64>,
    /// B minus A of each replicate, ascending.
    pub(super) differences: Vec<f64>,
}

/// Replicates at most and at least; in between, as many as keep the work at [`WORK`] values.
const NUM_REPLICATES: (usize, usize) = (200, 1_000);
const WORK: usize = 20_000_000;
/// Blocks that a steady window is cut into.
const NUM_BLOCKS: usize = 20;

/// Mean, p50, p95 and p99 of a metric of times, and the requests that they rest on (of the side with fewer).
pub(super) fn times(compared: &Compared<'_>, metric: Measure, seed: u64) -> ([Ratio; 4], usize) {
    let a = Values::of(&compared.a, metric);
    let b = Values::of(&compared.b, metric);
    let num = a.num_requests.min(b.num_requests);
    let mut ratios = <[Ratio; 4]>::default();
    if num == 0 {
        return (ratios, 0);
    }
    let ones = |half: &Half<'_>| vec![1; half.num_conversations];
    let (told_a, told_b) = (a.stats(&ones(&compared.a)), b.stats(&ones(&compared.b)));
    for (idx, ratio) in ratios.iter_mut().enumerate() {
        (ratio.a, ratio.b) = (
            told_a.map(|stats| stats[idx]),
            told_b.map(|stats| stats[idx]),
        );
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let num_values = a.sorted.len() + b.sorted.len();
    for _ in 0..(WORK / num_values.max(1)).clamp(NUM_REPLICATES.0, NUM_REPLICATES.1) {
        let counts_a = drawn(&mut rng, compared.a.num_conversations);
        let replicate = if compared.is_paired() {
            // The same conversations on both sides: what is common to them drops out of the ratio.
            (a.stats(&counts_a), b.stats(&counts_a))
        } else {
            let counts_b = drawn(&mut rng, compared.b.num_conversations);
            (a.stats(&counts_a), b.stats(&counts_b))
        };
        if let (Some(of_a), Some(of_b)) = replicate {
            for (idx, ratio) in ratios.iter_mut().enumerate() {
                ratio.push(of_a[idx], of_b[idx]);
            }
        }
    }
    ratios.iter_mut().for_each(Ratio::sort);
    (ratios, num)
}

/// A rate: the summaries' own, with the spread of blocks in which requests ended.
pub(super) fn rates(compared: &Compared<'_>, metric: Measure, seed: u64) -> Ratio {
    let rate = |half: &Half<'_>| match metric {
        Measure::Throughput => half.level.output_tokens_per_s,
        _ => Some(half.level.requests_per_s),
    };
    let mut ratio = Ratio {
        a: rate(&compared.a),
        b: rate(&compared.b),
        ..Ratio::default()
    };
    let (Some(a), Some(b)) = (ratio.a, ratio.b) else {
        return ratio;
    };
    let blocks_a = blocks(&compared.a, metric);
    let blocks_b = blocks(&compared.b, metric);
    let (mean_a, mean_b) = (mean(&blocks_a), mean(&blocks_b));
    if mean_a <= 0.0 || mean_b <= 0.0 {
        return ratio;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..NUM_REPLICATES.1 {
        let of_a = a * resampled_mean(&blocks_a, &mut rng) / mean_a;
        let of_b = b * resampled_mean(&blocks_b, &mut rng) / mean_b;
        ratio.push(of_a, of_b);
    }
    ratio.sort();
    ratio
}

impl Ratio {
    fn push(&mut self, a: f64, b: f64) {
        self.differences.push(b - a);
        if a > 0.0 {
            self.ratios.push(b / a);
        }
    }

    fn sort(&mut self) {
        self.ratios.sort_by(f64::total_cmp);
        self.differences.sort_by(f64::total_cmp);
    }
}

/// How often each of `num` conversations is drawn.
fn drawn(rng: &mut ChaCha8Rng, num: usize) -> Vec<u32> {
    let mut counts = vec![0; num];
    for _ in 0..num {
        counts[below(rng, num)] += 1;
    }
    counts
}

fn below(rng: &mut ChaCha8Rng, num: usize) -> usize {
    // The high word of a product: without a division, and even to one in 2^64 / num.
    ((u128::from(rng.next_u64()) * num as u128) >> 64) as usize
}

/// Values in ms, ascending, so that any resample of them is sorted too.
struct Values {
    sorted: Vec<Value>,
    num_requests: usize,
}

struct Value {
    ms: f64,
    conversation: usize,
    /// Gaps of one size in one request; 1 of the other metrics.
    num: u64,
}

impl Values {
    fn of(half: &Half<'_>, metric: Measure) -> Values {
        let mut sorted = Vec::new();
        let mut num_requests = 0;
        for &(conversation, row) in &half.answers {
            let before = sorted.len();
            let value = |seconds: f64, num: u64| Value {
                ms: seconds * 1e3,
                conversation,
                num,
            };
            match metric {
                Measure::Itl => sorted.extend(
                    row.gaps
                        .buckets()
                        .map(|(idx, num)| value(GapSketch::middle(idx), num)),
                ),
                _ => sorted.extend(time_of(row, metric).map(|seconds| value(seconds, 1))),
            }
            num_requests += usize::from(sorted.len() > before);
        }
        sorted.sort_by(|left, right| left.ms.total_cmp(&right.ms));
        Values {
            sorted,
            num_requests,
        }
    }

    /// Mean, p50, p95 and p99 with conversation `i` taken `counts[i]` times; none if nothing is left.
    fn stats(&self, counts: &[u32]) -> Option<[f64; 4]> {
        let times = |value: &Value| u64::from(counts[value.conversation]) * value.num;
        let total: u64 = self.sorted.iter().map(times).sum();
        let last = total.checked_sub(1)?;
        let sum: f64 = self
            .sorted
            .iter()
            .map(|value| value.ms * times(value) as f64)
            .sum();
        let mut ranks = [0.5, 0.95, 0.99]
            .map(|q| q * last as f64)
            .into_iter()
            .peekable();
        let mut told = [sum / total as f64, 0.0, 0.0, 0.0];
        let (mut seen, mut before, mut idx) = (0, 0.0, 1);
        for value in &self.sorted {
            let num = times(value);
            if num == 0 {
                continue;
            }
            seen += num;
            // Ranks up to `seen - 1` are this value; between it and the rank before, it is a line.
            while let Some(rank) = ranks.next_if(|&rank| rank <= (seen - 1) as f64) {
                let first = (seen - num) as f64;
                let share = (rank - (first - 1.0)).min(1.0);
                told[idx] = before + (value.ms - before) * share;
                idx += 1;
            }
            before = value.ms;
        }
        Some(told)
    }
}

fn time_of(row: &Row, metric: Measure) -> Option<f64> {
    match metric {
        Measure::Ttft => row.ttft,
        Measure::Tpot => row.tpot,
        Measure::E2e => row.e2e,
        Measure::Itl | Measure::Throughput | Measure::Requests => None,
    }
}

/// Requests, or tokens of requests, that ended in each block of the steady window.
fn blocks(half: &Half<'_>, metric: Measure) -> Vec<f64> {
    let mut blocks = vec![0.0; NUM_BLOCKS];
    let block_s = half.level.steady_s / NUM_BLOCKS as f64;
    for &(since, row) in &half.ended {
        let amount = match metric {
            Measure::Throughput => row.num_output.unwrap_or(0) as f64,
            _ => 1.0,
        };
        let idx = (since / block_s) as usize;
        blocks[idx.min(NUM_BLOCKS - 1)] += amount;
    }
    blocks
}

fn resampled_mean(blocks: &[f64], rng: &mut ChaCha8Rng) -> f64 {
    let sum: f64 = blocks
        .iter()
        .map(|_| blocks[below(rng, blocks.len())])
        .sum();
    sum / blocks.len() as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
