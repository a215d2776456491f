//! AVX2, FMA and F16C: 8 positions, or 8 elements of a value, to a register; a block of positions is two.
//!
//! As in `avx512.rs`, both products are `M` queries times `N` registers of keys (or of values), with fewer of both: 12 registers of
//! sums, and what they are made of, fit in 16. Lanes are separate chains, so that half as many to a register
//! changes nothing.

#![expect(
    clippy::needless_range_loop,
    reason = "tiles of registers are indexed like the matrices they are"
)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::scalar;
use super::tile::{Kernels, Progress, SPAN, ValueBlock};
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
        for group in even_groups(num_queries) {
            let queries = &queries[group.start * head_dim..];
            let scores = &mut scores[group.start * SPAN..];
            // SAFETY: `self` exists, so the machine has the features; lengths were checked above.
            unsafe {
                match group.len() {
                    1 => score_group::<E, 1>(queries, head_dim, keys, scores),
                    2 => score_group::<E, 2>(queries, head_dim, keys, scores),
                    3 => score_group::<E, 3>(queries, head_dim, keys, scores),
                    4 => score_group::<E, 4>(queries, head_dim, keys, scores),
                    5 => score_group::<E, 5>(queries, head_dim, keys, scores),
                    _ => score_group::<E, QUERIES_SIDE_BY_SIDE>(queries, head_dim, keys, scores),
                }
            }
        }
    }

    fn weigh(
        self,
        scores: &mut [f32],
        visible: Range<usize>,
        softcap: Option<f32>,
        progress: &mut Progress,
    ) -> f32 {
        // SAFETY: `self` exists, so the machine has the features.
        unsafe { weigh(scores, visible, softcap, progress) }
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
        for group in even_groups(num_queries) {
            let (weights, carries) = (&weights[group.start * SPAN..], &carries[group.start..]);
            let sums = &mut sums[group.start * stride..];
            // SAFETY: `self` exists, so the machine has the features; lengths were checked above.
            unsafe {
                match group.len() {
                    1 => accumulate_group::<E, 1>(weights, carries, values, sums, stride),
                    2 => accumulate_group::<E, 2>(weights, carries, values, sums, stride),
                    3 => accumulate_group::<E, 3>(weights, carries, values, sums, stride),
                    4 => accumulate_group::<E, 4>(weights, carries, values, sums, stride),
                    5 => accumulate_group::<E, 5>(weights, carries, values, sums, stride),
                    _ => accumulate_group::<E, QUERIES_SIDE_BY_SIDE>(
                        weights, carries, values, sums, stride,
                    ),
                }
            }
        }
    }
}

/// Cuts `0..len` into as few groups as possible, of nearly one size: 7 is 4 + 3, not 6 + 1.
fn even_groups(len: usize) -> impl Iterator<Item = Range<usize>> {
    let num_groups = len.div_ceil(QUERIES_SIDE_BY_SIDE);
    (0..num_groups).map(move |idx| len * idx / num_groups..len * (idx + 1) / num_groups)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn weigh(
    scores: &mut [f32],
    visible: Range<usize>,
    softcap: Option<f32>,
    progress: &mut Progress,
) -> f32 {
    scalar::weigh(scores, visible, softcap, progress)
}

/// Scores of `M` queries.
///
/// # Safety
///
/// `queries` holds at least `[M, head_dim]`, `scores` `[M, SPAN]`; each of `keys` is `[head_dim, 16]`, all of them at most `SPAN` positions.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score_group<E: KvElement, const M: usize>(
    queries: &[f32],
    head_dim: usize,
    keys: &[&[E]],
    scores: &mut [f32],
) {
    let (queries, scores) = (queries.as_ptr(), scores.as_mut_ptr());
    let mut done = 0;
    // SAFETY: block `done + N / 2 - 1` exists, so its scores lie inside a row of SPAN; the rest is the caller's promise.
    unsafe {
        if M == 1 {
            while done + 4 <= keys.len() {
                score_tile::<E, M, 8>(
                    queries,
                    head_dim,
                    &keys[done..],
                    scores.add(done * BLOCK_TOKENS),
                );
                done += 4;
            }
        }
        if M <= 3 {
            while done + 2 <= keys.len() {
                score_tile::<E, M, 4>(
                    queries,
                    head_dim,
                    &keys[done..],
                    scores.add(done * BLOCK_TOKENS),
                );
                done += 2;
            }
        }
        while done < keys.len() {
            score_tile::<E, M, 2>(
                queries,
                head_dim,
                &keys[done..],
                scores.add(done * BLOCK_TOKENS),
            );
            done += 1;
        }
    }
}

/// `M` queries times the first `N` registers of `keys`, two to a block.
///
/// # Safety
///
/// As [`score_group`]; `scores` points to the first block's scores of the first query.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score_tile<E: KvElement, const M: usize, const N: usize>(
    queries: *const f32,
    head_dim: usize,
    keys: &[&[E]],
    scores: *mut f32,
) {
    let keys: [*const E; N] = std::array::from_fn(|n| keys[n / 2][n % 2 * LANES..].as_ptr());
    let mut sums = [[_mm256_setzero_ps(); N]; M];
    for dim in 0..head_dim {
        let mut loaded = [_mm256_setzero_ps(); N];
        for n in 0..N {
            // SAFETY: `dim < head_dim`, and a block holds 16 keys' elements of each: 8 from either half on.
            loaded[n] = unsafe { load(keys[n].add(dim * BLOCK_TOKENS)) };
        }
        for m in 0..M {
            // SAFETY: queries are `[M, head_dim]`.
            let element = _mm256_set1_ps(unsafe { *queries.add(m * head_dim + dim) });
            for n in 0..N {
                sums[m][n] = _mm256_fmadd_ps(element, loaded[n], sums[m][n]);
            }
        }
    }
    for m in 0..M {
        for n in 0..N {
            // SAFETY: scores are `[M, SPAN]`, and these N registers fit in a row.
            unsafe { _mm256_storeu_ps(scores.add(m * SPAN + n * LANES), sums[m][n]) };
        }
    }
}

/// Sums of `M` queries.
///
/// # Safety
///
/// `weights` holds at least `[M, SPAN]`, `carries` `[M]`, `sums` `[M, stride]`; each of `values` is `[16, stride]`, their slots are
/// inside, all of them at most `SPAN` positions; `stride` is a multiple of 16.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn accumulate_group<E: KvElement, const M: usize>(
    weights: &[f32],
    carries: &[f32],
    values: &[ValueBlock<'_, E>],
    sums: &mut [f32],
    stride: usize,
) {
    let sums = sums.as_mut_ptr();
    let num_registers = stride / LANES;
    let mut done = 0;
    // SAFETY: register `done + N - 1` exists in every row of `stride` elements; the rest is the caller's promise.
    unsafe {
        if M == 1 {
            while done + 8 <= num_registers {
                accumulate_tile::<E, M, 8>(weights, carries, values, sums, (stride, done * LANES));
                done += 8;
            }
        }
        if M <= 3 {
            while done + 4 <= num_registers {
                accumulate_tile::<E, M, 4>(weights, carries, values, sums, (stride, done * LANES));
                done += 4;
            }
        }
        while done < num_registers {
            accumulate_tile::<E, M, 2>(weights, carries, values, sums, (stride, done * LANES));
            done += 2;
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
            let mut loaded = [_mm256_setzero_ps(); N];
            for n in 0..N {
                // SAFETY: values are `[16, stride]`, the slot and the columns are inside.
                loaded[n] = unsafe {
                    load(
                        block
                            .values
                            .as_ptr()
                            .add(slot * stride + column + n * LANES),
                    )
                };
            }
            for m in 0..M {
                // SAFETY: weights are `[M, SPAN]`, and the block's positions lie in the span.
                let weight = _mm256_set1_ps(unsafe { *weights.add(m * SPAN + slot) });
                for n in 0..N {
                    kept[m][n] = _mm256_fmadd_ps(weight, loaded[n], kept[m][n]);
                }
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
        }
    }
}
