//! The definition, written to be read.

use std::ops::Range;

use super::tile::{Kernels, SPAN, Softmax, ValueBlock};
use crate::kv::{BLOCK_TOKENS, KvElement};
use crate::ops::math::{LANES, exp, larger, softcap};

/// Plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

impl<E: KvElement> Kernels<E> for Scalar {
    fn score(self, queries: &[f32], keys: &[&[E]], scores: &mut [f32]) {
        let num_queries = scores.len() / SPAN;
        let head_dim = queries.len() / num_queries;
        for (query, scores) in queries
            .chunks_exact(head_dim)
            .zip(scores.chunks_exact_mut(SPAN))
        {
            for (keys, scores) in keys.iter().zip(scores.chunks_exact_mut(BLOCK_TOKENS)) {
                scores.fill(0.0);
                for (&element, keys) in query.iter().zip(keys.chunks_exact(BLOCK_TOKENS)) {
                    for (score, key) in scores.iter_mut().zip(keys) {
                        *score = element.mul_add(key.to_f32(), *score);
                    }
                }
            }
        }
    }

    fn scale(self, rows: &mut [f32], factors: &[f32; SPAN]) {
        scale(rows, factors);
    }

    fn weigh(
        self,
        scores: &mut [f32],
        visible: Range<usize>,
        softcap: Option<f32>,
        softmax: &mut Softmax,
    ) -> f32 {
        weigh(scores, visible, softcap, softmax)
    }

    fn accumulate(
        self,
        weights: &[f32],
        carries: &[f32],
        values: &[ValueBlock<'_, E>],
        sums: &mut [f32],
    ) {
        let value_stride = sums.len() / carries.len();
        let queries = weights
            .chunks_exact(SPAN)
            .zip(carries)
            .zip(sums.chunks_exact_mut(value_stride));
        for ((weights, carry), sums) in queries {
            for sum in &mut *sums {
                *sum *= carry;
            }
            for (block, weights) in values.iter().zip(weights.chunks_exact(BLOCK_TOKENS)) {
                for slot in block.slots.clone() {
                    for (sum, value) in sums.iter_mut().zip(&block.values[slot * value_stride..]) {
                        *sum = weights[slot].mul_add(value.to_f32(), *sum);
                    }
                }
            }
        }
    }
}

/// See [`Kernels::scale`]. The other instruction sets compile this very code.
#[inline(always)]
pub(super) fn scale(rows: &mut [f32], factors: &[f32; SPAN]) {
    for row in rows.as_chunks_mut::<SPAN>().0 {
        for (value, factor) in row.iter_mut().zip(factors) {
            *value *= factor;
        }
    }
}

/// See [`Kernels::weigh`]. The other instruction sets compile this very code.
#[inline(always)]
pub(super) fn weigh(
    scores: &mut [f32],
    visible: Range<usize>,
    cap: Option<f32>,
    softmax: &mut Softmax,
) -> f32 {
    if visible.is_empty() {
        scores.fill(0.0);
        return 1.0;
    }
    let (vectors, _) = scores.as_chunks_mut::<LANES>();
    if let Some(cap) = cap {
        for score in vectors.as_flattened_mut() {
            *score = softcap(*score, cap);
        }
    }
    vectors.as_flattened_mut()[..visible.start].fill(f32::NEG_INFINITY);
    vectors.as_flattened_mut()[visible.end..].fill(f32::NEG_INFINITY);

    let before = softmax.largest;
    let mut lanes = [before; LANES];
    for vector in &*vectors {
        for (lane, &score) in lanes.iter_mut().zip(vector) {
            *lane = larger(score, *lane);
        }
    }
    let largest = lanes
        .into_iter()
        .fold(before, |largest, lane| larger(lane, largest));
    let carry = exp(before - largest);

    let mut sums = softmax.weight_sums.map(|sum| sum * carry);
    for vector in vectors {
        for (score, sum) in vector.iter_mut().zip(&mut sums) {
            *score = exp(*score - largest);
            *sum += *score;
        }
    }
    (softmax.largest, softmax.weight_sums) = (largest, sums);
    carry
}
