//! Where the time of a request went: told on demand, beside llama.cpp's `timings`.

use serde::Serialize;
use utoipa::ToSchema;

/// Where the time of one choice went.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Timeline {
    /// Which choice.
    pub index: u32,
    /// Its phases.
    #[serde(flatten)]
    pub phases: TimelinePhases,
}

/// Phases in milliseconds; the six add up to `e2e_ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct TimelinePhases {
    /// From the request's head to where this is told.
    pub e2e_ms: f64,
    /// Reading the body, checking it, rendering, encoding, compiling its schema.
    pub prepare_ms: f64,
    /// From there to the first step that computed some of it: waiting for a place.
    pub queue_ms: f64,
    /// From there to the first token, but for what was preempted.
    pub prefill_ms: f64,
    /// From there to the engine's end of it, but for what was preempted.
    pub decode_ms: f64,
    /// While others had its memory.
    pub preempted_ms: f64,
    /// From the engine's end of it to where this is told: for other choices, or a slow reader.
    pub deliver_ms: f64,
    /// Steps before the first token: chunks of the prompt.
    pub prefill_steps: u32,
    /// Steps after it.
    pub decode_steps: u32,
    /// How often it was preempted.
    pub preemptions: u32,
    /// Prompt tokens from the prefix cache.
    pub cached_tokens: u32,
}

/// `/debug/requests`: the slowest that ended lately, slowest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SlowRequests {
    /// How far back it looks, seconds.
    pub window_s: f64,
    /// Never more than a fixed number.
    pub requests: Vec<SlowRequest>,
}

/// One sequence, without anything of what was said.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SlowRequest {
    /// Its `x-request-id`.
    pub id: String,
    /// Where it came in.
    pub route: String,
    /// Its class.
    pub class: String,
    /// `completed`, `cancelled` or `failed`.
    pub outcome: &'static str,
    /// Seconds since the engine ended it.
    pub ended_s_ago: f64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its answer.
    pub completion_tokens: u32,
    /// Where its time went; nothing is known of its delivery.
    pub phases: TimelinePhases,
}
