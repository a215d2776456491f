//! Activations: `[num_rows, cols]` floats, and the forms that matrices multiply them in.
//!
//! The one idea: a layer's input is converted once, while it is hot from being computed, and then
//! shared by all matrices that read it (Q, K and V; gate and up). Which forms are needed is asked of
//! the matrices ([`crate::matrix::Matrix::form`]).
//!
//! Every row's forms depend on that row alone: the same bits whoever its neighbours are.
//!
//! The 8-bit form is laid out for the kernel, which takes eight rows at a time: one
//! [`CodeBlock`] holds 32 columns of 8 rows with their scales and sums.
//!
//! ```text
//! blocks[tile * num_blocks + block]     tile = row / 8, block = column / 32, lane = row % 8
//! ```

mod code; // values to codes

use bytemuck::{Pod, Zeroable};

use crate::aligned::Aligned;
use crate::isa::{FloatIsa, Isa};
use crate::pool::{Disjoint, Pool, partition};
use code::{Coded, code_row};

/// Columns that share an activation scale.
pub const BLOCK_COLS: usize = 32;
/// Rows that one [`CodeBlock`] holds.
pub const TILE_ROWS: usize = 8;

/// Which forms of the activations are needed, besides f32, which is always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    codes: bool,
    bf16: bool,
}

impl Forms {
    /// Only f32.
    pub const NONE: Forms = Forms {
        codes: false,
        bf16: false,
    };
    /// 8-bit codes with a scale per [`BLOCK_COLS`] columns.
    pub const I8: Forms = Forms {
        codes: true,
        bf16: false,
    };
    /// bfloat16.
    pub const BF16: Forms = Forms {
        codes: false,
        bf16: true,
    };

    /// Both what `self` and what `other` has.
    #[must_use]
    pub const fn and(self, other: Forms) -> Forms {
        Forms {
            codes: self.codes || other.codes,
            bf16: self.bf16 || other.bf16,
        }
    }

    /// Whether everything in `other` is here too.
    pub const fn contains(self, other: Forms) -> bool {
        (self.codes || !other.codes) && (self.bf16 || !other.bf16)
    }
}

/// 32 columns of 8 rows as codes: `value = scale * code`, `code` in -127..=127.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct CodeBlock {
    /// Codes, row by row, four to a word: the first column in the lowest byte.
    pub quads: [[i32; BLOCK_COLS / 4]; TILE_ROWS],
    /// One scale per row; NaN if a value of the row's block is NaN or infinite, so that what is computed
    /// from it is NaN too.
    pub scales: [f32; TILE_ROWS],
    /// `scale * sum of codes` of all 32 columns.
    pub sums: [f32; TILE_ROWS],
    /// The same of columns 0..16 and of 16..32.
    pub half_sums: [[f32; TILE_ROWS]; 2],
}

const _: () = assert!(size_of::<CodeBlock>() == 384);

impl CodeBlock {
    /// One row's codes.
    pub fn codes(&self, lane: usize) -> &[i8; BLOCK_COLS] {
        bytemuck::must_cast_ref(&self.quads[lane])
    }
}

/// Rows of activations prepared for [`crate::ops::matmul()`].
#[derive(Debug, Default)]
pub struct Rows {
    num_rows: usize,
    cols: usize,
    forms: Forms,
    /// `[num_rows, cols]`; may be longer, from an earlier and larger use.
    values: Aligned<f32>,
    /// `[ceil(num_rows / 8), ceil(cols / 32)]`.
    blocks: Aligned<CodeBlock>,
    /// `[num_rows, ceil(cols / 2)]` pairs of bf16, the first in the low half.
    pairs: Aligned<u32>,
}

impl Rows {
    /// No rows yet; see [`Rows::reset`].
    pub fn new() -> Rows {
        Rows::default()
    }

    /// Makes room for `[num_rows, cols]` values in the given forms. Old contents are void: follow it
    /// by [`Rows::fill`], or by [`Rows::values_mut`] and [`Rows::derive`]. Memory is kept and only grows.
    ///
    /// # Panics
    ///
    /// If that many values overflow the address space.
    pub fn reset(&mut self, num_rows: usize, cols: usize, forms: Forms) {
        (self.num_rows, self.cols, self.forms) = (num_rows, cols, forms);
        let len = num_rows.checked_mul(cols);
        self.values
            .grow(len.expect("the size fits the address space"));
        if forms.codes {
            let num_blocks = num_rows.div_ceil(TILE_ROWS) * self.num_blocks();
            self.blocks.grow(num_blocks);
        }
        if forms.bf16 {
            self.pairs.grow(num_rows * cols.div_ceil(2));
        }
    }

    /// Computes every row in parallel: `task(row_idx, values)` writes the `[cols]` values of one row
    /// (which hold anything before); its forms follow while it is hot.
    ///
    /// # Panics
    ///
    /// As [`Pool::run`].
    pub fn fill(&mut self, pool: &Pool, task: impl Fn(usize, &mut [f32]) + Sync) {
        let (num_rows, cols, forms, num_blocks) =
            (self.num_rows, self.cols, self.forms, self.num_blocks());
        let isa = Isa::current().floats();
        let pairs_len = cols.div_ceil(2);
        let values = Disjoint::new(&mut self.values);
        let blocks = BlockWriter {
            blocks: Disjoint::new(&mut self.blocks),
            num_blocks,
        };
        let pairs = Disjoint::new(&mut self.pairs);
        let num_parts = pool.num_threads().min(num_rows);
        pool.for_each(num_parts, |part_idx| {
            for row_idx in partition(num_rows, num_parts, part_idx) {
                // SAFETY: each row is in one part, which visits it once.
                let row = unsafe { values.slice(row_idx * cols..(row_idx + 1) * cols) };
                task(row_idx, row);
                if forms.codes {
                    // SAFETY: as above; other workers write other lanes of a block they share.
                    unsafe { blocks.write_row(isa, row_idx, row) };
                }
                if forms.bf16 {
                    // SAFETY: as above.
                    let pairs =
                        unsafe { pairs.slice(row_idx * pairs_len..(row_idx + 1) * pairs_len) };
                    write_pairs(row, pairs);
                }
            }
        });
    }

    /// Makes the forms anew from what [`Rows::values_mut`] was given.
    pub fn derive(&mut self, pool: &Pool) {
        if self.forms != Forms::NONE {
            self.fill(pool, |_, _| ());
        }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The forms asked for in [`Rows::reset`].
    pub fn forms(&self) -> Forms {
        self.forms
    }

    /// `[num_rows, cols]`.
    pub fn values(&self) -> &[f32] {
        &self.values[..self.num_rows * self.cols]
    }

    /// `[num_rows, cols]`, to be written; then call [`Rows::derive`].
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.num_rows * self.cols]
    }

    /// One row's values.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row(&self, row_idx: usize) -> &[f32] {
        &self.values()[row_idx * self.cols..][..self.cols]
    }

    /// Blocks of 32 columns in a row; the last may be padded by zeros.
    pub fn num_blocks(&self) -> usize {
        self.cols.div_ceil(BLOCK_COLS)
    }

    /// The 8-bit form of rows `8 * tile_idx ..`: `[num_blocks]`. Lanes beyond the last row hold anything.
    ///
    /// # Panics
    ///
    /// If that form was not asked for, or there is no such tile.
    pub fn tile(&self, tile_idx: usize) -> &[CodeBlock] {
        assert!(self.forms.codes, "rows were not prepared as codes");
        assert!(tile_idx * TILE_ROWS < self.num_rows, "no tile {tile_idx}");
        &self.blocks[tile_idx * self.num_blocks()..][..self.num_blocks()]
    }

    /// The bf16 form: `[num_rows, ceil(cols / 2)]` pairs, the earlier column in the low half.
    ///
    /// # Panics
    ///
    /// If that form was not asked for.
    pub fn pairs(&self) -> &[u32] {
        assert!(self.forms.bf16, "rows were not prepared as bf16");
        &self.pairs[..self.num_rows * self.cols.div_ceil(2)]
    }
}

/// Writes single lanes of blocks that workers share.
struct BlockWriter<'a> {
    blocks: Disjoint<'a, CodeBlock>,
    num_blocks: usize,
}

impl BlockWriter<'_> {
    /// Codes a row.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the lane of `row_idx` meanwhile.
    unsafe fn write_row(&self, isa: FloatIsa, row_idx: usize, row: &[f32]) {
        let first_block = row_idx / TILE_ROWS * self.num_blocks;
        let lane = row_idx % TILE_ROWS;
        // SAFETY: the caller's promise.
        code_row(isa, row, |block_idx, coded| unsafe {
            self.write_lane(first_block + block_idx, lane, coded);
        });
    }

    /// # Safety
    ///
    /// As [`BlockWriter::write_row`].
    #[inline(always)]
    unsafe fn write_lane(&self, at: usize, lane: usize, coded: Coded) {
        let block = self.blocks.pointer(at);
        // SAFETY: the pointer is to a block inside the slice; only this lane of it is touched, which
        // by the caller's promise is ours.
        unsafe {
            (&raw mut (*block).quads[lane]).write(bytemuck::must_cast(coded.codes));
            (&raw mut (*block).scales[lane]).write(coded.scale);
            (&raw mut (*block).sums[lane]).write(coded.sum);
            (&raw mut (*block).half_sums[0][lane]).write(coded.half_sums[0]);
            (&raw mut (*block).half_sums[1][lane]).write(coded.half_sums[1]);
        }
    }
}

/// bf16 pairs of a row; an odd last column is paired with zero.
fn write_pairs(row: &[f32], pairs: &mut [u32]) {
    let bits = |value: f32| u32::from(half::bf16::from_f32(value).to_bits());
    for (pair, values) in pairs.iter_mut().zip(row.chunks(2)) {
        let second = values.get(1).map_or(0, |&value| bits(value));
        *pair = bits(values[0]) | second << 16;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn filled(num_threads: usize, num_rows: usize, cols: usize) -> Rows {
        let pool = Pool::new(NonZeroUsize::new(num_threads).expect("at least one"));
        let mut rows = Rows::new();
        rows.reset(num_rows, cols, Forms::I8.and(Forms::BF16));
        rows.fill(&pool, |row_idx, values| {
            for (col, value) in values.iter_mut().enumerate() {
                *value = ((row_idx * 7919 + col * 104_729) % 2003) as f32 / 1001.0 - 1.0;
            }
        });
        rows
    }

    #[test]
    fn codes_are_within_half_a_step_of_the_values_and_sums_are_theirs() {
        for (num_rows, cols) in [(1, 32), (8, 64), (9, 96), (17, 33), (3, 1)] {
            let rows = filled(2, num_rows, cols);
            for row_idx in 0..num_rows {
                for (block_idx, block) in rows.tile(row_idx / TILE_ROWS).iter().enumerate() {
                    let lane = row_idx % TILE_ROWS;
                    let scale = block.scales[lane];
                    let codes = *block.codes(lane);
                    for (offset, code) in codes.iter().enumerate() {
                        let value = rows
                            .row(row_idx)
                            .get(block_idx * BLOCK_COLS + offset)
                            .unwrap_or(&0.0);
                        assert!((scale * f32::from(*code) - value).abs() <= 0.5001 * scale);
                    }
                    let sum: i32 = codes.iter().map(|&code| i32::from(code)).sum();
                    assert_eq!(block.sums[lane], scale * sum as f32);
                    let half: i32 = codes[16..].iter().map(|&code| i32::from(code)).sum();
                    assert_eq!(block.half_sums[1][lane], scale * half as f32);
                }
            }
        }
    }

    #[test]
    fn the_forms_of_a_row_do_not_depend_on_neighbours_or_threads() {
        let alone = filled(1, 1, 96);
        let among = filled(3, 20, 96);
        for (one, many) in alone.tile(0).iter().zip(among.tile(0)) {
            assert_eq!(one.codes(0), many.codes(0));
            assert_eq!(one.scales[0].to_bits(), many.scales[0].to_bits());
            assert_eq!(one.sums[0].to_bits(), many.sums[0].to_bits());
        }
        assert_eq!(alone.pairs(), &among.pairs()[..48]);
    }

    #[test]
    fn memory_is_kept_when_a_smaller_batch_follows_a_larger_one() {
        let pool = Pool::new(NonZeroUsize::MIN);
        let mut rows = Rows::new();
        rows.reset(16, 64, Forms::I8);
        let before = rows.values().as_ptr();
        rows.reset(2, 64, Forms::I8);
        rows.fill(&pool, |row_idx, values| values.fill(row_idx as f32 + 1.0));
        assert_eq!(rows.values().as_ptr(), before);
        assert_eq!(rows.row(1), &[2.0; 64]);
        assert_eq!(rows.tile(0)[1].codes(1), &[127; 32]);
    }
}
