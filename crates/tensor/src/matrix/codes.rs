//! Panels of integer codes.
//!
//! ```text
//! panel of 16 rows, K in blocks of 32 columns = 8 quads of 4
//!
//!   codes    per block, 8 bit: 8 x 64 bytes, quad by quad; byte 4r+i of a quad is row r, column i
//!                       4 bit: 4 x 64 bytes; byte 4r+i of the j-th holds quad 2j low, quad 2j+1 high
//!   scales   per group: 16 halves, one a row
//!   mins     the same, if the matrix has mins
//! ```
//!
//! so one 64-byte load and a mask and a shift give two registers of 16 rows x 4 columns, just what
//! `vpdpbusd` multiplies with 4 broadcast activations. Codes, scales and mins of a panel are three
//! streams, one after the other in memory. K is padded to whole blocks by groups of scale 0.
//!
//! Scales are f16 times a power of two per panel, chosen so that the largest is stored as 2^14..2^15: rounding
//! cannot make it infinite, and what is down to 2^-28 of it is a normal number.

use half::f16;

use super::{CodeBits, CodeRow, GroupLen, Offset, PANEL_ROWS, QuantSpec};
use crate::aligned::Aligned;
use crate::pool::{Disjoint, Pool, partition};
use crate::rows::BLOCK_COLS;

/// Columns that one 32-bit lane holds.
const QUAD: usize = 4;
/// Bytes of a quad of 16 rows, one code a byte.
const QUAD_BYTES: usize = PANEL_ROWS * QUAD;
/// Added to codebook values, which are signed, to make them the unsigned bytes that `vpdpbusd` takes.
const CODEBOOK_BIAS: u8 = 128;

/// A quantised matrix's panels.
#[derive(Debug)]
pub(crate) struct Codes {
    spec: QuantSpec,
    sizes: PanelSizes,
    /// Whole panels one after another.
    bytes: Aligned<u8>,
    /// Per panel: the power of two that scales and mins are to be multiplied with.
    factors: Vec<f32>,
}

/// Where in a panel what begins.
#[derive(Clone, Copy, Debug)]
struct PanelSizes {
    /// Bytes of codes per block.
    block_bytes: usize,
    /// Groups in a row, padding included.
    num_groups: usize,
    codes_bytes: usize,
    /// Of scales; and of mins, if there are any.
    scales_bytes: usize,
    has_mins: bool,
    /// Whole panel, rounded up to cache lines.
    panel_bytes: usize,
}

/// One panel, as kernels read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodePanel<'a> {
    /// `[num_blocks, 256 or 512]`.
    pub codes: &'a [u8],
    /// f16 `[num_groups, 16]`.
    pub scales: &'a [u16],
    /// f16 `[num_groups, 16]`, or empty.
    pub mins: &'a [u16],
    /// `min of group = stored min (or 0) - bias * scale`, for codes as the kernel unpacks them.
    pub bias: f32,
    /// The sum over K is to be multiplied with it.
    pub factor: f32,
    /// How bytes become codes.
    pub unpack: Unpack,
    /// Columns of a scale.
    pub group: GroupLen,
}

impl Codes {
    pub(super) fn pack(
        pool: &Pool,
        spec: QuantSpec,
        (rows, cols): (usize, usize),
        fill: &(impl Fn(usize, &mut CodeRow) + Sync),
    ) -> Codes {
        assert!(
            cols.is_multiple_of(spec.group.cols()),
            "{cols} columns are not whole groups"
        );
        assert!(
            spec.codebook.is_none() || spec.bits == CodeBits::Four,
            "a codebook is for 4-bit codes"
        );
        let sizes = PanelSizes::of(spec, cols);
        let num_panels = rows.div_ceil(PANEL_ROWS);
        let total = num_panels
            .checked_mul(sizes.panel_bytes)
            .expect("the size fits the address space");
        let mut bytes = Aligned::zeroed_lasting(total);
        let mut factors = vec![1.0; num_panels];
        let (all_bytes, all_factors) = (Disjoint::new(&mut bytes), Disjoint::new(&mut factors));
        pool.run(&|part_idx| {
            let mut packer = Packer::new(spec, sizes, cols);
            for panel_idx in partition(num_panels, pool.num_threads(), part_idx) {
                let start = panel_idx * sizes.panel_bytes;
                // SAFETY: each panel is in one part, which visits it once.
                let (panel, factor) = unsafe {
                    let panel = all_bytes.slice(start..start + sizes.panel_bytes);
                    (panel, all_factors.slice(panel_idx..panel_idx + 1))
                };
                let first = panel_idx * PANEL_ROWS;
                for row_idx in first..rows.min(first + PANEL_ROWS) {
                    packer.add_row(row_idx, panel, fill);
                }
                factor[0] = packer.finish(panel);
            }
        });
        Codes {
            spec,
            sizes,
            bytes,
            factors,
        }
    }

    /// Groups in a row, padding included.
    pub(crate) fn num_groups(&self) -> usize {
        self.sizes.num_groups
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.factors[..])
    }

    /// # Panics
    ///
    /// If there is no such panel.
    pub(crate) fn panel(&self, panel_idx: usize) -> CodePanel<'_> {
        let sizes = &self.sizes;
        let panel = &self.bytes[panel_idx * sizes.panel_bytes..][..sizes.panel_bytes];
        let (codes, rest) = panel.split_at(sizes.codes_bytes);
        let (scales, rest) = rest.split_at(sizes.scales_bytes);
        let mins = if sizes.has_mins {
            bytemuck::cast_slice(&rest[..sizes.scales_bytes])
        } else {
            &[]
        };
        CodePanel {
            codes,
            scales: bytemuck::cast_slice(scales),
            mins,
            bias: bias(self.spec),
            factor: self.factors[panel_idx],
            unpack: Unpack::of(self.spec),
            group: self.spec.group,
        }
    }

    pub(super) fn decode_row(&self, row_idx: usize, out: &mut [f32]) {
        let panel = self.panel(row_idx / PANEL_ROWS);
        let lane = row_idx % PANEL_ROWS;
        let group_cols = self.spec.group.cols();
        for (group_idx, values) in out.chunks_mut(group_cols).enumerate() {
            let (scale, min) = panel.scale_and_min(group_idx, lane);
            for (offset, value) in values.iter_mut().enumerate() {
                let code = panel
                    .unpack
                    .code(panel.codes, group_idx * group_cols + offset, lane);
                *value = (scale * f32::from(code) + min) * panel.factor;
            }
        }
    }
}

impl CodePanel<'_> {
    /// Of one group of one row, without the panel's factor.
    pub(crate) fn scale_and_min(&self, group_idx: usize, lane: usize) -> (f32, f32) {
        let at = group_idx * PANEL_ROWS + lane;
        let scale = f16::from_bits(self.scales[at]).to_f32();
        let min = self
            .mins
            .get(at)
            .map_or(0.0, |&min| f16::from_bits(min).to_f32());
        (scale, min - self.bias * scale)
    }
}

/// `scale * unpacked + (min - bias * scale)` is the value.
fn bias(spec: QuantSpec) -> f32 {
    let zero = match spec.offset {
        Offset::Zero(zero) => f32::from(zero),
        Offset::PerGroup => 0.0,
    };
    let codebook = if spec.codebook.is_some() {
        f32::from(CODEBOOK_BIAS)
    } else {
        0.0
    };
    zero + codebook
}

/// How bytes of a panel become the unsigned codes that are multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unpack {
    /// A byte is a code.
    Byte,
    /// A nibble is a code.
    Nibble,
    /// A nibble is an index into these.
    Table([u8; 16]),
}

impl Unpack {
    pub(crate) fn of(spec: QuantSpec) -> Unpack {
        match (spec.bits, spec.codebook) {
            (CodeBits::Eight, _) => Unpack::Byte,
            (CodeBits::Four, None) => Unpack::Nibble,
            (CodeBits::Four, Some(values)) => {
                Unpack::Table(values.map(|value| value.cast_unsigned().wrapping_add(CODEBOOK_BIAS)))
            }
        }
    }

    /// One code of a panel: the definition of the layout.
    pub(crate) fn code(&self, codes: &[u8], col: usize, lane: usize) -> u8 {
        let (quad, within) = (col / QUAD, lane * QUAD + col % QUAD);
        let nibble = |at: usize, quad: usize| (codes[at] >> (4 * (quad % 2))) & 0x0f;
        match self {
            Unpack::Byte => codes[quad * QUAD_BYTES + within],
            Unpack::Nibble => nibble(quad / 2 * QUAD_BYTES + within, quad),
            Unpack::Table(table) => {
                table[usize::from(nibble(quad / 2 * QUAD_BYTES + within, quad))]
            }
        }
    }
}

impl PanelSizes {
    fn of(spec: QuantSpec, cols: usize) -> PanelSizes {
        let num_blocks = cols.div_ceil(BLOCK_COLS);
        let block_bytes = match spec.bits {
            CodeBits::Four => BLOCK_COLS * PANEL_ROWS / 2,
            CodeBits::Eight => BLOCK_COLS * PANEL_ROWS,
        };
        let num_groups = match spec.group {
            GroupLen::Sixteen => 2 * num_blocks,
            GroupLen::ThirtyTwo => num_blocks,
        };
        let codes_bytes = num_blocks * block_bytes;
        let scales_bytes = num_groups * PANEL_ROWS * size_of::<u16>();
        let has_mins = spec.offset == Offset::PerGroup;
        let num_tables = if has_mins { 2 } else { 1 };
        let panel_bytes = (codes_bytes + num_tables * scales_bytes).next_multiple_of(64);
        PanelSizes {
            block_bytes,
            num_groups,
            codes_bytes,
            scales_bytes,
            has_mins,
            panel_bytes,
        }
    }
}

/// Packs one panel after another; keeps what is needed to choose a panel's power of two.
struct Packer {
    spec: QuantSpec,
    sizes: PanelSizes,
    row: CodeRow,
    /// `[num_groups, 16]` each, of the panel at hand.
    scales: Vec<f32>,
    mins: Vec<f32>,
}

impl Packer {
    fn new(spec: QuantSpec, sizes: PanelSizes, cols: usize) -> Packer {
        let groups = cols / spec.group.cols();
        let num_mins = if sizes.has_mins { groups } else { 0 };
        let row = CodeRow {
            codes: vec![0; cols],
            scales: vec![0.0; groups],
            mins: vec![0.0; num_mins],
        };
        let table_len = sizes.num_groups * PANEL_ROWS;
        let mins_len = if sizes.has_mins { table_len } else { 0 };
        Packer {
            spec,
            sizes,
            row,
            scales: vec![0.0; table_len],
            mins: vec![0.0; mins_len],
        }
    }

    fn add_row(&mut self, row_idx: usize, panel: &mut [u8], fill: &impl Fn(usize, &mut CodeRow)) {
        let lengths = |row: &CodeRow| (row.codes.len(), row.scales.len(), row.mins.len());
        let expected = lengths(&self.row);
        fill(row_idx, &mut self.row);
        assert_eq!(
            lengths(&self.row),
            expected,
            "lengths of a row of codes are fixed"
        );

        let lane = row_idx % PANEL_ROWS;
        for (block_idx, codes) in self.row.codes.chunks(BLOCK_COLS).enumerate() {
            let block = &mut panel[block_idx * self.sizes.block_bytes..][..self.sizes.block_bytes];
            match self.spec.bits {
                CodeBits::Four => pack_nibbles(codes, block, lane),
                CodeBits::Eight => pack_bytes(codes, block, lane),
            }
        }
        scatter(&self.row.scales, &mut self.scales, lane);
        scatter(&self.row.mins, &mut self.mins, lane);
    }

    /// Rounds scales and mins into the panel and returns its factor.
    fn finish(&mut self, panel: &mut [u8]) -> f32 {
        let exponent = exponent_for(self.scales.iter().chain(&self.mins));
        let up = power_of_two(-exponent);
        let (_, tables) = panel.split_at_mut(self.sizes.codes_bytes);
        for (half, value) in tables
            .chunks_exact_mut(2)
            .zip(self.scales.iter().chain(&self.mins))
        {
            half.copy_from_slice(&f16::from_f32(value * up).to_bits().to_le_bytes());
        }
        self.scales.fill(0.0);
        self.mins.fill(0.0);
        power_of_two(exponent)
    }
}

/// One row's groups into the columns of a `[num_groups, 16]` table.
fn scatter(row: &[f32], table: &mut [f32], lane: usize) {
    for (value, lanes) in row.iter().zip(table.chunks_exact_mut(PANEL_ROWS)) {
        lanes[lane] = *value;
    }
}

fn pack_bytes(codes: &[u8], block: &mut [u8], lane: usize) {
    for (quad, codes) in codes.chunks_exact(QUAD).enumerate() {
        block[quad * QUAD_BYTES + lane * QUAD..][..QUAD].copy_from_slice(codes);
    }
}

fn pack_nibbles(codes: &[u8], block: &mut [u8], lane: usize) {
    // Groups are 16 or 32 columns: always whole pairs of quads.
    for (pair, codes) in codes.chunks_exact(2 * QUAD).enumerate() {
        debug_assert!(codes.iter().all(|&code| code <= 15), "a 4-bit code");
        let (low, high) = codes.split_at(QUAD);
        let bytes = &mut block[pair * QUAD_BYTES + lane * QUAD..][..QUAD];
        for ((byte, low), high) in bytes.iter_mut().zip(low).zip(high) {
            *byte = (low & 0x0f) | high << 4;
        }
    }
}

/// The power of two that brings the largest magnitude to 2^14..2^15. What is not finite has no say:
/// it stays what it is in f16.
fn exponent_for<'a>(values: impl Iterator<Item = &'a f32>) -> i32 {
    let finite = values
        .map(|value| value.abs())
        .filter(|value| value.is_finite());
    let largest = finite.fold(0.0_f32, f32::max);
    if largest == 0.0 {
        return 0;
    }
    let binade = (largest.to_bits() >> 23) as i32 - 127;
    // Within what f32 holds as normal numbers, both ways.
    (binade - 14).clamp(-126, 126)
}

fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
