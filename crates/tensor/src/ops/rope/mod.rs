//! Rotary position embedding: pairs of a head's elements are turned by an angle proportional to the
//! position, so that a query meets a key at the angle of their distance.
//!
//! The one idea: the sines and cosines of a step's rows are computed once ([`Rotations::set`]) and
//! used by every layer. An angle depends on the position alone: `f64(position) * f64(frequency)`,
//! its cosine rounded once to f32; no chunking, cache or neighbour can change it.
//!
//! ```text
//! Interleaved    (x0 x1) (x2 x3) (x4 x5) ...                llama as converted to GGUF
//! Halves         (x0 x[n/2]) (x1 x[n/2+1]) (x2 x[n/2+2]) ... NeoX, gemma, qwen
//! n = twice the number of frequencies; elements from n on stay (partial rotation)
//! ```
//!
//! Not here: how frequencies are scaled for long contexts; that is the model's knowledge.
//!
//! Source: Su et al. 2021, <https://arxiv.org/abs/2104.09864>.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use super::split_work;
use crate::isa::{FloatIsa, Isa};
use crate::pool::{Disjoint, Pool};

/// Which elements make a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours: `(2i, 2i + 1)`.
    Interleaved,
    /// `(i, i + n/2)` of the `n` rotated elements.
    Halves,
}

/// How fast each pair turns.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeFrequencies {
    /// `[num_pairs]`, radians per position.
    frequencies: Vec<f64>,
    /// Cosines and sines are multiplied by it: 1, or the attention factor of YaRN.
    magnitude: f64,
}

impl RopeFrequencies {
    /// From inverse frequencies, each divided by its factor if there are any (`rope_freqs.weight`
    /// in GGUF).
    ///
    /// # Panics
    ///
    /// If there are factors, but not one per frequency.
    pub fn new(inverse_frequencies: &[f32], factors: Option<&[f32]>) -> RopeFrequencies {
        let mut frequencies: Vec<f64> = inverse_frequencies
            .iter()
            .map(|&frequency| f64::from(frequency))
            .collect();
        if let Some(factors) = factors {
            assert_eq!(factors.len(), frequencies.len(), "one factor per frequency");
            for (frequency, &factor) in frequencies.iter_mut().zip(factors) {
                *frequency /= f64::from(factor);
            }
        }
        RopeFrequencies {
            frequencies,
            magnitude: 1.0,
        }
    }

    /// The same, with cosines and sines multiplied by `magnitude`.
    #[must_use]
    pub fn with_magnitude(self, magnitude: f32) -> RopeFrequencies {
        RopeFrequencies {
            magnitude: f64::from(magnitude),
            ..self
        }
    }

    /// Pairs that turn.
    pub fn num_pairs(&self) -> usize {
        self.frequencies.len()
    }
}

/// The rotations of a step's rows.
#[derive(Debug, Default)]
pub struct Rotations {
    /// `[num_rows][2][num_pairs]`: cosines, then sines.
    table: Vec<f32>,
    num_rows: usize,
    num_pairs: usize,
}

/// One row's rotation.
#[derive(Clone, Copy)]
struct Turn<'a> {
    /// `[num_pairs]`.
    cosines: &'a [f32],
    /// `[num_pairs]`.
    sines: &'a [f32],
}

impl Rotations {
    /// Computes the rotations of rows at `positions`, one per row. At most one parallel region.
    ///
    /// # Cost
    ///
    /// Some 10 ns per row and pair; call it once per step, not once per layer. Memory is kept.
    pub fn set(&mut self, pool: &Pool, frequencies: &RopeFrequencies, positions: &[u32]) {
        /// See [`split_work`]: a sine and a cosine in f64.
        const UNITS_PER_PAIR: usize = 100;
        let num_pairs = frequencies.num_pairs();
        (self.num_rows, self.num_pairs) = (positions.len(), num_pairs);
        self.table.resize(positions.len() * 2 * num_pairs, 0.0);
        let table = Disjoint::new(&mut self.table);
        split_work(pool, positions.len(), UNITS_PER_PAIR * num_pairs, &|rows| {
            for row_idx in rows {
                // SAFETY: `split_work` gives each row to one worker, which visits it once.
                let row =
                    unsafe { table.slice(row_idx * 2 * num_pairs..(row_idx + 1) * 2 * num_pairs) };
                let (cosines, sines) = row.split_at_mut(num_pairs);
                for ((cosine, sine), frequency) in
                    cosines.iter_mut().zip(sines).zip(&frequencies.frequencies)
                {
                    let (sin, cos) = (f64::from(positions[row_idx]) * frequency).sin_cos();
                    *cosine = (cos * frequencies.magnitude) as f32;
                    *sine = (sin * frequencies.magnitude) as f32;
                }
            }
        });
    }

    fn turn(&self, row_idx: usize) -> Turn<'_> {
        let row = &self.table[row_idx * 2 * self.num_pairs..][..2 * self.num_pairs];
        let (cosines, sines) = row.split_at(self.num_pairs);
        Turn { cosines, sines }
    }
}

/// Rotates all heads of all rows in place. At most one parallel region.
///
/// # Shapes
///
/// `heads`: `[rotations' rows, any number of heads, head_dim]`; `head_dim` is at least twice the
/// number of pairs.
///
/// # Panics
///
/// If the shapes disagree.
pub fn rotate(
    pool: &Pool,
    style: RopeStyle,
    rotations: &Rotations,
    head_dim: usize,
    heads: &mut [f32],
) {
    rotate_with(
        Isa::current().floats(),
        pool,
        style,
        rotations,
        head_dim,
        heads,
    );
}

fn rotate_with(
    isa: FloatIsa,
    pool: &Pool,
    style: RopeStyle,
    rotations: &Rotations,
    head_dim: usize,
    heads: &mut [f32],
) {
    let num_rows = rotations.num_rows;
    if num_rows == 0 {
        assert!(heads.is_empty(), "no rotations for {} values", heads.len());
        return;
    }
    let row_len = heads.len() / num_rows;
    assert!(
        head_dim >= 2 * rotations.num_pairs,
        "{} pairs in heads of {head_dim}",
        rotations.num_pairs
    );
    assert!(
        row_len * num_rows == heads.len() && row_len.is_multiple_of(head_dim),
        "{} values are not {num_rows} rows of heads of {head_dim}",
        heads.len()
    );
    let shared = Disjoint::new(heads);
    split_work(pool, num_rows, row_len, &|rows| {
        for row_idx in rows {
            // SAFETY: `split_work` gives each row to one worker, which visits it once.
            let row = unsafe { shared.slice(row_idx * row_len..(row_idx + 1) * row_len) };
            let turn = rotations.turn(row_idx);
            for head in row.chunks_exact_mut(head_dim) {
                match isa {
                    FloatIsa::Scalar => scalar::apply(style, turn, head),
                    #[cfg(target_arch = "x86_64")]
                    FloatIsa::Avx2(proof) => avx2::apply(proof, style, turn, head),
                    #[cfg(target_arch = "x86_64")]
                    FloatIsa::Avx512(proof) => avx512::apply(proof, style, turn, head),
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    const HEAD_DIM: usize = 20;

    fn pool(num_threads: usize) -> Pool {
        Pool::new(NonZeroUsize::new(num_threads).expect("not zero"))
    }

    fn frequencies(num_pairs: usize) -> RopeFrequencies {
        let inverse: Vec<f32> = (0..num_pairs)
            .map(|pair| 10_000_f32.powf(-(pair as f32) / num_pairs as f32))
            .collect();
        RopeFrequencies::new(&inverse, None)
    }

    fn heads(num_rows: usize) -> Vec<f32> {
        (0..num_rows * 3 * HEAD_DIM)
            .map(|idx| (idx * 31 % 101) as f32 / 50.0 - 1.0)
            .collect()
    }

    fn rotated(
        isa: FloatIsa,
        num_threads: usize,
        style: RopeStyle,
        num_pairs: usize,
        positions: &[u32],
    ) -> Vec<f32> {
        let pool = pool(num_threads);
        let mut rotations = Rotations::default();
        rotations.set(&pool, &frequencies(num_pairs), positions);
        let mut heads = heads(positions.len());
        rotate_with(isa, &pool, style, &rotations, HEAD_DIM, &mut heads);
        heads
    }

    #[test]
    fn pairs_turn_by_position_times_frequency_and_the_rest_stays() {
        let positions = [0, 1, 17, 8191];
        for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
            for num_pairs in [1, 7, 10] {
                let old = heads(positions.len());
                let frequencies = frequencies(num_pairs);
                for isa in Isa::available() {
                    let new = rotated(isa.floats(), 1, style, num_pairs, &positions);
                    for (head_idx, (old, new)) in
                        old.chunks(HEAD_DIM).zip(new.chunks(HEAD_DIM)).enumerate()
                    {
                        for pair in 0..num_pairs {
                            let (first, second) = match style {
                                RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                                RopeStyle::Halves => (pair, pair + num_pairs),
                            };
                            let (sin, cos) = (f64::from(positions[head_idx / 3])
                                * frequencies.frequencies[pair])
                                .sin_cos();
                            let (a, b) = (f64::from(old[first]), f64::from(old[second]));
                            // Two products of values within ±1 and their sum: each rounded once,
                            // factors too.
                            assert!(
                                (f64::from(new[first]) - (a * cos - b * sin)).abs() < 4e-7,
                                "{isa} {style:?}"
                            );
                            assert!(
                                (f64::from(new[second]) - (b * cos + a * sin)).abs() < 4e-7,
                                "{isa} {style:?}"
                            );
                        }
                        assert_eq!(
                            old[2 * num_pairs..],
                            new[2 * num_pairs..],
                            "{isa} {style:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_rows_bits_depend_on_its_position_alone() {
        let positions: Vec<u32> = (0..1000).map(|idx| idx * 97 % 4096).collect();
        for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
            let together = rotated(FloatIsa::Scalar, 1, style, 8, &positions);
            for isa in Isa::available() {
                for num_threads in [1, 2, 3] {
                    let again = rotated(isa.floats(), num_threads, style, 8, &positions);
                    assert!(
                        together
                            .iter()
                            .zip(&again)
                            .all(|(a, b)| a.to_bits() == b.to_bits()),
                        "{isa}, {num_threads}"
                    );
                }
            }
            // Alone, with the same input as in its place among the others.
            let (pool, mut rotations) = (pool(1), Rotations::default());
            for row in [0, 1, 999] {
                rotations.set(&pool, &frequencies(8), &positions[row..=row]);
                let range = row * 3 * HEAD_DIM..(row + 1) * 3 * HEAD_DIM;
                let mut alone = heads(positions.len())[range.clone()].to_vec();
                rotate(&pool, style, &rotations, HEAD_DIM, &mut alone);
                assert_eq!(alone, together[range]);
            }
        }
    }

    #[test]
    fn factors_divide_frequencies_and_magnitude_multiplies_rotations() {
        let scaled = RopeFrequencies::new(&[1.0, 0.5], Some(&[1.0, 4.0])).with_magnitude(2.0);
        let mut rotations = Rotations::default();
        rotations.set(&pool(1), &scaled, &[3]);
        let want = [3.0_f64, 0.375].map(|angle| [2.0 * angle.cos(), 2.0 * angle.sin()]);
        assert_eq!(
            rotations.table,
            [
                want[0][0] as f32,
                want[1][0] as f32,
                want[0][1] as f32,
                want[1][1] as f32
            ]
        );
    }

    #[test]
    #[should_panic(expected = "11 pairs in heads of 20")]
    fn more_pairs_than_a_head_has_are_refused() {
        rotated(FloatIsa::Scalar, 1, RopeStyle::Halves, 11, &[0]);
    }
}
