//! Draws one token by the weights.
//!
//! The uniform number is a function of (seed, answer index): the generator is started anew and
//! wound to that index, so there is nothing to save when a sequence is preempted and nothing
//! that a neighbour could advance (case D2).
//!
//! Source: ChaCha as a counter-based generator, Bernstein 2008, <https://cr.yp.to/chacha.html>.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::request::TokenId;

/// A number in `[0, 1)`, the same for the same arguments on every machine.
pub(super) fn uniform(seed: u64, answer_idx: u32) -> f64 {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    // A draw takes one u64: two 32-bit words.
    generator.set_word_pos(2 * u128::from(answer_idx));
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (generator.next_u64() >> 11) as f64 * STEP
}

/// Weights added up before the walk looks at single ones. Short enough that adding in f32 costs
/// four roundings a lane; the blocks are added in f64.
const BLOCK: usize = 64;

/// The token at share `uniform` of the total weight, walking by ascending id.
///
/// # Panics
///
/// If all weights are 0.
pub(super) fn pick(weights: &[f32], uniform: f64, block_sums: &mut Vec<f64>) -> TokenId {
    block_sums.clear();
    block_sums.extend(weights.chunks(BLOCK).map(|block| f64::from(sum(block))));
    let mut left = uniform * block_sums.iter().sum::<f64>();
    let mut start = 0;
    for &block_sum in &block_sums[..block_sums.len() - 1] {
        if left < block_sum {
            break;
        }
        left -= block_sum;
        start += BLOCK;
    }
    for (idx, &weight) in weights.iter().enumerate().skip(start) {
        left -= f64::from(weight);
        if left < 0.0 {
            return TokenId(idx as u32);
        }
    }
    // Rounding let the walk end a hair before the total.
    let last = weights.iter().rposition(|&weight| weight > 0.0);
    TokenId(last.expect("the heaviest token weighs 1") as u32)
}

/// Sixteen sums side by side, as vector instructions do it.
fn sum(block: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    for chunk in block.chunks(lanes.len()) {
        for (lane, &weight) in lanes.iter_mut().zip(chunk) {
            *lane += weight;
        }
    }
    lanes.iter().sum()
}
