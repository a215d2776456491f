//! AVX2, and AVX-VNNI on the same registers: one register is half a quad (8 outputs x 4 columns).
//!
//! Half a panel at a time, 2 to 4 rows. A lone row leaves registers free, so it takes the whole panel: an activation that
//! is broadcast serves 16 outputs, and twice as many sums are under way. Without VNNI, products of bytes are added in pairs by `vpmaddubsw` to
//! 16 bits, which 255 * 127 * 2 would overflow. Codes are therefore multiplied nibble by nibble: then a group
//! of 32 columns adds up to 15 * 127 * 16 = 30480 at most, so sums may stay in 16 bits for the whole
//! group, and a byte's two halves meet only at its end.
//!
//! The functions are `inline(always)` and have no features of their own: they are compiled once into each of the
//! entries at the top of the file, which have.

use std::arch::x86_64::*;

use super::{Ahead, OutPanel, Span, Store};
use crate::isa::{Avx2, AvxVnni};
use crate::matrix::{CodePanel, FloatPanel, GroupLen, PANEL_ROWS, Unpack};
use crate::rows::TILE_ROWS;

/// Outputs in a register.
const LANES: usize = 8;
/// Rows of codes at once: what 16 registers allow.
const ROWS_MAX: usize = 4;
/// Quads of 4 columns in a block.
const QUADS: usize = 8;

/// See [`super::scalar::multiply_codes`].
pub(super) fn multiply_codes(
    _proof: Avx2,
    panel: CodePanel<'_>,
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn entry(panel: CodePanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
        // SAFETY: this function has the features that these dot products need.
        unsafe {
            match panel.unpack {
                Unpack::Nibble => codes::<NibbleWords>(panel, span, out),
                Unpack::Byte | Unpack::Table(_) => codes::<ByteWords>(panel, span, out),
            }
        }
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(panel, span, out) }
}

/// The same with `vpdpbusd`.
pub(super) fn multiply_codes_vnni(
    _proof: AvxVnni,
    panel: CodePanel<'_>,
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    fn entry(panel: CodePanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
        // SAFETY: this function has the features that `Vnni` needs.
        unsafe { codes::<Vnni>(panel, span, out) }
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(panel, span, out) }
}

/// See [`super::scalar::multiply_floats`].
pub(super) fn multiply_floats(
    _proof: Avx2,
    panel: FloatPanel<'_>,
    span: &Span<'_>,
    out: &mut OutPanel<'_>,
) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn entry(panel: FloatPanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
        // SAFETY: this function has the features.
        unsafe { floats(panel, span, out) }
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(panel, span, out) }
}

/// A way to add up products of unsigned weight codes and signed activation codes, exactly, over a
/// group of up to 32 columns. Its functions need the features of the entry that uses it.
trait Dot: Sized {
    type Sum: Copy;
    unsafe fn zero() -> Self::Sum;
    /// Adds the products of one quad: 8 outputs x 4 columns with 4 columns, broadcast.
    unsafe fn add(sum: Self::Sum, weights: __m256i, activations: __m256i) -> Self::Sum;
    /// 8 sums as i32.
    unsafe fn finish(sum: Self::Sum) -> __m256i;
    /// [`lone_row`], compiled with the features. Not inlined: every version in which the loop of four rows was compiled
    /// differently was slower there, and apart from it this one cannot change it.
    unsafe fn lone_row<const GROUPS: usize>(
        panel: &CodePanel<'_>,
        span: &Span<'_>,
        row_idx: usize,
        out: &mut OutPanel<'_>,
    );
}

/// [`Dot::lone_row`] with the features that an implementor needs.
macro_rules! compiled_lone_row {
    ($features:literal) => {
        #[inline(never)]
        #[target_feature(enable = $features)]
        unsafe fn lone_row<const GROUPS: usize>(
            panel: &CodePanel<'_>,
            span: &Span<'_>,
            row_idx: usize,
            out: &mut OutPanel<'_>,
        ) {
            // SAFETY: this function has the features.
            unsafe { lone_row::<Self, GROUPS>(panel, span, row_idx, out) }
        }
    };
}

/// `vpdpbusd`: four products a lane, straight to 32 bits.
struct Vnni;

impl Dot for Vnni {
    type Sum = __m256i;
    compiled_lone_row!("avx2,fma,f16c,avxvnni");
    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller has AVX-VNNI.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn add(sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        // SAFETY: the caller has AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sum, weights, activations) }
    }
    #[inline(always)]
    unsafe fn finish(sum: __m256i) -> __m256i {
        sum
    }
}

/// Codes up to 15, sums in 16 bits.
struct NibbleWords;

impl Dot for NibbleWords {
    type Sum = __m256i;
    compiled_lone_row!("avx2,fma,f16c");
    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn add(sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, activations)) }
    }
    #[inline(always)]
    unsafe fn finish(sum: __m256i) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) }
    }
}

/// Codes up to 255 as two nibbles.
struct ByteWords;

impl Dot for ByteWords {
    /// Of low nibbles, of high nibbles.
    type Sum = [__m256i; 2];
    compiled_lone_row!("avx2,fma,f16c");
    #[inline(always)]
    unsafe fn zero() -> [__m256i; 2] {
        // SAFETY: the caller has AVX2.
        unsafe { [_mm256_setzero_si256(); 2] }
    }
    #[inline(always)]
    unsafe fn add(sum: [__m256i; 2], weights: __m256i, activations: __m256i) -> [__m256i; 2] {
        // SAFETY: the caller has AVX2.
        unsafe {
            let (low, high) = nibbles(weights);
            [
                NibbleWords::add(sum[0], low, activations),
                NibbleWords::add(sum[1], high, activations),
            ]
        }
    }
    #[inline(always)]
    unsafe fn finish([low, high]: [__m256i; 2]) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let high = _mm256_slli_epi32::<4>(NibbleWords::finish(high));
            _mm256_add_epi32(NibbleWords::finish(low), high)
        }
    }
}

/// Low and high half of each byte.
///
/// # Safety
///
/// Needs AVX2.
#[inline(always)]
unsafe fn nibbles(bytes: __m256i) -> (__m256i, __m256i) {
    // SAFETY: the caller has AVX2.
    unsafe {
        let mask = _mm256_set1_epi8(0x0f);
        (
            _mm256_and_si256(bytes, mask),
            _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask),
        )
    }
}

/// All rows of the span, half a panel and four rows at a time; the whole panel of a row that is left alone.
///
/// # Safety
///
/// Needs AVX2, FMA, F16C and what `D` needs.
#[inline(always)]
unsafe fn codes<D: Dot>(panel: CodePanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    for first_row in span.range.clone().step_by(ROWS_MAX) {
        let num_rows = (span.range.end - first_row).min(ROWS_MAX);
        if num_rows == 1 {
            // SAFETY: the caller has the features.
            unsafe {
                match panel.group {
                    GroupLen::Sixteen => D::lone_row::<2>(&panel, span, first_row, out),
                    GroupLen::ThirtyTwo => D::lone_row::<1>(&panel, span, first_row, out),
                }
            }
            continue;
        }
        for half in 0..out.columns.len().div_ceil(LANES) {
            // SAFETY: the caller has the features.
            unsafe {
                match (panel.group, num_rows) {
                    (GroupLen::Sixteen, 2) => {
                        code_rows::<D, 2, 2>(&panel, span, first_row, half, out)
                    }
                    (GroupLen::Sixteen, 3) => {
                        code_rows::<D, 2, 3>(&panel, span, first_row, half, out)
                    }
                    (GroupLen::Sixteen, _) => {
                        code_rows::<D, 2, 4>(&panel, span, first_row, half, out)
                    }
                    (GroupLen::ThirtyTwo, 2) => {
                        code_rows::<D, 1, 2>(&panel, span, first_row, half, out)
                    }
                    (GroupLen::ThirtyTwo, 3) => {
                        code_rows::<D, 1, 3>(&panel, span, first_row, half, out)
                    }
                    (GroupLen::ThirtyTwo, _) => {
                        code_rows::<D, 1, 4>(&panel, span, first_row, half, out)
                    }
                }
            }
        }
    }
}

/// One row and both halves of the panel side by side: what [`code_rows`] computes, operation by operation.
///
/// # Safety
///
/// As [`codes`].
#[inline(always)]
unsafe fn lone_row<D: Dot, const GROUPS: usize>(
    panel: &CodePanel<'_>,
    span: &Span<'_>,
    row_idx: usize,
    out: &mut OutPanel<'_>,
) {
    let tile = span.rows.tile(row_idx / TILE_ROWS);
    let lane = row_idx % TILE_ROWS;
    assert_eq!(panel.scales.len(), tile.len() * GROUPS * PANEL_ROWS);
    assert!(panel.mins.is_empty() || panel.mins.len() == panel.scales.len());
    let halves = [0, 1].map(|half| Quads::new(panel, tile.len(), half));
    let pairs_per_group = QUADS / GROUPS / 2;
    // Later rows find the panel in the cache.
    let ahead = (row_idx == span.range.start).then(|| Ahead::of(panel, tile.len()));
    // SAFETY: the caller has the features; indices are explained where they are used.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); 2];
        for (block_idx, block) in tile.iter().enumerate() {
            if let Some(ahead) = ahead {
                ahead.prefetch(block_idx);
            }
            for group in 0..GROUPS {
                let mut dots = [D::zero(); 2];
                for pair in group * pairs_per_group..(group + 1) * pairs_per_group {
                    let even = _mm256_set1_epi32(block.quads[lane][2 * pair]);
                    let odd = _mm256_set1_epi32(block.quads[lane][2 * pair + 1]);
                    for (dot, quads) in dots.iter_mut().zip(&halves) {
                        // Inside: `block_idx` is below the number of blocks that `quads` was made for.
                        let (low, high) = quads.pair(block_idx, pair);
                        *dot = D::add(*dot, low, even);
                        *dot = D::add(*dot, high, odd);
                    }
                }
                let code_sum = if GROUPS == 1 {
                    block.sums[lane]
                } else {
                    block.half_sums[group][lane]
                };
                let code_sum = _mm256_set1_ps(code_sum);
                let row_scale = _mm256_set1_ps(block.scales[lane]);
                for (half, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                    // Inside: the panel has as many groups.
                    let group_idx = block_idx * GROUPS + group;
                    let (scale, min) = scale_and_min(panel, group_idx * PANEL_ROWS + half * LANES);
                    let both = _mm256_mul_ps(scale, row_scale);
                    *sum = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(D::finish(dot)), *sum);
                    *sum = _mm256_fmadd_ps(min, code_sum, *sum);
                }
            }
        }
        let factor = _mm256_set1_ps(panel.factor);
        // A matrix's last panel may have no second half.
        let num_halves = out.columns.len().div_ceil(LANES);
        for (half, sum) in sums.into_iter().enumerate().take(num_halves) {
            store(out, row_idx, half, _mm256_mul_ps(sum, factor));
        }
    }
}

/// Scales and minimums of 8 outputs in one group, the first of which is number `at` of the panel's.
///
/// # Safety
///
/// There are 8 scales from `at` on, and as many minimums as scales or none; needs AVX2, FMA, F16C.
#[inline(always)]
unsafe fn scale_and_min(panel: &CodePanel<'_>, at: usize) -> (__m256, __m256) {
    // SAFETY: the caller's promises.
    unsafe {
        let scale = load_halves(panel.scales.as_ptr().add(at));
        let stored = match panel.mins.is_empty() {
            true => _mm256_setzero_ps(),
            false => load_halves(panel.mins.as_ptr().add(at)),
        };
        let min = _mm256_fnmadd_ps(_mm256_set1_ps(panel.bias), scale, stored);
        (scale, min)
    }
}

/// `ROWS` rows of one tile from `first_row` on, 8 outputs.
///
/// # Safety
///
/// As [`codes`].
#[inline(always)]
unsafe fn code_rows<D: Dot, const GROUPS: usize, const ROWS: usize>(
    panel: &CodePanel<'_>,
    span: &Span<'_>,
    first_row: usize,
    half: usize,
    out: &mut OutPanel<'_>,
) {
    let tile = span.rows.tile(first_row / TILE_ROWS);
    let first_lane = first_row % TILE_ROWS;
    assert_eq!(panel.scales.len(), tile.len() * GROUPS * PANEL_ROWS);
    assert!(panel.mins.is_empty() || panel.mins.len() == panel.scales.len());
    let quads = Quads::new(panel, tile.len(), half);
    let quads_per_group = QUADS / GROUPS;
    // Only the first rows and outputs find the panel far away.
    let is_first = first_row == span.range.start && half == 0;
    let ahead = is_first.then(|| Ahead::of(panel, tile.len()));
    // SAFETY: the caller has the features; indices are explained where they are used.
    unsafe {
        let bias = _mm256_set1_ps(panel.bias);
        let mut sums = [_mm256_setzero_ps(); ROWS];
        for (block_idx, block) in tile.iter().enumerate() {
            if let Some(ahead) = ahead {
                ahead.prefetch(block_idx);
            }
            for group in 0..GROUPS {
                let mut dots = [D::zero(); ROWS];
                for pair in group * quads_per_group / 2..(group + 1) * quads_per_group / 2 {
                    // Inside: `block_idx` is below the number of blocks that `quads` was made for.
                    let (low, high) = quads.pair(block_idx, pair);
                    for (row, dot) in dots.iter_mut().enumerate() {
                        let activations = &block.quads[first_lane + row];
                        let broadcast = |quad: usize| _mm256_set1_epi32(activations[quad]);
                        *dot = D::add(*dot, low, broadcast(2 * pair));
                        *dot = D::add(*dot, high, broadcast(2 * pair + 1));
                    }
                }
                // Inside: as many groups as scales, and as mins if there are any.
                let at = (block_idx * GROUPS + group) * PANEL_ROWS + half * LANES;
                let scale = load_halves(panel.scales.as_ptr().add(at));
                let min = match panel.mins.is_empty() {
                    true => _mm256_setzero_ps(),
                    false => load_halves(panel.mins.as_ptr().add(at)),
                };
                let min = _mm256_fnmadd_ps(bias, scale, min);
                for (row, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                    let lane = first_lane + row;
                    let code_sum = if GROUPS == 1 {
                        block.sums[lane]
                    } else {
                        block.half_sums[group][lane]
                    };
                    let both = _mm256_mul_ps(scale, _mm256_set1_ps(block.scales[lane]));
                    *sum = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(D::finish(dot)), *sum);
                    *sum = _mm256_fmadd_ps(min, _mm256_set1_ps(code_sum), *sum);
                }
            }
        }
        let factor = _mm256_set1_ps(panel.factor);
        for (row, sum) in sums.into_iter().enumerate() {
            store(out, first_row + row, half, _mm256_mul_ps(sum, factor));
        }
    }
}

/// Unpacks half a panel's codes, two quads at a time.
struct Quads<'a> {
    codes: &'a [u8],
    unpack: Unpack,
    half: usize,
}

impl<'a> Quads<'a> {
    fn new(panel: &CodePanel<'a>, num_blocks: usize, half: usize) -> Quads<'a> {
        let quads_in_block = match panel.unpack {
            Unpack::Byte => QUADS,
            Unpack::Nibble | Unpack::Table(_) => QUADS / 2,
        };
        assert_eq!(
            panel.codes.len(),
            num_blocks * quads_in_block * 2 * 4 * LANES
        );
        assert!(half < 2);
        Quads {
            codes: panel.codes,
            unpack: panel.unpack,
            half,
        }
    }

    /// # Safety
    ///
    /// `block_idx` and `pair` exist; needs AVX2.
    #[inline(always)]
    unsafe fn pair(&self, block_idx: usize, pair: usize) -> (__m256i, __m256i) {
        // SAFETY: the caller has AVX2, and by its promise and the length asserted in `new` the loads are inside.
        unsafe {
            let load = |quad: usize| {
                let at = (2 * quad + self.half) * 4 * LANES;
                _mm256_loadu_si256(self.codes.as_ptr().add(at).cast())
            };
            match &self.unpack {
                Unpack::Byte => {
                    let quad = block_idx * QUADS + 2 * pair;
                    (load(quad), load(quad + 1))
                }
                Unpack::Nibble => nibbles(load(block_idx * QUADS / 2 + pair)),
                Unpack::Table(table) => {
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                    let (low, high) = nibbles(load(block_idx * QUADS / 2 + pair));
                    (
                        _mm256_shuffle_epi8(table, low),
                        _mm256_shuffle_epi8(table, high),
                    )
                }
            }
        }
    }
}

/// # Safety
///
/// Needs AVX2, FMA, F16C.
#[inline(always)]
unsafe fn floats(panel: FloatPanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    for half in 0..out.columns.len().div_ceil(LANES) {
        let mut row_idx = span.range.start;
        while row_idx < span.range.end {
            // SAFETY: the caller has the features.
            row_idx += unsafe {
                match span.range.end - row_idx {
                    1 => float_rows::<1>(panel, span, row_idx, half, out),
                    2..4 => float_rows::<2>(panel, span, row_idx, half, out),
                    4..8 => float_rows::<4>(panel, span, row_idx, half, out),
                    _ => float_rows::<8>(panel, span, row_idx, half, out),
                }
            };
        }
    }
}

/// `ROWS` rows from `first_row` on, 8 outputs; returns the number of rows.
///
/// # Safety
///
/// As [`floats`].
#[inline(always)]
unsafe fn float_rows<const ROWS: usize>(
    panel: FloatPanel<'_>,
    span: &Span<'_>,
    first_row: usize,
    half: usize,
    out: &mut OutPanel<'_>,
) -> usize {
    let cols = span.rows.cols();
    let values = &span.rows.values()[first_row * cols..][..ROWS * cols];
    let first_lane = half * LANES;
    // SAFETY: the caller has the features; loads are inside, as explained where they are.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); ROWS];
        let mut add_column = |col: usize, weights: __m256| {
            debug_assert!(col < cols);
            for (row, sum) in sums.iter_mut().enumerate() {
                // Inside: `values` is `[ROWS, cols]`.
                let value = *values.get_unchecked(row * cols + col);
                *sum = _mm256_fmadd_ps(weights, _mm256_set1_ps(value), *sum);
            }
        };
        // Inside, in all three: 8 of 16 elements from `first_lane`, which is 0 or 8.
        match panel {
            FloatPanel::F32(weights) => {
                for (col, weights) in weights.as_chunks::<PANEL_ROWS>().0[..cols]
                    .iter()
                    .enumerate()
                {
                    add_column(col, _mm256_loadu_ps(weights.as_ptr().add(first_lane)));
                }
            }
            FloatPanel::F16(weights) => {
                for (col, weights) in weights.as_chunks::<PANEL_ROWS>().0[..cols]
                    .iter()
                    .enumerate()
                {
                    add_column(col, load_halves(weights.as_ptr().add(first_lane)));
                }
            }
            FloatPanel::Bf16(pairs) => {
                let upper = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
                let pairs = &pairs.as_chunks::<PANEL_ROWS>().0[..cols.div_ceil(2)];
                for (pair, weights) in pairs.iter().enumerate() {
                    let weights = _mm256_loadu_si256(weights.as_ptr().add(first_lane).cast());
                    add_column(
                        2 * pair,
                        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(weights)),
                    );
                    if 2 * pair + 1 < cols {
                        add_column(
                            2 * pair + 1,
                            _mm256_castsi256_ps(_mm256_and_si256(weights, upper)),
                        );
                    }
                }
            }
        }
        for (row, sum) in sums.into_iter().enumerate() {
            store(out, first_row + row, half, sum);
        }
    }
    ROWS
}

/// # Safety
///
/// `halves` points to 8 readable f16; needs F16C.
#[inline(always)]
unsafe fn load_halves(halves: *const u16) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(halves.cast())) }
}

/// Writes or adds a row's sums, as many as this half of the panel has outputs.
///
/// # Safety
///
/// Needs AVX2.
#[inline(always)]
unsafe fn store(out: &mut OutPanel<'_>, row_idx: usize, half: usize, sums: __m256) {
    let store = out.store;
    let values = &mut out.row(row_idx)[half * LANES..];
    let len = values.len().min(LANES);
    // SAFETY: the caller has AVX2; the mask covers just the slice.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(len as i32), lanes);
        let sums = match store {
            Store::Overwrite => sums,
            Store::Add => _mm256_add_ps(_mm256_maskload_ps(values.as_ptr(), mask), sums),
        };
        _mm256_maskstore_ps(values.as_mut_ptr(), mask, sums);
    }
}
