//! One tile: up to [`QUERIES_MAX`] queries that share a key head walk over their positions together.
//!
//! The walk is the same for all instruction sets; they provide its three steps ([`Kernels`]).
//!
//! ```text
//! per span of 128 positions:   queries × keys → scores → weigh → weights × values → sums
//!                                                          └ carry: what the sums so far are multiplied by
//! ```

use std::cell::RefCell;
use std::ops::Range;

use super::Layer;
use crate::aligned::Aligned;
use crate::kv::{BLOCK_TOKENS, KvElement};
use crate::ops::math::{LANES, sum_lanes};
use crate::pool::Disjoint;

/// Queries in a tile at most: scores, sums and queries of a tile then stay in the first-level cache beside a span's keys.
pub(super) const QUERIES_MAX: usize = 24;

/// Positions between two rescalings. Part of the definition: another span gives other roundings.
pub(super) const SPAN: usize = 128;
const SPAN_BLOCKS: usize = SPAN / BLOCK_TOKENS;

/// Which queries: `rows` of the sequence times `heads` of the key head's group.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) sequence_idx: usize,
    pub(super) kv_head: usize,
    pub(super) rows: Range<usize>,
    pub(super) heads: Range<usize>,
}

/// The values of one block that at least one query of the tile sees.
#[derive(Clone)]
pub(super) struct ValueBlock<'a, E> {
    /// `[16][value_stride]`.
    pub(super) values: &'a [E],
    /// Positions within the block.
    pub(super) slots: Range<usize>,
}

/// How far one query's softmax has come.
#[derive(Clone)]
pub(super) struct Progress {
    /// All positions it may see.
    visible: Range<usize>,
    /// Largest score so far.
    pub(super) largest: f32,
    /// Sums of `exp(score - largest)` so far, by position modulo 16.
    pub(super) weight_sums: [f32; LANES],
}

/// The steps of a walk. Every implementor gives the bits that `scalar` gives.
pub(super) trait Kernels<E>: Copy + Sync {
    /// `scores[q][16 * b + i] = queries[q] · keys[b][..][i]`, one chain of multiply-adds over `head_dim`.
    ///
    /// Shapes: `queries [num_queries, head_dim]`, each of `keys` `[head_dim, 16]`, at most 8 of them; `scores [num_queries, SPAN]`.
    fn score(self, queries: &[f32], keys: &[&[E]], scores: &mut [f32]);

    /// Turns one query's scores into weights, 0 outside `visible` (indices into `scores`). Returns the carry:
    /// what must be multiplied with all sums made so far.
    fn weigh(
        self,
        scores: &mut [f32],
        visible: Range<usize>,
        softcap: Option<f32>,
        progress: &mut Progress,
    ) -> f32;

    /// `sums[q][d] = sums[q][d] * carries[q] + sum_t weights[q][t] * values[t][d]`, one chain of multiply-adds over positions.
    ///
    /// Shapes: `weights [num_queries, SPAN]`, `carries [num_queries]`, `sums [num_queries, value_stride]`.
    fn accumulate(
        self,
        weights: &[f32],
        carries: &[f32],
        values: &[ValueBlock<'_, E>],
        sums: &mut [f32],
    );
}

/// What a tile needs while it is computed; each thread keeps its own.
#[derive(Default)]
struct Buffers {
    /// `[num_queries, head_dim]`, scaled.
    queries: Aligned<f32>,
    /// `[num_queries, SPAN]`.
    scores: Aligned<f32>,
    /// `[num_queries, value_stride]`.
    sums: Aligned<f32>,
    /// `[num_queries]`.
    progress: Vec<Progress>,
    /// `[num_queries]`.
    carries: Vec<f32>,
}

/// Computes one tile and writes its part of `out`.
pub(super) fn attend_tile<E: KvElement, K: Kernels<E>>(
    kernels: K,
    layer: &Layer<'_, E>,
    tile: &Tile,
    out: &Disjoint<'_, f32>,
) {
    thread_local! {
        static BUFFERS: RefCell<Buffers> = RefCell::default();
    }
    BUFFERS.with_borrow_mut(|buffers| {
        let mut walk = Walk {
            layer,
            tile,
            buffers,
        };
        let visible = walk.start();
        // Spans lie at multiples of their length, wherever the tile begins: see the module's words on order.
        for span in visible.start / SPAN..visible.end.div_ceil(SPAN) {
            let part = visible.start.max(span * SPAN)..visible.end.min((span + 1) * SPAN);
            walk.take(kernels, part);
        }
        walk.finish(out);
    });
}

struct Walk<'a, E> {
    layer: &'a Layer<'a, E>,
    tile: &'a Tile,
    buffers: &'a mut Buffers,
}

impl<E: KvElement> Walk<'_, E> {
    fn num_queries(&self) -> usize {
        self.tile.rows.len() * self.tile.heads.len()
    }

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

    /// Gathers the queries; says which positions at least one of them sees.
    fn start(&mut self) -> Range<usize> {
        let shape = self.layer.input.pages.shape();
        let places: Vec<_> = self.places().collect();
        let (layer, num_queries, buffers) = (self.layer, self.num_queries(), &mut *self.buffers);
        grow(&mut buffers.queries, num_queries * shape.head_dim);
        grow(&mut buffers.scores, num_queries * SPAN);
        grow(&mut buffers.sums, num_queries * shape.value_stride());
        buffers.sums.fill(0.0);
        buffers.carries.resize(num_queries, 0.0);
        buffers.progress.clear();
        for (query, (start, position)) in
            buffers.queries.chunks_exact_mut(shape.head_dim).zip(places)
        {
            for (scaled, value) in query.iter_mut().zip(&layer.input.query[start..]) {
                *scaled = value * layer.spec.scale;
            }
            buffers.progress.push(Progress {
                visible: layer.visible(position),
                largest: f32::NEG_INFINITY,
                weight_sums: [0.0; LANES],
            });
        }
        // Positions ascend from query to query, and so do both ends of what they see.
        let (first, last) = (&buffers.progress[0], &buffers.progress[num_queries - 1]);
        first.visible.start..last.visible.end
    }

    /// Adds the positions `part`, which lie in one span.
    fn take<K: Kernels<E>>(&mut self, kernels: K, part: Range<usize>) {
        let layer = self.layer;
        let shape = layer.input.pages.shape();
        let num_queries = self.num_queries();
        let blocks = part.start / BLOCK_TOKENS..part.end.div_ceil(BLOCK_TOKENS);
        let (num_blocks, origin) = (blocks.len(), blocks.start * BLOCK_TOKENS);
        let mut keys: [&[E]; SPAN_BLOCKS] = [&[]; SPAN_BLOCKS];
        let mut values: [ValueBlock<'_, E>; SPAN_BLOCKS] = std::array::from_fn(|_| ValueBlock {
            values: &[],
            slots: 0..0,
        });
        for (idx, block) in blocks.enumerate() {
            let page = layer.input.sequences[self.tile.sequence_idx].blocks[block] as usize;
            let head = page * shape.num_kv_heads + self.tile.kv_head;
            keys[idx] = &layer.keys[head * shape.key_block_len()..][..shape.key_block_len()];
            // Slots nobody sees may hold another sequence's leftovers, so they are not even weighed by 0.
            let first = block * BLOCK_TOKENS;
            values[idx] = ValueBlock {
                values: &layer.values[head * shape.value_block_len()..][..shape.value_block_len()],
                slots: part.start.max(first) - first..part.end.min(first + BLOCK_TOKENS) - first,
            };
        }
        let Buffers {
            queries,
            scores,
            sums,
            progress,
            carries,
        } = &mut *self.buffers;
        let scores = &mut scores[..num_queries * SPAN];
        kernels.score(
            &queries[..num_queries * shape.head_dim],
            &keys[..num_blocks],
            scores,
        );
        for ((row, progress), carry) in scores
            .chunks_exact_mut(SPAN)
            .zip(&mut *progress)
            .zip(&mut *carries)
        {
            let clip = |position: usize| position.clamp(part.start, part.end) - origin;
            let visible = clip(progress.visible.start)..clip(progress.visible.end);
            *carry = kernels.weigh(
                &mut row[..num_blocks * BLOCK_TOKENS],
                visible,
                layer.spec.softcap,
                progress,
            );
        }
        kernels.accumulate(
            scores,
            &carries[..num_queries],
            &values[..num_blocks],
            &mut sums[..num_queries * shape.value_stride()],
        );
    }

    /// Divides by the sums of weights and stores.
    fn finish(&mut self, out: &Disjoint<'_, f32>) {
        let shape = self.layer.input.pages.shape();
        let sums = self.buffers.sums.chunks_exact(shape.value_stride());
        for ((sums, progress), (start, _)) in sums.zip(&self.buffers.progress).zip(self.places()) {
            let total = sum_lanes(progress.weight_sums);
            // SAFETY: a query belongs to one tile, and each tile is computed by one worker.
            let head = unsafe { out.slice(start..start + shape.head_dim) };
            for (out, sum) in head.iter_mut().zip(sums) {
                // A sum that underflowed to -0 stays -0 alone but becomes +0 beside hidden positions: adding 0 makes both +0.
                *out = sum / total + 0.0;
            }
        }
    }
}

fn grow(memory: &mut Aligned<f32>, len: usize) {
    if memory.len() < len {
        *memory = Aligned::zeroed(len);
    }
}
