//! One piece: up to [`QUERIES_MAX`] queries that share a key head walk over their positions
//! together.
//!
//! The walk is the same for all instruction sets; they provide its three steps ([`Kernels`]).
//!
//! ```text
//! per span of 128 positions:   queries × keys → scores → weigh → weights × values → sums
//!                                                  │       │        └ scaled, if values are
//!                                                  │       └ carry: what the sums so far are multiplied by
//!                                                  └ scaled, if keys are
//! per segment of 8 spans:      merged with the segments before it
//! ```

use std::cell::RefCell;
use std::mem::take;
use std::ops::Range;

use half::bf16;

use super::Layer;
use super::plan::{Plan, Tile};
use crate::aligned::Aligned;
use crate::kv::{BLOCK_TOKENS, KvElement, widen};
use crate::ops::math::{LANES, exp, larger, sum_lanes};
use crate::pool::Disjoint;

/// Queries in a tile at most: scores, sums and queries of a tile then stay in the first-level
/// cache beside a span's keys.
pub(super) const QUERIES_MAX: usize = 24;

/// Positions between two rescalings. Part of the definition: another span gives other roundings.
pub(super) const SPAN: usize = 128;
const SPAN_BLOCKS: usize = SPAN / BLOCK_TOKENS;

/// Positions after which the sums start afresh; workers can share a sequence at its multiples.
/// Part of the definition, too.
pub(super) const SEGMENT: usize = 8 * SPAN;

/// The values of one block that at least one query of the tile sees.
#[derive(Clone)]
pub(super) struct ValueBlock<'a, E> {
    /// `[16][value_stride]`.
    pub(super) values: &'a [E],
    /// Positions within the block.
    pub(super) slots: Range<usize>,
}

/// The scales of a span's positions.
struct SpanScales {
    of_keys: [f32; SPAN],
    of_values: [f32; SPAN],
}

impl SpanScales {
    const ONES: SpanScales = SpanScales {
        of_keys: [1.0; SPAN],
        of_values: [1.0; SPAN],
    };

    /// Widens those of the span's block `block_idx`: of its keys, and of its values.
    fn set(&mut self, block_idx: usize, [of_keys, of_values]: &[[bf16; BLOCK_TOKENS]; 2]) {
        let first = block_idx * BLOCK_TOKENS;
        for (to, from) in [
            (&mut self.of_keys, of_keys),
            (&mut self.of_values, of_values),
        ] {
            for (to, &from) in to[first..].iter_mut().zip(from) {
                *to = widen(from);
            }
        }
    }
}

/// How far one query's softmax has come.
#[derive(Clone, Debug)]
pub(super) struct Softmax {
    /// Largest score so far.
    pub(super) largest: f32,
    /// Sums of `exp(score - largest)` so far, by position modulo 16.
    pub(super) weight_sums: [f32; LANES],
}

impl Softmax {
    /// No positions.
    const EMPTY: Softmax = Softmax {
        largest: f32::NEG_INFINITY,
        weight_sums: [0.0; LANES],
    };
}

/// What some positions give to a tile's queries.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// `[num_queries]`.
    softmax: Vec<Softmax>,
    /// `[num_queries, value_stride]`: weighted sums of values, not yet divided. May be longer,
    /// from an earlier use.
    sums: Aligned<f32>,
}

impl Partial {
    /// Forgets all positions.
    fn clear(&mut self, num_queries: usize, value_stride: usize) {
        self.softmax.clear();
        self.softmax.resize(num_queries, Softmax::EMPTY);
        self.sums.grow(num_queries * value_stride);
        self.sums[..num_queries * value_stride].fill(0.0);
    }

    /// Adds what later positions gave.
    fn merge(&mut self, later: &Partial, value_stride: usize) {
        let ours = self
            .softmax
            .iter_mut()
            .zip(self.sums.chunks_exact_mut(value_stride));
        let theirs = later
            .softmax
            .iter()
            .zip(later.sums.chunks_exact(value_stride));
        for ((softmax, sums), (later, later_sums)) in ours.zip(theirs) {
            // A query that sees none of them is as if they were not there.
            if later.largest == f32::NEG_INFINITY {
                continue;
            }
            let largest = larger(later.largest, softmax.largest);
            let (carry, later_carry) =
                (exp(softmax.largest - largest), exp(later.largest - largest));
            softmax.largest = largest;
            let merge = |sum: &mut f32, later: &f32| *sum = *sum * carry + later * later_carry;
            softmax
                .weight_sums
                .iter_mut()
                .zip(&later.weight_sums)
                .for_each(|(sum, later)| merge(sum, later));
            sums.iter_mut()
                .zip(later_sums)
                .for_each(|(sum, later)| merge(sum, later));
        }
    }
}

/// The steps of a walk. Every implementor gives the bits that `scalar` gives.
pub(super) trait Kernels<E>: Copy + Sync {
    /// `scores[q][16 * b + i] = queries[q] · keys[b][..][i]`, one chain of multiply-adds over
    /// `head_dim`.
    ///
    /// Shapes: `queries [num_queries, head_dim]`, each of `keys` `[head_dim, 16]`, at most 8 of
    /// them; `scores [num_queries, SPAN]`.
    fn score(self, queries: &[f32], keys: &[&[E]], scores: &mut [f32]);

    /// `rows[q][t] *= factors[t]`: scores with the scales of keys, weights with those of values.
    ///
    /// Shape: `rows [num_queries, SPAN]`.
    fn scale(self, rows: &mut [f32], factors: &[f32; SPAN]);

    /// Turns one query's scores into weights, 0 outside `visible` (indices into `scores`). Returns
    /// the carry: what must be multiplied with all sums made so far.
    fn weigh(
        self,
        scores: &mut [f32],
        visible: Range<usize>,
        softcap: Option<f32>,
        softmax: &mut Softmax,
    ) -> f32;

    /// `sums[q][d] = sums[q][d] * carries[q] + sum_t weights[q][t] * values[t][d]`, one chain of
    /// multiply-adds over positions.
    ///
    /// Shapes: `weights [num_queries, SPAN]`, `carries [num_queries]`, `sums [num_queries,
    /// value_stride]`.
    fn accumulate(
        self,
        weights: &[f32],
        carries: &[f32],
        values: &[ValueBlock<'_, E>],
        sums: &mut [f32],
    );
}

/// Cuts `0..len` into as few groups of at most `len_max` as possible, of nearly one size: with 6, 7 is
/// 4 + 3 and not 6 + 1.
pub(super) fn even_groups(len: usize, len_max: usize) -> impl Iterator<Item = Range<usize>> {
    let num_groups = len.div_ceil(len_max);
    (0..num_groups).map(move |idx| len * idx / num_groups..len * (idx + 1) / num_groups)
}

/// What a piece needs while it is computed; each thread keeps its own.
#[derive(Default)]
struct Buffers {
    /// `[num_queries, head_dim]`, scaled.
    queries: Aligned<f32>,
    /// `[num_queries]`: all positions that a query sees.
    visible: Vec<Range<usize>>,
    /// `[num_queries, SPAN]`.
    scores: Aligned<f32>,
    /// `[num_queries]`.
    carries: Vec<f32>,
    /// The current segment.
    segment: Partial,
    /// The segments before it.
    total: Partial,
}

/// Computes one piece of the plan, and writes the tile's part of `out` if it is the tile's last
/// one.
pub(super) fn attend_piece<E: KvElement, K: Kernels<E>>(
    kernels: K,
    layer: &Layer<'_, E>,
    plan: &Plan,
    piece_idx: usize,
    out: &Disjoint<'_, f32>,
) {
    thread_local! {
        static BUFFERS: RefCell<Buffers> = RefCell::default();
    }
    let piece = &plan.pieces[piece_idx];
    let tile = plan.tile_of(piece);
    BUFFERS.with_borrow_mut(|buffers| {
        let mut walk = Walk {
            layer,
            tile,
            buffers,
        };
        walk.start();
        for segment in piece.segments.clone() {
            walk.take_segment(kernels, segment);
        }
        let stride = layer.input.pages.shape().value_stride();
        let Some(mut partials) = tile.deliver(piece, take(&mut walk.buffers.total)) else {
            return;
        };
        let (total, later) = partials.split_first_mut().expect("a tile has a segment");
        later.iter().for_each(|later| total.merge(later, stride));
        walk.finish(total, out);
        // The memory is kept for the next piece.
        walk.buffers.total = take(total);
    });
}

struct Walk<'a, E> {
    layer: &'a Layer<'a, E>,
    tile: &'a Tile,
    buffers: &'a mut Buffers,
}

impl<E: KvElement> Walk<'_, E> {
    /// Where each query's head begins in `query` and `out`, and its position; row by row.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<'_, E> {
        let (spec, shape) = (self.layer.spec, self.layer.input.pages.shape());
        let sequence = &self.layer.input.sequences[self.tile.sequence_idx];
        let first_head = self.tile.kv_head * self.layer.group();
        self.tile.rows.clone().flat_map(move |row| {
            self.tile.heads.clone().map(move |head| {
                let head_idx = (sequence.first_row + row) * spec.num_heads + first_head + head;
                (head_idx * shape.head_dim, sequence.num_past + row)
            })
        })
    }

    /// Gathers the queries.
    fn start(&mut self) {
        let shape = self.layer.input.pages.shape();
        let num_queries = self.tile.num_queries();
        let mut queries = take(&mut self.buffers.queries);
        let mut visible = take(&mut self.buffers.visible);
        queries.grow(num_queries * shape.head_dim);
        visible.clear();
        for (query, (start, position)) in
            queries.chunks_exact_mut(shape.head_dim).zip(self.places())
        {
            for (scaled, value) in query.iter_mut().zip(&self.layer.input.query[start..]) {
                *scaled = value * self.layer.spec.scale;
            }
            visible.push(self.layer.visible(position));
        }
        let buffers = &mut *self.buffers;
        (buffers.queries, buffers.visible) = (queries, visible);
        buffers.scores.grow(num_queries * SPAN);
        buffers.carries.resize(num_queries, 0.0);
        buffers.total.clear(num_queries, shape.value_stride());
    }

    /// Adds the positions of a segment that at least one query sees.
    fn take_segment<K: Kernels<E>>(&mut self, kernels: K, segment: usize) {
        let stride = self.layer.input.pages.shape().value_stride();
        self.buffers.segment.clear(self.tile.num_queries(), stride);
        // Positions ascend from query to query, and so do both ends of what they see.
        let visible = &self.buffers.visible;
        let start = visible[0].start.max(segment * SEGMENT);
        let end = visible[visible.len() - 1].end.min((segment + 1) * SEGMENT);
        // Spans lie at multiples of their length, wherever the piece begins.
        for span in start / SPAN..end.div_ceil(SPAN) {
            self.take_span(kernels, start.max(span * SPAN)..end.min((span + 1) * SPAN));
        }
        self.buffers.total.merge(&self.buffers.segment, stride);
    }

    /// Adds the positions `part`, which lie in one span.
    fn take_span<K: Kernels<E>>(&mut self, kernels: K, part: Range<usize>) {
        let layer = self.layer;
        let shape = layer.input.pages.shape();
        let num_queries = self.tile.num_queries();
        let blocks = part.start / BLOCK_TOKENS..part.end.div_ceil(BLOCK_TOKENS);
        let (num_blocks, origin) = (blocks.len(), blocks.start * BLOCK_TOKENS);
        let mut keys: [&[E]; SPAN_BLOCKS] = [&[]; SPAN_BLOCKS];
        let mut values: [ValueBlock<'_, E>; SPAN_BLOCKS] = std::array::from_fn(|_| ValueBlock {
            values: &[],
            slots: 0..0,
        });
        let mut scales = layer.scales.map(|_| SpanScales::ONES);
        for (idx, block) in blocks.enumerate() {
            let page = layer.input.sequences[self.tile.sequence_idx].blocks[block] as usize;
            let head = page * shape.num_kv_heads + self.tile.kv_head;
            keys[idx] = &layer.keys[head * shape.key_block_len()..][..shape.key_block_len()];
            // Slots nobody sees may hold another sequence's leftovers, so they are not even
            // weighed by 0.
            let first = block * BLOCK_TOKENS;
            values[idx] = ValueBlock {
                values: &layer.values[head * shape.value_block_len()..][..shape.value_block_len()],
                slots: part.start.max(first) - first..part.end.min(first + BLOCK_TOKENS) - first,
            };
            if let (Some(span), Some(stored)) = (&mut scales, layer.scales) {
                span.set(idx, &stored[head]);
            }
        }
        let Buffers {
            queries,
            visible,
            scores,
            carries,
            segment,
            ..
        } = &mut *self.buffers;
        let scores = &mut scores[..num_queries * SPAN];
        kernels.score(
            &queries[..num_queries * shape.head_dim],
            &keys[..num_blocks],
            scores,
        );
        if let Some(scales) = &scales {
            kernels.scale(scores, &scales.of_keys);
        }
        for (idx, row) in scores.chunks_exact_mut(SPAN).enumerate() {
            let clip = |position: usize| position.clamp(part.start, part.end) - origin;
            let visible = clip(visible[idx].start)..clip(visible[idx].end);
            let row = &mut row[..num_blocks * BLOCK_TOKENS];
            carries[idx] =
                kernels.weigh(row, visible, layer.spec.softcap, &mut segment.softmax[idx]);
        }
        if let Some(scales) = &scales {
            kernels.scale(scores, &scales.of_values);
        }
        let sums = &mut segment.sums[..num_queries * shape.value_stride()];
        kernels.accumulate(scores, &carries[..num_queries], &values[..num_blocks], sums);
    }

    /// Divides by the sums of weights and stores.
    fn finish(&self, total: &Partial, out: &Disjoint<'_, f32>) {
        let shape = self.layer.input.pages.shape();
        let sums = total.sums.chunks_exact(shape.value_stride());
        for ((softmax, sums), (start, _)) in total.softmax.iter().zip(sums).zip(self.places()) {
            let weight_sum = sum_lanes(softmax.weight_sums);
            // SAFETY: a query belongs to one tile, and one worker finishes it.
            let head = unsafe { out.slice(start..start + shape.head_dim) };
            for (out, sum) in head.iter_mut().zip(sums) {
                // A sum that underflowed to -0 stays -0 alone but becomes +0 beside hidden
                // positions: adding 0 makes both +0.
                *out = sum / weight_sum + 0.0;
            }
        }
    }
}
