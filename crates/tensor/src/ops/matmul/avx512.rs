//! AVX-512: one register is one quad (16 outputs x 4 columns) of weights, or 16 sums.
//!
//! Per block of 32 columns and row of activations: 8 `vpdpbusd` with the activations broadcast by the
//! load unit, one conversion, one multiplication, two fused multiply-adds. So 16 x 32 products
//! cost 11 operations of the two multiply pipes, 5.5 cycles; unpacking the weights (about 12 operations) is
//! shared by up to 8 rows. Registers: 8 of weights, up to 8 of sums, the rest scratch.
//! (Sixteen rows at once were slower, 294 against 340 billion products a second: registers spill.)

use std::arch::x86_64::*;

use super::{Ahead, OutPanel, Span, Store};
use crate::isa::{Avx512Bf16, Avx512Vnni};
use crate::matrix::{CodePanel, FloatPanel, GroupLen, PANEL_ROWS, Unpack};
use crate::rows::TILE_ROWS;

/// Registers of a block of weights: quads of 4 columns.
const QUADS: usize = 8;

/// See [`super::scalar::multiply_codes`].
pub(super) fn multiply_codes(
    _proof: Avx512Vnni,
    panel: CodePanel<'_>,
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe {
        match (panel.unpack, panel.group) {
            (Unpack::Byte, GroupLen::Sixteen) => codes::<BYTE, 2>(panel, span, out),
            (Unpack::Byte, GroupLen::ThirtyTwo) => codes::<BYTE, 1>(panel, span, out),
            (Unpack::Nibble, GroupLen::Sixteen) => codes::<NIBBLE, 2>(panel, span, out),
            (Unpack::Nibble, GroupLen::ThirtyTwo) => codes::<NIBBLE, 1>(panel, span, out),
            (Unpack::Table(_), GroupLen::Sixteen) => codes::<TABLE, 2>(panel, span, out),
            (Unpack::Table(_), GroupLen::ThirtyTwo) => codes::<TABLE, 1>(panel, span, out),
        }
    }
}

// What `Unpack` says, as a constant of the kernel.
const BYTE: usize = 0;
const NIBBLE: usize = 1;
const TABLE: usize = 2;

const fn block_bytes(unpack: usize) -> usize {
    if unpack == BYTE {
        QUADS * 64
    } else {
        QUADS * 32
    }
}

/// All rows of the span, as many at once as there are.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn codes<const UNPACK: usize, const GROUPS: usize>(
    panel: CodePanel<'_>,
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    for first_row in span.range.clone().step_by(TILE_ROWS) {
        match (span.range.end - first_row).min(TILE_ROWS) {
            1 => code_rows::<UNPACK, GROUPS, 1>(&panel, span, first_row, out),
            2 => code_rows::<UNPACK, GROUPS, 2>(&panel, span, first_row, out),
            3 => code_rows::<UNPACK, GROUPS, 3>(&panel, span, first_row, out),
            4 => code_rows::<UNPACK, GROUPS, 4>(&panel, span, first_row, out),
            5 => code_rows::<UNPACK, GROUPS, 5>(&panel, span, first_row, out),
            6 => code_rows::<UNPACK, GROUPS, 6>(&panel, span, first_row, out),
            7 => code_rows::<UNPACK, GROUPS, 7>(&panel, span, first_row, out),
            _ => code_rows::<UNPACK, GROUPS, TILE_ROWS>(&panel, span, first_row, out),
        }
    }
}

/// `ROWS` rows from `first_row` on, which begins a tile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn code_rows<const UNPACK: usize, const GROUPS: usize, const ROWS: usize>(
    panel: &CodePanel<'_>,
    span: &Span<'_>,
    first_row: usize,
    out: &mut OutPanel<'_>,
) {
    let tile = span.rows.tile(first_row / TILE_ROWS);
    let num_blocks = tile.len();
    assert_eq!(panel.codes.len(), num_blocks * block_bytes(UNPACK));
    assert_eq!(panel.scales.len(), num_blocks * GROUPS * PANEL_ROWS);
    assert!(panel.mins.is_empty() || panel.mins.len() == panel.scales.len());

    let table = match panel.unpack {
        Unpack::Table(table) => {
            // SAFETY: 16 readable bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm512_broadcast_i32x4(table)
        }
        Unpack::Byte | Unpack::Nibble => _mm512_setzero_si512(),
    };
    let mut sums = [_mm512_setzero_ps(); ROWS];
    // Only the first rows find the panel far away.
    let ahead = (first_row == span.range.start).then(|| Ahead::of(panel, num_blocks));
    for (block_idx, block) in tile.iter().enumerate() {
        if let Some(ahead) = ahead {
            ahead.prefetch(block_idx);
        }
        // SAFETY: `block_idx < num_blocks`, and by the assertions above the panel has as many blocks.
        let weights = unsafe {
            unpack::<UNPACK>(
                panel.codes.as_ptr().add(block_idx * block_bytes(UNPACK)),
                table,
            )
        };
        for group in 0..GROUPS {
            // SAFETY: as above: the panel has `num_blocks * GROUPS` groups.
            let (scale, min) = unsafe { scale_and_min(panel, block_idx * GROUPS + group) };
            let quads = QUADS / GROUPS;
            for (lane, sum) in sums.iter_mut().enumerate() {
                let activations = &block.quads[lane];
                let mut dot = _mm512_setzero_si512();
                for quad in group * quads..(group + 1) * quads {
                    dot = _mm512_dpbusd_epi32(
                        dot,
                        weights[quad],
                        _mm512_set1_epi32(activations[quad]),
                    );
                }
                let code_sum = if GROUPS == 1 {
                    block.sums[lane]
                } else {
                    block.half_sums[group][lane]
                };
                let both = _mm512_mul_ps(scale, _mm512_set1_ps(block.scales[lane]));
                *sum = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(dot), *sum);
                *sum = _mm512_fmadd_ps(min, _mm512_set1_ps(code_sum), *sum);
            }
        }
    }
    let factor = _mm512_set1_ps(panel.factor);
    for (row, sum) in sums.into_iter().enumerate() {
        store(out, first_row + row, _mm512_mul_ps(sum, factor));
    }
}

/// A group's scales and minimums, of 16 outputs.
///
/// # Safety
///
/// The panel has such a group, and as many minimums as scales or none.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn scale_and_min(panel: &CodePanel<'_>, group_idx: usize) -> (__m512, __m512) {
    let at = group_idx * PANEL_ROWS;
    // SAFETY: the caller's promise.
    let scale = unsafe { load_halves(panel.scales.as_ptr().add(at)) };
    let stored = if panel.mins.is_empty() {
        _mm512_setzero_ps()
    } else {
        // SAFETY: the caller's promise.
        unsafe { load_halves(panel.mins.as_ptr().add(at)) }
    };
    (
        scale,
        _mm512_fnmadd_ps(_mm512_set1_ps(panel.bias), scale, stored),
    )
}

/// 8 registers of 16 outputs x 4 columns.
///
/// # Safety
///
/// `block` points to `block_bytes(UNPACK)` readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn unpack<const UNPACK: usize>(block: *const u8, table: __m512i) -> [__m512i; QUADS] {
    let mut quads = [_mm512_setzero_si512(); QUADS];
    if UNPACK == BYTE {
        for (quad, register) in quads.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *register = unsafe { _mm512_loadu_si512(block.add(quad * 64).cast()) };
        }
        return quads;
    }
    let nibble = _mm512_set1_epi8(0x0f);
    for pair in 0..QUADS / 2 {
        // SAFETY: the caller's promise.
        let both = unsafe { _mm512_loadu_si512(block.add(pair * 64).cast()) };
        let low = _mm512_and_si512(both, nibble);
        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(both), nibble);
        let (low, high) = if UNPACK == TABLE {
            (
                _mm512_shuffle_epi8(table, low),
                _mm512_shuffle_epi8(table, high),
            )
        } else {
            (low, high)
        };
        quads[2 * pair] = low;
        quads[2 * pair + 1] = high;
    }
    quads
}

/// See [`super::scalar::multiply_floats`].
pub(super) fn multiply_floats(
    _proof: Avx512Vnni,
    panel: FloatPanel<'_>,
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { floats(panel, span, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn floats(panel: FloatPanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    let mut row_idx = span.range.start;
    while row_idx < span.range.end {
        let num_rows = match span.range.end - row_idx {
            1 => float_rows::<1>(panel, span, row_idx, out),
            2..4 => float_rows::<2>(panel, span, row_idx, out),
            4..8 => float_rows::<4>(panel, span, row_idx, out),
            _ => float_rows::<8>(panel, span, row_idx, out),
        };
        row_idx += num_rows;
    }
}

/// `ROWS` rows from `first_row` on; returns their number.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn float_rows<const ROWS: usize>(
    panel: FloatPanel<'_>,
    span: &Span<'_>,
    first_row: usize,
    out: &mut OutPanel<'_>,
) -> usize {
    let cols = span.rows.cols();
    let values = &span.rows.values()[first_row * cols..][..ROWS * cols];
    let mut sums = [_mm512_setzero_ps(); ROWS];
    let mut add_column = |col: usize, weights: __m512| {
        debug_assert!(col < cols);
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `row < ROWS` and `col < cols`, and `values` is `[ROWS, cols]`.
            let value = unsafe { *values.get_unchecked(row * cols + col) };
            *sum = _mm512_fmadd_ps(weights, _mm512_set1_ps(value), *sum);
        }
    };
    match panel {
        FloatPanel::F32(weights) => {
            for (col, weights) in weights.as_chunks::<PANEL_ROWS>().0[..cols]
                .iter()
                .enumerate()
            {
                // SAFETY: 16 readable floats.
                add_column(col, unsafe { _mm512_loadu_ps(weights.as_ptr()) });
            }
        }
        FloatPanel::F16(weights) => {
            for (col, weights) in weights.as_chunks::<PANEL_ROWS>().0[..cols]
                .iter()
                .enumerate()
            {
                // SAFETY: 16 readable halves.
                add_column(col, unsafe { load_halves(weights.as_ptr()) });
            }
        }
        FloatPanel::Bf16(pairs) => {
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            for (pair, weights) in pairs.as_chunks::<PANEL_ROWS>().0[..cols.div_ceil(2)]
                .iter()
                .enumerate()
            {
                // SAFETY: 16 readable words.
                let weights = unsafe { _mm512_loadu_si512(weights.as_ptr().cast()) };
                add_column(
                    2 * pair,
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(weights)),
                );
                if 2 * pair + 1 < cols {
                    add_column(
                        2 * pair + 1,
                        _mm512_castsi512_ps(_mm512_and_si512(weights, upper)),
                    );
                }
            }
        }
    }
    for (row, sum) in sums.into_iter().enumerate() {
        store(out, first_row + row, sum);
    }
    ROWS
}

/// Pairs of bf16 by pairs of bf16 (`vdpbf16ps`, which rounds to nearest and takes denormals as zero).
pub(super) fn multiply_pairs(
    _proof: Avx512Bf16,
    weights: &[u32],
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { pairs(weights, span, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
fn pairs(weights: &[u32], span: &Span<'_>, out: &mut OutPanel<'_>) {
    let mut row_idx = span.range.start;
    while row_idx < span.range.end {
        let num_rows = match span.range.end - row_idx {
            1 => pair_rows::<1>(weights, span, row_idx, out),
            2..4 => pair_rows::<2>(weights, span, row_idx, out),
            4..8 => pair_rows::<4>(weights, span, row_idx, out),
            _ => pair_rows::<8>(weights, span, row_idx, out),
        };
        row_idx += num_rows;
    }
}

/// `ROWS` rows from `first_row` on; returns their number.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
fn pair_rows<const ROWS: usize>(
    weights: &[u32],
    span: &Span<'_>,
    first_row: usize,
    out: &mut OutPanel<'_>,
) -> usize {
    let num_pairs = span.rows.cols().div_ceil(2);
    let activations = &span.rows.pairs()[first_row * num_pairs..][..ROWS * num_pairs];
    let mut sums = [_mm512_setzero_ps(); ROWS];
    for (pair, weights) in weights.as_chunks::<PANEL_ROWS>().0[..num_pairs]
        .iter()
        .enumerate()
    {
        // SAFETY: 16 readable words; a vector of bf16 pairs has the same bits as one of words.
        let weights: __m512bh =
            unsafe { std::mem::transmute(_mm512_loadu_si512(weights.as_ptr().cast())) };
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `row < ROWS` and `pair < num_pairs`, and `activations` is `[ROWS, num_pairs]`.
            let activation = unsafe { *activations.get_unchecked(row * num_pairs + pair) };
            let activation = _mm512_set1_epi32(activation.cast_signed());
            // SAFETY: as above, the same bits.
            let activation: __m512bh = unsafe { std::mem::transmute(activation) };
            *sum = _mm512_dpbf16_ps(*sum, weights, activation);
        }
    }
    for (row, sum) in sums.into_iter().enumerate() {
        store(out, first_row + row, sum);
    }
    ROWS
}

/// # Safety
///
/// `halves` points to 16 readable f16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn load_halves(halves: *const u16) -> __m512 {
    // SAFETY: the caller's promise.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(halves.cast()) })
}

/// Writes or adds a row's sums, as many as the panel has outputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn store(out: &mut OutPanel<'_>, row_idx: usize, sums: __m512) {
    let store = out.store;
    let values = out.row(row_idx);
    let mask = ((1_u32 << values.len()) - 1) as __mmask16;
    // SAFETY: the mask covers just the slice, which is at most 16 long.
    unsafe {
        let sums = match store {
            Store::Overwrite => sums,
            Store::Add => _mm512_add_ps(_mm512_maskz_loadu_ps(mask, values.as_ptr()), sums),
        };
        _mm512_mask_storeu_ps(values.as_mut_ptr(), mask, sums);
    }
}
