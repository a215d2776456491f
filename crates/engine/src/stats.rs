//! What the engine lets others see: gauges as atomics, and an observer told of each
//! step and each finished request from the engine thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::request::{FinishReason, Times, Usage};

/// Gauges that the engine thread writes after each step and anyone reads. Counts unless named otherwise.
#[derive(Debug, Default)]
pub struct Stats {
    /// Sequences holding blocks and being computed.
    pub num_running: AtomicU64,
    /// Requests queued: handed over but not running (preempted ones included).
    pub num_waiting: AtomicU64,
    /// Prompt tokens of the queued requests.
    pub num_waiting_tokens: AtomicU64,
    /// KV blocks held by running sequences.
    pub blocks_held: AtomicU64,
    /// KV blocks held only by the prefix cache (free on demand).
    pub blocks_cached: AtomicU64,
    /// All KV blocks.
    pub blocks_total: AtomicU64,
    /// Blocks that belong to nobody: must be 0.
    pub blocks_leaked: AtomicU64,
    /// A heartbeat: milliseconds from the engine's start to the end of its last step, or to the
    /// moment when work last came while it rested.
    pub last_step_ms: AtomicU64,
}

impl Stats {
    /// Share of the pool held by running sequences, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        let total = self.blocks_total.load(Ordering::Relaxed);
        if total == 0 {
            0.0
        } else {
            self.blocks_held.load(Ordering::Relaxed) as f64 / total as f64
        }
    }
}

/// Hears facts on the engine thread; must return in microseconds and never block.
pub trait Observer: Send {
    /// After each step.
    fn step(&mut self, step: &StepFacts);
    /// The first answer token of a request, `since_arrival` after it arrived.
    fn first_token(&mut self, since_arrival: Duration);
    /// Any later answer token, `gap` after the one before it.
    fn next_token(&mut self, gap: Duration);
    /// A request ended, for whatever reason (cancelled while queued included).
    fn finished(&mut self, request: &RequestFacts);
}

/// One step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepFacts {
    /// Wall time of the whole step.
    pub duration: Duration,
    /// Prompt tokens computed.
    pub num_prefill_tokens: u32,
    /// Answer tokens chosen.
    pub num_decode_tokens: u32,
    /// Sequences preempted.
    pub num_preemptions: u32,
    /// Tokens computed a second time because of preemption.
    pub num_recomputed_tokens: u32,
    /// Prompt tokens looked up in the prefix cache by sequences admitted in this step.
    pub num_prefix_queried: u32,
    /// Of those, found.
    pub num_prefix_hit: u32,
    /// Blocks evicted from the prefix cache.
    pub num_evicted: u32,
}

/// One ended request.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// Why it ended.
    pub reason: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Where the time went.
    pub times: Times,
    /// From arrival to the end.
    pub e2e: Duration,
    /// The request's answer limit.
    pub max_tokens: u32,
}
