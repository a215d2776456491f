//! Tokens per second of the bare decoder: a prompt of 512, 1 to 64 streams.
//!
//! STREAMS measures that number of streams alone, 0 the prompt alone: for profiles.
//!
//! `cargo run --release -p fulcrum-model --example raw_speed -- MODEL.gguf [THREADS [STREAMS]]`
//!
//! Neither scheduler, sampling nor HTTP: what a server adds is the difference to this. Each
//! figure is the best of a few runs, because other work on the machine only makes it worse.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use model::runner::{BLOCK_TOKENS, Batch, BatchSequence, LogitRows, Runner};
use model::{KvBudget, LoadOptions, Precision};

const PROMPT_TOKENS: usize = 512;
const PAST_TOKENS: usize = 128;
const DECODE_STEPS: usize = 128;
const NUM_STREAMS_MAX: usize = 64;
const NUM_RUNS: usize = 3;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("a model file"));
    let threads = arguments
        .next()
        .map_or(2, |number| number.parse().expect("a number of threads"));
    let only_streams: Option<usize> = arguments
        .next()
        .map(|number| number.parse().expect("a number of streams"));
    let options = LoadOptions {
        precision: Precision::Packed,
        threads: NonZeroUsize::new(threads).expect("at least one thread"),
        kv_budget: KvBudget::Blocks(
            NUM_STREAMS_MAX * (PAST_TOKENS + DECODE_STEPS).div_ceil(BLOCK_TOKENS),
        ),
        context: None,
        kv_type: None,
    };
    let started = Instant::now();
    let mut runner = model::open(&path, &options).expect("a model that can be served");
    println!(
        "loaded in {:.2} s, {}",
        started.elapsed().as_secs_f64(),
        runner.shape().fingerprint
    );
    if only_streams.is_none_or(|num_streams| num_streams == 0) {
        println!(
            "prompt of {PROMPT_TOKENS}: {:.0} tok/s",
            best(|| prompt(&mut runner))
        );
    }
    let all = [1, 2, 4, 8, 16, 32, NUM_STREAMS_MAX];
    for num_streams in all
        .into_iter()
        .filter(|&each| only_streams.is_none_or(|only| only == each))
    {
        let speed = best(|| streams(&mut runner, num_streams));
        println!("{num_streams} streams at {PAST_TOKENS}..: {speed:.0} tok/s");
    }
}

fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..NUM_RUNS).map(|_| run()).fold(0.0, f64::max)
}

fn prompt(runner: &mut dyn Runner) -> f64 {
    let batch = Batch {
        tokens: text(0, PROMPT_TOKENS),
        sequences: vec![sequence(0, 0, PROMPT_TOKENS, LogitRows::Last)],
    };
    let started = Instant::now();
    runner.forward(&batch).expect("a sound batch");
    PROMPT_TOKENS as f64 / started.elapsed().as_secs_f64()
}

fn streams(runner: &mut dyn Runner, num_streams: usize) -> f64 {
    for stream in 0..num_streams {
        let sequences = vec![sequence(stream, 0, PAST_TOKENS, LogitRows::None)];
        let batch = Batch {
            tokens: text(stream, PAST_TOKENS),
            sequences,
        };
        runner.forward(&batch).expect("a sound batch");
    }
    let started = Instant::now();
    for step in 0..DECODE_STEPS {
        let batch = Batch {
            tokens: text(step, num_streams),
            sequences: (0..num_streams)
                .map(|stream| sequence(stream, PAST_TOKENS + step, 1, LogitRows::Last))
                .collect(),
        };
        runner.forward(&batch).expect("a sound batch");
    }
    (num_streams * DECODE_STEPS) as f64 / started.elapsed().as_secs_f64()
}

fn sequence(stream: usize, num_past: usize, num_tokens: usize, logits: LogitRows) -> BatchSequence {
    let blocks_each = (PAST_TOKENS + DECODE_STEPS)
        .max(num_tokens)
        .div_ceil(BLOCK_TOKENS);
    let first = stream * blocks_each;
    let blocks = (first..first + blocks_each)
        .map(|block| block as u32)
        .collect();
    BatchSequence {
        num_past,
        num_tokens,
        blocks,
        logits,
    }
}

/// Any tokens do: speed does not depend on what they say.
fn text(seed: usize, num_tokens: usize) -> Vec<u32> {
    (0..num_tokens)
        .map(|idx| ((seed * 7919 + idx * 104_729) % 30_000) as u32)
        .collect()
}
