//! The definition, compiled for AVX2 and FMA: same operations, same bits, wider registers.

use super::{Change, scalar};
use crate::isa::Avx2;

/// All values of a slice.
pub(super) fn apply(_proof: Avx2, change: Change<'_>, values: &mut [f32]) {
    // SAFETY: an `Avx2` exists only where the machine has these features.
    unsafe { compiled(change, values) }
}

#[target_feature(enable = "avx2,fma")]
fn compiled(change: Change<'_>, values: &mut [f32]) {
    scalar::apply(change, values);
}
