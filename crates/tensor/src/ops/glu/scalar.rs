//! The definition.

use super::Gate;
use crate::ops::math::{gelu_tanh, silu};

/// One row.
#[inline(always)]
pub(super) fn apply(gate: Gate, gates: &[f32], ups: &[f32], out: &mut [f32]) {
    match gate {
        Gate::Silu => each(silu, gates, ups, out),
        Gate::GeluTanh => each(gelu_tanh, gates, ups, out),
    }
}

#[inline(always)]
fn each(open: impl Fn(f32) -> f32, gates: &[f32], ups: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gates).zip(ups) {
        *out = open(gate) * up;
    }
}
