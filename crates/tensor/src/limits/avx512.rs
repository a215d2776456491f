//! AVX-512: 12 sums in registers, for the products of 3 weights with 4 activations.
//!
//! Twelve, because the longest latency among these machines is 6 cycles and the widest issue two a cycle.

use std::arch::x86_64::*;

use super::{Operands, TURNS, Tile};
use crate::isa::{Avx512Bf16, Avx512Vnni};

/// Of [`codes`]: 64 bytes a register.
pub(super) const CODES: Tile = tile(64);
/// Of [`floats`].
pub(super) const FLOATS: Tile = tile(16);
/// Of [`pairs`]: two values a lane.
pub(super) const PAIRS: Tile = tile(32);

const WEIGHTS: usize = 3;
const ACTIVATIONS: usize = 4;

const fn tile(width: usize) -> Tile {
    Tile {
        num_weights: WEIGHTS,
        num_activations: ACTIVATIONS,
        width,
    }
}

/// See [`super::scalar::codes`].
pub(super) fn codes(
    _proof: Avx512Vnni,
    codes: &[u8; super::LEN_MAX],
    bytes: &[i8; super::LEN_MAX],
    num_rounds: usize,
) -> i32 {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn entry(codes: &[u8; super::LEN_MAX], bytes: &[i8; super::LEN_MAX], num_rounds: usize) -> i32 {
        let (codes, bytes) = (codes.as_chunks::<64>().0, bytes.as_chunks::<64>().0);
        // SAFETY: each chunk is 64 readable bytes.
        let weights: [__m512i; WEIGHTS] =
            std::array::from_fn(|idx| unsafe { _mm512_loadu_si512(codes[idx].as_ptr().cast()) });
        let activations: [__m512i; ACTIVATIONS] =
            // SAFETY: as above.
            std::array::from_fn(|idx| unsafe { _mm512_loadu_si512(bytes[idx].as_ptr().cast()) });
        let mut sums = [[_mm512_setzero_si512(); ACTIVATIONS]; WEIGHTS];
        for _ in 0..num_rounds * TURNS {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, activations) in sums.iter_mut().zip(activations) {
                    *sum = _mm512_dpbusd_epi32(*sum, weights, activations);
                }
            }
        }
        let mut total = _mm512_setzero_si512();
        for sum in sums.into_iter().flatten() {
            total = _mm512_add_epi32(total, sum);
        }
        _mm512_reduce_add_epi32(total)
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(codes, bytes, num_rounds) }
}

/// See [`super::scalar::floats`].
pub(super) fn floats(_proof: Avx512Vnni, operands: &Operands, num_rounds: usize) -> f32 {
    #[target_feature(enable = "avx512f")]
    fn entry(operands: &Operands, num_rounds: usize) -> f32 {
        let weights = operands.weights.as_chunks::<16>().0;
        // SAFETY: each chunk is 16 readable floats.
        let weights: [__m512; WEIGHTS] =
            std::array::from_fn(|idx| unsafe { _mm512_loadu_ps(weights[idx].as_ptr()) });
        let activations = operands.activations.as_chunks::<16>().0;
        let activations: [__m512; ACTIVATIONS] =
            // SAFETY: as above.
            std::array::from_fn(|idx| unsafe { _mm512_loadu_ps(activations[idx].as_ptr()) });
        let mut sums = [[_mm512_setzero_ps(); ACTIVATIONS]; WEIGHTS];
        for _ in 0..num_rounds * TURNS {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, activations) in sums.iter_mut().zip(activations) {
                    *sum = _mm512_fmadd_ps(weights, activations, *sum);
                }
            }
        }
        add_up(sums)
    }
    // SAFETY: `_proof` exists, so this machine has the feature.
    unsafe { entry(operands, num_rounds) }
}

/// The products of [`super::scalar::floats`], by pairs of bfloat16.
pub(super) fn pairs(_proof: Avx512Bf16, operands: &Operands, num_rounds: usize) -> f32 {
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn entry(operands: &Operands, num_rounds: usize) -> f32 {
        let weights = operands.half_weights.as_chunks::<32>().0;
        let activations = operands.half_activations.as_chunks::<32>().0;
        // SAFETY: an array of 32 halves has the size of a register, and any bits are a value.
        let weights: [__m512bh; WEIGHTS] =
            std::array::from_fn(|idx| unsafe { std::mem::transmute(weights[idx]) });
        let activations: [__m512bh; ACTIVATIONS] =
            // SAFETY: as above.
            std::array::from_fn(|idx| unsafe { std::mem::transmute(activations[idx]) });
        let mut sums = [[_mm512_setzero_ps(); ACTIVATIONS]; WEIGHTS];
        for _ in 0..num_rounds * TURNS {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, activations) in sums.iter_mut().zip(activations) {
                    *sum = _mm512_dpbf16_ps(*sum, weights, activations);
                }
            }
        }
        add_up(sums)
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(operands, num_rounds) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_up(sums: [[__m512; ACTIVATIONS]; WEIGHTS]) -> f32 {
    let mut total = _mm512_setzero_ps();
    for sum in sums.into_iter().flatten() {
        total = _mm512_add_ps(total, sum);
    }
    _mm512_reduce_add_ps(total)
}

/// See [`super::scalar::read`].
pub(super) fn read(_proof: Avx512Vnni, words: &[u64]) -> u64 {
    /// Lines a turn.
    const LINES: usize = 8;
    #[target_feature(enable = "avx512f")]
    fn entry(words: &[u64]) -> u64 {
        let (turns, rest) = words.as_chunks::<{ LINES * 8 }>();
        let mut sums = [_mm512_setzero_si512(); LINES];
        for turn in turns {
            for (sum, line) in sums.iter_mut().zip(turn.as_chunks::<8>().0) {
                let ahead = line.as_ptr().wrapping_byte_add(super::AHEAD_BYTES);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                // SAFETY: 64 readable bytes.
                let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
                *sum = _mm512_add_epi64(*sum, line);
            }
        }
        let mut total = _mm512_setzero_si512();
        for sum in sums {
            total = _mm512_add_epi64(total, sum);
        }
        (_mm512_reduce_add_epi64(total) as u64).wrapping_add(super::scalar::read(rest))
    }
    // SAFETY: `_proof` exists, so this machine has the feature.
    unsafe { entry(words) }
}
