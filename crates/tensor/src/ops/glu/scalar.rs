//! The definition.

use super::Gate;
use crate::ops::math::{gelu_erf, gelu_tanh, relu, silu};

/// One row. Without `ups` it is the activation alone.
#[inline(always)]
pub(super) fn apply(gate: Gate, gates: &[f32], ups: Option<&[f32]>, out: &mut [f32]) {
    match gate {
        Gate::Relu => each(relu, gates, ups, out),
        Gate::Silu => each(silu, gates, ups, out),
        Gate::GeluTanh => each(gelu_tanh, gates, ups, out),
        Gate::GeluErf => each(gelu_erf, gates, ups, out),
    }
}

#[inline(always)]
fn each(open: impl Fn(f32) -> f32, gates: &[f32], ups: Option<&[f32]>, out: &mut [f32]) {
    match ups {
        Some(ups) => {
            for ((out, &gate), &up) in out.iter_mut().zip(gates).zip(ups) {
                *out = open(gate) * up;
            }
        }
        None => {
            for (out, &gate) in out.iter_mut().zip(gates) {
                *out = open(gate);
            }
        }
    }
}
