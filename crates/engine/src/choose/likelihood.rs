//! How likely tokens were: log-softmax, rank and the likeliest of a row of raw logits.
//!
//! ```text
//! logprob(t) = (logit[t] - max) - ln( sum over ids e^(logit - max) )
//! ```
//!
//! The one idea: one sum per row, added in an order that depends on nothing but the row's length, so
//! a row has the same log-probabilities in every batch and chunk. Not here: what a request does to
//! its logits. These are the model's, before bias, bans, penalties and temperature.

use std::cmp::Ordering;

use super::filter;
use crate::request::{TokenId, TokenLogprobs};

/// Sums side by side. They are f64, so that the order in which they are added up is the only
/// rounding that could differ, and it does not.
const LANES: usize = 8;

impl TokenLogprobs {
    /// Of `token` in the place whose logits are `row`, with the `num_top` likeliest (all, if there are
    /// fewer). Always the same for the same row.
    ///
    /// NaN counts as minus infinity and plus infinity as the largest number, as when choosing. A
    /// token that the model rules out has minus infinity; so has every token of a row without a number.
    ///
    /// # Panics
    ///
    /// If `token` is not in the row.
    ///
    /// # Cost
    ///
    /// Three passes over the row, plus about `num_top * ln(vocab / num_top)` moves; allocates `top` only.
    pub fn of(row: &[f32], token: TokenId, num_top: u32) -> TokenLogprobs {
        let scale = Scale::of(row);
        let own = &row[token.0 as usize];
        let own_idx = token.0 as usize;
        let is_before = |(idx, logit): (usize, &f32)| {
            let order = number(*logit).total_cmp(&number(*own));
            order == Ordering::Greater || (order == Ordering::Equal && idx < own_idx)
        };
        let num_before = row.iter().enumerate().filter(|&it| is_before(it)).count();
        let top = likeliest(row, num_top as usize)
            .into_iter()
            .map(|(id, logit)| (id, scale.logprob(logit)))
            .collect();
        TokenLogprobs {
            token,
            logprob: scale.logprob(*own),
            rank: num_before as u32 + 1,
            top,
        }
    }
}

/// What turns logits of one row into log-probabilities.
#[derive(Clone, Copy, Debug)]
struct Scale {
    max: f32,
    ln_sum: f64,
}

impl Scale {
    fn of(row: &[f32]) -> Scale {
        let max = number(filter::max(row));
        let mut lanes = [0.0_f64; LANES];
        let mut chunks = row.chunks_exact(LANES);
        for chunk in &mut chunks {
            for (lane, &logit) in lanes.iter_mut().zip(chunk) {
                *lane += weight(logit, max);
            }
        }
        for (lane, &logit) in lanes.iter_mut().zip(chunks.remainder()) {
            *lane += weight(logit, max);
        }
        Scale {
            max,
            ln_sum: lanes.iter().sum::<f64>().ln(),
        }
    }

    fn logprob(self, logit: f32) -> f32 {
        let logit = number(logit);
        if logit == f32::NEG_INFINITY {
            return f32::NEG_INFINITY; // Also where `max` is, which leaves no difference to speak of.
        }
        (f64::from(logit) - f64::from(self.max) - self.ln_sum) as f32
    }
}

/// `e^(logit - max)`; 0 for NaN.
fn weight(logit: f32, max: f32) -> f64 {
    // Not `min`, which would make a number of NaN.
    let logit = if logit > f32::MAX { f32::MAX } else { logit };
    f64::from(filter::exp_within_reach(logit - max))
}

/// The number that a logit counts as.
fn number(logit: f32) -> f32 {
    if logit.is_nan() {
        return f32::NEG_INFINITY;
    }
    // Adding 0 makes one zero of the two, which the total order would tell apart.
    logit.min(f32::MAX) + 0.0
}

/// The `num` largest logits, largest first, lowest id first among equals.
fn likeliest(row: &[f32], num: usize) -> Vec<(TokenId, f32)> {
    let num = num.min(row.len());
    let mut best: Vec<(TokenId, f32)> = Vec::with_capacity(num);
    if num == 0 {
        return best;
    }
    for (idx, &logit) in row.iter().enumerate() {
        if best.len() == num {
            // Of equals the one that came first stays. NaN beats nothing.
            if logit.is_nan() || logit <= best[num - 1].1 {
                continue;
            }
            best.pop();
        }
        let logit = number(logit);
        let at = best.partition_point(|&(_, better)| better >= logit);
        best.insert(at, (TokenId(idx as u32), logit));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(num: usize) -> Vec<f32> {
        let mut random = testkit::Random::new(num as u64);
        let mut uniform = || random.below(1 << 20) as f32 / (1 << 20) as f32;
        (0..num).map(|_| uniform() * 30.0 - 12.0).collect()
    }

    /// The definition: sorts everything, sums one by one.
    fn plain(row: &[f32]) -> Vec<(usize, f64)> {
        let max = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|&l| f64::from(l - max).exp()).sum();
        let mut all: Vec<(usize, f64)> = row
            .iter()
            .enumerate()
            .map(|(idx, &logit)| (idx, f64::from(logit - max) - sum.ln()))
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all
    }

    #[test]
    fn logprobs_ranks_and_the_likeliest_are_as_defined() {
        for vocab in [1, 7, 8, 100, 5000] {
            let row = noise(vocab);
            let expected = plain(&row);
            for rank in [0, vocab / 2, vocab - 1] {
                let (idx, logprob) = expected[rank];
                let found = TokenLogprobs::of(&row, TokenId(idx as u32), 20);
                assert_eq!(found.rank as usize, rank + 1);
                assert!((f64::from(found.logprob) - logprob).abs() < 4e-6);
                let ids: Vec<usize> = found.top.iter().map(|(id, _)| id.0 as usize).collect();
                let likeliest: Vec<usize> = expected.iter().take(20).map(|it| it.0).collect();
                assert_eq!(ids, likeliest, "vocabulary of {vocab}");
                for ((_, found), (_, logprob)) in found.top.iter().zip(&expected) {
                    assert!((f64::from(*found) - logprob).abs() < 4e-6);
                }
            }
        }
    }

    #[test]
    fn of_equals_the_lowest_id_comes_first() {
        let row = [1.0, 2.0, 0.0, 2.0, -0.0, 2.0];
        let found = TokenLogprobs::of(&row, TokenId(3), 5);
        assert_eq!(found.rank, 2);
        let ids: Vec<u32> = found.top.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [1, 3, 5, 0, 2]);
        assert_eq!(TokenLogprobs::of(&row, TokenId(4), 0).rank, 6);
        assert_eq!(TokenLogprobs::of(&row, TokenId(2), 0).rank, 5);
    }

    /// Case D4.
    #[test]
    fn edge_values_leave_numbers_or_minus_infinity() {
        let nothing = f32::NEG_INFINITY;
        let row = [f32::NAN, 1.0, nothing, f32::INFINITY];
        let found = TokenLogprobs::of(&row, TokenId(3), 4);
        assert_eq!((found.logprob, found.rank), (0.0, 1));
        assert_eq!(found.top[1].0, TokenId(1));
        assert_eq!(TokenLogprobs::of(&row, TokenId(0), 0).logprob, nothing);
        assert_eq!(TokenLogprobs::of(&row, TokenId(0), 0).rank, 3);
        let silent = TokenLogprobs::of(&[nothing; 3], TokenId(1), 1);
        assert_eq!((silent.logprob, silent.rank), (nothing, 2));
        let huge = TokenLogprobs::of(&[3e38, -3e38, 3e38], TokenId(0), 1);
        assert!((huge.logprob + std::f32::consts::LN_2).abs() < 1e-6);
    }
}
