//! The definition.

use super::{Centre, Norm};
use crate::ops::math::{LANES, sum_lanes};

/// Normalises one vector.
#[inline(always)]
pub(super) fn apply(norm: Norm<'_>, input: &[f32], out: &mut [f32]) {
    let len = input.len() as f32;
    match norm.centre {
        Centre::Kept => {
            let mean_square = sum(input, 0.0, |x, sum| x.mul_add(x, sum)) / len;
            let scale = 1.0 / (mean_square + norm.epsilon).sqrt();
            for ((out, &x), &weight) in out.iter_mut().zip(input).zip(norm.weight) {
                *out = x * scale * weight;
            }
        }
        Centre::Bias(bias) => {
            let mean = sum(input, 0.0, |x, sum| x + sum) / len;
            // In a second pass: the difference of two large sums would cancel.
            let variance = sum(input, mean, |x, sum| x.mul_add(x, sum)) / len;
            let scale = 1.0 / (variance + norm.epsilon).sqrt();
            let constants = norm.weight.iter().zip(bias);
            for ((out, &x), (&weight, &bias)) in out.iter_mut().zip(input).zip(constants) {
                *out = ((x - mean) * scale).mul_add(weight, bias);
            }
        }
    }
}

/// Adds up `term` of each element less `shift`: lane `i` takes elements `i`, `i + 16`, ...
#[inline(always)]
fn sum(input: &[f32], shift: f32, term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, rest) = input.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = term(x - shift, *lane);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = term(x - shift, *lane);
    }
    sum_lanes(lanes)
}
