//! What the scheduler hands to the engine, and what it gets back.
//!
//! The one idea: a plan is plain numbers. The engine looks tokens and blocks up in the scheduler,
//! computes, and returns the plan with the tokens it chose.

use crate::{SeqId, Token};

/// What one step computes, oldest sequence first.
#[derive(Debug)]
pub struct StepPlan {
    /// The sequences of this step.
    pub items: Vec<PlanItem>,
    /// What happened while planning.
    pub facts: PlanFacts,
}

/// One sequence's share of a step.
///
/// ```text
///  tokens   0 ─────────────────────────────────────────────────── len
///           │◀── num_past ──▶│◀── num_tokens ──▶│◀── still owed ──▶│
///             in the cache      computed now       empty: `samples`
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanItem {
    /// Which.
    pub seq: SeqId,
    /// First position computed; everything before is in the cache.
    pub num_past: usize,
    /// Positions computed, at least 1.
    pub num_tokens: usize,
    /// Whether this pays off the whole debt, so that the next token is chosen.
    pub samples: bool,
    /// Whether this is the first time any of it is computed (the request has now started); carries the cached tokens.
    pub started: Option<usize>,
}

/// Counts of one planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanFacts {
    /// Sequences preempted.
    pub num_preempted: usize,
    /// Tokens planned that had been computed before a preemption.
    pub num_recomputed: usize,
    /// Prompt tokens looked up in the prefix cache: those of sequences that started.
    pub num_prefix_queried: usize,
    /// Of those, found.
    pub num_prefix_hit: usize,
    /// Cached blocks evicted.
    pub num_evicted: usize,
}

/// A planned step's outcome for one sequence that sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which sequence.
    pub seq: SeqId,
    /// The token chosen.
    pub token: Token,
    /// Whether the sequence ends here (stop, length): its blocks are released (and cached).
    pub ends: bool,
}

/// Counts for gauges and the conservation law `total = free + held + cached`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sequences running.
    pub num_running: usize,
    /// Sequences waiting.
    pub num_waiting: usize,
    /// Prompt tokens of the waiting ones.
    pub num_waiting_tokens: usize,
    /// Blocks referenced by sequences.
    pub blocks_held: usize,
    /// Blocks only in the prefix cache.
    pub blocks_cached: usize,
    /// Blocks never used or evicted.
    pub blocks_free: usize,
    /// Blocks in all.
    pub blocks_total: usize,
}
