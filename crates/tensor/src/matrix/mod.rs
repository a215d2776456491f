//! Weight matrices in the panel layout: 16 output rows side by side, groups of 4 along K.
//!
//! The one idea: weights are rearranged once, at load, into the order in which the kernel
//! multiplies them, and never become floats again: 4-bit codes stay 4 bits. One layout serves all
//! instruction sets. `codes.rs` and `floats.rs` draw the two kinds of panels.
//!
//! Not here: file formats (a caller decodes its rows to codes or floats) and multiplication
//! ([`crate::ops::matmul()`]).

mod codes; // quantised panels
mod floats; // float panels

pub(crate) use codes::{CodePanel, Unpack};
pub(crate) use floats::FloatPanel;

use codes::Codes;
use floats::Floats;

use crate::isa::Isa;
use crate::pool::Pool;
use crate::rows::Forms;

/// Output rows in a panel: the lanes of a 512-bit register of f32.
pub const PANEL_ROWS: usize = 16;

/// How the integer codes of a quantised matrix become numbers: `value = scale * code + min`,
/// one `scale` (and `min`) per group of consecutive columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantSpec {
    /// Bits a code is stored in.
    pub bits: CodeBits,
    /// Columns that share a scale.
    pub group: GroupLen,
    /// How the minimum of a group is found.
    pub offset: Offset,
    /// For 4-bit codes: the value each code stands for (IQ4_NL, MXFP4); identity if `None`.
    pub codebook: Option<[i8; 16]>,
}

/// Storage of one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeBits {
    /// Two codes a byte, 0..=15.
    Four,
    /// One code a byte, 0..=255.
    Eight,
}

/// Columns per scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupLen {
    /// 16 columns (Q6_K, Q3_K, Q2_K).
    Sixteen,
    /// 32 columns.
    ThirtyTwo,
}

impl GroupLen {
    /// As a number.
    pub const fn cols(self) -> usize {
        match self {
            GroupLen::Sixteen => 16,
            GroupLen::ThirtyTwo => 32,
        }
    }
}

/// How a group's minimum is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// `min = -zero * scale` in every group: `value = scale * (code - zero)`.
    Zero(u8),
    /// Each group has its own.
    PerGroup,
}

/// One row of codes, filled by the caller of [`Matrix::from_codes`]. It comes with the lengths below.
#[derive(Debug, Default)]
pub struct CodeRow {
    /// `[cols]`, 0..=15 or 0..=255.
    pub codes: Vec<u8>,
    /// `[cols / group]`.
    pub scales: Vec<f32>,
    /// `[cols / group]` for [`Offset::PerGroup`], else empty.
    pub mins: Vec<f32>,
}

/// Storage of a float matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatKind {
    /// 32 bits.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
}

/// A weight matrix `[rows, cols]`, packed: `rows` outputs, `cols` inputs (K).
#[derive(Debug)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    pub(crate) panels: Panels,
}

#[derive(Debug)]
pub(crate) enum Panels {
    Codes(Codes),
    Floats(Floats),
}

impl Matrix {
    /// Packs a quantised matrix. `fill(row_idx, row)` writes one row of codes; it is called once per
    /// row, in parallel, ascending within a worker.
    ///
    /// Scales and mins are kept as f16 with a power of two per 16 rows: exact for values that come
    /// from f16 and are below 2^15, else within 2^-11 of each group's own or, if that is more, 2^-39 of the
    /// largest in the 16 rows.
    ///
    /// # Panics
    ///
    /// If `cols` is not a multiple of the group length, a codebook comes with 8-bit codes, or `fill`
    /// changes a length.
    ///
    /// # Cost
    ///
    /// One pass; beside the matrix itself a row and the scales of 16 rows per worker.
    pub fn from_codes(
        pool: &Pool,
        spec: QuantSpec,
        rows: usize,
        cols: usize,
        fill: impl Fn(usize, &mut CodeRow) + Sync,
    ) -> Matrix {
        let panels = Panels::Codes(Codes::pack(pool, spec, (rows, cols), &fill));
        Matrix { rows, cols, panels }
    }

    /// Packs a float matrix. `fill(row_idx, values)` writes `[cols]` values; it is called once per
    /// row, in parallel, ascending within a worker. `cols` is any length. Values are rounded to
    /// nearest even.
    pub fn from_floats(
        pool: &Pool,
        kind: FloatKind,
        rows: usize,
        cols: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Matrix {
        let panels = Panels::Floats(Floats::pack(pool, kind, (rows, cols), &fill));
        Matrix { rows, cols, panels }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Panels of 16 rows; the last one may be padded by zeros.
    pub fn num_panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match &self.panels {
            Panels::Codes(codes) => codes.bytes(),
            Panels::Floats(floats) => floats.bytes(),
        }
    }

    /// The form of activations that it multiplies with, on the instruction set in use.
    pub fn form(&self) -> Forms {
        self.form_on(Isa::current())
    }

    /// As [`Matrix::form`], for a given instruction set.
    pub fn form_on(&self, isa: Isa) -> Forms {
        match &self.panels {
            Panels::Codes(_) => Forms::I8,
            #[cfg(target_arch = "x86_64")]
            Panels::Floats(floats)
                if floats.kind() == FloatKind::Bf16 && matches!(isa, Isa::Avx512Bf16(_)) =>
            {
                Forms::BF16
            }
            Panels::Floats(_) => {
                let _ = isa;
                Forms::NONE
            }
        }
    }

    /// Decodes one row to floats (embedding lookup): `out` is `[cols]`.
    ///
    /// # Panics
    ///
    /// If there is no such row, or `out` has another length.
    pub fn decode_row(&self, row_idx: usize, out: &mut [f32]) {
        assert!(row_idx < self.rows, "row {row_idx} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "one row's values");
        match &self.panels {
            Panels::Codes(codes) => codes.decode_row(row_idx, out),
            Panels::Floats(floats) => floats.decode_row(row_idx, out),
        }
    }
}

#[cfg(test)]
mod tests;
