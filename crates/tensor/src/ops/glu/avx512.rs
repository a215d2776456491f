//! The definition, compiled for AVX-512: same operations, same bits, wider registers.

use super::{Gate, scalar};
use crate::isa::Avx512Vnni;

/// One row.
pub(super) fn apply(
    _proof: Avx512Vnni,
    gate: Gate,
    gates: &[f32],
    ups: Option<&[f32]>,
    out: &mut [f32],
) {
    // SAFETY: an `Avx512Vnni` exists only where the machine has these features.
    unsafe { compiled(gate, gates, ups, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn compiled(gate: Gate, gates: &[f32], ups: Option<&[f32]>, out: &mut [f32]) {
    scalar::apply(gate, gates, ups, out);
}
