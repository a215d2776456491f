//! The definition, compiled for AVX-512: same operations, same bits, wider registers.

use super::{Norm, scalar};
use crate::isa::Avx512Vnni;

/// Normalises one vector.
pub(super) fn apply(_proof: Avx512Vnni, norm: Norm<'_>, input: &[f32], out: &mut [f32]) {
    // SAFETY: an `Avx512Vnni` exists only where the machine has these features.
    unsafe { compiled(norm, input, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn compiled(norm: Norm<'_>, input: &[f32], out: &mut [f32]) {
    scalar::apply(norm, input, out);
}
