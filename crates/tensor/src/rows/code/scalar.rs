//! The definition, written to be read.

use super::{BLOCK_COLS, Coded, scale_and_inverse};

pub(super) fn code(values: &[f32; BLOCK_COLS]) -> Coded {
    let magnitudes = values.iter().map(|value| value.abs().to_bits());
    let Some((scale, inverse)) = scale_and_inverse(magnitudes.max().unwrap_or(0)) else {
        return Coded::no_number();
    };
    let codes = values.map(|value| (value * inverse).round_ties_even() as i8);
    let sum_of = |codes: &[i8]| codes.iter().map(|&code| i32::from(code)).sum();
    Coded::new(codes, scale, [sum_of(&codes[..16]), sum_of(&codes[16..])])
}
