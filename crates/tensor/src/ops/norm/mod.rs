//! Normalisation of rows: by the root mean square, `out[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i]`, or around the
//! mean, `out[i] = (x[i] - mean(x)) / sqrt(variance(x) + epsilon) * weight[i] + bias[i]`.
//!
//! The one idea: a sum is always spread over 16 lanes and added up as one tree, so
//! the three instruction sets give the same bits. `scalar.rs` is the definition; the other files
//! compile it for wider registers.
//!
//! Weights are final multipliers: where a family's definition says `1 + weight`, the file's weights
//! already hold the sum.
//!
//! Sources: Zhang and Sennrich 2019, <https://arxiv.org/abs/1910.07467>; Ba, Kiros and Hinton 2016,
//! <https://arxiv.org/abs/1607.06450>.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use super::split_work;
use crate::isa::{FloatIsa, Isa};
use crate::pool::{Disjoint, Pool};
use crate::rows::Rows;

/// What a normalisation multiplies by and adds: one layer's constants.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// `[len]`: final multipliers. Its length is that of the vectors which are normalised.
    pub weight: &'a [f32],
    /// What is left of a vector's mean.
    pub centre: Centre<'a>,
    /// Added to the mean of squares.
    pub epsilon: f32,
}

/// What a normalisation does with a vector's mean.
#[derive(Clone, Copy, Debug)]
pub enum Centre<'a> {
    /// Leaves it (root mean square).
    Kept,
    /// Replaces it by `[len]` values of the model's own (LayerNorm).
    Bias(&'a [f32]),
}

impl Norm<'_> {
    /// One vector; `out` has its length.
    fn apply(self, isa: FloatIsa, input: &[f32], out: &mut [f32]) {
        debug_assert!(input.len() == self.weight.len() && out.len() == self.weight.len());
        if let Centre::Bias(bias) = self.centre {
            debug_assert_eq!(bias.len(), self.weight.len());
        }
        match isa {
            FloatIsa::Scalar => scalar::apply(self, input, out),
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx2(proof) => avx2::apply(proof, self, input, out),
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx512(proof) => avx512::apply(proof, self, input, out),
        }
    }
}

/// Normalises the rows of `input` into `out`, which prepares them for a matmul. One parallel
/// region.
///
/// `out` was [reset](Rows::reset) to the number of rows and columns.
///
/// # Shapes
///
/// `input`: `[num_rows, cols]`; `norm.weight`: `[cols]`.
///
/// # Panics
///
/// If the shapes disagree.
pub fn norm_rows(pool: &Pool, norm: Norm<'_>, input: &[f32], out: &mut Rows) {
    let cols = norm.weight.len();
    assert_eq!(out.cols(), cols, "the weights are [{cols}]");
    assert_eq!(
        input.len(),
        out.num_rows() * cols,
        "the input is [{}, {cols}]",
        out.num_rows()
    );
    let isa = Isa::current().floats();
    out.fill(pool, |row_idx, row| {
        norm.apply(isa, &input[row_idx * cols..][..cols], row)
    });
}

/// Normalises every vector of `vectors` in place: each head of queries or keys, for example.
/// At most one parallel region.
///
/// # Shapes
///
/// `vectors`: `[any number, norm.weight.len()]`.
///
/// # Panics
///
/// If `vectors` is not a whole number of vectors.
pub fn norm_in_place(pool: &Pool, norm: Norm<'_>, vectors: &mut [f32]) {
    let isa = Isa::current().floats();
    for_each_vector(pool, norm, vectors, &|_, vector| {
        scratch(vector.len(), |old| {
            old.copy_from_slice(vector);
            norm.apply(isa, old, vector);
        })
    });
}

/// Adds the normalised rows of `input` to `stream`: the residual connection of families that
/// normalise a block's output. At most one parallel region.
///
/// # Shapes
///
/// `input`, `stream`: `[num_rows, norm.weight.len()]`.
///
/// # Panics
///
/// If the shapes disagree.
pub fn norm_add(pool: &Pool, norm: Norm<'_>, input: &[f32], stream: &mut [f32]) {
    assert_eq!(input.len(), stream.len(), "input and stream have one shape");
    let cols = norm.weight.len();
    let isa = Isa::current().floats();
    for_each_vector(pool, norm, stream, &|idx, vector| {
        scratch(cols, |normed| {
            norm.apply(isa, &input[idx * cols..][..cols], normed);
            for (sum, &value) in vector.iter_mut().zip(&*normed) {
                *sum += value;
            }
        })
    });
}

/// Calls `work(idx, vector)` for all vectors.
fn for_each_vector(
    pool: &Pool,
    norm: Norm<'_>,
    vectors: &mut [f32],
    work: &(dyn Fn(usize, &mut [f32]) + Sync),
) {
    let len = norm.weight.len();
    assert!(
        len > 0 && vectors.len().is_multiple_of(len),
        "{} values are not whole vectors of {len}",
        vectors.len()
    );
    let num_vectors = vectors.len() / len;
    let shared = Disjoint::new(vectors);
    split_work(pool, num_vectors, 2 * len, &|range| {
        for idx in range {
            // SAFETY: `split_work` gives each vector to one worker, which visits it once.
            work(idx, unsafe { shared.slice(idx * len..(idx + 1) * len) });
        }
    });
}

/// Lends `len` floats that this thread keeps between calls; they hold anything.
fn scratch(len: usize, work: impl FnOnce(&mut [f32])) {
    use std::cell::RefCell;
    thread_local! {
        static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|kept| {
        if kept.len() < len {
            kept.resize(len, 0.0);
        }
        work(&mut kept[..len]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Forms;
    use std::num::NonZeroUsize;

    const LENGTHS: [usize; 8] = [1, 5, 15, 16, 17, 64, 576, 2050];

    fn vector(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|idx| ((idx * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0)
            .collect()
    }

    fn exact(norm: Norm<'_>, input: &[f32]) -> Vec<f64> {
        let squares: f64 = input.iter().map(|&x| f64::from(x).powi(2)).sum();
        let scale = 1.0 / (squares / input.len() as f64 + f64::from(norm.epsilon)).sqrt();
        input
            .iter()
            .zip(norm.weight)
            .map(|(&x, &weight)| f64::from(x) * scale * f64::from(weight))
            .collect()
    }

    /// Bound on the relative error of an element: a lane's chain and the tree make the sum of
    /// squares, all terms positive; its root halves the error; five more roundings.
    fn relative_error_max(len: usize) -> f64 {
        let sum = (len.div_ceil(16) + 4) as f64 / 2.0;
        (sum + 5.0) * f64::from(f32::EPSILON) / 2.0
    }

    #[test]
    fn every_isa_gives_the_bits_of_the_definition_within_its_bound_of_the_formula() {
        for len in LENGTHS {
            let (input, weight) = (vector(len, 1), vector(len, 2));
            let norm = Norm {
                weight: &weight,
                centre: Centre::Kept,
                epsilon: 1e-5,
            };
            let mut definition = vec![0.0; len];
            norm.apply(FloatIsa::Scalar, &input, &mut definition);
            for (got, want) in definition.iter().zip(exact(norm, &input)) {
                let error = (f64::from(*got) - want).abs();
                assert!(
                    error <= relative_error_max(len) * want.abs(),
                    "{got} of {len}, exactly {want}"
                );
            }
            for isa in Isa::available() {
                let mut out = vec![0.0; len];
                norm.apply(isa.floats(), &input, &mut out);
                assert!(
                    out.iter()
                        .zip(&definition)
                        .all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{isa}, {len}"
                );
            }
        }
    }

    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias` in f64.
    fn exact_around_the_mean(norm: Norm<'_>, bias: &[f32], input: &[f32]) -> Vec<f64> {
        let len = input.len() as f64;
        let mean = input.iter().map(|&x| f64::from(x)).sum::<f64>() / len;
        let squares: f64 = input.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum();
        let scale = 1.0 / (squares / len + f64::from(norm.epsilon)).sqrt();
        let parts = input.iter().zip(norm.weight).zip(bias);
        parts
            .map(|((&x, &weight), &bias)| {
                (f64::from(x) - mean) * scale * f64::from(weight) + f64::from(bias)
            })
            .collect()
    }

    #[test]
    fn around_the_mean_every_isa_gives_the_bits_of_the_definition_close_to_the_formula() {
        for len in LENGTHS {
            let (weight, bias) = (vector(len, 2), vector(len, 6));
            // A mean far from zero is what this norm is for.
            let input: Vec<f32> = vector(len, 1).iter().map(|x| x + 5.0).collect();
            let norm = Norm {
                weight: &weight,
                centre: Centre::Bias(&bias),
                epsilon: 1e-5,
            };
            let mut definition = vec![0.0; len];
            norm.apply(FloatIsa::Scalar, &input, &mut definition);
            for (got, want) in definition
                .iter()
                .zip(exact_around_the_mean(norm, &bias, &input))
            {
                // Numbers up to 7 cancel to some 2 before they are scaled by less than 1.
                assert!(
                    (f64::from(*got) - want).abs() < 2e-5,
                    "{got}, exactly {want}"
                );
            }
            for isa in Isa::available() {
                let mut out = vec![0.0; len];
                norm.apply(isa.floats(), &input, &mut out);
                let same = out.iter().zip(&definition);
                assert!(
                    same.clone().all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{isa}, {len}"
                );
            }
        }
    }

    #[test]
    fn a_constant_row_becomes_the_bias() {
        let norm = Norm {
            weight: &[2.0; 32],
            centre: Centre::Bias(&[0.5; 32]),
            epsilon: 1e-6,
        };
        let mut values = [3.0; 64];
        norm_in_place(&Pool::new(NonZeroUsize::MIN), norm, &mut values);
        assert_eq!(values, [0.5; 64]);
    }

    #[test]
    fn a_row_of_zeros_stays_zero() {
        let norm = Norm {
            weight: &[2.0; 32],
            centre: Centre::Kept,
            epsilon: 1e-6,
        };
        let mut values = [0.0; 64];
        norm_in_place(&Pool::new(NonZeroUsize::MIN), norm, &mut values);
        assert_eq!(values, [0.0; 64]);
    }

    #[test]
    fn rows_and_places_and_sums_agree_whoever_computes_them() {
        let (num_rows, cols) = (37, 576);
        let (input, weight, stream) = (
            vector(num_rows * cols, 3),
            vector(cols, 4),
            vector(num_rows * cols, 5),
        );
        let norm = Norm {
            weight: &weight,
            centre: Centre::Kept,
            epsilon: 1e-5,
        };
        let mut want = vec![0.0; num_rows * cols];
        for (input, out) in input.chunks(cols).zip(want.chunks_mut(cols)) {
            norm.apply(FloatIsa::Scalar, input, out);
        }
        for num_threads in 1..=3 {
            let pool = Pool::new(NonZeroUsize::new(num_threads).expect("not zero"));
            let mut rows = Rows::new();
            rows.reset(num_rows, cols, Forms::NONE);
            norm_rows(&pool, norm, &input, &mut rows);
            assert_eq!(rows.values(), want);
            let mut in_place = input.clone();
            norm_in_place(&pool, norm, &mut in_place);
            assert_eq!(in_place, want);
            let mut sums = stream.clone();
            norm_add(&pool, norm, &input, &mut sums);
            assert!(
                sums.iter()
                    .zip(&stream)
                    .zip(&want)
                    .all(|((sum, old), new)| *sum == old + new)
            );
        }
    }
}
