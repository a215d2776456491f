//! The definition, compiled for AVX-512: same operations, same bits, wider registers.

use super::{Change, scalar};
use crate::isa::Avx512Vnni;

/// All values of a slice.
pub(super) fn apply(_proof: Avx512Vnni, change: Change<'_>, values: &mut [f32]) {
    // SAFETY: an `Avx512Vnni` exists only where the machine has these features.
    unsafe { compiled(change, values) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn compiled(change: Change<'_>, values: &mut [f32]) {
    scalar::apply(change, values);
}
