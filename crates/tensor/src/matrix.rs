//! Weight matrices in the panel layout: 16 output rows side by side, groups of 4 along K.

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

/// How a group's minimum is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// `min = -zero * scale` in every group: `value = scale * (code - zero)`.
    Zero(u8),
    /// Each group has its own.
    PerGroup,
}

/// One row of codes, filled by the caller of [`Matrix::from_codes`].
#[derive(Debug, Default)]
pub struct CodeRow {
    /// `[cols]`, 0..=15 or 0..=255.
    pub codes: Vec<u8>,
    /// `[cols / group]`.
    pub scales: Vec<f32>,
    /// `[cols / group]`; ignored for [`Offset::Zero`].
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
pub struct Matrix {}

impl Matrix {
    /// Packs a quantised matrix. `fill(row_idx, row)` fills one row of codes; called once per row, in
    /// ascending order. `cols` must be a multiple of the group length; `rows` need not be one of 16.
    pub fn from_codes(
        spec: QuantSpec,
        rows: usize,
        cols: usize,
        fill: impl FnMut(usize, &mut CodeRow),
    ) -> Matrix {
        let _ = (spec, rows, cols, fill);
        unimplemented!()
    }
    /// Packs a float matrix. `fill(row_idx, values)` fills `[cols]` values. `cols` is any length.
    pub fn from_floats(
        kind: FloatKind,
        rows: usize,
        cols: usize,
        fill: impl FnMut(usize, &mut [f32]),
    ) -> Matrix {
        let _ = (kind, rows, cols, fill);
        unimplemented!()
    }
    /// Outputs.
    pub fn rows(&self) -> usize {
        unimplemented!()
    }
    /// Inputs.
    pub fn cols(&self) -> usize {
        unimplemented!()
    }
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        unimplemented!()
    }
    /// Decodes one row to floats (embedding lookup): `out` is `[cols]`.
    pub fn decode_row(&self, row_idx: usize, out: &mut [f32]) {
        let _ = (row_idx, out);
        unimplemented!()
    }
}
