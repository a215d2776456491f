//! The step loop: plan, forward, choose, commit.
//!
//! One thread owns the model, the scheduler and all answers; the rest of the process hands it
//! requests and reads events. Time enters here (the scheduler gets it as an argument), chance
//! enters here too (as seeds). Not here: HTTP, wire formats, an async runtime.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// What callers hold: submit, drain.
mod handle;

// What goes in and what comes out.
mod request;

// What an answer must look like.
mod constraint;

// Where constraints come from: schemas, expressions, grammars.
pub mod constrain;

// The bounded channel into the engine thread.
mod inbox;

// The thread: take news, step, rest, end.
mod engine;

// Plan → lay out → forward → choose → commit. Read this first.
mod step;

// A plan as a runner's batch.
mod batch;

// Masks of constrained answers, beside the forward pass.
mod masks;

// Logits to a token.
mod choose;

// Hidden states of a prompt to one vector.
mod pooling;

// One answer: its tokens, text, stops, times.
mod answer;

// The mailbox back to the caller.
mod events;

// Gauges and the observer.
mod stats;

// How fast the queue moves.
mod pace;

pub use constraint::{Constraint, ConstraintError};
pub use events::EventStream;
pub use handle::EngineHandle;
pub use request::*;
pub use stats::{Observer, RequestFacts, Stats, StepFacts};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use model::runner::{BLOCK_TOKENS, Runner};
use sched::Scheduler;
use text::Tokenizer;

/// Bounds of the engine, with units. The front builds it from flags.
#[derive(Clone, Debug)]
pub struct EngineLimits {
    /// Tokens of one step at most (prefill chunk plus decode rows).
    pub step_tokens_max: usize,
    /// Tokens of one step at most that belong to prompts whose log-probabilities are wanted. Each has a
    /// row of logits, 4 bytes a vocabulary entry: with 64, 39 MB for 151936 entries.
    pub prompt_rows_max: usize,
    /// Sequences running at once.
    pub num_sequences_max: usize,
    /// Longest sequence, in tokens; at most the model's context.
    pub context_max: usize,
    /// Requests that may wait, beyond those that can start at once.
    pub num_waiting_max: usize,
    /// Prompt tokens that may wait. A longer prompt is taken when no other waits.
    pub num_waiting_tokens_max: usize,
    /// Whether prompts reuse the blocks of earlier ones.
    pub prefix_cache: PrefixCache,
}

/// Whether prompts reuse the blocks of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCache {
    /// Reuse the longest cached prefix.
    On,
    /// Compute every prompt whole.
    Off,
}

/// What the engine asks of a tokenizer. [`Tokenizer`] has it; tests bring alphabets of their own.
pub trait Vocabulary: Send + Sync {
    /// The bytes a token stands for; `None` if there is no such token.
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]>;
    /// The name of a control token, which has no bytes of its own; `None` if it is no such token.
    fn control_text(&self, _: TokenId) -> Option<&str> {
        None
    }
    /// Tokens that end an answer.
    fn end_tokens(&self) -> &[TokenId];
    /// Number of tokens.
    fn vocab(&self) -> usize;
}

impl Vocabulary for Tokenizer {
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        Tokenizer::token_bytes(self, token)
    }

    fn control_text(&self, token: TokenId) -> Option<&str> {
        self.is_control(token).then(|| self.token_text(token))?
    }

    fn end_tokens(&self) -> &[TokenId] {
        Tokenizer::end_tokens(self)
    }

    fn vocab(&self) -> usize {
        Tokenizer::vocab(self)
    }
}

/// What an engine is made of.
pub struct Parts {
    /// Computes logits and owns the KV bytes.
    pub runner: Box<dyn Runner>,
    /// Turns tokens into text.
    pub vocabulary: Arc<dyn Vocabulary>,
    /// Bounds.
    pub limits: EngineLimits,
    /// Hears what happens.
    pub observer: Box<dyn Observer>,
    /// Gives a seed to each request that brings none.
    pub seeds: Box<dyn FnMut() -> u64 + Send>,
}

/// Starts the engine thread. Joining the returned handle waits for the end of a drain.
///
/// Requests without a seed get one from the operating system's entropy; [`start_parts`] takes
/// another source.
///
/// # Panics
///
/// If the operating system gives no thread.
pub fn start(
    runner: Box<dyn Runner>,
    tokenizer: Arc<Tokenizer>,
    limits: EngineLimits,
    observer: Box<dyn Observer>,
) -> (EngineHandle, JoinHandle<()>) {
    let seeds = Box::new(rand::random::<u64>);
    start_parts(Parts {
        runner,
        vocabulary: tokenizer,
        limits,
        observer,
        seeds,
    })
}

/// As [`start`], from any vocabulary and any source of seeds.
///
/// # Panics
///
/// If the operating system gives no thread.
pub fn start_parts(parts: Parts) -> (EngineHandle, JoinHandle<()>) {
    let Parts {
        runner,
        vocabulary,
        limits,
        observer,
        seeds,
    } = parts;
    let shape = runner.shape();
    let fit = handle::Fit {
        num_tokens_max: limits
            .context_max
            .min(shape.context_max)
            .min(shape.num_blocks * BLOCK_TOKENS),
        vocab: shape.vocab,
        num_choosable: shape.vocab.min(vocabulary.vocab()),
        num_answers_max: limits.num_waiting_max + limits.num_sequences_max,
    };
    let vocab = shape.vocab.min(vocabulary.vocab());
    let scheduler = Scheduler::new(scheduler_limits(&limits, shape.num_blocks));
    let stats = Arc::new(Stats::default());
    let inbox = Arc::new(inbox::Inbox::new(&limits, Arc::clone(&stats)));
    let engine = engine::Engine {
        inbox: Arc::clone(&inbox),
        stats: Arc::clone(&stats),
        scheduler,
        runner,
        vocabulary,
        vocab,
        num_sequences_max: limits.num_sequences_max,
        observer,
        seeds,
        answers: BTreeMap::new(),
        layout: batch::Layout::default(),
        scratch: choose::Scratch::default(),
        masks: masks::Masks::start(),
        started: Instant::now(),
    };
    engine.show_counts(0);
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || engine.run())
        .expect("the operating system gives a thread");
    (EngineHandle::new(inbox, fit, stats), thread)
}

fn scheduler_limits(limits: &EngineLimits, num_blocks: usize) -> sched::Limits {
    sched::Limits {
        step_tokens_max: limits.step_tokens_max,
        prompt_rows_max: limits.prompt_rows_max,
        num_running_max: limits.num_sequences_max,
        // The inbox keeps the bound. Here stand in addition those that are about to start and those
        // that were preempted, at most `num_sequences_max` each.
        num_waiting_max: limits.num_waiting_max + 2 * limits.num_sequences_max,
        num_blocks,
        block_tokens: BLOCK_TOKENS,
        prefix_cache: limits.prefix_cache == PrefixCache::On,
    }
}
