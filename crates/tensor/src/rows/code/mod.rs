//! Values to 8-bit codes, 32 at a time: what every input of a quantised matrix goes through.
//!
//! Symmetric: the largest magnitude of the block becomes 127, ties round to even. `scalar.rs` is the
//! definition. The other files give the same bits, not just nearly: the maximum and the sums are of integers, and
//! the rest is done value by value with the same roundings.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use super::BLOCK_COLS;
use crate::isa::FloatIsa;

/// One row's share of a [`super::CodeBlock`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded {
    pub codes: [i8; BLOCK_COLS],
    pub scale: f32,
    pub sum: f32,
    pub half_sums: [f32; 2],
}

/// Codes a row, block by block: `emit(block_idx, coded)`. The last block is padded by zeros.
pub(super) fn code_row(isa: FloatIsa, row: &[f32], emit: impl FnMut(usize, Coded)) {
    match isa {
        FloatIsa::Scalar => each_block(row, scalar::code, emit),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx2(avx2) => avx2::code_row(avx2, row, emit),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx512(avx512) => avx512::code_row(avx512, row, emit),
    }
}

#[inline(always)]
fn each_block(
    row: &[f32],
    code: impl Fn(&[f32; BLOCK_COLS]) -> Coded,
    mut emit: impl FnMut(usize, Coded),
) {
    let (whole, rest) = row.as_chunks::<BLOCK_COLS>();
    for (block_idx, values) in whole.iter().enumerate() {
        emit(block_idx, code(values));
    }
    if !rest.is_empty() {
        let mut padded = [0.0; BLOCK_COLS];
        padded[..rest.len()].copy_from_slice(rest);
        emit(whole.len(), code(&padded));
    }
}

/// Below it a block counts as zero: `127 / magnitude` would overflow.
const MAGNITUDE_MIN: f32 = 1e-35;

/// What a code stands for, and what to multiply values with to get codes. `None` if the block has a value that is
/// no number, given its largest magnitude as bits: as integers NaN is above infinity, above all numbers.
#[inline(always)]
fn scale_and_inverse(largest_bits: u32) -> Option<(f32, f32)> {
    let largest = f32::from_bits(largest_bits);
    if !largest.is_finite() {
        return None;
    }
    if largest < MAGNITUDE_MIN {
        return Some((0.0, 0.0));
    }
    Some((largest / 127.0, 127.0 / largest))
}

impl Coded {
    /// From codes and their sums over both halves.
    #[inline(always)]
    fn new(codes: [i8; BLOCK_COLS], scale: f32, [first, second]: [i32; 2]) -> Coded {
        Coded {
            codes,
            scale,
            sum: scale * (first + second) as f32,
            half_sums: [scale * first as f32, scale * second as f32],
        }
    }

    /// Of a block with a value that is no number: whatever is computed from it is none either.
    #[cold]
    fn no_number() -> Coded {
        let nan = f32::NAN;
        Coded {
            codes: [0; BLOCK_COLS],
            scale: nan,
            sum: nan,
            half_sums: [nan; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    /// By every instruction set; they must agree to the bit.
    fn coded(values: &[f32]) -> Vec<Coded> {
        let by = |isa: Isa| {
            let mut blocks = Vec::new();
            code_row(isa.floats(), values, |block_idx, coded| {
                assert_eq!(block_idx, blocks.len());
                blocks.push(coded);
            });
            blocks
        };
        let bits = |coded: &Coded| {
            let floats = [
                coded.scale,
                coded.sum,
                coded.half_sums[0],
                coded.half_sums[1],
            ];
            (coded.codes, floats.map(f32::to_bits))
        };
        let expected = by(Isa::Scalar);
        for isa in Isa::available() {
            let got = by(isa);
            assert!(
                got.iter().map(bits).eq(expected.iter().map(bits)),
                "{isa}: {got:?}"
            );
        }
        expected
    }

    fn block(first: &[f32]) -> [f32; BLOCK_COLS] {
        let mut values = [0.0; BLOCK_COLS];
        values[..first.len()].copy_from_slice(first);
        values
    }

    #[test]
    fn ties_round_to_even_and_the_extremes_stay_within_127() {
        let coded = &coded(&block(&[127.0, -127.0, 0.5, 1.5, -2.5, 3.49]))[0];
        assert_eq!(&coded.codes[..6], &[127, -127, 0, 2, -2, 3]);
        assert_eq!(coded.scale, 1.0);
        assert_eq!(coded.sum, 3.0);
    }

    #[test]
    fn rows_of_any_length_are_padded_by_zeros() {
        for len in [1_usize, 31, 32, 33, 97] {
            let row: Vec<f32> = (0..len)
                .map(|col| ((col * 7919) % 2003) as f32 - 1001.0)
                .collect();
            let blocks = coded(&row);
            assert_eq!(blocks.len(), len.div_ceil(BLOCK_COLS));
            for (col, code) in blocks.iter().flat_map(|coded| coded.codes).enumerate() {
                let scale = blocks[col / BLOCK_COLS].scale;
                let value = row.get(col).copied().unwrap_or(0.0);
                assert!((scale * f32::from(code) - value).abs() <= 0.5001 * scale);
            }
        }
    }

    #[test]
    fn random_rows_of_any_magnitude_give_the_same_bits_everywhere() {
        let mut state = 1_u32;
        for _ in 0..2000 {
            let row: Vec<f32> = (0..64)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    f32::from_bits(state)
                })
                .map(|value| if value.is_finite() { value } else { 1.0 })
                .collect();
            coded(&row);
        }
    }

    #[test]
    fn a_value_that_is_no_number_makes_the_block_no_number_and_not_a_wrong_one() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [1.0; BLOCK_COLS];
            values[17] = bad;
            let coded = &coded(&values)[0];
            assert!(coded.scale.is_nan() && coded.sum.is_nan());
        }
    }

    #[test]
    fn zeros_and_values_too_small_to_scale_are_zero() {
        for small in [0.0, -0.0, f32::MIN_POSITIVE, -1e-40] {
            let coded = &coded(&[small; BLOCK_COLS])[0];
            assert_eq!(
                (coded.scale, coded.sum, coded.codes),
                (0.0, 0.0, [0; BLOCK_COLS])
            );
        }
    }
}
