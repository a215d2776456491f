//! Rotary position embedding: pairs of a head's elements are turned by an angle proportional to the
//! position, so that a query meets a key at the angle of their distance.
//!
//! The one idea: the sines and cosines of a step's rows are computed once ([`Rotations::set`]) and
//! used by every layer. An angle depends on the position alone: `f64(position) * f64(frequency)`, its
//! cosine rounded once to f32; no chunking, cache or neighbour can change it.
//!
//! ```text
//! Interleaved    (x0 x1) (x2 x3) (x4 x5) ...      llama as converted to GGUF
//! Halves         x0 .. x[n/2-1] | x[n/2] .. x[n-1], pair i = (x[i], x[i + n/2])      NeoX, gemma, qwen
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
    /// From inverse frequencies, each divided by its factor if there are any (`rope_freqs.weight` in GGUF).
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
    /// Some 40 ns per row and pair; call it once per step, not once per layer. Memory is kept.
    pub fn set(&mut self, pool: &Pool, frequencies: &RopeFrequencies, positions: &[u32]) {
        let num_pairs = frequencies.num_pairs();
        (self.num_rows, self.num_pairs) = (positions.len(), num_pairs);
        self.table.resize(positions.len() * 2 * num_pairs, 0.0);
        let table = Disjoint::new(&mut self.table);
        split_work(pool, positions.len(), 32 * num_pairs, &|rows| {
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
/// `heads`: `[rotations' rows, any number of heads, head_dim]`; `head_dim` is at least twice the number of pairs.
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
