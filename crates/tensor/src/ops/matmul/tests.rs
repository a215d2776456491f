//! Every instruction set against the definition, and the definition against plain arithmetic.

use std::num::NonZeroUsize;

use super::*;
use crate::matrix::{CodeBits, CodeRow, FloatKind, GroupLen, Offset, QuantSpec};
use crate::rows::Forms;

fn pool(num_threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(num_threads).expect("at least one"))
}

/// A number in 0..1 that only depends on its place.
fn noise(seed: usize, row_idx: usize, idx: usize) -> f32 {
    let hash = (seed as u64 * 7_919 + row_idx as u64 * 1_000_003 + idx as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (hash >> 40) as f32 / (1 << 24) as f32
}

/// Every kind of quantised matrix that the formats know, and more.
fn specs() -> Vec<QuantSpec> {
    let codebook = Some([
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
    ]);
    let mut specs = Vec::new();
    for group in [GroupLen::Sixteen, GroupLen::ThirtyTwo] {
        for offset in [
            Offset::Zero(0),
            Offset::Zero(8),
            Offset::Zero(128),
            Offset::PerGroup,
        ] {
            for (bits, codebook) in [
                (CodeBits::Four, None),
                (CodeBits::Four, codebook),
                (CodeBits::Eight, None),
            ] {
                specs.push(QuantSpec {
                    bits,
                    group,
                    offset,
                    codebook,
                });
            }
        }
    }
    specs
}

fn random_codes(pool: &Pool, spec: QuantSpec, rows: usize, cols: usize) -> Matrix {
    let levels = if spec.bits == CodeBits::Four {
        16.0
    } else {
        256.0
    };
    Matrix::from_codes(pool, spec, rows, cols, |row_idx, row: &mut CodeRow| {
        for (idx, code) in row.codes.iter_mut().enumerate() {
            *code = (noise(1, row_idx, idx) * levels) as u8;
        }
        for (idx, scale) in row.scales.iter_mut().enumerate() {
            *scale = 0.01 * (noise(2, row_idx, idx) - 0.3);
        }
        for (idx, min) in row.mins.iter_mut().enumerate() {
            *min = 0.1 * (noise(3, row_idx, idx) - 0.5);
        }
    })
}

fn random_floats(pool: &Pool, kind: FloatKind, rows: usize, cols: usize) -> Matrix {
    Matrix::from_floats(pool, kind, rows, cols, |row_idx, values| {
        for (idx, value) in values.iter_mut().enumerate() {
            *value = noise(4, row_idx, idx) - 0.5;
        }
    })
}

/// Rows `first..first + num_rows` of one endless random batch, in all forms.
fn random_rows(pool: &Pool, first: usize, num_rows: usize, cols: usize) -> Rows {
    let mut rows = Rows::new();
    rows.reset(num_rows, cols, Forms::I8.and(Forms::BF16));
    rows.fill(pool, |row_idx, values| {
        for (idx, value) in values.iter_mut().enumerate() {
            *value = 4.0 * (noise(5, first + row_idx, idx) - 0.5);
        }
    });
    rows
}

fn product(isa: Isa, pool: &Pool, rows: &Rows, weights: &Matrix) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows.num_rows() * weights.rows()];
    matmul_on(
        isa,
        pool,
        rows,
        &mut [Job {
            weights,
            out: &mut out,
            store: Store::Overwrite,
        }],
    );
    out
}

/// All matrices of a shape that there can be.
fn matrices(pool: &Pool, rows: usize, cols: usize) -> Vec<(String, Matrix)> {
    let codes = specs()
        .into_iter()
        .filter(|spec| cols.is_multiple_of(spec.group.cols()));
    let codes = codes.map(|spec| (format!("{spec:?}"), random_codes(pool, spec, rows, cols)));
    let floats = [FloatKind::F32, FloatKind::F16, FloatKind::Bf16];
    let floats = floats.map(|kind| (format!("{kind:?}"), random_floats(pool, kind, rows, cols)));
    codes.chain(floats).collect()
}

#[test]
fn scalar_agrees_with_the_decoded_matrix_up_to_the_rounding_of_activations() {
    let pool = pool(1);
    let (outputs, cols, num_rows) = (19, 96, 9);
    let rows = random_rows(&pool, 0, num_rows, cols);
    for (name, weights) in matrices(&pool, outputs, cols) {
        let out = product(Isa::Scalar, &pool, &rows, &weights);
        let mut decoded = vec![0.0; cols];
        for output in 0..outputs {
            weights.decode_row(output, &mut decoded);
            for row_idx in 0..num_rows {
                let terms = decoded.iter().zip(rows.row(row_idx));
                let exact: f64 = terms.map(|(&w, &a)| f64::from(w) * f64::from(a)).sum();
                // Activations are within 2.0: half a step of their codes is 2 / 254.
                let step: f64 = decoded
                    .iter()
                    .map(|&w| f64::from(w).abs() * 2.01 / 254.0)
                    .sum();
                let got = f64::from(out[row_idx * outputs + output]);
                assert!(
                    (got - exact).abs() <= step + 1e-3,
                    "{name}: {got} is not {exact}"
                );
            }
        }
    }
}
