//! From logits to weights, and which of them may be drawn: top-k, top-p, min-p.
//!
//! The one idea: do not sort, find the cut. Top-k and top-p both keep a beginning of the
//! order "heaviest first, then lowest id". Finding the last token kept takes linear time, and one
//! more pass clears what comes after it. All stages work on the whole row in place, in the order
//! of ids, so loops are plain enough for the compiler to make vector instructions of them.
//!
//! ```text
//! row   logits ── top-k: others to -inf ── weigh: e^((x - max) / T) ── top-p, min-p: others to 0
//! ```
//!
//! Source: top-p, Holtzman et al. 2019, <https://arxiv.org/abs/1904.09751>; min-p, Nguyen
//! et al. 2024, <https://arxiv.org/abs/2407.01082>.

use std::cmp::Ordering;

use crate::request::TokenId;

/// Tokens whose weight is below `e^-REACH` of the largest are never drawn. Even 262144 of them
/// would have a share of 4e-9, less than rounding moves the shares of the others.
const REACH: f32 = 32.0;

/// A token and its logit or weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    weight: f32,
    id: u32,
}

/// Buffers that all choices share.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    candidates: Vec<Candidate>,
    /// Weight per [`bucket_of`].
    masses: Vec<f64>,
}

impl Candidate {
    /// Heaviest first, lowest id among equals. A total order, as there are no NaNs.
    fn heaviest_first(&self, other: &Candidate) -> Ordering {
        other
            .weight
            .total_cmp(&self.weight)
            .then(self.id.cmp(&other.id))
    }
}

/// The largest number of `row`, which afterwards holds no plus infinity. `None` if there is no
/// number above minus infinity. NaN never wins a comparison, so it counts as minus infinity.
pub(super) fn max_finite(row: &mut [f32]) -> Option<f32> {
    let mut max = max(row);
    if max == f32::INFINITY {
        for logit in row.iter_mut().filter(|logit| **logit == f32::INFINITY) {
            *logit = f32::MAX;
        }
        max = f32::MAX;
    }
    (max > f32::NEG_INFINITY).then_some(max)
}

/// Sixteen maxima side by side: the compiler makes vector instructions of it.
pub(super) fn max(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut chunks = row.chunks_exact(lanes.len());
    for chunk in &mut chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, logit);
        }
    }
    lanes
        .iter()
        .chain(chunks.remainder())
        .copied()
        .fold(f32::NEG_INFINITY, larger)
}

/// The lowest id whose logit is `max`.
pub(super) fn first_of(row: &[f32], max: f32) -> TokenId {
    let idx = row
        .iter()
        .position(|&logit| logit == max)
        .expect("max is one of the row's values");
    TokenId(idx as u32)
}

/// Leaves the `k` largest of `row`, and minus infinity in place of the others.
///
/// Collects what beats the `k`-th largest so far and cuts that back whenever it has doubled:
/// of rows in random order about `k * ln(vocab / k)` tokens are ever moved.
pub(super) fn top_k(row: &mut [f32], k: usize, buffers: &mut Buffers) {
    let best = &mut buffers.candidates;
    best.clear();
    let mut to_beat = f32::NEG_INFINITY;
    let num_collected_max = (2 * k).max(256);
    for (idx, &logit) in row.iter().enumerate() {
        // Not `>=`: an equal logit with a higher id comes later in the order.
        if logit > to_beat {
            best.push(Candidate {
                weight: logit,
                id: idx as u32,
            });
            if best.len() == num_collected_max {
                to_beat = cut_to(best, k).weight;
            }
        }
    }
    // Fewer are left only if fewer are numbers at all.
    if best.len() >= k {
        let last = cut_to(best, k);
        keep_until(row, last, f32::NEG_INFINITY);
    }
}

/// Keeps the `k` heaviest, in any order, and returns the lightest of them.
fn cut_to(candidates: &mut Vec<Candidate>, k: usize) -> Candidate {
    let (_, last, _) = candidates.select_nth_unstable_by(k - 1, Candidate::heaviest_first);
    let last = *last;
    candidates.truncate(k);
    last
}

/// Overwrites with `nothing` what comes after `last` in the order heaviest first, then lowest id.
fn keep_until(row: &mut [f32], last: Candidate, nothing: f32) {
    let (before, after) = row.split_at_mut(last.id as usize + 1);
    for value in before {
        *value = if *value >= last.weight {
            *value
        } else {
            nothing
        };
    }
    for value in after {
        *value = if *value > last.weight {
            *value
        } else {
            nothing
        };
    }
}

/// Turns logits into weights `e^((logit - max) / temperature)`: the largest gets 1, nothing
/// overflows, NaN gets 0.
pub(super) fn weigh(row: &mut [f32], max: f32, temperature: f32) {
    let factor = 1.0 / temperature;
    for value in row {
        *value = exp_within_reach((*value - max) * factor);
    }
}

/// `e^x` for `-REACH <= x <= 0`, else 0; relative error below 3e-7.
///
/// Our own, because `f32::exp` may differ between platforms, and a seed promises the same text on
/// each. `x = n ln 2 + r` with `|r| <= ln 2 / 2`, then a Taylor polynomial of degree 7 for `e^r`.
pub(super) fn exp_within_reach(x: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves no fraction bits: the sum's last bits are the rounded integer.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let tail = 1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0));
    let power = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * tail))));
    // Out of reach the bits are nonsense, and not used.
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    let scale = f32::from_bits(exponent.wrapping_add(127) << 23);
    if x >= -REACH { power * scale } else { 0.0 }
}

/// Leaves the fewest heaviest weights that together reach `share` of all, at least one, and 0 in
/// place of the others.
///
/// Adds the weights up by their leading bits (6000 buckets, in the order of weights), so that only
/// within the bucket where `share` is reached single tokens are compared.
pub(super) fn top_p(row: &mut [f32], share: f32, buffers: &mut Buffers) {
    let Buffers { candidates, masses } = buffers;
    masses.clear();
    masses.resize(bucket_of(1.0) + 1, 0.0);
    for &weight in row.iter().filter(|&&weight| weight > 0.0) {
        masses[bucket_of(weight)] += f64::from(weight);
    }
    let total: f64 = masses.iter().sum();
    let mut missing = total * f64::from(share);
    let mut bucket = masses.len() - 1;
    // Rounding must not lead past the lightest bucket.
    while bucket > 0 && masses[bucket] < missing {
        missing -= masses[bucket];
        bucket -= 1;
    }
    candidates.clear();
    let weights = row.iter().enumerate();
    let in_bucket = weights.filter(|&(_, &weight)| weight > 0.0 && bucket_of(weight) == bucket);
    candidates.extend(in_bucket.map(|(idx, &weight)| Candidate {
        weight,
        id: idx as u32,
    }));
    if let Some(last) = last_needed(candidates, missing) {
        keep_until(row, last, 0.0);
    }
}

/// Numbers the weights from `e^-REACH` to 1 in steps of at most 1/128, heavier ones higher: the
/// exponent and the first seven bits of the fraction.
fn bucket_of(weight: f32) -> usize {
    // 2^-47 is the power of two below e^-REACH.
    const LEAST: u32 = (127 - 47) << 7;
    ((weight.to_bits() >> 16).saturating_sub(LEAST)) as usize
}

/// The lightest of the fewest heaviest candidates that together weigh `needed`: halving the
/// part where it must be, 2 n steps in all. `None` if there are no candidates.
///
/// ```text
/// heaviest [ kept, in any order | in question, in any order | left out ]
/// ```
fn last_needed(candidates: &mut [Candidate], needed: f64) -> Option<Candidate> {
    let mut in_question = candidates;
    let mut missing = needed;
    while in_question.len() > 1 {
        let num_heavy = in_question.len().div_ceil(2);
        in_question.select_nth_unstable_by(num_heavy - 1, Candidate::heaviest_first);
        let (heavy, light) = in_question.split_at_mut(num_heavy);
        let mass: f64 = heavy.iter().map(|heavy| f64::from(heavy.weight)).sum();
        in_question = if mass >= missing {
            heavy
        } else {
            missing -= mass;
            light
        };
    }
    in_question.first().copied()
}

/// Clears weights below `share` of the heaviest, which is 1.
pub(super) fn min_p(row: &mut [f32], share: f32) {
    for weight in row {
        *weight = if *weight >= share { *weight } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_within_its_stated_error() {
        for step in 0..=3200 {
            let x = -step as f32 / 100.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_within_reach(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "x {x}, error {error}");
        }
        assert_eq!(exp_within_reach(0.0), 1.0);
        assert_eq!(exp_within_reach(-0.0), 1.0);
        assert_eq!(exp_within_reach(f32::MIN), 0.0);
        assert_eq!(exp_within_reach(f32::NEG_INFINITY), 0.0);
    }
}
