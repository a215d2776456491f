//! What the scheduler hands to the engine, and what it gets back.
//!
//! The one idea: a plan is plain numbers. The engine looks tokens and blocks up in the scheduler,
//! computes, and returns the plan with the tokens it chose.

use std::num::NonZeroU32;

use crate::{SeqId, Token};

/// One prompt and the answers wanted to it: what [`crate::Scheduler::add_group`] queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// At least one token.
    pub prompt: Vec<Token>,
    /// Bounds each answer. 0: the prompt is computed, and nothing chosen.
    pub max_tokens: usize,
    /// Sequences that begin with the prompt.
    pub num_answers: NonZeroU32,
    /// Which rows of the prompt the first sequence hands out; the others hand out their last.
    pub prompt_rows: PromptRows,
}

/// Which rows of a prompt are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRows {
    /// The last, to choose the first token of the answer.
    Last,
    /// Each, so that no position is taken from the prefix cache before its row was handed out.
    Each,
    /// As `Each`, of rows so short that a step may hand out any number: hidden states.
    EachState,
}

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
    /// Whether the rows of all positions computed now are wanted. A row may be handed out twice, when
    /// its position is computed again after a preemption.
    pub scores: bool,
    /// Whether this is the first time any of it is computed (the request has now started); carries the tokens that
    /// were there already: cached, or shared by an older sequence of the group.
    pub started: Option<usize>,
}

/// Counts of one planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanFacts {
    /// Sequences preempted.
    pub num_preempted: usize,
    /// Tokens planned that had been computed before a preemption.
    pub num_recomputed: usize,
    /// Prompt tokens looked up in the prefix cache: those of sequences that started, except where
    /// another of the group had computed them.
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
    /// The token chosen; `None` if none was wanted, which is an end.
    pub token: Option<Token>,
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
    /// Prompt tokens of the waiting ones, a group's once.
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
