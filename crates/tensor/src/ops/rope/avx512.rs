//! The definition, compiled for AVX-512: same operations, same bits, wider registers.

use super::{RopeStyle, Turn, scalar};
use crate::isa::Avx512Vnni;

/// One head.
pub(super) fn apply(_proof: Avx512Vnni, style: RopeStyle, turn: Turn<'_>, head: &mut [f32]) {
    // SAFETY: an `Avx512Vnni` exists only where the machine has these features.
    unsafe { compiled(style, turn, head) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn compiled(style: RopeStyle, turn: Turn<'_>, head: &mut [f32]) {
    scalar::apply(style, turn, head);
}
