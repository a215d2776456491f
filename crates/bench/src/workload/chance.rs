//! One generator for each decision, named by what it decides.
//!
//! The one idea: nothing is drawn from a generator that somebody else draws from, too. A decision's generator is a
//! function of (workload, seed, purpose, numbers), so it does not matter who asks first, and a decision added later
//! leaves the others as they are.
//!
//! Not here: arrivals, which do follow each other (`arrival`).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64;

/// What is decided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Class = 1,
    Burst,
    Lengths,
    Words,
    Prefix,
    Nonce,
    Block,
    Order,
}

/// Where all chance of a workload comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// The workload's hash.
    pub(super) workload: u64,
    /// The run's seed.
    pub(super) seed: u64,
}

impl Chance {
    /// The generator of one decision.
    pub(super) fn generator(self, purpose: Purpose, numbers: [u64; 2]) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.bits(purpose, numbers))
    }

    /// 64 bits for one decision.
    pub(super) fn bits(self, purpose: Purpose, numbers: [u64; 2]) -> u64 {
        let words = [
            self.workload,
            self.seed,
            purpose as u64,
            numbers[0],
            numbers[1],
        ];
        let mut bytes = [0; 40];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        xxh3_64(&bytes)
    }

    /// One number in [0, 1) for one decision.
    pub(super) fn uniform(self, purpose: Purpose, numbers: [u64; 2]) -> f64 {
        unit(self.bits(purpose, numbers))
    }

    /// The same chance, but for texts: another salt gives other words.
    pub(super) fn salted(self, salt: u64) -> Chance {
        Chance {
            seed: self.seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            ..self
        }
    }
}

/// The next number in [0, 1).
pub(super) fn next_unit(generator: &mut ChaCha8Rng) -> f64 {
    unit(generator.next_u64())
}

/// The next number below `bound`, which is not 0. Its bias is below `bound / 2^64`.
pub(super) fn next_below(generator: &mut ChaCha8Rng, bound: usize) -> usize {
    ((u128::from(generator.next_u64()) * bound as u128) >> 64) as usize
}

/// The upper 53 bits as a fraction.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
