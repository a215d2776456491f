//! Attention over paged keys and values.
//!
//! For the query of head `h` at position `p`, with `g` the key head that it shares and `t` running
//! over the last `window` positions up to `p`:
//!
//! ```text
//! score[t] = softcap(scale * query[h] · key[g, t])
//! out[h]   = sum_t softmax_t(score) * value[g, t]
//! ```
//!
//! The one idea: queries of one key head form a *tile* (heads of the group times neighbouring
//! rows), and every key and value that is loaded serves the whole tile. So prefill, decode and
//! drafts are one code, and the cost per query falls with the size of its tile, but its *result*
//! does not depend on it:
//!
//! - Positions are taken in spans of 128, at fixed multiples of 128, in ascending order. After
//!   each span the largest score so far is known; what was summed before is scaled to it (online
//!   softmax), then the span's positions are added one by one.
//! - Every 1024 positions, at fixed multiples, it starts afresh; what such a segment gave is
//!   merged with that of those before it, in order. So workers can share a long sequence by
//!   segments.
//! - A score is one chain of fused multiply-adds over `head_dim`; an output element is one over a
//!   span's positions; the sum of weights is one per lane (position modulo 16) and a fixed tree at
//!   the end.
//! - Elements of 8 bits are widened to floats; the scale of a position's key is multiplied with its
//!   finished score, that of its value with its weight, once the weights are summed. So they cost a
//!   multiplication a position, not one an element.
//! - A position hidden from a query weighs exactly 0 and never touches its largest score, so it
//!   changes nothing that other queries of the tile see it.
//!
//! No operation depends on the width of registers either: all instruction sets give the same bits.
//!
//! Not here: storing keys and values (`kv`), rotating them (`rope`).
//!
//! Sources: paged attention, Kwon et al. 2023, <https://arxiv.org/abs/2309.06180>; online softmax,
//! Milakov and Gimelshein 2018, <https://arxiv.org/abs/1805.02867>; soft caps, Gemma 2,
//! <https://arxiv.org/abs/2408.00118>.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plan;
mod scalar;
#[cfg(test)]
mod tests;
mod tile;

use std::ops::Range;

use half::{bf16, f16};

use crate::isa::{FloatIsa, Isa};
use crate::kv::{BLOCK_TOKENS, KvElement, KvPages, KvType};
use crate::pool::{Disjoint, Pool};
use plan::Plan;
use tile::{Kernels, attend_piece};

/// What fixes a layer's attention besides the shape of its cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttendSpec {
    /// Query heads; a multiple of the cache's key heads, which are shared by neighbours.
    pub num_heads: usize,
    /// Multiplies each score: usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Positions that a query sees, its own included; at least 1. `None`: all before it.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// One sequence's rows of a step.
#[derive(Clone, Copy, Debug)]
pub struct AttendSequence<'a> {
    /// Row of `query` that holds its first new position.
    pub first_row: usize,
    /// New positions, `num_past..num_past + num_rows`; their keys and values are already stored.
    pub num_rows: usize,
    /// Positions before them.
    pub num_past: usize,
    /// `blocks[p / BLOCK_TOKENS]` holds position `p`.
    pub blocks: &'a [u32],
}

/// What is read by [`attend`].
#[derive(Clone, Copy, Debug)]
pub struct AttendInput<'a> {
    /// `[num_rows, num_heads, head_dim]`.
    pub query: &'a [f32],
    /// The layer's cache.
    pub pages: &'a KvPages,
    /// In ascending order of rows, none of which belongs to two.
    pub sequences: &'a [AttendSequence<'a>],
}

/// Attention of a step's rows over their own sequences, for one layer; formula and order of
/// operations stand above. At most one parallel region.
///
/// # Shapes
///
/// `out`: as `input.query`. Rows that belong to no sequence are left as they were.
///
/// # Panics
///
/// If shapes disagree, a block table is too short or names a block that is not there, rows
/// overlap, or the window is 0.
///
/// # Cost
///
/// `2 * head_dim` multiply-adds per query head and visible position. A tile (up to 24 queries of
/// one key head) reads its keys and values once.
///
/// # NaN
///
/// A NaN key or value makes NaN of all rows that see it, and may make NaN of earlier rows of the same
/// sequence and step. It never reaches another sequence.
pub fn attend(pool: &Pool, spec: &AttendSpec, input: AttendInput<'_>, out: &mut [f32]) {
    attend_with(Isa::current().floats(), pool, spec, input, out);
}

fn attend_with(
    isa: FloatIsa,
    pool: &Pool,
    spec: &AttendSpec,
    input: AttendInput<'_>,
    out: &mut [f32],
) {
    check(spec, &input, out);
    match input.pages.shape().element {
        KvType::F32 => attend_as::<f32>(isa, pool, spec, input, out),
        KvType::F16 => attend_as::<f16>(isa, pool, spec, input, out),
        KvType::Bf16 => attend_as::<bf16>(isa, pool, spec, input, out),
        KvType::Int8 => attend_as::<i8>(isa, pool, spec, input, out),
    }
}

fn attend_as<E: KvElement>(
    isa: FloatIsa,
    pool: &Pool,
    spec: &AttendSpec,
    input: AttendInput<'_>,
    out: &mut [f32],
) {
    let out = Disjoint::new(out);
    let layer = Layer::<E> {
        spec,
        input,
        keys: input.pages.keys(),
        values: input.pages.values(),
        scales: input.pages.scales(),
    };
    match isa {
        FloatIsa::Scalar => layer.attend_pieces(scalar::Scalar, pool, &out),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx2(proof) => layer.attend_pieces(proof, pool, &out),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx512(proof) => layer.attend_pieces(proof, pool, &out),
    }
}

fn check(spec: &AttendSpec, input: &AttendInput<'_>, out: &[f32]) {
    let shape = input.pages.shape();
    let row_len = spec
        .num_heads
        .checked_mul(shape.head_dim)
        .expect("a row fits the address space");
    assert!(
        spec.num_heads > 0 && spec.num_heads.is_multiple_of(shape.num_kv_heads),
        "{} heads share {} key heads",
        spec.num_heads,
        shape.num_kv_heads
    );
    assert!(
        spec.window != Some(0),
        "a window of 0 hides even the query's own position"
    );
    assert!(
        input.query.len().is_multiple_of(row_len),
        "{} values are not rows of {row_len}",
        input.query.len()
    );
    assert_eq!(input.query.len(), out.len(), "query and out have one shape");
    let num_rows = input.query.len() / row_len;
    let mut rows_end = 0;
    for sequence in input.sequences {
        assert!(
            sequence.first_row >= rows_end,
            "row {} belongs to two sequences",
            sequence.first_row
        );
        // Workers write to disjoint rows on the strength of these checks: a sum must not wrap.
        rows_end = sequence.first_row.saturating_add(sequence.num_rows);
        assert!(rows_end <= num_rows, "row {rows_end} of {num_rows}");
        let num_positions = sequence.num_past.saturating_add(sequence.num_rows);
        let num_blocks = num_positions.div_ceil(BLOCK_TOKENS);
        assert!(
            sequence.blocks.len() >= num_blocks,
            "{} blocks, needed are {num_blocks}",
            sequence.blocks.len()
        );
        for &block in &sequence.blocks[..num_blocks] {
            assert!(
                (block as usize) < input.pages.num_blocks(),
                "block {block} of {}",
                input.pages.num_blocks()
            );
        }
    }
}

/// Everything that the pieces of one call share.
struct Layer<'a, E> {
    spec: &'a AttendSpec,
    input: AttendInput<'a>,
    keys: &'a [E],
    values: &'a [E],
    /// See [`KvPages::scales`].
    scales: Option<&'a [[[bf16; BLOCK_TOKENS]; 2]]>,
}

impl<E: KvElement> Layer<'_, E> {
    /// Query heads that share a key head.
    fn group(&self) -> usize {
        self.spec.num_heads / self.input.pages.shape().num_kv_heads
    }

    /// Positions that the query at `position` sees.
    fn visible(&self, position: usize) -> Range<usize> {
        let window = self.spec.window.unwrap_or(usize::MAX);
        (position + 1).saturating_sub(window)..position + 1
    }

    fn attend_pieces<K: Kernels<E>>(&self, kernels: K, pool: &Pool, out: &Disjoint<'_, f32>) {
        /// Some microseconds of work: handing over would take about as long.
        const COST_ALONE_MAX: usize = 128 * 1024;
        let plan = Plan::new(self, pool.num_threads());
        let attend = |idx: usize| attend_piece(kernels, self, &plan, idx, out);
        if plan.cost() <= COST_ALONE_MAX {
            (0..plan.pieces.len()).for_each(attend);
        } else {
            pool.for_each(plan.pieces.len(), attend);
        }
    }
}
