//! Measures [`tensor::ops::matmul`] on the shapes of SmolLM2-135M: billions of multiply-adds a second, the
//! best of many short runs.
//!
//! ```text
//! cargo run --release -p fulcrum-tensor --example matmul_speed [-- FILTER]
//! ```
//!
//! `FILTER` is a part of a kind's name (`q4_1`, `q8_0`, `bf16` …). `FULCRUM_ISA` chooses the instruction set.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use tensor::isa::Isa;
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
const NUM_ROWS: [usize; 4] = [1, 8, 32, 512];
/// Time spent per figure.
const MEASURE: Duration = Duration::from_millis(60);

/// A kind of matrix, by the file type that it comes from.
enum Kind {
    Codes(QuantSpec),
    Floats(FloatKind),
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    println!("instruction set: {}", Isa::current());
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
        }
    }
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

fn gmacs_per_s(pool: &Pool, weights: &Matrix, num_rows: usize) -> f64 {
    let mut rows = Rows::new();
    rows.reset(num_rows, weights.cols(), weights.form());
    rows.fill(pool, |row_idx, values| {
        values.fill(1.0 / (row_idx + 1) as f32)
    });
    let mut out = vec![0.0; num_rows * weights.rows()];
    let mut best = Duration::MAX;
    let start = Instant::now();
    while start.elapsed() < MEASURE {
        let begin = Instant::now();
        matmul(
            pool,
            &rows,
            &mut [Job {
                weights,
                out: &mut out,
                store: Store::Overwrite,
            }],
        );
        best = best.min(begin.elapsed());
    }
    (num_rows * weights.rows() * weights.cols()) as f64 / best.as_secs_f64() / 1e9
}
