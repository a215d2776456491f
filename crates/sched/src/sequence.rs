//! One request as the scheduler sees it: tokens, how many are computed, and where they lie.
//!
//! ```text
//!  tokens    │ prompt ─────────────────────│ answer ────────│
//!            │◀───── num_computed ─────▶│◀─── num_owed ────▶│
//!  table     │ b7 │ b2 │ b9 │ b4 │ b0 │ …     block_tokens positions each
//!            │◀ num_published ▶│             in the prefix cache, each the child of the one before
//! ```
//!
//! Not here: any decision. Sequences are moved and changed by `scheduler.rs` alone.

use std::time::Duration;

use crate::kv::hash::BlockHash;
use crate::plan::PromptRows;
use crate::{BlockId, SeqId, Token};

/// A request's token stream and its place in the cache.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub id: SeqId,
    /// The first sequence of its group; itself if it is alone or the first.
    pub group: SeqId,
    /// Leading blocks, all of the prompt and full, that it may share with others of its group. 0 if
    /// it is alone.
    pub num_shareable: usize,
    /// Whether it waits, running, for an older sequence of its group to compute what they share.
    /// Meanwhile its table holds only what is computed.
    pub follows: bool,
    /// Whether some of its table came from another sequence of its group.
    pub shares: bool,
    /// Which rows of the prompt must be handed out.
    pub prompt_rows: PromptRows,
    /// When it was added.
    pub added: Duration,
    /// Prompt, then answer. Only grows.
    pub tokens: Vec<Token>,
    pub num_prompt: usize,
    /// Tokens of prompt and answer at which it must end.
    pub num_tokens_max: usize,
    /// Leading positions whose keys and values are in `table`. Falls to 0 at a preemption.
    pub num_computed: usize,
    /// The highest `num_computed` so far: what is planned below it is recomputation.
    pub num_computed_peak: usize,
    /// While running: blocks of all known tokens, in position order. While waiting: empty.
    pub table: Vec<BlockId>,
    /// Leading blocks of `table` that are nodes of the prefix cache.
    pub num_published: usize,
    /// Chain hash of each full block of `tokens` (empty if there is no prefix cache).
    pub hashes: Vec<u64>,
    /// Whether a plan has ever contained it.
    pub started: bool,
    /// How often it was preempted; the more often, the more room it waits for.
    pub num_preemptions: u32,
    /// Tokens of the step being planned.
    pub granted: usize,
}

impl Sequence {
    /// A sequence that has not been computed at all.
    pub(crate) fn new(
        id: SeqId,
        prompt: Vec<Token>,
        max_tokens: usize,
        added: Duration,
    ) -> Sequence {
        assert!(
            !prompt.is_empty(),
            "an empty prompt owes nothing and would never be planned"
        );
        Sequence {
            id,
            group: id,
            num_shareable: 0,
            follows: false,
            shares: false,
            prompt_rows: PromptRows::Last,
            added,
            num_prompt: prompt.len(),
            num_tokens_max: prompt.len().saturating_add(max_tokens.max(1)),
            tokens: prompt,
            num_computed: 0,
            num_computed_peak: 0,
            table: Vec::new(),
            num_published: 0,
            hashes: Vec::new(),
            started: false,
            num_preemptions: 0,
            granted: 0,
        }
    }

    /// Tokens known but not computed. Never 0 between steps: a paid debt chooses a token.
    pub(crate) fn num_owed(&self) -> usize {
        debug_assert!(self.num_computed < self.tokens.len());
        self.tokens.len() - self.num_computed
    }

    /// Tokens it could compute now: none while it follows another.
    pub(crate) fn num_due(&self) -> usize {
        match self.follows {
            true => 0,
            false => self.num_owed(),
        }
    }

    /// Whether rows of its prompt are still to be handed out. The last is not one of them: an answer's
    /// first token is chosen from it in any case.
    pub(crate) fn is_scored(&self) -> bool {
        self.prompt_rows != PromptRows::Last && self.num_computed_peak + 1 < self.num_prompt
    }

    /// Whether those rows are logits, of which a step holds a bounded number.
    pub(crate) fn has_bounded_rows(&self) -> bool {
        self.prompt_rows == PromptRows::Each && self.is_scored()
    }

    /// Leading positions that may be taken from the cache. Who wants their rows must compute them, once.
    pub(crate) fn num_reusable(&self) -> usize {
        match self.is_scored() {
            true => self.num_computed_peak,
            false => self.tokens.len() - 1,
        }
    }

    /// What it adds to the queue: a group's prompt counts once.
    pub(crate) fn num_queue_tokens(&self) -> usize {
        match self.id == self.group {
            true => self.num_prompt,
            false => 0,
        }
    }

    /// The tokens of its `idx`th block, which must be full.
    pub(crate) fn block(&self, idx: usize, block_tokens: usize) -> &[Token] {
        &self.tokens[idx * block_tokens..(idx + 1) * block_tokens]
    }

    /// Brings `hashes` up to date with `tokens`.
    pub(crate) fn hash_full_blocks(&mut self, block_tokens: usize, hash: BlockHash) {
        for idx in self.hashes.len()..self.tokens.len() / block_tokens {
            let parent = idx.checked_sub(1).map(|parent| self.hashes[parent]);
            let hashed = hash(parent, self.block(idx, block_tokens));
            self.hashes.push(hashed);
        }
        assert_eq!(self.hashes.len(), self.tokens.len() / block_tokens);
    }
}
