//! Gated linear units: `out = activation(gate) * up`, element by element.
//!
//! The one idea: it is fused with preparing the rows for the next matmul, so the product is written once.
//! `scalar.rs` is the definition; the other files compile it for wider registers, with the same bits.
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
    /// `x * sigmoid(x)` (llama and most others); error at most 3e-7 of itself.
    Silu,
    /// GELU in its tanh form (gemma); error at most 4e-7 of `x`.
    GeluTanh,
}

impl Gate {
    /// One row; all slices have one length.
    fn apply(self, isa: FloatIsa, gates: &[f32], ups: &[f32], out: &mut [f32]) {
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
        gate.apply(isa, &gates[start..][..cols], &ups[start..][..cols], row);
    });
}
