//! The definition.

use super::RmsNorm;
use crate::ops::math::{LANES, sum_lanes};

/// Normalises one vector.
#[inline(always)]
pub(super) fn apply(norm: RmsNorm<'_>, input: &[f32], out: &mut [f32]) {
    let mean = sum_of_squares(input) / input.len() as f32;
    let scale = 1.0 / (mean + norm.epsilon).sqrt();
    for ((out, &x), &weight) in out.iter_mut().zip(input).zip(norm.weight) {
        *out = x * scale * weight;
    }
}

/// Lane `i` adds up elements `i`, `i + 16`, ...
#[inline(always)]
fn sum_of_squares(input: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, rest) = input.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = x.mul_add(x, *lane);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = x.mul_add(x, *lane);
    }
    sum_lanes(lanes)
}
