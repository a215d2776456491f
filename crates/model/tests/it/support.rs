//! Loading models and reading their logits, the same for all tests.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use formats::gguf::Gguf;
use model::runner::{BLOCK_TOKENS, Batch, BatchSequence, LogitRows, Runner};
use model::{CpuRunner, KvBudget, LoadOptions, Precision};
use testkit::gguf::Builder;

/// One thread per processor up to 2, a cache of 1024 positions.
pub fn options(precision: Precision) -> LoadOptions {
    LoadOptions {
        precision,
        threads: NonZeroUsize::new(2).unwrap(),
        kv_budget: KvBudget::Blocks(1024 / BLOCK_TOKENS),
        context: None,
        kv_type: None,
    }
}

pub fn parse(builder: &Builder) -> Gguf {
    Gguf::parse(builder.build().bytes).unwrap()
}

pub fn tiny(builder: &Builder, precision: Precision) -> CpuRunner {
    model::load(&parse(builder), &options(precision)).unwrap()
}

/// A real model's file, or `None` (said on stdout) if it was not fetched.
pub fn real(name: &str) -> Option<PathBuf> {
    testkit::real_model(name)
}

/// A fixture's path, or `None` (said on stdout) if the folder is not there.
pub fn fixture(path: &str) -> Option<PathBuf> {
    Some(testkit::fixtures()?.join(path))
}

/// Logits of every row of `tokens`, computed at once, alone.
pub fn all_rows(runner: &mut dyn Runner, tokens: &[u32]) -> Vec<Vec<f32>> {
    let batch = batch_of(&[sequence(
        tokens,
        0,
        LogitRows::All,
        &first_blocks(tokens.len()),
    )]);
    let mut logits = runner.forward(&batch).unwrap();
    (0..tokens.len())
        .map(|row_idx| logits.row_mut(row_idx).to_vec())
        .collect()
}

/// Blocks 0, 1, … for `num_positions`.
pub fn first_blocks(num_positions: usize) -> Vec<u32> {
    (0..num_positions.div_ceil(BLOCK_TOKENS) as u32).collect()
}

/// New tokens of one sequence after `num_past`.
pub fn sequence(
    tokens: &[u32],
    num_past: usize,
    logits: LogitRows,
    blocks: &[u32],
) -> (Vec<u32>, BatchSequence) {
    let sequence = BatchSequence {
        num_past,
        num_tokens: tokens.len(),
        blocks: blocks.to_vec(),
        logits,
    };
    (tokens.to_vec(), sequence)
}

pub fn batch_of(sequences: &[(Vec<u32>, BatchSequence)]) -> Batch {
    Batch {
        tokens: sequences
            .iter()
            .flat_map(|(tokens, _)| tokens.iter().copied())
            .collect(),
        sequences: sequences
            .iter()
            .map(|(_, sequence)| sequence.clone())
            .collect(),
    }
}

pub fn argmax(logits: &[f32]) -> usize {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    best.expect("a vocabulary is not empty")
}

pub fn log_softmax(logits: impl Iterator<Item = f64>) -> Vec<f64> {
    let logits: Vec<f64> = logits.collect();
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    logits
        .iter()
        .map(|logit| logit - largest - sum.ln())
        .collect()
}

/// So many tokens of a vocabulary of `vocab`, the same ones for a seed.
pub fn random_tokens(seed: u64, num_tokens: usize, vocab: usize) -> Vec<u32> {
    let mut random = testkit::Random::new(seed);
    (0..num_tokens)
        .map(|_| random.below(vocab) as u32)
        .collect()
}
