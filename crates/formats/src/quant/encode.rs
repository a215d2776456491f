//! Floats to integer codes with scales: what [`super::codes`] would read from a file of that type.
//!
//! The one idea: codes and scales are what a packer wants and what a block in a file says, so a row is quantised
//! straight to them, with scales already rounded as the file's half would be. The rules are GGML's, so a model that is
//! quantised on its way into memory computes what the same model computes from a converted file.
//!
//! ```text
//! Q8_0   d = max |x| / 127                     code = 128 + round(x / d)
//! Q4_0   d = (the value farthest from 0) / -8  code = floor(x / d + 8.5), at most 15
//! Q4_1   d = (max x - min x) / 15              code = floor((x - min x) / d + 0.5)
//! ```
//!
//! Codes are chosen by the unrounded `d` and decoded by the rounded one, as in the reference.
//!
//! Source: `quantize_row_*_ref` of GGML, <https://github.com/ggml-org/ggml>.

use half::f16;

use super::CodesMut;
use crate::GgmlType;

/// Values in a block of each type that floats can be quantised to.
const BLOCK: usize = 32;

/// Why a row cannot be quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A value is infinite or not a number.
    #[error("value {idx} is infinite or not a number")]
    NotFinite {
        /// Its index in the row.
        idx: usize,
    },
    /// A block's scale or minimum is beyond what a half can hold.
    #[error("values {start} to {} are too large for a scale of 16 bits", start + BLOCK - 1)]
    OutOfRange {
        /// Index of the block's first value.
        start: usize,
    },
}

/// Quantises a row to codes, scales and (Q4_1) minimums, as a file of type `ty` holds them.
///
/// # Shapes
///
/// `values` and `out.codes`: `[n]`, a multiple of 32; `out.scales`, and for Q4_1 `out.mins`: `[n / 32]`.
///
/// # Errors
///
/// [`EncodeError`]; what `out` holds then is unspecified.
///
/// # Panics
///
/// If `ty` is not Q8_0, Q4_0 or Q4_1, or a length does not fit.
pub fn encode(ty: GgmlType, values: &[f32], out: CodesMut<'_>) -> Result<(), EncodeError> {
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    assert!(
        rest.is_empty(),
        "{} values are not whole blocks",
        values.len()
    );
    assert_eq!(out.codes.len(), values.len(), "codes");
    assert_eq!(out.scales.len(), blocks.len(), "scales");
    let encode_block = match ty {
        GgmlType::Q8_0 => q8_0,
        GgmlType::Q4_0 => q4_0,
        GgmlType::Q4_1 => q4_1,
        _ => panic!("nothing is quantised to {ty}"),
    };
    if ty == GgmlType::Q4_1 {
        assert_eq!(out.mins.len(), blocks.len(), "minimums");
    }
    if let Some(idx) = values.iter().position(|value| !value.is_finite()) {
        return Err(EncodeError::NotFinite { idx });
    }
    let codes = out.codes.as_chunks_mut::<BLOCK>().0;
    let scales = out.scales.iter_mut();
    for (block_idx, ((values, codes), scale)) in blocks.iter().zip(codes).zip(scales).enumerate() {
        let (d, min) = encode_block(values, codes);
        let (d, min) = (as_half(d), as_half(min));
        if !d.is_finite() || !min.is_finite() {
            let start = block_idx * BLOCK;
            return Err(EncodeError::OutOfRange { start });
        }
        *scale = d;
        if let Some(place) = out.mins.get_mut(block_idx) {
            *place = min;
        }
    }
    Ok(())
}

/// Writes the codes; returns scale and minimum, not rounded yet.
fn q8_0(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> (f32, f32) {
    let largest = values
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = inverse(scale);
    for (code, value) in codes.iter_mut().zip(values) {
        // From -127 to 127, so that 1..=255 comes out.
        *code = ((value * inverse).round() as i32 + 128) as u8;
    }
    (scale, 0.0)
}

fn q4_0(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> (f32, f32) {
    // The farthest value gets code 0, whose distance from the middle, 8, is the longest.
    let farthest = values.iter().fold(0.0f32, |farthest, &value| {
        if value.abs() > farthest.abs() {
            value
        } else {
            farthest
        }
    });
    let scale = farthest / -8.0;
    let inverse = inverse(scale);
    for (code, value) in codes.iter_mut().zip(values) {
        *code = ((value * inverse + 8.5) as u8).min(15);
    }
    (scale, 0.0)
}

fn q4_1(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> (f32, f32) {
    let smallest = values.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (largest - smallest) / 15.0;
    let inverse = inverse(scale);
    for (code, value) in codes.iter_mut().zip(values) {
        *code = (((value - smallest) * inverse + 0.5) as u8).min(15);
    }
    (scale, smallest)
}

/// 0 for blocks of equal values, and for differences so small that nothing can be divided by them.
fn inverse(scale: f32) -> f32 {
    let inverse = 1.0 / scale;
    if inverse.is_finite() { inverse } else { 0.0 }
}

fn as_half(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{CodeLayout, Offset};

    const TYPES: [GgmlType; 3] = [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_1];

    /// What a row becomes, and what it decodes to.
    fn through(ty: GgmlType, values: &[f32]) -> Result<Vec<f32>, EncodeError> {
        let layout = CodeLayout::of(ty).expect("it has codes");
        let num_blocks = values.len() / BLOCK;
        let mut codes = vec![0; values.len()];
        let (mut scales, mut mins) = (vec![0.0; num_blocks], vec![0.0; num_blocks]);
        let out = CodesMut {
            codes: &mut codes,
            scales: &mut scales,
            mins: &mut mins,
        };
        encode(ty, values, out)?;
        let decoded = codes.iter().enumerate().map(|(idx, &code)| {
            let group = idx / BLOCK;
            match layout.offset {
                Offset::Zero(zero) => scales[group] * (f32::from(code) - f32::from(zero)),
                Offset::PerGroup => scales[group] * f32::from(code) + mins[group],
            }
        });
        Ok(decoded.collect())
    }

    /// The same numbers for a seed, around 0, of very different sizes from block to block.
    fn values(seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let sizes = [1.0, 1e-3, 100.0, 0.02];
        sizes
            .iter()
            .flat_map(|size| (0..BLOCK).map(|_| size * next()).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn no_value_moves_farther_than_its_step() {
        for ty in TYPES {
            let values = values(7);
            let decoded = through(ty, &values).unwrap();
            for (block, decoded) in values.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
                let largest = block
                    .iter()
                    .fold(0.0f32, |largest, value| largest.max(value.abs()));
                let width = block.iter().copied().fold(f32::MIN, f32::max)
                    - block.iter().copied().fold(f32::MAX, f32::min);
                // Half a step, and a whole one where Q4_0 has no code on the other side; what the half of the scale
                // (and of the minimum) rounds away comes on top: 11 bits, but never less than half of 2^-24.
                let coarse = f32::from_bits(0x3300_0000);
                let bound = match ty {
                    GgmlType::Q8_0 => largest * (0.5 / 127.0 + 1.0 / 2048.0) + 127.0 * coarse,
                    GgmlType::Q4_0 => largest * (1.0 / 8.0 + 1.0 / 2048.0) + 8.0 * coarse,
                    _ => width * 0.5 / 15.0 + (width + largest) / 2048.0 + 16.0 * coarse,
                };
                for (value, decoded) in block.iter().zip(decoded) {
                    assert!(
                        (value - decoded).abs() <= bound,
                        "{ty}: {value} became {decoded}"
                    );
                }
            }
        }
    }

    /// Blocks as a file has them.
    fn blocks(ty: GgmlType, values: &[f32]) -> String {
        let num_blocks = values.len() / BLOCK;
        let mut codes = vec![0; values.len()];
        let (mut scales, mut mins) = (vec![0.0; num_blocks], vec![0.0; num_blocks]);
        let out = CodesMut {
            codes: &mut codes,
            scales: &mut scales,
            mins: &mut mins,
        };
        encode(ty, values, out).unwrap();
        let mut bytes = Vec::new();
        for (idx, codes) in codes.chunks(BLOCK).enumerate() {
            bytes.extend(f16::from_f32(scales[idx]).to_le_bytes());
            match ty {
                GgmlType::Q8_0 => bytes.extend(codes.iter().map(|code| code.wrapping_sub(128))),
                _ => {
                    if ty == GgmlType::Q4_1 {
                        bytes.extend(f16::from_f32(mins[idx]).to_le_bytes());
                    }
                    bytes.extend((0..16).map(|idx| codes[idx] | codes[idx + 16] << 4));
                }
            }
        }
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Made with `gguf` 0.19 (`gguf.quants.quantize`) from the same numbers.
    #[test]
    fn blocks_are_those_of_the_reference_to_the_last_bit() {
        let values = values(7);
        let q8_0 = "ce1fbb6d1e708a5ddc8b8f7f7c08f30d1c4949ebf95cdcfb954158dbac7e9df4f59984009e1f46961b6dc417\
             dad00336cfa95f20e17ffcaec16b16feadefae813142a50bc339436adce6265b01fb4f7fcf6bafc27d3caf84\
             c75b48b00347e9d1d7ae67ae32371c09f1c506d69ae3f7405d46bb3016933e53105a8e3ff07f69b2c859507c\
             748762bd";
        let q4_0 = "beaf3c918621af82fa4f2fa0d007e99796e3140862fa8c314aff94893675380bb5c32e9ab7c9d4f1ca2a36d2\
             884893b0bbd12ddc50541299792cf84b9e0a19d4c2243c0517ff24c3";
        let q4_1 = "fa2f36bbc36e79de507d15b0d05f2ff81678791c5808149462f97c3149ee94793575380ba5b22d89094a99d5\
             3b0e45d6ca3d87c76c5f553ee334afbb4619d2a486d408b561f6e73b4ddcc3fae901db3c";
        for (ty, expected) in TYPES.into_iter().zip([q8_0, q4_0, q4_1]) {
            assert_eq!(blocks(ty, &values), expected, "{ty}");
        }
    }

    #[test]
    fn values_that_a_type_can_hold_come_back_to_the_last_bit() {
        let steps = |of: fn(f32) -> f32, codes: usize| -> Vec<f32> {
            (0..BLOCK).map(|idx| of((idx % codes) as f32)).collect()
        };
        let eight = steps(|code| 0.25 * (code * 8.0 - 127.0).min(127.0), 32);
        assert_eq!(through(GgmlType::Q8_0, &eight).unwrap(), eight);
        let four = steps(|code| 0.5 * (code - 8.0), 16);
        assert_eq!(through(GgmlType::Q4_0, &four).unwrap(), four);
        let with_minimum = steps(|code| 0.5 * code - 3.0, 16);
        assert_eq!(
            through(GgmlType::Q4_1, &with_minimum).unwrap(),
            with_minimum
        );
    }

    #[test]
    fn the_farthest_value_of_either_sign_is_kept_by_q4_0() {
        for farthest in [-2.0, 2.0] {
            let mut values = vec![0.25; BLOCK];
            values[5] = farthest;
            assert_eq!(through(GgmlType::Q4_0, &values).unwrap()[5], farthest);
        }
    }

    #[test]
    fn zeros_stay_zeros_and_equal_values_equal() {
        for ty in TYPES {
            assert_eq!(through(ty, &[0.0; BLOCK]).unwrap(), [0.0; BLOCK], "{ty}");
        }
        assert_eq!(
            through(GgmlType::Q4_1, &[0.75; BLOCK]).unwrap(),
            [0.75; BLOCK]
        );
    }

    /// A scale below the smallest half is zero, and its inverse would be infinite.
    #[test]
    fn values_too_small_for_a_scale_become_zero() {
        for ty in TYPES {
            let decoded = through(ty, &[1e-42; BLOCK]).unwrap();
            assert!(
                decoded.iter().all(|value| *value == 0.0),
                "{ty}: {decoded:?}"
            );
        }
    }

    #[test]
    fn what_is_not_finite_is_refused_by_its_place() {
        for ty in TYPES {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![1.0; 2 * BLOCK];
                values[40] = value;
                let refusal = Err(EncodeError::NotFinite { idx: 40 });
                assert_eq!(through(ty, &values), refusal, "{ty}");
            }
        }
    }

    #[test]
    fn a_scale_beyond_a_half_is_refused_instead_of_becoming_infinite() {
        for ty in TYPES {
            let mut values = vec![0.0; 2 * BLOCK];
            values[50] = 1e38;
            let refusal = Err(EncodeError::OutOfRange { start: BLOCK });
            assert_eq!(through(ty, &values), refusal, "{ty}");
        }
    }
}
