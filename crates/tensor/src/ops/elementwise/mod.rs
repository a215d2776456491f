//! What is done to floats one by one: add, scale, soft-cap.
//!
//! The one idea: there is one loop, and `Change` says what happens in it. `scalar.rs` is the
//! definition; the other files compile it for wider registers, with the same bits. Not here: what
//! a matmul's store, a norm or a gate does on its way.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use std::ops::Range;

use super::split_work;
use crate::isa::{FloatIsa, Isa};
use crate::pool::{Disjoint, Pool};

/// What happens to each value of a slice.
#[derive(Clone, Copy, Debug)]
enum Change<'a> {
    /// The value at the same place is added.
    Add(&'a [f32]),
    /// It is multiplied.
    Scale(f32),
    /// It becomes `cap * tanh(value / cap)`.
    Softcap(f32),
}

impl Change<'_> {
    fn part(self, range: Range<usize>) -> Self {
        match self {
            Change::Add(terms) => Change::Add(&terms[range]),
            Change::Scale(_) | Change::Softcap(_) => self,
        }
    }

    fn apply(self, isa: FloatIsa, values: &mut [f32]) {
        match isa {
            FloatIsa::Scalar => scalar::apply(self, values),
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx2(proof) => avx2::apply(proof, self, values),
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx512(proof) => avx512::apply(proof, self, values),
        }
    }
}

/// `values[i] += terms[i]`. At most one parallel region.
///
/// # Panics
///
/// If the lengths differ.
pub fn add(pool: &Pool, terms: &[f32], values: &mut [f32]) {
    assert_eq!(
        terms.len(),
        values.len(),
        "terms and values have one length"
    );
    change(pool, Change::Add(terms), values);
}

/// `values[i] *= factor` (embedding and residual multipliers). At most one parallel region.
pub fn scale(pool: &Pool, factor: f32, values: &mut [f32]) {
    change(pool, Change::Scale(factor), values);
}

/// `values[i] = cap * tanh(values[i] / cap)` (logits of gemma 2). At most one parallel region.
///
/// # Panics
///
/// If `cap` is not positive.
pub fn softcap(pool: &Pool, cap: f32, values: &mut [f32]) {
    assert!(cap > 0.0, "a cap of {cap}");
    change(pool, Change::Softcap(cap), values);
}

fn change(pool: &Pool, change: Change<'_>, values: &mut [f32]) {
    /// Values that are handed out together: workers then rarely meet in a cache line.
    const CHUNK: usize = 1024;
    let isa = Isa::current().floats();
    let len = values.len();
    let shared = Disjoint::new(values);
    split_work(pool, len.div_ceil(CHUNK), 2 * CHUNK, &|chunks| {
        let range = (chunks.start * CHUNK).min(len)..(chunks.end * CHUNK).min(len);
        // SAFETY: `split_work` gives each chunk to one worker.
        let part = unsafe { shared.slice(range.clone()) };
        change.part(range).apply(isa, part);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    fn check(made: impl Fn(&Pool, &mut [f32]), want: impl Fn(usize, f32) -> f32) {
        for (num_threads, len) in [(1, 0), (1, 5), (2, 1023), (3, 100_003)] {
            let pool = Pool::new(NonZeroUsize::new(num_threads).expect("not zero"));
            let old: Vec<f32> = (0..len).map(|idx| idx as f32 * 0.25 - 70.0).collect();
            let mut values = old.clone();
            made(&pool, &mut values);
            for (idx, (&got, &old)) in values.iter().zip(&old).enumerate() {
                assert_eq!(got.to_bits(), want(idx, old).to_bits(), "at {idx} of {len}");
            }
        }
    }

    #[test]
    fn every_value_is_added_to() {
        check(
            |pool, values| add(pool, &vec![1.5; values.len()], values),
            |_, old| old + 1.5,
        );
    }

    #[test]
    fn every_value_is_scaled() {
        check(|pool, values| scale(pool, 3.0, values), |_, old| old * 3.0);
    }

    #[test]
    fn every_value_is_capped_with_the_same_bits_on_every_isa() {
        check(
            |pool, values| softcap(pool, 30.0, values),
            |_, old| crate::ops::math::softcap(old, 30.0),
        );
        let old: Vec<f32> = (0..1000).map(|idx| idx as f32 * 0.3 - 150.0).collect();
        for isa in Isa::available() {
            let mut values = old.clone();
            Change::Softcap(30.0).apply(isa.floats(), &mut values);
            for (&got, &old) in values.iter().zip(&old) {
                assert_eq!(
                    got.to_bits(),
                    crate::ops::math::softcap(old, 30.0).to_bits(),
                    "{isa}"
                );
                assert!((f64::from(got) - 30.0 * (f64::from(old) / 30.0).tanh()).abs() < 1e-5);
            }
        }
    }
}
