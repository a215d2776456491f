//! Activations, and gated linear units: `out = activation(gate) * up`, element by element.
//!
//! The one idea: it is fused with preparing the rows for the next matmul, so the product is
//! written once. `scalar.rs` is the definition; the other files compile it for wider registers,
//! with the same bits.
//!
//! Source: Shazeer 2020, <https://arxiv.org/abs/2002.05202>.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use crate::isa::{FloatIsa, Isa};
use crate::pool::Pool;
use crate::rows::Rows;

/// What opens the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)` (llama and most others); error at most 3e-7 of itself and 5e-39 of `x`.
    Silu,
    /// GELU in its tanh form (gemma); error at most 4e-7 of `x`.
    GeluTanh,
    /// GELU in its first form, with the error function; error at most 4e-7 of `x`.
    GeluErf,
}

impl Gate {
    /// One row; all slices have one length.
    fn apply(self, isa: FloatIsa, gates: &[f32], ups: Option<&[f32]>, out: &mut [f32]) {
        match isa {
            FloatIsa::Scalar => scalar::apply(self, gates, ups, out),
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx2(proof) => avx2::apply(proof, self, gates, ups, out),
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx512(proof) => avx512::apply(proof, self, gates, ups, out),
        }
    }
}

/// `out[r][i] = gate(gates[r][i]) * ups[r][i]`, prepared for a matmul. One parallel region.
///
/// `out` was [reset](Rows::reset) to the number of rows and columns.
///
/// # Shapes
///
/// `gates`, `ups`: `[num_rows, cols]`.
///
/// # Panics
///
/// If the shapes disagree.
pub fn glu(pool: &Pool, gate: Gate, gates: &[f32], ups: &[f32], out: &mut Rows) {
    let (num_rows, cols) = (out.num_rows(), out.cols());
    assert_eq!(
        gates.len(),
        num_rows * cols,
        "gates are [{num_rows}, {cols}]"
    );
    assert_eq!(ups.len(), num_rows * cols, "ups are [{num_rows}, {cols}]");
    let isa = Isa::current().floats();
    out.fill(pool, |row_idx, row| {
        let start = row_idx * cols;
        let ups = &ups[start..][..cols];
        gate.apply(isa, &gates[start..][..cols], Some(ups), row);
    });
}

/// `out[r][i] = gate(values[r][i])`, prepared for a matmul: a feed-forward layer without a gate. One
/// parallel region.
///
/// `out` was [reset](Rows::reset) to the number of rows and columns.
///
/// # Shapes
///
/// `values`: `[num_rows, cols]`.
///
/// # Panics
///
/// If the shapes disagree.
pub fn activate(pool: &Pool, gate: Gate, values: &[f32], out: &mut Rows) {
    let (num_rows, cols) = (out.num_rows(), out.cols());
    let len = num_rows * cols;
    assert_eq!(values.len(), len, "values are [{num_rows}, {cols}]");
    let isa = Isa::current().floats();
    out.fill(pool, |row_idx, row| {
        gate.apply(isa, &values[row_idx * cols..][..cols], None, row);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::math::{gelu_erf, gelu_tanh, relu, silu};
    use crate::rows::Forms;
    use std::num::NonZeroUsize;

    /// The errors of the activations against f64 are bounded in `math`; here it is the bits that
    /// count.
    #[test]
    fn every_isa_gives_the_bits_of_the_definition() {
        for len in [0, 1, 7, 16, 31, 1536] {
            let gates: Vec<f32> = (0..len).map(|idx| idx as f32 * 0.13 - 99.0).collect();
            let ups: Vec<f32> = (0..len).map(|idx| 1.5 - idx as f32 * 0.01).collect();
            for (gate, open) in [
                (Gate::Silu, silu as fn(f32) -> f32),
                (Gate::GeluTanh, gelu_tanh),
                (Gate::GeluErf, gelu_erf),
                (Gate::Relu, relu),
            ] {
                for isa in Isa::available() {
                    let mut out = vec![f32::NAN; len];
                    gate.apply(isa.floats(), &gates, Some(&ups), &mut out);
                    for (idx, &out) in out.iter().enumerate() {
                        let want = open(gates[idx]) * ups[idx];
                        assert_eq!(
                            out.to_bits(),
                            want.to_bits(),
                            "{isa}, {gate:?}({})",
                            gates[idx]
                        );
                    }
                    let mut alone = vec![f32::NAN; len];
                    gate.apply(isa.floats(), &gates, None, &mut alone);
                    let want = gates.iter().map(|&x| open(x).to_bits());
                    assert!(
                        alone.iter().map(|x| x.to_bits()).eq(want),
                        "{isa}, {gate:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn rows_meet_their_own_gates() {
        let (num_rows, cols) = (50, 320);
        let gates: Vec<f32> = (0..num_rows * cols)
            .map(|idx| (idx % 777) as f32 * 0.01 - 4.0)
            .collect();
        let ups: Vec<f32> = (0..num_rows * cols)
            .map(|idx| (idx % 1001) as f32 * 0.01)
            .collect();
        for num_threads in 1..=3 {
            let pool = Pool::new(NonZeroUsize::new(num_threads).expect("not zero"));
            let mut rows = Rows::new();
            rows.reset(num_rows, cols, Forms::NONE);
            glu(&pool, Gate::Silu, &gates, &ups, &mut rows);
            for (idx, value) in rows.values().iter().enumerate() {
                assert_eq!(*value, silu(gates[idx]) * ups[idx]);
            }
        }
    }
}
