//! Attention against its formula in f64, and against itself: the same bits however the work is cut.

use std::num::NonZeroUsize;

use super::*;
use crate::kv::{KvShape, KvSlot};

/// A layer and one prompt of it.
#[derive(Clone, Copy, Debug)]
struct Case {
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    element: KvType,
    window: Option<usize>,
    softcap: Option<f32>,
}

const CASE: Case = Case {
    num_heads: 6,
    num_kv_heads: 2,
    head_dim: 64,
    element: KvType::F16,
    window: None,
    softcap: None,
};

const ELEMENTS: [KvType; 3] = [KvType::F32, KvType::F16, KvType::Bf16];

impl Case {
    fn spec(&self) -> AttendSpec {
        AttendSpec {
            num_heads: self.num_heads,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
            softcap: self.softcap,
        }
    }

    fn shape(&self) -> KvShape {
        KvShape {
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            element: self.element,
        }
    }

    fn query_len(&self) -> usize {
        self.num_heads * self.head_dim
    }

    fn key_len(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}

/// Queries, keys and values of `num_positions` positions.
struct Prompt {
    query: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Prompt {
    fn new(case: &Case, num_positions: usize, seed: u64) -> Prompt {
        let mut numbers = Numbers(seed);
        // Queries large enough that some positions weigh much more than others.
        let query = numbers.take(num_positions * case.query_len(), 4.0);
        let keys = numbers.take(num_positions * case.key_len(), 1.0);
        let values = numbers.take(num_positions * case.key_len(), 1.0);
        Prompt {
            query,
            keys,
            values,
        }
    }
}

/// Seeded numbers, uniform in (-1, 1): a multiplicative congruential generator.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn take(&mut self, num: usize, magnitude: f32) -> Vec<f32> {
        (0..num).map(|_| self.next() * magnitude).collect()
    }
}

fn pool(num_threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(num_threads).expect("not zero"))
}

/// A block table in a scattered order, so that an index mistaken for a block shows.
fn scattered_blocks(num_positions: usize) -> (usize, Vec<u32>) {
    let num_blocks = num_positions.div_ceil(BLOCK_TOKENS);
    let total = num_blocks * 2 + 3;
    let step = (total / 2..)
        .find(|&step| gcd(step, total) == 1)
        .expect("some number is coprime");
    (
        total,
        (0..num_blocks)
            .map(|idx| ((idx * step + 1) % total) as u32)
            .collect(),
    )
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Computes the prompt in chunks, as the engine does: store a chunk, then attend.
fn run(isa: Isa, pool: &Pool, case: &Case, prompt: &Prompt, chunk: usize) -> Vec<f32> {
    let num_positions = prompt.keys.len() / case.key_len();
    let (num_blocks, blocks) = scattered_blocks(num_positions);
    let mut pages = KvPages::new(case.shape(), num_blocks).expect("memory");
    soil(pool, &mut pages);
    let mut out = vec![f32::NAN; prompt.query.len()];
    for first in (0..num_positions).step_by(chunk) {
        let num_rows = chunk.min(num_positions - first);
        let slots: Vec<_> = (first..first + num_rows)
            .map(|position| KvSlot::of(&blocks, position))
            .collect();
        let new = first * case.key_len()..(first + num_rows) * case.key_len();
        pages.write(pool, &slots, &prompt.keys[new.clone()], &prompt.values[new]);
        let rows = first * case.query_len()..(first + num_rows) * case.query_len();
        let sequence = AttendSequence {
            first_row: 0,
            num_rows,
            num_past: first,
            blocks: &blocks,
        };
        let input = AttendInput {
            query: &prompt.query[rows.clone()],
            pages: &pages,
            sequences: &[sequence],
        };
        attend_with(isa.floats(), pool, &case.spec(), input, &mut out[rows]);
    }
    out
}

/// Fills all blocks with NaN: what a freed block may hold must not reach another sequence.
fn soil(pool: &Pool, pages: &mut KvPages) {
    let slots: Vec<_> = (0..pages.num_blocks() as u32)
        .flat_map(|block| (0..BLOCK_TOKENS as u32).map(move |offset| KvSlot { block, offset }))
        .collect();
    let nan = vec![f32::NAN; slots.len() * pages.shape().num_kv_heads * pages.shape().head_dim];
    pages.write(pool, &slots, &nan, &nan);
}

/// The formula of the module's words, in f64, on the rounded keys and values.
fn exact(case: &Case, prompt: &Prompt) -> Vec<f64> {
    let round = |value: &f32| match case.element {
        KvType::F32 => f64::from(*value),
        KvType::F16 => f16::from_f32(*value).to_f64(),
        KvType::Bf16 => bf16::from_f32(*value).to_f64(),
    };
    let keys: Vec<f64> = prompt.keys.iter().map(round).collect();
    let values: Vec<f64> = prompt.values.iter().map(round).collect();
    let (dim, spec) = (case.head_dim, case.spec());
    let mut out = Vec::new();
    for (head_idx, query) in prompt.query.chunks_exact(dim).enumerate() {
        let (position, head) = (head_idx / case.num_heads, head_idx % case.num_heads);
        let kv_head = head / (case.num_heads / case.num_kv_heads);
        let first = case
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        let weights: Vec<f64> = (first..=position)
            .map(|past| {
                let key = &keys[(past * case.num_kv_heads + kv_head) * dim..][..dim];
                let dot: f64 = query.iter().zip(key).map(|(&q, k)| f64::from(q) * k).sum();
                let score = dot * f64::from(spec.scale);
                case.softcap
                    .map_or(score, |cap| {
                        f64::from(cap) * (score / f64::from(cap)).tanh()
                    })
                    .exp()
            })
            .collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..dim).map(|element| {
            let of = |past: usize| values[(past * case.num_kv_heads + kv_head) * dim + element];
            weights
                .iter()
                .enumerate()
                .map(|(idx, weight)| weight / total * of(first + idx))
                .sum::<f64>()
        }));
    }
    out
}

/// Bound on `|attend - exact|` for values within ±1. A score is off by `head_dim` roundings of at most
/// `sum |q k|`; the scores' error is the weights' relative error, and twice that of a weighted mean; the sums
/// over positions add some roundings of weights that together are 1.
fn error_max(case: &Case, num_positions: usize) -> f64 {
    let largest_sum = 4.0 * (case.head_dim as f64).sqrt();
    let of_scores = case.head_dim as f64 * f64::from(f32::EPSILON) / 2.0 * largest_sum / 4.0;
    2.0 * of_scores + num_positions as f64 * f64::from(f32::EPSILON)
}

fn assert_formula(case: &Case, num_positions: usize) {
    let prompt = Prompt::new(case, num_positions, 7);
    let want = exact(case, &prompt);
    let pool = pool(2);
    for isa in Isa::available() {
        let got = run(isa, &pool, case, &prompt, num_positions);
        for (idx, (&got, &want)) in got.iter().zip(&want).enumerate() {
            let error = (f64::from(got) - want).abs();
            assert!(
                error <= error_max(case, num_positions),
                "{isa} {case:?}: out[{idx}] = {got}, exactly {want}"
            );
        }
    }
}

#[test]
fn the_formula_holds_for_every_storage_type() {
    for element in ELEMENTS {
        assert_formula(&Case { element, ..CASE }, 300);
    }
}

#[test]
fn the_formula_holds_for_every_shape_of_heads() {
    for (num_heads, num_kv_heads) in [(1, 1), (3, 3), (4, 1), (9, 3), (28, 1), (10, 2)] {
        for head_dim in [2, 16, 22, 64, 80, 96, 128] {
            assert_formula(
                &Case {
                    num_heads,
                    num_kv_heads,
                    head_dim,
                    ..CASE
                },
                37,
            );
        }
    }
    assert_formula(
        &Case {
            num_heads: 4,
            num_kv_heads: 1,
            head_dim: 256,
            ..CASE
        },
        150,
    );
}

#[test]
fn the_formula_holds_for_windows_and_caps() {
    for window in [1, 2, 16, 17, 100, 128, 1000] {
        assert_formula(
            &Case {
                window: Some(window),
                ..CASE
            },
            300,
        );
    }
    assert_formula(
        &Case {
            softcap: Some(2.0),
            ..CASE
        },
        300,
    );
    assert_formula(
        &Case {
            softcap: Some(50.0),
            window: Some(33),
            ..CASE
        },
        300,
    );
}
