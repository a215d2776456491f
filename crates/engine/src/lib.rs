//! The step loop: plan, forward, choose, commit.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod handle;
mod request;
mod stats;

pub use handle::{EngineHandle, EventStream};
pub use request::*;
pub use stats::{Observer, RequestFacts, Stats, StepFacts};

use model::runner::Runner;
use std::sync::Arc;
use text::Tokenizer;

/// Bounds of the engine, with units. The front builds it from flags.
#[derive(Clone, Debug)]
pub struct EngineLimits {
    /// Tokens of one step at most (prefill chunk plus decode rows).
    pub step_tokens_max: usize,
    /// Sequences running at once.
    pub num_sequences_max: usize,
    /// Longest sequence, in tokens; at most the model's context.
    pub context_max: usize,
    /// Requests that may wait.
    pub num_waiting_max: usize,
    /// Prompt tokens that may wait.
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

/// Starts the engine thread. Joining the returned handle waits for the end of a drain.
pub fn start(
    runner: Box<dyn Runner>,
    tokenizer: Arc<Tokenizer>,
    limits: EngineLimits,
    observer: Box<dyn Observer>,
) -> (EngineHandle, std::thread::JoinHandle<()>) {
    let _ = (runner, tokenizer, limits, observer);
    unimplemented!()
}
