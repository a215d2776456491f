//! The definition, compiled for AVX2 and FMA: same operations, same bits, wider registers.

use super::{Norm, scalar};
use crate::isa::Avx2;

/// Normalises one vector.
pub(super) fn apply(_proof: Avx2, norm: Norm<'_>, input: &[f32], out: &mut [f32]) {
    // SAFETY: an `Avx2` exists only where the machine has these features.
    unsafe { compiled(norm, input, out) }
}

#[target_feature(enable = "avx2,fma")]
fn compiled(norm: Norm<'_>, input: &[f32], out: &mut [f32]) {
    scalar::apply(norm, input, out);
}
