//! Hidden states in place of logits: what the output head reads, the same bits in any company.

use model::runner::{LogitRows, Runner};
use model::{CpuRunner, LoadOptions, Precision};
use testkit::encode::Encoding;
use testkit::gguf::Builder;
use testkit::tiny;

use crate::support::{
    all_rows, batch_of, first_blocks, options, parse, random_tokens, sequence, tiny,
};

/// States of every row of `tokens`, `chunk_len` of them a step, behind one neighbour that wants
/// logits and before one that wants its last state.
fn in_company(runner: &mut CpuRunner, tokens: &[u32], chunk_len: usize) -> Vec<f32> {
    let hidden = runner.shape().hidden;
    let blocks: Vec<u32> = (10..10 + tokens.len().div_ceil(16) as u32).rev().collect();
    let mut states = Vec::new();
    for (chunk_idx, chunk) in tokens.chunks(chunk_len).enumerate() {
        let batch = batch_of(&[
            sequence(&[1, 2, 3], 0, LogitRows::All, &[1]),
            sequence(chunk, chunk_idx * chunk_len, LogitRows::AllStates, &blocks),
            sequence(&[4, 5], 0, LogitRows::LastState, &[2]),
        ]);
        let outputs = runner.forward(&batch).unwrap();
        assert_eq!(outputs.values.len(), 3 * outputs.vocab);
        assert_eq!(outputs.states.len(), (chunk.len() + 1) * hidden);
        states.extend_from_slice(&outputs.states[..chunk.len() * hidden]);
    }
    states
}

/// States of every row, computed at once, alone.
fn alone(runner: &mut CpuRunner, tokens: &[u32]) -> Vec<f32> {
    let blocks = first_blocks(tokens.len());
    let batch = batch_of(&[sequence(tokens, 0, LogitRows::AllStates, &blocks)]);
    let outputs = runner.forward(&batch).unwrap();
    assert!(outputs.values.is_empty(), "nobody wanted logits");
    outputs.states.to_vec()
}

fn families() -> [Builder; 4] {
    [
        tiny::llama(Encoding::Q4_1),
        tiny::gemma3(Encoding::Q8_0),
        tiny::mixtral(Encoding::Q8_0),
        tiny::gpt2(Encoding::F32),
    ]
}

#[test]
fn states_are_the_same_bits_in_any_company() {
    for file in families() {
        let load = |threads: usize| {
            let threads = threads.try_into().unwrap();
            let options = LoadOptions {
                threads,
                ..options(Precision::Packed)
            };
            model::load(&parse(&file), &options).unwrap()
        };
        let tokens = random_tokens(3, 70, load(1).shape().vocab);
        let expected = alone(&mut load(1), &tokens);
        assert_eq!(expected.len(), tokens.len() * load(1).shape().hidden);
        for threads in [1, 2, 3] {
            for chunk_len in [1, 7, 16, 70] {
                let actual = in_company(&mut load(threads), &tokens, chunk_len);
                let bits =
                    |values: &[f32]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
                assert!(
                    bits(&actual) == bits(&expected),
                    "{threads} threads, chunks of {chunk_len}"
                );
            }
        }
    }
}

/// The output matrix times a state is the row of logits, so the state is the one behind the norm.
#[test]
fn the_head_of_a_state_is_its_row_of_logits() {
    let file = tiny::llama(Encoding::F32);
    let mut runner = tiny(&file, Precision::Exact);
    let tokens = random_tokens(4, 20, runner.shape().vocab);
    let logits = all_rows(&mut runner, &tokens);
    let states = alone(&mut runner, &tokens);
    let hidden = runner.shape().hidden;
    let parsed = parse(&file);
    let head = parsed.tensor("output.weight").unwrap();
    let weights = |row_idx: usize| {
        let bytes = head.row(row_idx).chunks_exact(4);
        bytes.map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap())))
    };
    for (state, logits) in states.chunks_exact(hidden).zip(&logits) {
        for (row_idx, &logit) in logits.iter().enumerate() {
            let products = weights(row_idx)
                .zip(state)
                .map(|(weight, &value)| weight * f64::from(value));
            let expected: f64 = products.sum();
            assert!(
                (f64::from(logit) - expected).abs() < 1e-4 * expected.abs().max(1.0),
                "{logit} is not {expected}"
            );
        }
    }
}

#[test]
fn the_last_state_is_the_last_of_all() {
    let mut runner = tiny(&tiny::llama(Encoding::Q8_0), Precision::Packed);
    let tokens = random_tokens(5, 18, runner.shape().vocab);
    let all = alone(&mut runner, &tokens);
    let blocks = first_blocks(tokens.len());
    let batch = batch_of(&[sequence(&tokens, 0, LogitRows::LastState, &blocks)]);
    let outputs = runner.forward(&batch).unwrap();
    let hidden = outputs.hidden;
    assert_eq!(outputs.states, &all[all.len() - hidden..]);
    assert_eq!(outputs.state(0), outputs.states);
}
