//! The definition, compiled for AVX2 and FMA: same operations, same bits, wider registers.

use super::{RopeStyle, Turn, scalar};
use crate::isa::Avx2;

/// One head.
pub(super) fn apply(_proof: Avx2, style: RopeStyle, turn: Turn<'_>, head: &mut [f32]) {
    // SAFETY: an `Avx2` exists only where the machine has these features.
    unsafe { compiled(style, turn, head) }
}

#[target_feature(enable = "avx2,fma")]
fn compiled(style: RopeStyle, turn: Turn<'_>, head: &mut [f32]) {
    scalar::apply(style, turn, head);
}
