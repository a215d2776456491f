//! The definition.

use super::Change;
use crate::ops::math::softcap;

/// All values of a slice.
#[inline(always)]
pub(super) fn apply(change: Change<'_>, values: &mut [f32]) {
    match change {
        Change::Add(terms) => {
            for (value, term) in values.iter_mut().zip(terms) {
                *value += term;
            }
        }
        Change::Scale(factor) => {
            for value in values {
                *value *= factor;
            }
        }
        Change::Softcap(cap) => {
            for value in values {
                *value = softcap(*value, cap);
            }
        }
    }
}
