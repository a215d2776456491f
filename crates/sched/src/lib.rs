//! Who computes what next: a pure state machine over requests and KV blocks.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::time::Duration;

/// A token id.
pub type Token = u32;

/// Names a sequence; given out by [`Scheduler::add`], never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// A KV block's index, `0..num_blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Bounds, with units; no default, the caller decides.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tokens computed in one step at most. (The one place where a time budget will go.)
    pub step_tokens_max: usize,
    /// Sequences running at once at most.
    pub num_running_max: usize,
    /// Sequences that may wait.
    pub num_waiting_max: usize,
    /// KV blocks in the pool.
    pub num_blocks: usize,
    /// Positions a block holds.
    pub block_tokens: usize,
    /// Whether finished blocks are kept and found again.
    pub prefix_cache: bool,
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
    /// Prompt tokens looked up in the prefix cache.
    pub num_prefix_queried: usize,
    /// Of those, found.
    pub num_prefix_hit: usize,
    /// Cached blocks evicted.
    pub num_evicted: usize,
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

/// Why a sequence cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// It needs more blocks than the pool has, even alone.
    #[error("needs {num_blocks} KV blocks, the pool has {num_blocks_max}")]
    NeverFits {
        /// Blocks of prompt plus answer.
        num_blocks: usize,
        /// Blocks in the pool.
        num_blocks_max: usize,
    },
    /// The queue is full.
    #[error("{num_waiting} sequences wait already")]
    QueueFull {
        /// How many wait.
        num_waiting: usize,
    },
    /// The prompt is empty.
    #[error("the prompt is empty")]
    Empty,
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

/// The state machine. Time is an argument wherever it matters.
#[derive(Debug)]
pub struct Scheduler {}

impl Scheduler {
    /// An idle scheduler.
    pub fn new(limits: Limits) -> Scheduler {
        let _ = limits;
        unimplemented!()
    }
    /// Queues a sequence. `now` is time since any fixed origin.
    ///
    /// # Errors
    ///
    /// What [`AddError`] lists.
    pub fn add(
        &mut self,
        prompt: Vec<Token>,
        max_tokens: usize,
        now: Duration,
    ) -> Result<SeqId, AddError> {
        let _ = (prompt, max_tokens, now);
        unimplemented!()
    }
    /// Forgets a sequence in any state (between a plan and its commit too) and releases its blocks.
    pub fn cancel(&mut self, seq: SeqId) {
        let _ = seq;
        unimplemented!()
    }
    /// Chooses the work of one step. Empty if there is nothing to do.
    pub fn plan(&mut self, now: Duration) -> StepPlan {
        let _ = now;
        unimplemented!()
    }
    /// Takes the plan back, done: advances every item, appends the chosen tokens (one for each item with
    /// `samples`, in plan order; items cancelled since are skipped), publishes full blocks to the prefix cache.
    pub fn commit(&mut self, plan: StepPlan, chosen: &[Chosen], now: Duration) {
        let _ = (plan, chosen, now);
        unimplemented!()
    }
    /// All tokens the sequence knows: prompt, then answer.
    pub fn tokens(&self, seq: SeqId) -> &[Token] {
        let _ = seq;
        unimplemented!()
    }
    /// The sequence's block table, in position order.
    pub fn blocks(&self, seq: SeqId) -> &[BlockId] {
        let _ = seq;
        unimplemented!()
    }
    /// Counts for gauges.
    pub fn counts(&self) -> Counts {
        unimplemented!()
    }
    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        unimplemented!()
    }
}
