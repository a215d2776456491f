//! The bounds of a scheduler and the refusals that follow from them.
//!
//! The one idea: whatever can never be served is refused in [`add`](crate::Scheduler::add), so
//! that everything accepted finishes. Not here: bounds in bytes or seconds, which the server keeps.

/// Bounds, with units; no default, the caller decides.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tokens computed in one step at most. (The one place where a time budget will go.)
    pub step_tokens_max: usize,
    /// Rows of logits that one step may hold for prompts of which every row is wanted
    /// ([`crate::PromptRows::Each`]): such rows are as long as the vocabulary.
    pub prompt_rows_max: usize,
    /// Sequences running at once at most.
    pub num_running_max: usize,
    /// Sequences that may wait. Preempted ones wait again without counting as new, so the queue
    /// can exceed this by fewer than `num_running_max`.
    pub num_waiting_max: usize,
    /// KV blocks in the pool.
    pub num_blocks: usize,
    /// Positions a block holds.
    pub block_tokens: usize,
    /// Whether finished blocks are kept and found again.
    pub prefix_cache: bool,
}

impl Limits {
    /// Tokens, prompt and answer together, that one sequence may have at most: one more than the
    /// pool has positions, because nobody ever reads the keys and values of the last answer token.
    pub fn seq_tokens_max(&self) -> usize {
        self.num_blocks
            .saturating_mul(self.block_tokens)
            .saturating_add(1)
    }

    /// Blocks that hold `num_positions` positions.
    pub(crate) fn blocks_for(&self, num_positions: usize) -> usize {
        num_positions.div_ceil(self.block_tokens)
    }

    /// Positions a sequence uses when it has said all it may: its last token is never computed.
    /// An answer of 0 tokens takes no less than one of 1.
    pub(crate) fn positions_max(num_prompt: usize, max_tokens: usize) -> usize {
        num_prompt.saturating_add(max_tokens.max(1) - 1)
    }

    /// Demands bounds with which work can proceed.
    pub(crate) fn assert_usable(&self) {
        assert!(
            self.step_tokens_max > 0,
            "step_tokens_max must be at least 1"
        );
        assert!(
            self.prompt_rows_max > 0,
            "prompt_rows_max must be at least 1"
        );
        assert!(
            self.num_running_max > 0,
            "num_running_max must be at least 1"
        );
        assert!(
            self.num_waiting_max > 0,
            "num_waiting_max must be at least 1: every sequence waits first"
        );
        assert!(self.num_blocks > 0, "num_blocks must be at least 1");
        assert!(self.block_tokens > 0, "block_tokens must be at least 1");
        assert!(
            u32::try_from(self.num_blocks).is_ok_and(|n| n < u32::MAX),
            "block ids are 32 bits"
        );
    }
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
    /// The queue is full, or would be with all answers of the group.
    #[error("{num_waiting} sequences wait already")]
    QueueFull {
        /// How many wait.
        num_waiting: usize,
    },
    /// The prompt is empty.
    #[error("the prompt is empty")]
    Empty,
}
