//! Measures [`tensor::ops::matmul`] on the shapes of SmolLM2-135M: billions of multiply-adds a second, the
//! best of many short runs. `pass` is one pass over the matrices of the whole model, which do not fit into any cache,
//! in the groups that the forward pass computes together.
//!
//! ```text
//! cargo run --release -p fulcrum-tensor --example matmul_speed [-- FILTER]
//! ```
//!
//! `FILTER` is a part of a kind's name (`q4_1`, `q8_0`, `bf16` …). `FULCRUM_ISA` chooses the instruction set.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use tensor::isa::{Isa, IsaError};
use tensor::matrix::{CodeBits, CodeRow, FloatKind, GroupLen, Matrix, Offset, QuantSpec};
use tensor::ops::{Job, Store, matmul};
use tensor::pool::Pool;
use tensor::rows::Rows;

/// (inputs, outputs)
const SHAPES: [(usize, usize); 5] = [
    (576, 576),
    (576, 192),
    (576, 1536),
    (1536, 576),
    (576, 49_152),
];
const NUM_ROWS: [usize; 6] = [1, 2, 3, 8, 32, 512];
/// Time spent per figure of a matrix, and of a pass.
const MEASURE: Duration = Duration::from_millis(60);
const MEASURE_PASS: Duration = Duration::from_millis(800);

/// A kind of matrix, by the file type that it comes from.
enum Kind {
    Codes(QuantSpec),
    Floats(FloatKind),
}

fn main() -> Result<(), IsaError> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    println!("instruction set: {}", Isa::init()?);
    println!(
        "{:6} {:>6} {:>6} {:>3}  GMAC/s at rows {NUM_ROWS:?}",
        "kind", "K", "N", "thr"
    );
    for (name, kind) in kinds()
        .into_iter()
        .filter(|(name, _)| name.contains(&filter))
    {
        for num_threads in [1, 2] {
            let pool = Pool::new(NonZeroUsize::new(num_threads).expect("not zero"));
            for (cols, outputs) in SHAPES {
                let weights = weights(&pool, &kind, outputs, cols);
                let figures = NUM_ROWS.map(|num_rows| gmacs_per_s(&pool, &weights, num_rows));
                println!("{name:6} {cols:6} {outputs:6} {num_threads:3}  {figures:7.1?}");
            }
            let start = Instant::now();
            let model = Model::new(&pool, &kind);
            let (packed_ms, bytes) = (start.elapsed().as_millis(), model.bytes());
            let figures = NUM_ROWS.map(|num_rows| model.gmacs_per_s(&pool, num_rows));
            println!("{name:6} {:>13} {num_threads:3}  {figures:7.1?}", "pass");
            println!(
                "{name:6} {:>13} {num_threads:3}  {packed_ms} ms for {} MB",
                "pack",
                bytes >> 20
            );
        }
    }
    Ok(())
}

fn kinds() -> Vec<(&'static str, Kind)> {
    let spec = |bits, group, offset| {
        Kind::Codes(QuantSpec {
            bits,
            group,
            offset,
            codebook: None,
        })
    };
    vec![
        (
            "q4_1",
            spec(CodeBits::Four, GroupLen::ThirtyTwo, Offset::PerGroup),
        ),
        (
            "q4_0",
            spec(CodeBits::Four, GroupLen::ThirtyTwo, Offset::Zero(8)),
        ),
        (
            "q8_0",
            spec(CodeBits::Eight, GroupLen::ThirtyTwo, Offset::Zero(128)),
        ),
        (
            "q6_k",
            spec(CodeBits::Eight, GroupLen::Sixteen, Offset::Zero(32)),
        ),
        ("f32", Kind::Floats(FloatKind::F32)),
        ("f16", Kind::Floats(FloatKind::F16)),
        ("bf16", Kind::Floats(FloatKind::Bf16)),
    ]
}

fn weights(pool: &Pool, kind: &Kind, rows: usize, cols: usize) -> Matrix {
    match kind {
        Kind::Codes(spec) => {
            Matrix::from_codes(pool, *spec, rows, cols, |row_idx, row: &mut CodeRow| {
                row.codes.fill((row_idx % 16) as u8);
                row.scales.fill(0.01);
                row.mins.fill(-0.05);
            })
        }
        Kind::Floats(kind) => Matrix::from_floats(pool, *kind, rows, cols, |row_idx, values| {
            values.fill(row_idx as f32 * 1e-5);
        }),
    }
}

/// Repeats `work` for a while and returns its speed, given the multiply-adds of one call.
fn best_gmacs_per_s(num_macs: usize, measure: Duration, mut work: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    let start = Instant::now();
    while start.elapsed() < measure {
        let begin = Instant::now();
        work();
        best = best.min(begin.elapsed());
    }
    num_macs as f64 / best.as_secs_f64() / 1e9
}

fn activations(pool: &Pool, num_rows: usize, weights: &Matrix) -> Rows {
    let mut rows = Rows::new();
    rows.reset(num_rows, weights.cols(), weights.form());
    rows.fill(pool, |row_idx, values| {
        values.fill(1.0 / (row_idx + 1) as f32)
    });
    rows
}

fn gmacs_per_s(pool: &Pool, weights: &Matrix, num_rows: usize) -> f64 {
    let rows = activations(pool, num_rows, weights);
    let mut out = vec![0.0; num_rows * weights.rows()];
    best_gmacs_per_s(num_rows * weights.rows() * weights.cols(), MEASURE, || {
        matmul(
            pool,
            &rows,
            &mut [Job {
                weights,
                out: &mut out,
                store: Store::Overwrite,
            }],
        );
    })
}

/// The matrices of 30 layers and the output head.
struct Model {
    groups: Vec<Vec<Matrix>>,
}

impl Model {
    fn new(pool: &Pool, kind: &Kind) -> Model {
        let group = |cols: usize, outputs: &[usize]| {
            outputs
                .iter()
                .map(|&outputs| weights(pool, kind, outputs, cols))
                .collect()
        };
        let mut groups = Vec::new();
        for _ in 0..30 {
            groups.push(group(576, &[576, 192, 192]));
            groups.push(group(576, &[576]));
            groups.push(group(576, &[1536, 1536]));
            groups.push(group(1536, &[576]));
        }
        groups.push(group(576, &[49_152]));
        Model { groups }
    }

    fn bytes(&self) -> usize {
        self.groups.iter().flatten().map(Matrix::bytes).sum()
    }

    fn gmacs_per_s(&self, pool: &Pool, num_rows: usize) -> f64 {
        let inputs = [576, 1536].map(|cols| {
            let groups = self.groups.iter().flatten();
            let weights = groups.into_iter().find(|weights| weights.cols() == cols);
            activations(pool, num_rows, weights.expect("both widths occur"))
        });
        let mut outs = vec![vec![0.0; num_rows * 49_152]; 3];
        let num_macs: usize = self
            .groups
            .iter()
            .flatten()
            .map(|weights| weights.rows() * weights.cols())
            .sum();
        best_gmacs_per_s(num_rows * num_macs, MEASURE_PASS, || {
            for group in &self.groups {
                let rows = &inputs[usize::from(group[0].cols() == 1536)];
                let jobs = group.iter().zip(&mut outs).map(|(weights, out)| Job {
                    weights,
                    out: &mut out[..num_rows * weights.rows()],
                    store: Store::Overwrite,
                });
                matmul(pool, rows, &mut jobs.collect::<Vec<_>>());
            }
        })
    }
}
