//! From logits to the few tokens that may be drawn: top-k, weights, top-p, min-p.
//!
//! The one idea: do not sort, find the cut. Top-k and top-p both keep a beginning of the
//! order "heaviest first, then lowest id"; a selection finds the last token kept in linear
//! time, and one more pass keeps the rest in order of ids, so that what is drawn does
//! not depend on how the selection shuffled.
//!
//! Source: top-p, Holtzman et al. 2019, <https://arxiv.org/abs/1904.09751>; min-p, Nguyen
//! et al. 2024, <https://arxiv.org/abs/2407.01082>.

use std::cmp::Ordering;

use crate::request::TokenId;

/// Tokens whose weight is below `e^-REACH` of the largest are never drawn. Even 262144 of them
/// would have a share of 4e-9, less than rounding moves the shares of the others.
const REACH: f32 = 32.0;

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// First the logit, then ([`weigh`]) the probability times an unknown constant.
    pub(crate) weight: f32,
    pub(crate) id: u32,
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
fn max(row: &[f32]) -> f32 {
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

/// The `k` largest of `row`, by ascending id. `spare` is used up.
///
/// Collects what beats the `k`-th largest so far and cuts that back whenever it has doubled:
/// for rows in random order about `k * ln(vocab / k)` tokens are ever moved.
pub(super) fn top_k(row: &[f32], k: usize, kept: &mut Vec<Candidate>, spare: &mut Vec<Candidate>) {
    let best = spare;
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
    kept.clear();
    if best.len() > k {
        cut_to(best, k);
    }
    kept.extend_from_slice(best);
    kept.sort_unstable_by_key(|candidate| candidate.id);
}

/// Keeps the `k` heaviest, in any order, and returns the lightest of them.
fn cut_to(candidates: &mut Vec<Candidate>, k: usize) -> Candidate {
    let (_, last, _) = candidates.select_nth_unstable_by(k - 1, Candidate::heaviest_first);
    let last = *last;
    candidates.truncate(k);
    last
}

/// Every token of `row` that could be drawn at all, by ascending id.
pub(super) fn within_reach(row: &[f32], max: f32, temperature: f32, kept: &mut Vec<Candidate>) {
    let least = max - REACH * temperature;
    kept.clear();
    let tokens = row.iter().enumerate();
    kept.extend(
        tokens
            .filter(|&(_, &logit)| logit >= least && logit > f32::NEG_INFINITY)
            .map(|(idx, &logit)| Candidate {
                weight: logit,
                id: idx as u32,
            }),
    );
}

/// Turns logits into weights `e^((logit - max) / temperature)`: the largest gets 1, nothing overflows.
pub(super) fn weigh(candidates: &mut [Candidate], max: f32, temperature: f32) {
    for candidate in candidates {
        candidate.weight = exp_negative((candidate.weight - max) / temperature);
    }
}

/// `e^x` for `x <= 0`, 0 below `-2 * REACH`; relative error below 3e-7.
///
/// Our own, because `f32::exp` may differ between platforms, and a seed promises the same text on
/// each. `x = n ln 2 + r` with `|r| <= ln 2 / 2`, then a Taylor polynomial of degree 7 for `e^r`.
fn exp_negative(x: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves no fraction bits: the sum's last bits are the rounded integer.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clipped = x.max(-2.0 * REACH);
    let shifted = clipped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clipped - n * LN_2_HIGH - n * LN_2_LOW;
    let tail = 1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0));
    let power = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * tail))));
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let scale = f32::from_bits(((exponent + 127) << 23) as u32);
    if x < -2.0 * REACH { 0.0 } else { power * scale }
}

/// Keeps the fewest heaviest candidates whose weights together reach `share` of all; at least one.
/// `spare` is used up.
pub(super) fn top_p(candidates: &mut Vec<Candidate>, share: f32, spare: &mut Vec<Candidate>) {
    let total = sum(candidates);
    let needed = total * f64::from(share);
    // All lighter than this together have less than 1 - share, so the others reach `share` without
    // them. One pass, and of a whole vocabulary seldom more than some hundred remain.
    let dust = (total - needed) / candidates.len() as f64;
    spare.clear();
    spare.extend(
        candidates
            .iter()
            .filter(|candidate| f64::from(candidate.weight) >= dust),
    );
    if let Some(last) = last_needed(spare, needed) {
        candidates.retain(|candidate| candidate.heaviest_first(&last).is_le());
    }
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
        let mass = sum(heavy);
        in_question = if mass >= missing {
            heavy
        } else {
            missing -= mass;
            light
        };
    }
    in_question.first().copied()
}

/// Drops candidates lighter than `share` of the heaviest.
pub(super) fn min_p(candidates: &mut Vec<Candidate>, share: f32) {
    let heaviest = candidates
        .iter()
        .fold(0.0, |heaviest: f32, c| heaviest.max(c.weight));
    candidates.retain(|candidate| candidate.weight >= heaviest * share);
}

/// In f64: the rounding of 262144 additions stays below what a draw can see.
pub(super) fn sum(candidates: &[Candidate]) -> f64 {
    candidates
        .iter()
        .map(|candidate| f64::from(candidate.weight))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_within_its_stated_error() {
        for step in 0..=6400 {
            let x = -step as f32 / 100.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_negative(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "x {x}, error {error}");
        }
        assert_eq!(exp_negative(0.0), 1.0);
        assert_eq!(exp_negative(-0.0), 1.0);
        assert_eq!(exp_negative(f32::MIN), 0.0);
        assert_eq!(exp_negative(f32::NEG_INFINITY), 0.0);
    }
}
