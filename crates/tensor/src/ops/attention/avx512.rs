//! AVX-512: 16 positions, or 16 elements of a value, to a register.
//!
//! Both products are the same small matrix multiplication: `M` queries times `N` registers of keys
//! (or of values). `M * N` chains of multiply-adds run side by side, which hides their latency;
//! each loaded register is used `M` times. Which `M` and `N` a query falls into changes nothing in
//! its own chain.

#![expect(
    clippy::needless_range_loop,
    reason = "tiles of registers are indexed like the matrices they are"
)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::scalar;
use super::tile::{Kernels, SPAN, Softmax, ValueBlock, even_groups};
use crate::isa::Avx512Vnni;
use crate::kv::{BLOCK_TOKENS, KvElement, KvType};
use crate::ops::math::LANES;

/// Queries that are computed together at most: 6 times 4 registers of sums, and what they are made
/// of, fit in 32.
const QUERIES_SIDE_BY_SIDE: usize = 6;

impl<E: KvElement> Kernels<E> for Avx512Vnni {
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
                && stride.is_multiple_of(LANES)
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn scale(rows: &mut [f32], factors: &[f32; SPAN]) {
    scalar::scale(rows, factors);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn score_group<E: KvElement, const M: usize>(
    queries: &[f32],
    head_dim: usize,
    keys: &[&[E]],
    scores: &mut [f32],
) {
    let (queries, scores) = (queries.as_ptr(), scores.as_mut_ptr());
    let mut done = 0;
    // SAFETY: block `done + N - 1` exists, so its scores lie inside a row of SPAN; the rest is the
    // caller's promise.
    unsafe {
        if M <= 2 {
            while done + 8 <= keys.len() {
                score_tile::<E, M, 8>(
                    queries,
                    head_dim,
                    &keys[done..],
                    scores.add(done * BLOCK_TOKENS),
                );
                done += 8;
            }
        }
        while done + 4 <= keys.len() {
            score_tile::<E, M, 4>(
                queries,
                head_dim,
                &keys[done..],
                scores.add(done * BLOCK_TOKENS),
            );
            done += 4;
        }
        if done + 2 <= keys.len() {
            score_tile::<E, M, 2>(
                queries,
                head_dim,
                &keys[done..],
                scores.add(done * BLOCK_TOKENS),
            );
            done += 2;
        }
        if done < keys.len() {
            score_tile::<E, M, 1>(
                queries,
                head_dim,
                &keys[done..],
                scores.add(done * BLOCK_TOKENS),
            );
        }
    }
}

/// `M` queries times the first `N` blocks of `keys`.
///
/// # Safety
///
/// As [`score_group`]; `scores` points to the first block's scores of the first query.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn score_tile<E: KvElement, const M: usize, const N: usize>(
    queries: *const f32,
    head_dim: usize,
    keys: &[&[E]],
    scores: *mut f32,
) {
    let keys: [*const E; N] = std::array::from_fn(|n| keys[n].as_ptr());
    let mut sums = [[_mm512_setzero_ps(); N]; M];
    for dim in 0..head_dim {
        let mut loaded = [_mm512_setzero_ps(); N];
        for n in 0..N {
            // SAFETY: `dim < head_dim`, and a block holds 16 keys' elements of each.
            loaded[n] = unsafe { load(keys[n].add(dim * BLOCK_TOKENS)) };
        }
        for m in 0..M {
            // SAFETY: queries are `[M, head_dim]`.
            let element = _mm512_set1_ps(unsafe { *queries.add(m * head_dim + dim) });
            for n in 0..N {
                sums[m][n] = _mm512_fmadd_ps(element, loaded[n], sums[m][n]);
            }
        }
    }
    for m in 0..M {
        for n in 0..N {
            // SAFETY: scores are `[M, SPAN]`, and these N blocks fit in a row.
            unsafe { _mm512_storeu_ps(scores.add(m * SPAN + n * BLOCK_TOKENS), sums[m][n]) };
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
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
    // SAFETY: register `done + N - 1` exists in every row of `stride` elements; the rest is the
    // caller's promise.
    unsafe {
        if M <= 2 {
            while done + 8 <= num_registers {
                accumulate_tile::<E, M, 8>(weights, carries, values, sums, (stride, done * LANES));
                done += 8;
            }
        }
        while done + 4 <= num_registers {
            accumulate_tile::<E, M, 4>(weights, carries, values, sums, (stride, done * LANES));
            done += 4;
        }
        if done + 2 <= num_registers {
            accumulate_tile::<E, M, 2>(weights, carries, values, sums, (stride, done * LANES));
            done += 2;
        }
        if done < num_registers {
            accumulate_tile::<E, M, 1>(weights, carries, values, sums, (stride, done * LANES));
        }
    }
}

/// `M` queries' sums, `16 * N` elements from `column` on.
///
/// # Safety
///
/// As [`accumulate_group`], and `column + 16 * N <= stride`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn accumulate_tile<E: KvElement, const M: usize, const N: usize>(
    weights: &[f32],
    carries: &[f32],
    values: &[ValueBlock<'_, E>],
    sums: *mut f32,
    (stride, column): (usize, usize),
) {
    let mut kept = [[_mm512_setzero_ps(); N]; M];
    for m in 0..M {
        let carry = _mm512_set1_ps(carries[m]);
        for n in 0..N {
            // SAFETY: sums are `[M, stride]`, and these columns are inside a row.
            let old = unsafe { _mm512_loadu_ps(sums.add(m * stride + column + n * LANES)) };
            kept[m][n] = _mm512_mul_ps(old, carry);
        }
    }
    for (idx, block) in values.iter().enumerate() {
        let weights = weights[idx * BLOCK_TOKENS..].as_ptr();
        for slot in block.slots.clone() {
            let mut loaded = [_mm512_setzero_ps(); N];
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
                let weight = _mm512_set1_ps(unsafe { *weights.add(m * SPAN + slot) });
                for n in 0..N {
                    kept[m][n] = _mm512_fmadd_ps(weight, loaded[n], kept[m][n]);
                }
            }
        }
    }
    for m in 0..M {
        for n in 0..N {
            // SAFETY: as for the loads.
            unsafe { _mm512_storeu_ps(sums.add(m * stride + column + n * LANES), kept[m][n]) };
        }
    }
}

/// 16 elements, widened exactly.
///
/// # Safety
///
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn load<E: KvElement>(from: *const E) -> __m512 {
    // SAFETY: 16 elements are readable, and the loads have no alignment requirement.
    unsafe {
        match E::TYPE {
            KvType::F32 => _mm512_loadu_ps(from.cast()),
            KvType::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
            KvType::Bf16 => {
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
            KvType::Int8 => _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))),
        }
    }
}
