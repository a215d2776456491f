//! Quantised blocks to numbers: exactly ([`dequantize`]), or as integer codes with scales ([`codes`]).
//!
//! The one idea: every block format of GGML, whatever its bit tricks, says the same thing, `value = scale * code +
//! min` with one `scale` and `min` per 16 or 32 values. [`codes`] takes the bit tricks apart so that a packer
//! needs to know only that; [`dequantize`] follows the reference to the last bit and is the definition.
//!
//! Not here: packing for a processor, arithmetic on packed weights, quantising.
//!
//! Source: the block structs and `dequantize_row_*` of GGML, <https://github.com/ggml-org/ggml>.

use crate::GgmlType;

/// How the integer codes of a type become numbers: `value = scale * code + min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLayout {
    /// How large a code gets.
    pub bits: CodeBits,
    /// Consecutive values that share a scale (and minimum).
    pub group: GroupLen,
    /// How the minimum of a group is found.
    pub offset: Offset,
    /// The value each 4-bit code stands for, before scaling; itself if `None`.
    pub codebook: Option<[i8; 16]>,
}

/// How large a code gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeBits {
    /// 0..=15.
    Four,
    /// 0..=255.
    Eight,
}

/// Values per scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupLen {
    /// 16: Q2_K, Q3_K, Q6_K.
    Sixteen,
    /// 32: all others.
    ThirtyTwo,
}

impl GroupLen {
    /// As a number.
    pub fn get(self) -> usize {
        match self {
            GroupLen::Sixteen => 16,
            GroupLen::ThirtyTwo => 32,
        }
    }
}

/// How a group's minimum is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// `min = -zero * scale`: `value = scale * (code - zero)`. `Zero(0)` with a codebook.
    Zero(u8),
    /// Each group has its own.
    PerGroup,
}

/// Where [`codes`] writes one run of values. For `n` values in groups of `g`:
#[derive(Debug)]
pub struct CodesMut<'a> {
    /// `[n]`.
    pub codes: &'a mut [u8],
    /// `[n / g]`.
    pub scales: &'a mut [f32],
    /// `[n / g]`, or empty if the layout's offset is [`Offset::Zero`] (then left alone if not empty).
    pub mins: &'a mut [f32],
}

impl CodeLayout {
    /// The layout of a quantised type; `None` for the float types.
    pub fn of(ty: GgmlType) -> Option<CodeLayout> {
        let _ = ty;
        unimplemented!()
    }
}

/// Decodes whole blocks to floats, with the arithmetic of the reference.
///
/// # Panics
///
/// If `out` is not a whole number of blocks or `bytes` is not exactly as many blocks.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    let _ = (ty, bytes, out);
    unimplemented!()
}

/// Takes whole blocks apart into codes, scales and minimums.
///
/// # Panics
///
/// If `ty` has no [`CodeLayout`], or a length does not fit (see [`CodesMut`]).
pub fn codes(ty: GgmlType, bytes: &[u8], out: CodesMut<'_>) {
    let _ = (ty, bytes, out);
    unimplemented!()
}
