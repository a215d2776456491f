//! AVX2, FMA and F16C: 8 positions, or 8 elements of a value, to a register; a block of positions
//! is two.
//!
//! As in `avx512.rs`, both products are `M` queries times `N` registers of keys (or of values),
//! with fewer of both: 12 registers of sums at most, and what they are made of, fit in 16 (3 times
//! 4 does not: a chain that moves through memory is twice as slow). Lanes are separate chains, so
//! that half as many to a register changes nothing.

#![expect(
    clippy::needless_range_loop,
    reason = "tiles of registers are indexed like the matrices they are"
)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::scalar;
use super::tile::{Kernels, SPAN, Softmax, ValueBlock, even_groups};
use crate::isa::Avx2;
use crate::kv::{BLOCK_TOKENS, KvElement, KvType};

/// Lanes of a register.
const LANES: usize = 8;

/// Queries that are computed together at most: 6 times 2 registers of sums.
const QUERIES_SIDE_BY_SIDE: usize = 6;

impl<E: KvElement> Kernels<E> for Avx2 {
    fn score(self, queries: &[f32], keys: &[&[E]], scores: &mut [f32]) {
        let num_queries = scores.len() / SPAN;
        let head_dim = queries.len() / num_queries;
        assert!(queries.len() == num_queries * head_dim && scores.len() == num_queries * SPAN);
        assert!(
            keys.len() * BLOCK_TOKENS <= SPAN
                && keys
                    .iter()
                    .all(|keys| keys.len() == head_dim * BLOCK_TOKENS)
        );
        for group in even_groups(num_queries, QUERIES_SIDE_BY_SIDE) {
            let queries = &queries[group.start * head_dim..];
            let scores = &mut scores[group.start * SPAN..];
            // SAFETY: `self` exists, so the machine has the features; lengths were checked above.
            unsafe {
                match group.len() {
                    1 => score_group::<E, 1, 8>(queries, head_dim, keys, scores),
                    2 => score_group::<E, 2, 4>(queries, head_dim, keys, scores),
                    3 => score_group::<E, 3, 3>(queries, head_dim, keys, scores),
                    4 => score_group::<E, 4, 2>(queries, head_dim, keys, scores),
                    5 => score_group::<E, 5, 2>(queries, head_dim, keys, scores),
                    _ => score_group::<E, QUERIES_SIDE_BY_SIDE, 2>(queries, head_dim, keys, scores),
                }
            }
        }
    }

    fn scale(self, rows: &mut [f32], factors: &[f32; SPAN]) {
        // SAFETY: `self` exists, so the machine has the features.
        unsafe { scale(rows, factors) }
    }

    fn weigh(
        self,
        scores: &mut [f32],
        visible: Range<usize>,
        softcap: Option<f32>,
        softmax: &mut Softmax,
    ) -> f32 {
        // SAFETY: `self` exists, so the machine has the features.
        unsafe { weigh(scores, visible, softcap, softmax) }
    }

    fn accumulate(
        self,
        weights: &[f32],
        carries: &[f32],
        values: &[ValueBlock<'_, E>],
        sums: &mut [f32],
    ) {
        let num_queries = carries.len();
        let stride = sums.len() / num_queries;
        assert!(
            weights.len() == num_queries * SPAN
                && sums.len() == num_queries * stride
                && stride.is_multiple_of(2 * LANES)
        );
        assert!(values.len() * BLOCK_TOKENS <= SPAN);
        assert!(
            values
                .iter()
                .all(|block| block.values.len() == BLOCK_TOKENS * stride
                    && block.slots.end <= BLOCK_TOKENS)
        );
        for group in even_groups(num_queries, QUERIES_SIDE_BY_SIDE) {
            let (weights, carries) = (&weights[group.start * SPAN..], &carries[group.start..]);
            let sums = &mut sums[group.start * stride..];
            // SAFETY: `self` exists, so the machine has the features; lengths were checked above.
            unsafe {
                match group.len() {
                    1 => accumulate_group::<E, 1, 8>(weights, carries, values, sums, stride),
                    2 => accumulate_group::<E, 2, 4>(weights, carries, values, sums, stride),
                    3 => accumulate_group::<E, 3, 3>(weights, carries, values, sums, stride),
                    4 => accumulate_group::<E, 4, 2>(weights, carries, values, sums, stride),
                    5 => accumulate_group::<E, 5, 2>(weights, carries, values, sums, stride),
                    _ => accumulate_group::<E, QUERIES_SIDE_BY_SIDE, 2>(
                        weights, carries, values, sums, stride,
                    ),
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scale(rows: &mut [f32], factors: &[f32; SPAN]) {
    scalar::scale(rows, factors);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn weigh(
    scores: &mut [f32],
    visible: Range<usize>,
    softcap: Option<f32>,
    softmax: &mut Softmax,
) -> f32 {
    scalar::weigh(scores, visible, softcap, softmax)
}

/// Scores of `M` queries.
///
/// # Safety
///
/// `queries` holds at least `[M, head_dim]`, `scores` `[M, SPAN]`; each of `keys` is `[head_dim,
/// 16]`, all of them at most `SPAN` positions.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score_group<E: KvElement, const M: usize, const N: usize>(
    queries: &[f32],
    head_dim: usize,
    keys: &[&[E]],
    scores: &mut [f32],
) {
    let (queries, scores) = (queries.as_ptr(), scores.as_mut_ptr());
    let num_registers = keys.len() * BLOCK_TOKENS / LANES;
    let mut done = 0;
    // SAFETY: register `done + N - 1` exists, so its scores lie inside a row of SPAN; the rest is
    // the caller's promise.
    unsafe {
        while done + N <= num_registers {
            score_tile::<E, M, N>(queries, head_dim, keys, scores, done);
            done += N;
        }
        while done + 2 <= num_registers {
            score_tile::<E, M, 2>(queries, head_dim, keys, scores, done);
            done += 2;
        }
        if done < num_registers {
            score_tile::<E, M, 1>(queries, head_dim, keys, scores, done);
        }
    }
}

/// `M` queries times `N` registers of `keys` from the `first` on, two to a block.
///
/// # Safety
///
/// As [`score_group`], and the registers exist.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score_tile<E: KvElement, const M: usize, const N: usize>(
    queries: *const f32,
    head_dim: usize,
    keys: &[&[E]],
    scores: *mut f32,
    first: usize,
) {
    let keys: [*const E; N] =
        std::array::from_fn(|n| keys[(first + n) / 2][(first + n) % 2 * LANES..].as_ptr());
    let mut sums = [[_mm256_setzero_ps(); N]; M];
    for dim in 0..head_dim {
        // SAFETY: `dim < head_dim`; queries are `[M, head_dim]`, and a block holds 16 keys'
        // elements of each dimension: 8 from either half on.
        unsafe {
            let elements = std::array::from_fn(|m| queries.add(m * head_dim + dim));
            add_products(
                &mut sums,
                elements,
                keys.map(|keys| keys.add(dim * BLOCK_TOKENS)),
            );
        }
    }
    for m in 0..M {
        for n in 0..N {
            // SAFETY: scores are `[M, SPAN]`, and these N registers fit in a row.
            unsafe { _mm256_storeu_ps(scores.add(m * SPAN + (first + n) * LANES), sums[m][n]) };
        }
    }
}

/// Sums of `M` queries.
///
/// # Safety
///
/// `weights` holds at least `[M, SPAN]`, `carries` `[M]`, `sums` `[M, stride]`; each of `values`
/// is `[16, stride]`, their slots are inside, all of them at most `SPAN` positions; `stride` is a
/// multiple of 16.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn accumulate_group<E: KvElement, const M: usize, const N: usize>(
    weights: &[f32],
    carries: &[f32],
    values: &[ValueBlock<'_, E>],
    sums: &mut [f32],
    stride: usize,
) {
    let sums = sums.as_mut_ptr();
    let num_registers = stride / LANES;
    let mut done = 0;
    // SAFETY: register `done + N - 1` exists in every row of `stride` elements; the rest is the
    // caller's promise.
    unsafe {
        while done + N <= num_registers {
            accumulate_tile::<E, M, N>(weights, carries, values, sums, (stride, done * LANES));
            done += N;
        }
        while done + 2 <= num_registers {
            accumulate_tile::<E, M, 2>(weights, carries, values, sums, (stride, done * LANES));
            done += 2;
        }
        if done < num_registers {
            accumulate_tile::<E, M, 1>(weights, carries, values, sums, (stride, done * LANES));
        }
    }
}

/// `M` queries' sums, `8 * N` elements from `column` on.
///
/// # Safety
///
/// As [`accumulate_group`], and `column + 8 * N <= stride`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn accumulate_tile<E: KvElement, const M: usize, const N: usize>(
    weights: &[f32],
    carries: &[f32],
    values: &[ValueBlock<'_, E>],
    sums: *mut f32,
    (stride, column): (usize, usize),
) {
    let mut kept = [[_mm256_setzero_ps(); N]; M];
    for m in 0..M {
        let carry = _mm256_set1_ps(carries[m]);
        for n in 0..N {
            // SAFETY: sums are `[M, stride]`, and these columns are inside a row.
            let old = unsafe { _mm256_loadu_ps(sums.add(m * stride + column + n * LANES)) };
            kept[m][n] = _mm256_mul_ps(old, carry);
        }
    }
    for (idx, block) in values.iter().enumerate() {
        let weights = weights[idx * BLOCK_TOKENS..].as_ptr();
        for slot in block.slots.clone() {
            // SAFETY: weights are `[M, SPAN]`, and the block's positions lie in the span; values
            // are `[16, stride]`, the slot and the columns are inside.
            unsafe {
                let weights = std::array::from_fn(|m| weights.add(m * SPAN + slot));
                let row = block.values.as_ptr().add(slot * stride + column);
                add_products(
                    &mut kept,
                    weights,
                    std::array::from_fn(|n| row.add(n * LANES)),
                );
            }
        }
    }
    for m in 0..M {
        for n in 0..N {
            // SAFETY: as for the loads.
            unsafe { _mm256_storeu_ps(sums.add(m * stride + column + n * LANES), kept[m][n]) };
        }
    }
}

/// `sums[m][n] += factors[m] * registers[n]`.
///
/// # Safety
///
/// All factors are readable, and 8 elements from each of `registers` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_products<E: KvElement, const M: usize, const N: usize>(
    sums: &mut [[__m256; N]; M],
    factors: [*const f32; M],
    registers: [*const E; N],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let registers = registers.map(|register| load(register));
        for m in 0..M {
            let factor = _mm256_set1_ps(*factors[m]);
            for n in 0..N {
                sums[m][n] = _mm256_fmadd_ps(factor, registers[n], sums[m][n]);
            }
        }
    }
}

/// 8 elements, widened exactly.
///
/// # Safety
///
/// They are readable.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<E: KvElement>(from: *const E) -> __m256 {
    // SAFETY: 8 elements are readable, and the loads have no alignment requirement.
    unsafe {
        match E::TYPE {
            KvType::F32 => _mm256_loadu_ps(from.cast()),
            KvType::F16 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
            KvType::Bf16 => {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            }
            KvType::Int8 => _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))),
        }
    }
}
