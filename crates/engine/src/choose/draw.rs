//! Draws one of the candidates.
//!
//! The uniform number is a function of (seed, answer index): the generator is started anew and
//! wound to that index, so there is nothing to save when a sequence is preempted and nothing
//! that a neighbour could advance (case D2).
//!
//! Source: ChaCha as a counter-based generator, Bernstein 2008, <https://cr.yp.to/chacha.html>.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::filter::{self, Candidate};
use crate::request::TokenId;

/// A number in `[0, 1)`, the same for the same arguments on every machine.
pub(super) fn uniform(seed: u64, answer_idx: u32) -> f64 {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    // A draw takes one u64: two 32-bit words.
    generator.set_word_pos(2 * u128::from(answer_idx));
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (generator.next_u64() >> 11) as f64 * STEP
}

/// The candidate at share `uniform` of the total weight, walking in the given order.
///
/// # Panics
///
/// If there are no candidates.
pub(super) fn pick(candidates: &[Candidate], uniform: f64) -> TokenId {
    let mut left = uniform * filter::sum(candidates);
    for candidate in candidates {
        left -= f64::from(candidate.weight);
        if left < 0.0 {
            return TokenId(candidate.id);
        }
    }
    // Rounding let the walk end a hair before the total.
    let last = candidates
        .iter()
        .rev()
        .find(|candidate| candidate.weight > 0.0);
    TokenId(last.expect("the heaviest candidate weighs 1").id)
}
