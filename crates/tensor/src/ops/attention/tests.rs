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

const ELEMENTS: [KvType; 4] = [KvType::F32, KvType::F16, KvType::Bf16, KvType::Int8];

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
    let rounded = |heads: &[f32]| -> Vec<f64> {
        let heads = heads.chunks_exact(case.head_dim);
        heads.flat_map(|head| stored(case.element, head)).collect()
    };
    let (keys, values) = (rounded(&prompt.keys), rounded(&prompt.values));
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

/// What is left of one head's key, or value, when it is stored: the definition, written to be read.
fn stored(element: KvType, head: &[f32]) -> Vec<f64> {
    let largest = head.iter().fold(0.0, |a, b| f32::max(a, b.abs()));
    // The next bfloat16 that is not smaller.
    let mut scale = bf16::from_f32(largest / 127.0);
    if scale.to_f32() < largest / 127.0 {
        scale = bf16::from_bits(scale.to_bits() + 1);
    }
    let round = |&value: &f32| match element {
        KvType::F32 => f64::from(value),
        KvType::F16 => f16::from_f32(value).to_f64(),
        KvType::Bf16 => bf16::from_f32(value).to_f64(),
        KvType::Int8 => f64::from((value / scale.to_f32()).round_ties_even()) * scale.to_f64(),
    };
    head.iter().map(round).collect()
}

/// Bound on `|attend - exact|` for values within ±1.
///
/// A score is off by `head_dim` roundings of partial sums that stay below `sum |q k|`, which for
/// uniform `q` within ±4 and `k` within ±1 is near `head_dim`. Its error is the weight's relative
/// error, and twice that bounds a weighted mean's. The sums over positions add a rounding each, of
/// weights that together are 1. Scales add one rounding to a score and one to a weight, which is
/// little beside `head_dim` and `num_positions` of them.
fn error_max(case: &Case, num_positions: usize) -> f64 {
    let head_dim = case.head_dim as f64;
    let rounding = f64::from(f32::EPSILON) / 2.0;
    let of_scores = head_dim * rounding * head_dim * f64::from(case.spec().scale);
    2.0 * of_scores + 2.0 * num_positions as f64 * rounding
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
    for element in ELEMENTS {
        assert_formula(
            &Case {
                softcap: Some(50.0),
                window: Some(33),
                element,
                ..CASE
            },
            300,
        );
    }
}

/// All ways of cutting the work must give the bits of the first.
fn assert_same_bits(case: &Case, num_positions: usize, chunks: &[usize]) {
    let prompt = Prompt::new(case, num_positions, 11);
    let pools = [1, 2, 3].map(pool);
    let want = run(Isa::Scalar, &pools[0], case, &prompt, num_positions);
    for isa in Isa::available().filter(|isa| isa.floats() != FloatIsa::Scalar) {
        for (pool, &chunk) in pools.iter().cycle().zip(chunks) {
            let got = run(isa, pool, case, &prompt, chunk);
            let differs = got
                .iter()
                .zip(&want)
                .position(|(got, want)| got.to_bits() != want.to_bits());
            assert_eq!(
                differs,
                None,
                "{isa}, {} threads, chunks of {chunk}, {case:?}",
                pool.num_threads()
            );
        }
    }
}

#[test]
fn bits_do_not_depend_on_isa_or_chunks_or_threads() {
    for element in ELEMENTS {
        assert_same_bits(&Case { element, ..CASE }, 600, &[1, 7, 16, 512, 600, 7]);
    }
}

#[test]
fn bits_do_not_depend_on_positions_that_a_window_hides() {
    for window in [1, 5, 64, 129, 500] {
        assert_same_bits(
            &Case {
                window: Some(window),
                ..CASE
            },
            600,
            &[600, 1, 7, 16, 512, 600],
        );
    }
}

#[test]
fn bits_do_not_depend_on_chunks_under_a_soft_cap() {
    assert_same_bits(
        &Case {
            softcap: Some(3.0),
            ..CASE
        },
        300,
        &[1, 7, 16, 300],
    );
    for element in ELEMENTS {
        assert_same_bits(
            &Case {
                softcap: Some(3.0),
                window: Some(40),
                element,
                ..CASE
            },
            300,
            &[300, 1, 7, 16],
        );
    }
}

#[test]
fn bits_do_not_depend_on_how_many_heads_or_rows_share_a_tile() {
    for (num_heads, num_kv_heads) in [(1, 1), (2, 1), (4, 1), (5, 1), (7, 1), (9, 3), (28, 1)] {
        for head_dim in [2, 22, 64, 80, 128] {
            for element in [KvType::F16, KvType::Int8] {
                let case = Case {
                    num_heads,
                    num_kv_heads,
                    head_dim,
                    element,
                    ..CASE
                };
                assert_same_bits(&case, 150, &[150, 1, 2, 29]);
            }
        }
    }
}

/// Few heads and more than two segments: chunks of one row are shared by workers segment by
/// segment, a whole prompt is not.
#[test]
fn bits_do_not_depend_on_how_workers_share_a_long_sequence() {
    let case = Case {
        num_heads: 2,
        num_kv_heads: 1,
        head_dim: 16,
        ..CASE
    };
    for window in [None, Some(300), Some(1030)] {
        assert_same_bits(&Case { window, ..case }, 2100, &[2100, 1, 1, 700, 16, 7]);
    }
    assert_formula(&case, 2100);
}

#[test]
fn bits_do_not_depend_on_neighbours() {
    for element in [KvType::F16, KvType::Int8] {
        assert_same_bits_among_neighbours(Case { element, ..CASE });
    }
}

fn assert_same_bits_among_neighbours(case: Case) {
    let lengths = [1, 16, 17, 130, 257];
    let prompts: Vec<_> = lengths
        .iter()
        .map(|&len| Prompt::new(&case, len, len as u64))
        .collect();
    let pool = pool(2);
    for isa in Isa::available() {
        let alone: Vec<_> = prompts
            .iter()
            .map(|prompt| run(isa, &pool, &case, prompt, 1000))
            .collect();
        // All in one cache and one call, the last position of some and the whole of others.
        let mut pages = KvPages::new(case.shape(), 64).expect("memory");
        let (mut query, mut tables, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut next_block = 0;
        for (idx, prompt) in prompts.iter().enumerate() {
            let blocks: Vec<u32> = (next_block
                ..next_block + lengths[idx].div_ceil(BLOCK_TOKENS) as u32)
                .rev()
                .collect();
            next_block += blocks.len() as u32;
            let slots: Vec<_> = (0..lengths[idx])
                .map(|position| KvSlot::of(&blocks, position))
                .collect();
            pages.write(&pool, &slots, &prompt.keys, &prompt.values);
            let num_rows = if idx % 2 == 0 { lengths[idx] } else { 1 };
            kept.push(num_rows);
            query.extend_from_slice(&prompt.query[(lengths[idx] - num_rows) * case.query_len()..]);
            tables.push(blocks);
        }
        let mut first_row = 0;
        let sequences: Vec<_> = (0..lengths.len())
            .map(|idx| {
                let sequence = AttendSequence {
                    first_row,
                    num_rows: kept[idx],
                    num_past: lengths[idx] - kept[idx],
                    blocks: &tables[idx],
                };
                first_row += kept[idx];
                sequence
            })
            .collect();
        let mut out = vec![0.0; query.len()];
        let input = AttendInput {
            query: &query,
            pages: &pages,
            sequences: &sequences,
        };
        attend_with(isa.floats(), &pool, &case.spec(), input, &mut out);
        for (sequence, alone) in sequences.iter().zip(&alone) {
            let len = sequence.num_rows * case.query_len();
            let together = &out[sequence.first_row * case.query_len()..][..len];
            assert!(
                together
                    .iter()
                    .zip(&alone[alone.len() - len..])
                    .all(|(a, b)| a.to_bits() == b.to_bits()),
                "{isa}"
            );
        }
    }
}

#[test]
fn a_row_of_no_sequence_is_left_alone() {
    let pool = pool(2);
    let pages = KvPages::new(CASE.shape(), 2).expect("memory");
    let query = vec![1.0; 3 * CASE.query_len()];
    let sequences = [0, 2].map(|first_row| AttendSequence {
        first_row,
        num_rows: 1,
        num_past: 0,
        blocks: &[0],
    });
    let mut out = vec![7.0; query.len()];
    attend(
        &pool,
        &CASE.spec(),
        AttendInput {
            query: &query,
            pages: &pages,
            sequences: &sequences,
        },
        &mut out,
    );
    for (row, values) in out.chunks_exact(CASE.query_len()).enumerate() {
        assert!(
            values
                .iter()
                .all(|&value| value == if row == 1 { 7.0 } else { 0.0 }),
            "row {row}"
        );
    }
}

#[test]
#[should_panic(expected = "1 blocks, needed are 2")]
fn a_short_block_table_is_refused() {
    let pages = KvPages::new(CASE.shape(), 2).expect("memory");
    let query = vec![1.0; CASE.query_len()];
    let sequences = [AttendSequence {
        first_row: 0,
        num_rows: 1,
        num_past: 16,
        blocks: &[0],
    }];
    let input = AttendInput {
        query: &query,
        pages: &pages,
        sequences: &sequences,
    };
    attend(
        &pool(1),
        &CASE.spec(),
        input,
        &mut vec![0.0; CASE.query_len()],
    );
}

#[test]
#[should_panic(expected = "block 2 of 2")]
fn a_block_that_is_not_there_is_refused() {
    let pages = KvPages::new(CASE.shape(), 2).expect("memory");
    let query = vec![1.0; CASE.query_len()];
    let sequences = [AttendSequence {
        first_row: 0,
        num_rows: 1,
        num_past: 0,
        blocks: &[2],
    }];
    let input = AttendInput {
        query: &query,
        pages: &pages,
        sequences: &sequences,
    };
    attend(
        &pool(1),
        &CASE.spec(),
        input,
        &mut vec![0.0; CASE.query_len()],
    );
}

#[test]
#[should_panic(expected = "row 0 belongs to two sequences")]
fn rows_that_overlap_are_refused() {
    let pages = KvPages::new(CASE.shape(), 2).expect("memory");
    let query = vec![1.0; CASE.query_len()];
    let sequence = AttendSequence {
        first_row: 0,
        num_rows: 1,
        num_past: 0,
        blocks: &[0],
    };
    let input = AttendInput {
        query: &query,
        pages: &pages,
        sequences: &[sequence, sequence],
    };
    attend(
        &pool(1),
        &CASE.spec(),
        input,
        &mut vec![0.0; CASE.query_len()],
    );
}

#[test]
#[should_panic(expected = "of 1")]
fn rows_whose_end_cannot_be_counted_are_refused() {
    let pages = KvPages::new(CASE.shape(), 2).expect("memory");
    let query = vec![1.0; CASE.query_len()];
    let sequences = [AttendSequence {
        first_row: usize::MAX,
        num_rows: 2,
        num_past: 0,
        blocks: &[0],
    }];
    let input = AttendInput {
        query: &query,
        pages: &pages,
        sequences: &sequences,
    };
    attend(
        &pool(1),
        &CASE.spec(),
        input,
        &mut vec![0.0; CASE.query_len()],
    );
}

/// The plan of one sequence's new rows in a layer with one key head.
fn plan_of(
    num_past: usize,
    num_rows: usize,
    num_workers: usize,
) -> Vec<(Range<usize>, Range<usize>)> {
    let case = Case {
        num_heads: 4,
        num_kv_heads: 1,
        head_dim: 2,
        element: KvType::F32,
        ..CASE
    };
    let pages = KvPages::new(case.shape(), 1).expect("memory");
    let query = vec![0.0; num_rows * case.query_len()];
    let blocks = vec![0; (num_past + num_rows).div_ceil(BLOCK_TOKENS)];
    let sequences = [AttendSequence {
        first_row: 0,
        num_rows,
        num_past,
        blocks: &blocks,
    }];
    let input = AttendInput {
        query: &query,
        pages: &pages,
        sequences: &sequences,
    };
    let spec = case.spec();
    let layer = Layer::<f32> {
        spec: &spec,
        input,
        keys: pages.keys(),
        values: pages.values(),
        scales: pages.scales(),
    };
    let plan = Plan::new(&layer, num_workers);
    plan.pieces
        .iter()
        .map(|piece| (plan.tile_of(piece).rows.clone(), piece.segments.clone()))
        .collect()
}

#[test]
fn a_long_answer_of_one_key_head_is_shared_by_segments() {
    let pieces = plan_of(4999, 1, 2);
    // The costliest first: the last segment is not full.
    let segments: Vec<_> = pieces.into_iter().map(|(_, segments)| segments).collect();
    assert_eq!(segments, [0..1, 1..2, 2..3, 3..4, 4..5]);
}

#[test]
fn one_worker_walks_over_a_long_answer_as_a_whole() {
    assert_eq!(plan_of(4999, 1, 1), [(0..1, 0..5)]);
}

#[test]
fn a_long_prompt_is_shared_by_rows_the_costliest_first() {
    let pieces = plan_of(0, 1500, 2);
    assert_eq!(pieces.len(), 250);
    assert_eq!(pieces[0], (1494..1500, 0..2));
    assert_eq!(pieces[249], (0..6, 0..1));
}

#[test]
fn a_short_answer_is_shared_by_heads() {
    assert_eq!(plan_of(10, 1, 3).len(), 4);
}
