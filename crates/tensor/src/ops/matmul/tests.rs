//! Every instruction set against the definition, and the definition against plain arithmetic.

use std::num::NonZeroUsize;

use super::*;
use crate::matrix::{CodeBits, CodeRow, FloatKind, GroupLen, Offset, QuantSpec};

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

#[test]
fn every_isa_agrees_with_scalar_within_the_stated_bound() {
    let pool = pool(2);
    for (outputs, cols, num_rows) in [
        (1, 32, 1),
        (16, 48, 2),
        (17, 96, 9),
        (40, 33, 5),
        (33, 576, 21),
        (5, 1, 3),
    ] {
        let rows = random_rows(&pool, 0, num_rows, cols);
        for (name, weights) in matrices(&pool, outputs, cols) {
            let expected = product(Isa::Scalar, &pool, &rows, &weights);
            for isa in Isa::available() {
                let got = product(isa, &pool, &rows, &weights);
                for (idx, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    let (row_idx, output) = (idx / outputs, idx % outputs);
                    let magnitude = sum_of_magnitudes(&weights, output, rows.row(row_idx));
                    let bound = relative_error_max(isa, &weights) * magnitude;
                    assert!(
                        (got - expected).abs() <= bound,
                        "{isa} {name} [{outputs}, {cols}] row {row_idx} output {output}: {got} is not {expected}"
                    );
                }
            }
        }
    }
}

/// What errors are relative to. A group's terms may cancel to nearly nothing while their roundings do not,
/// and a value is itself a sum of a scaled code and a minimum: hence not the plain product's magnitude.
fn sum_of_magnitudes(weights: &Matrix, output: usize, activations: &[f32]) -> f32 {
    match &weights.panels {
        Panels::Codes(codes) => {
            let panel = codes.panel(output / PANEL_ROWS);
            let (lane, group_cols) = (output % PANEL_ROWS, panel.group.cols());
            let magnitudes = activations.iter().enumerate().map(|(col, value)| {
                let (scale, min) = panel.scale_and_min(col / group_cols, lane);
                let code = f32::from(panel.unpack.code(panel.codes, col, lane));
                ((scale * code).abs() + min.abs()) * value.abs()
            });
            // Activations are rounded: at most doubled in magnitude where they matter.
            2.0 * panel.factor * magnitudes.sum::<f32>() + f32::MIN_POSITIVE
        }
        Panels::Floats(floats) => {
            let panel = floats.panel(output / PANEL_ROWS);
            let terms = activations.iter().enumerate();
            terms
                .map(|(col, value)| (panel.value(col, output % PANEL_ROWS) * value).abs())
                .sum()
        }
    }
}

#[test]
fn a_row_gives_the_same_bits_alone_and_among_others_on_any_number_of_threads() {
    let (outputs, cols) = (51, 96);
    let pools = [pool(1), pool(2), pool(3)];
    for (name, weights) in matrices(&pools[0], outputs, cols) {
        for isa in Isa::available() {
            let alone: Vec<Vec<u32>> = (0..40)
                .map(|row_idx| {
                    let rows = random_rows(&pools[0], row_idx, 1, cols);
                    bits(&product(isa, &pools[0], &rows, &weights))
                })
                .collect();
            for num_rows in 1..=40 {
                let pool = &pools[num_rows % pools.len()];
                // Another place in the tile each time.
                let first = (7 * num_rows) % (41 - num_rows);
                let rows = random_rows(pool, first, num_rows, cols);
                let together = bits(&product(isa, pool, &rows, &weights));
                for (row_idx, row) in together.chunks(outputs).enumerate() {
                    assert_eq!(
                        row,
                        alone[first + row_idx],
                        "{isa} {name}, {row_idx} of {num_rows} rows"
                    );
                }
            }
        }
    }
}

#[test]
fn more_rows_than_a_cache_block_give_the_same_bits_too() {
    let pool = pool(2);
    let num_rows = BLOCK_ROWS + 19;
    for kind in [FloatKind::F32, FloatKind::Bf16] {
        let weights = random_floats(&pool, kind, 20, 33);
        same_as_alone(&pool, &weights, num_rows);
    }
    same_as_alone(&pool, &random_codes(&pool, specs()[0], 20, 64), num_rows);
}

fn same_as_alone(pool: &Pool, weights: &Matrix, num_rows: usize) {
    let rows = random_rows(pool, 0, num_rows, weights.cols());
    for isa in Isa::available() {
        let together = bits(&product(isa, pool, &rows, weights));
        for row_idx in [0, BLOCK_ROWS - 1, BLOCK_ROWS, num_rows - 1] {
            let row = random_rows(pool, row_idx, 1, weights.cols());
            let alone = bits(&product(isa, pool, &row, weights));
            assert_eq!(
                together[row_idx * weights.rows()..][..weights.rows()],
                alone,
                "{isa} row {row_idx}"
            );
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn the_largest_codes_of_both_sides_do_not_saturate() {
    let pool = pool(1);
    let cols = 64;
    for spec in specs() {
        let code = if spec.bits == CodeBits::Four { 15 } else { 255 };
        let weights = Matrix::from_codes(&pool, spec, 16, cols, |_, row| {
            row.codes.fill(code);
            row.scales.fill(1.0);
            row.mins.fill(0.0);
        });
        for sign in [1.0, -1.0] {
            let mut rows = Rows::new();
            rows.reset(1, cols, Forms::I8.and(Forms::BF16));
            rows.fill(&pool, |_, values| values.fill(127.0 * sign));
            let mut decoded = vec![0.0; cols];
            weights.decode_row(3, &mut decoded);
            let exact: f32 = decoded.iter().map(|weight| weight * 127.0 * sign).sum();
            for isa in Isa::available() {
                assert_eq!(
                    product(isa, &pool, &rows, &weights),
                    [exact; 16],
                    "{isa} {spec:?}"
                );
            }
        }
    }
}

#[test]
fn several_jobs_in_one_call_give_what_each_gives_alone() {
    let pool = pool(3);
    let cols = 64;
    let rows = random_rows(&pool, 0, 11, cols);
    let spec = specs()[3];
    let weights = [
        random_codes(&pool, spec, 33, cols),
        random_codes(&pool, spec, 7, cols),
    ];
    let float = random_floats(&pool, FloatKind::F32, 100, cols);
    for isa in Isa::available() {
        let all = [&weights[0], &float, &weights[1]];
        let mut outs: Vec<Vec<f32>> = all
            .iter()
            .map(|weights| vec![0.0; 11 * weights.rows()])
            .collect();
        let jobs = all.iter().zip(&mut outs);
        let mut jobs: Vec<Job<'_>> = jobs
            .map(|(weights, out)| Job {
                weights,
                out,
                store: Store::Overwrite,
            })
            .collect();
        matmul_on(isa, &pool, &rows, &mut jobs);
        for (weights, out) in all.iter().zip(&outs) {
            assert_eq!(
                bits(out),
                bits(&product(isa, &pool, &rows, weights)),
                "{isa}"
            );
        }
    }
}

#[test]
fn adding_adds_to_what_is_there_and_touches_nothing_beyond_the_outputs() {
    let pool = pool(2);
    let rows = random_rows(&pool, 0, 3, 32);
    for (name, weights) in matrices(&pool, 21, 32) {
        for isa in Isa::available() {
            let product = product(isa, &pool, &rows, &weights);
            let mut out = vec![0.5; 3 * 21];
            matmul_on(
                isa,
                &pool,
                &rows,
                &mut [Job {
                    weights: &weights,
                    out: &mut out,
                    store: Store::Add,
                }],
            );
            for (sum, product) in out.iter().zip(product) {
                assert_eq!(*sum, 0.5 + product, "{isa} {name}");
            }
        }
    }
}

#[test]
fn no_rows_and_no_jobs_are_nothing_to_do() {
    let pool = pool(2);
    let rows = random_rows(&pool, 0, 0, 32);
    let weights = random_floats(&pool, FloatKind::F32, 16, 32);
    assert!(product(Isa::current(), &pool, &rows, &weights).is_empty());
    matmul(&pool, &rows, &mut []);
}

#[test]
fn a_number_that_is_none_spoils_its_own_row_only() {
    let pool = pool(1);
    for (name, weights) in matrices(&pool, 16, 32) {
        for isa in Isa::available() {
            let mut rows = Rows::new();
            rows.reset(3, 32, Forms::I8.and(Forms::BF16));
            rows.fill(&pool, |row_idx, values| {
                values.fill(if row_idx == 1 { f32::NAN } else { 1.0 })
            });
            let out = product(isa, &pool, &rows, &weights);
            for (idx, value) in out.iter().enumerate() {
                assert_eq!(value.is_nan(), idx / 16 == 1, "{isa} {name}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "rows were prepared as")]
fn rows_without_the_form_that_a_matrix_needs_are_refused() {
    let pool = pool(1);
    let mut rows = Rows::new();
    rows.reset(1, 32, Forms::NONE);
    let _ = product(
        Isa::Scalar,
        &pool,
        &rows,
        &random_codes(&pool, specs()[0], 16, 32),
    );
}

#[test]
#[should_panic(expected = "the rows' columns are the matrix's inputs")]
fn shapes_that_do_not_match_are_refused() {
    let pool = pool(1);
    let rows = random_rows(&pool, 0, 1, 32);
    let _ = product(
        Isa::Scalar,
        &pool,
        &rows,
        &random_floats(&pool, FloatKind::F32, 16, 33),
    );
}
