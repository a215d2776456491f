//! Storage types of keys and values: how floats become elements, and what an element is worth.
//!
//! The one idea: an element is worth `to_f32() * scale`, where the scale belongs to one head of one
//! position. Floats need none (theirs is 1); 8-bit integers take the largest magnitude of their
//! head to 127:
//!
//! ```text
//! scale = max |x| / 127, rounded up to bfloat16       so that no element is beyond ±127
//! quant = x / scale, rounded to nearest even          |x - quant * scale| <= scale / 2
//! ```
//!
//! So what is stored of a position depends on its own key (or value) alone: chunks, neighbours and
//! threads cannot change a bit of it.
//!
//! Not here: where elements lie (`kv`), reading them (`ops::attention`).

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::KvType;

/// Elements that are converted together.
pub(super) const CHUNK: usize = 64;

/// Largest magnitude of an 8-bit element; -128 stays unused, so that signs are symmetric.
const QUANT_MAX: f32 = 127.0;

/// A storage type of keys and values.
pub(crate) trait KvElement: Pod + Send + Sync {
    /// Its name at run time.
    const TYPE: KvType;
    /// The element's exact value, in units of its scale.
    fn to_f32(self) -> f32;
    /// The scale of one head's elements at one position, given all of them. NaN if one of them is.
    fn scale_of(head: &[f32]) -> bf16;
    /// Saturates, and rounds to nearest even: at most [`CHUNK`] elements, slices of one length.
    fn convert(from: &[f32], scale: bf16, to: &mut [Self]);
}

impl KvElement for f32 {
    const TYPE: KvType = KvType::F32;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    fn scale_of(_: &[f32]) -> bf16 {
        bf16::ONE
    }
    fn convert(from: &[f32], _: bf16, to: &mut [f32]) {
        let mut saturated = [0.0; CHUNK];
        to.copy_from_slice(saturate(from, f32::MAX, &mut saturated));
    }
}

impl KvElement for f16 {
    const TYPE: KvType = KvType::F16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    fn scale_of(_: &[f32]) -> bf16 {
        bf16::ONE
    }
    fn convert(from: &[f32], _: bf16, to: &mut [f16]) {
        let mut saturated = [0.0; CHUNK];
        to.convert_from_f32_slice(saturate(from, f16::MAX.to_f32_const(), &mut saturated));
    }
}

impl KvElement for bf16 {
    const TYPE: KvType = KvType::Bf16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
    fn scale_of(_: &[f32]) -> bf16 {
        bf16::ONE
    }
    fn convert(from: &[f32], _: bf16, to: &mut [bf16]) {
        let mut saturated = [0.0; CHUNK];
        to.convert_from_f32_slice(saturate(from, bf16::MAX.to_f32_const(), &mut saturated));
    }
}

impl KvElement for i8 {
    const TYPE: KvType = KvType::Int8;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }

    fn scale_of(head: &[f32]) -> bf16 {
        // Magnitudes compare as their bits do, and NaN is above them all.
        let largest = head.iter().fold(0, |largest, value| {
            largest.max(value.abs().to_bits() as i32)
        });
        let largest = f32::from_bits(largest as u32);
        if largest.is_nan() {
            return bf16::NAN;
        }
        // A head of zeros, or of what is as good as zero, still needs a scale to divide by.
        let scale = (largest.min(f32::MAX) / QUANT_MAX).max(f32::MIN_POSITIVE);
        bf16::from_bits(scale.to_bits().div_ceil(1 << 16) as u16)
    }

    fn convert(from: &[f32], scale: bf16, to: &mut [i8]) {
        /// Added to a number of less than 22 bits, it leaves that number's nearest integer in the
        /// lowest bits of the sum.
        const INTEGERS: f32 = (3 << 22) as f32;
        let mut saturated = [0.0; CHUNK];
        let (from, scale) = (saturate(from, f32::MAX, &mut saturated), widen(scale));
        for (to, &from) in to.iter_mut().zip(from) {
            *to = (from / scale + INTEGERS).to_bits() as i8;
        }
    }
}

/// A scale's exact value. As `bf16::to_f32`, but free of a branch for NaN.
#[inline(always)]
pub(crate) fn widen(scale: bf16) -> f32 {
    f32::from_bits(u32::from(scale.to_bits()) << 16)
}

/// Magnitudes beyond `largest` become `largest`; NaN stays.
fn saturate<'a>(from: &[f32], largest: f32, to: &'a mut [f32; CHUNK]) -> &'a [f32] {
    let to = &mut to[..from.len()];
    for (to, &from) in to.iter_mut().zip(from) {
        *to = from.clamp(-largest, largest);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quants of one head, and their scale.
    fn quantised(head: &[f32]) -> (Vec<i8>, f32) {
        let scale = i8::scale_of(head);
        let mut quants = vec![0; head.len()];
        for (from, to) in head.chunks(CHUNK).zip(quants.chunks_mut(CHUNK)) {
            i8::convert(from, scale, to);
        }
        (quants, scale.to_f32())
    }

    #[test]
    fn a_quantised_element_is_off_by_half_a_scale_at_most() {
        let mut bits = 1_u32;
        for exponent in -30..30 {
            let head: Vec<f32> = (0..100)
                .map(|_| {
                    bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((bits >> 8) as f32 / (1 << 23) as f32 - 1.0) * 2.0_f32.powi(exponent)
                })
                .collect();
            let (quants, scale) = quantised(&head);
            let largest = head
                .iter()
                .fold(0.0, |largest, x| f32::max(largest, x.abs()));
            // Rounding up to 8 significant bits adds one part in 128 at most.
            assert!((largest / 127.0..=largest / 127.0 * (1.0 + 1.0 / 128.0)).contains(&scale));
            for (&x, &quant) in head.iter().zip(&quants) {
                assert!((-127..=127).contains(&quant), "{quant}");
                // The quotient is rounded once before it is rounded to an integer.
                let error = (x - f32::from(quant) * scale).abs();
                assert!(error <= scale * 0.50001, "{x} as {quant} times {scale}");
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_even_quants() {
        // 127 makes the scale 1.
        let (quants, scale) = quantised(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0]);
        assert_eq!(scale, 1.0);
        assert_eq!(quants, [127, 0, 2, 2, 0, -2, -2, 0]);
    }

    #[test]
    fn heads_at_the_ends_of_the_range_are_quantised() {
        assert_eq!(quantised(&[0.0, -0.0]).0, [0, 0]);
        assert_eq!(quantised(&[1e-45, -1e-40]).0, [0, 0], "as good as zero");
        for value in [f32::MAX, f32::INFINITY] {
            let (quants, scale) = quantised(&[value, -value, 1.0]);
            // 126, because the scale was rounded up.
            assert_eq!(quants, [126, -126, 0]);
            assert!(scale.is_finite());
        }
        assert!(
            quantised(&[1.0, f32::NAN]).1.is_nan(),
            "a fault stays visible"
        );
    }
}
