//! Quantised blocks to numbers: exactly ([`dequantize`]), or as integer codes with scales ([`codes`]).
//!
//! The one idea: every block format of GGML, whatever its bit tricks, says the same thing, `value = scale * code +
//! min` with one `scale` and `min` per 16 or 32 values. [`codes`] takes the bit tricks apart (`blocks.rs`) so that
//! a packer needs to know only that. [`dequantize`] applies the formula, and agrees with the reference to the last
//! bit: every product is exact in an `f32` (11 bits of a half, up to 7 of a scale, up to 7 of a code, never more than
//! 24 together), so only the addition of a minimum rounds, and the reference adds the same two numbers.
//!
//! The way back, for models that are quantised while they are loaded, is [`encode`].
//!
//! Not here: packing for a processor, arithmetic on packed weights.
//!
//! Source: the block structs and `dequantize_row_*` of GGML, <https://github.com/ggml-org/ggml>.

mod blocks;
mod encode;

use half::{bf16, f16};

pub use encode::{EncodeError, encode};

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

/// The 16 uneven steps of the IQ4 types.
const IQ4_STEPS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
/// The values of a 4-bit float with two bits of exponent and one of mantissa, doubled to be integers.
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

impl CodeLayout {
    /// The layout of a quantised type; `None` for the float types.
    pub fn of(ty: GgmlType) -> Option<CodeLayout> {
        use CodeBits::{Eight, Four};
        use GroupLen::{Sixteen, ThirtyTwo};
        use Offset::{PerGroup, Zero};
        let (bits, group, offset, codebook) = match ty {
            GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => return None,
            GgmlType::Q4_0 => (Four, ThirtyTwo, Zero(8), None),
            GgmlType::Q4_1 => (Four, ThirtyTwo, PerGroup, None),
            GgmlType::Q5_0 => (Eight, ThirtyTwo, Zero(16), None),
            GgmlType::Q5_1 => (Eight, ThirtyTwo, PerGroup, None),
            GgmlType::Q8_0 => (Eight, ThirtyTwo, Zero(128), None),
            GgmlType::Q2_K => (Four, Sixteen, PerGroup, None),
            GgmlType::Q3_K => (Four, Sixteen, Zero(4), None),
            GgmlType::Q4_K => (Four, ThirtyTwo, PerGroup, None),
            GgmlType::Q5_K => (Eight, ThirtyTwo, PerGroup, None),
            GgmlType::Q6_K => (Eight, Sixteen, Zero(32), None),
            GgmlType::IQ4_NL | GgmlType::IQ4_XS => (Four, ThirtyTwo, Zero(0), Some(IQ4_STEPS)),
            GgmlType::MXFP4 => (Four, ThirtyTwo, Zero(0), Some(E2M1_DOUBLED)),
        };
        Some(CodeLayout {
            bits,
            group,
            offset,
            codebook,
        })
    }
}

/// Decodes whole blocks to floats, bit for bit as the reference does.
///
/// # Panics
///
/// If `out` is not a whole number of blocks or `bytes` is not exactly as many blocks.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        ty.bytes_of(out.len()),
        Some(bytes.len()),
        "{} values of {ty}",
        out.len()
    );
    match ty {
        GgmlType::F32 => decode_floats(bytes, out, f32::from_le_bytes),
        GgmlType::F16 => decode_floats(bytes, out, |bytes| f16::from_le_bytes(bytes).to_f32()),
        GgmlType::BF16 => decode_floats(bytes, out, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => decode_codes(ty, bytes, out),
    }
}

fn decode_floats<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = decode(*bytes);
    }
}

/// Values decoded at a time: a multiple of every block.
const CHUNK: usize = 256;

fn decode_codes(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    let layout = CodeLayout::of(ty).expect("floats went another way");
    let group_len = layout.group.get();
    let mut codes = [0u8; CHUNK];
    let mut scales = [0f32; CHUNK / 16];
    let mut mins = [0f32; CHUNK / 16];
    let chunk_bytes = ty.bytes_of(CHUNK).expect("a chunk is whole blocks");
    for (bytes, out) in bytes.chunks(chunk_bytes).zip(out.chunks_mut(CHUNK)) {
        let num_groups = out.len() / group_len;
        let codes = &mut codes[..out.len()];
        let (scales, mins) = (&mut scales[..num_groups], &mut mins[..num_groups]);
        self::codes(
            ty,
            bytes,
            CodesMut {
                codes,
                scales,
                mins,
            },
        );
        let groups = codes
            .chunks_exact(group_len)
            .zip(out.chunks_exact_mut(group_len));
        for (group_idx, (codes, out)) in groups.enumerate() {
            let scale = scales[group_idx];
            match (layout.codebook, layout.offset) {
                (Some(steps), _) => map(codes, out, |code| {
                    scale * f32::from(steps[usize::from(code & 15)])
                }),
                (None, Offset::Zero(zero)) => {
                    map(codes, out, |code| {
                        scale * (f32::from(code) - f32::from(zero))
                    });
                }
                (None, Offset::PerGroup) => {
                    map(codes, out, |code| scale * f32::from(code) + mins[group_idx])
                }
            }
        }
    }
}

fn map(codes: &[u8], out: &mut [f32], decode: impl Fn(u8) -> f32) {
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = decode(code);
    }
}

/// Takes whole blocks apart into codes, scales and minimums.
///
/// # Panics
///
/// If `ty` has no [`CodeLayout`], or a length does not fit (see [`CodesMut`]).
///
/// # Cost
///
/// Reads and writes every byte once, at about memory speed.
pub fn codes(ty: GgmlType, bytes: &[u8], out: CodesMut<'_>) {
    let layout = CodeLayout::of(ty).unwrap_or_else(|| panic!("{ty} has no codes"));
    let num_values = out.codes.len();
    let num_groups = num_values / layout.group.get();
    assert_eq!(
        ty.bytes_of(num_values),
        Some(bytes.len()),
        "{num_values} values of {ty}"
    );
    assert_eq!(out.scales.len(), num_groups, "scales");
    let needs_mins = layout.offset == Offset::PerGroup;
    assert!(
        out.mins.len() == num_groups || !needs_mins && out.mins.is_empty(),
        "minimums"
    );
    match ty {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => unreachable!("floats have no layout"),
        GgmlType::Q4_0 => blocks::each(bytes, out, blocks::q4_0),
        GgmlType::Q4_1 => blocks::each(bytes, out, blocks::q4_1),
        GgmlType::Q5_0 => blocks::each(bytes, out, blocks::q5_0),
        GgmlType::Q5_1 => blocks::each(bytes, out, blocks::q5_1),
        GgmlType::Q8_0 => blocks::each(bytes, out, blocks::q8_0),
        GgmlType::Q2_K => blocks::each(bytes, out, blocks::q2_k),
        GgmlType::Q3_K => blocks::each(bytes, out, blocks::q3_k),
        GgmlType::Q4_K => blocks::each(bytes, out, blocks::q4_k),
        GgmlType::Q5_K => blocks::each(bytes, out, blocks::q5_k),
        GgmlType::Q6_K => blocks::each(bytes, out, blocks::q6_k),
        GgmlType::IQ4_NL => blocks::each(bytes, out, blocks::iq4_nl),
        GgmlType::IQ4_XS => blocks::each(bytes, out, blocks::iq4_xs),
        GgmlType::MXFP4 => blocks::each(bytes, out, blocks::mxfp4),
    }
}
