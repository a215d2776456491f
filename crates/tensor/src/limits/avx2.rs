//! AVX2, and AVX-VNNI on the same registers: sums for 2 weights and 2 or 4 activations, which is what 16
//! registers hold.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{LEN_MAX, Operands, TURNS, Tile};
use crate::isa::{Avx2, AvxVnni};

/// Of [`words`]: 32 bytes a register. Four sums, because more would be spilled; additions take one cycle.
pub(super) const WORDS: Tile = tile(2, 32);
/// Of [`codes`].
pub(super) const CODES: Tile = tile(4, 32);
/// Of [`floats`].
pub(super) const FLOATS: Tile = tile(4, 8);

const WEIGHTS: usize = 2;

const fn tile(num_activations: usize, width: usize) -> Tile {
    Tile {
        num_weights: WEIGHTS,
        num_activations,
        width,
    }
}

/// See [`super::scalar::codes`]: `vpmaddubsw` to 16 bits, widened once a round, as the kernel of
/// [`crate::ops::matmul()`] does once a group.
pub(super) fn words(
    _proof: Avx2,
    codes: &[u8; LEN_MAX],
    bytes: &[i8; LEN_MAX],
    num_rounds: usize,
) -> i32 {
    #[target_feature(enable = "avx2")]
    fn entry(codes: &[u8; LEN_MAX], bytes: &[i8; LEN_MAX], num_rounds: usize) -> i32 {
        const { assert!(15 * 127 * 2 * TURNS <= i16::MAX as usize) };
        let weights: [__m256i; WEIGHTS] = registers(codes.as_chunks().0);
        let activations: [__m256i; WORDS.num_activations] = registers(bytes.as_chunks().0);
        let mut total = _mm256_setzero_si256();
        for _ in 0..num_rounds {
            let mut sums = [[_mm256_setzero_si256(); WORDS.num_activations]; WEIGHTS];
            for _ in 0..TURNS {
                for (sums, weights) in sums.iter_mut().zip(weights) {
                    for (sum, activations) in sums.iter_mut().zip(activations) {
                        *sum = add_products(*sum, weights, activations);
                    }
                }
            }
            // Not `flatten`: by value it moves the sums through memory.
            for sums in sums {
                for sum in sums {
                    total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
                }
            }
        }
        lanes(total).into_iter().fold(0, i32::wrapping_add)
    }
    // SAFETY: `_proof` exists, so this machine has the feature.
    unsafe { entry(codes, bytes, num_rounds) }
}

/// See [`super::scalar::codes`]: `vpdpbusd`.
pub(super) fn codes(
    _proof: AvxVnni,
    codes: &[u8; LEN_MAX],
    bytes: &[i8; LEN_MAX],
    num_rounds: usize,
) -> i32 {
    #[target_feature(enable = "avx2,avxvnni")]
    fn entry(codes: &[u8; LEN_MAX], bytes: &[i8; LEN_MAX], num_rounds: usize) -> i32 {
        let weights: [__m256i; WEIGHTS] = registers(codes.as_chunks().0);
        let activations: [__m256i; CODES.num_activations] = registers(bytes.as_chunks().0);
        let mut sums = [[_mm256_setzero_si256(); CODES.num_activations]; WEIGHTS];
        for _ in 0..num_rounds * TURNS {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, activations) in sums.iter_mut().zip(activations) {
                    *sum = _mm256_dpbusd_avx_epi32(*sum, weights, activations);
                }
            }
        }
        let mut total = _mm256_setzero_si256();
        for sum in sums.into_iter().flatten() {
            total = _mm256_add_epi32(total, sum);
        }
        lanes(total).into_iter().fold(0, i32::wrapping_add)
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(codes, bytes, num_rounds) }
}

/// See [`super::scalar::floats`].
pub(super) fn floats(_proof: Avx2, operands: &Operands, num_rounds: usize) -> f32 {
    #[target_feature(enable = "avx2,fma")]
    fn entry(operands: &Operands, num_rounds: usize) -> f32 {
        let weights = operands.weights.as_chunks::<8>().0;
        // SAFETY: each chunk is 8 readable floats.
        let weights: [__m256; WEIGHTS] =
            std::array::from_fn(|idx| unsafe { _mm256_loadu_ps(weights[idx].as_ptr()) });
        let activations = operands.activations.as_chunks::<8>().0;
        let activations: [__m256; FLOATS.num_activations] =
            // SAFETY: as above.
            std::array::from_fn(|idx| unsafe { _mm256_loadu_ps(activations[idx].as_ptr()) });
        let mut sums = [[_mm256_setzero_ps(); FLOATS.num_activations]; WEIGHTS];
        for _ in 0..num_rounds * TURNS {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, activations) in sums.iter_mut().zip(activations) {
                    *sum = _mm256_fmadd_ps(weights, activations, *sum);
                }
            }
        }
        let mut total = _mm256_setzero_ps();
        for sum in sums.into_iter().flatten() {
            total = _mm256_add_ps(total, sum);
        }
        // SAFETY: both are 32 bytes, and any bits are floats.
        let lanes: [f32; 8] = unsafe { std::mem::transmute(total) };
        lanes.into_iter().sum()
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(operands, num_rounds) }
}

/// See [`super::scalar::read`].
pub(super) fn read(_proof: Avx2, words: &[u64]) -> u64 {
    /// Registers a turn.
    const LOADS: usize = 8;
    #[target_feature(enable = "avx2")]
    fn entry(words: &[u64]) -> u64 {
        let (turns, rest) = words.as_chunks::<{ LOADS * 4 }>();
        let mut sums = [_mm256_setzero_si256(); LOADS];
        for turn in turns {
            for (idx, (sum, load)) in sums.iter_mut().zip(turn.as_chunks::<4>().0).enumerate() {
                // Two loads are a line.
                if idx % 2 == 0 {
                    let ahead = load.as_ptr().wrapping_byte_add(super::AHEAD_BYTES);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
                // SAFETY: 32 readable bytes.
                let load = unsafe { _mm256_loadu_si256(load.as_ptr().cast()) };
                *sum = _mm256_add_epi64(*sum, load);
            }
        }
        let mut total = _mm256_setzero_si256();
        for sum in sums {
            total = _mm256_add_epi64(total, sum);
        }
        // SAFETY: both are 32 bytes, and any bits are integers.
        let lanes: [u64; 4] = unsafe { std::mem::transmute(total) };
        lanes
            .into_iter()
            .fold(super::scalar::read(rest), u64::wrapping_add)
    }
    // SAFETY: `_proof` exists, so this machine has the feature.
    unsafe { entry(words) }
}

/// The first registers of a row of bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn registers<T, const NUM: usize>(chunks: &[[T; 32]]) -> [__m256i; NUM] {
    const { assert!(size_of::<T>() == 1) };
    // SAFETY: each chunk is 32 readable bytes.
    std::array::from_fn(|idx| unsafe { _mm256_loadu_si256(chunks[idx].as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes(register: __m256i) -> [i32; 8] {
    // SAFETY: both are 32 bytes, and any bits are integers.
    unsafe { std::mem::transmute(register) }
}

/// `sum + weights · activations` in 16 bits. In assembly, because the compiler would see that operands stay the same,
/// and multiply once.
#[inline]
#[target_feature(enable = "avx2")]
fn add_products(mut sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
    // SAFETY: two instructions of AVX2, which read and write the registers named and nothing else.
    unsafe {
        asm!(
            "vpmaddubsw {products}, {weights}, {activations}",
            "vpaddw {sum}, {sum}, {products}",
            products = out(ymm_reg) _,
            weights = in(ymm_reg) weights,
            activations = in(ymm_reg) activations,
            sum = inout(ymm_reg) sum,
            options(nomem, nostack, preserves_flags),
        );
    }
    sum
}
