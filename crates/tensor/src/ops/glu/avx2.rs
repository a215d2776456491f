//! The definition, compiled for AVX2 and FMA: same operations, same bits, wider registers.

use super::{Gate, scalar};
use crate::isa::Avx2;

/// One row.
pub(super) fn apply(_proof: Avx2, gate: Gate, gates: &[f32], ups: Option<&[f32]>, out: &mut [f32]) {
    // SAFETY: an `Avx2` exists only where the machine has these features.
    unsafe { compiled(gate, gates, ups, out) }
}

#[target_feature(enable = "avx2,fma")]
fn compiled(gate: Gate, gates: &[f32], ups: Option<&[f32]>, out: &mut [f32]) {
    scalar::apply(gate, gates, ups, out);
}
