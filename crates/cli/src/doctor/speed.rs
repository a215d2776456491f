//! A figure for the speed, measured for about a second.
//!
//! One prompt, then one answer, through the runner alone. It is meant to tell a model that is held in the wrong type or
//! computed on the wrong threads from one that is not; `fulcrum bench` measures what users feel.

use std::time::{Duration, Instant};

use model::CpuRunner;
use model::runner::{BLOCK_TOKENS, Batch, BatchSequence, LogitRows, Runner as _, RunnerError};

use super::{Finding, Verdict};

/// Positions that the measurement needs at most.
pub(super) const POSITIONS: usize = 512;

/// Of these, the prompt.
const PROMPT: usize = 128;

/// When the answer ends.
const DECODE_TIME: Duration = Duration::from_millis(700);

/// Measures `runner`, which computes on `threads` threads.
pub(super) fn finding(mut runner: CpuRunner, threads: usize) -> Finding {
    match measured(&mut runner) {
        Ok((prefill, decode)) => {
            let words = format!(
                "prefill {prefill:.0} tokens/s, decode {decode:.1} tokens/s with {threads} threads"
            );
            Finding::new("speed", Verdict::Ok, words)
        }
        Err(error) => Finding::new("speed", Verdict::Failed, error.to_string()),
    }
}

/// Tokens per second of prefill and decode.
fn measured(runner: &mut CpuRunner) -> Result<(f64, f64), RunnerError> {
    let shape = runner.shape().clone();
    let num_positions = POSITIONS
        .min(shape.num_blocks * BLOCK_TOKENS)
        .min(shape.context_max);
    let num_prompt = PROMPT.min(num_positions / 2).max(1);
    // Ids all over the vocabulary, so that the embedding is read as a text would.
    let token = |position: usize| (position * 7919 % shape.vocab) as u32;
    let mut forward = |positions: std::ops::Range<usize>| {
        let num_blocks = positions.end.div_ceil(BLOCK_TOKENS) as u32;
        let batch = Batch {
            tokens: positions.clone().map(token).collect(),
            sequences: vec![BatchSequence {
                num_past: positions.start,
                num_tokens: positions.len(),
                blocks: (0..num_blocks).collect(),
                logits: LogitRows::Last,
            }],
        };
        runner.forward(&batch).map(drop)
    };
    // The first pass reads the weights from the disk.
    forward(0..1)?;
    let started = Instant::now();
    forward(0..num_prompt)?;
    let prefill = num_prompt as f64 / started.elapsed().as_secs_f64();
    let started = Instant::now();
    let mut position = num_prompt;
    while position < num_positions && (position == num_prompt || started.elapsed() < DECODE_TIME) {
        forward(position..position + 1)?;
        position += 1;
    }
    let decode = (position - num_prompt) as f64 / started.elapsed().as_secs_f64();
    Ok((prefill, decode))
}
