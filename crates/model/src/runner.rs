//! The seam between the engine and whatever computes: a [`Runner`] takes a [`Batch`]
//! and returns logits, or hidden states.
//!
//! A runner owns its KV bytes. The engine only names blocks, which it got from the
//! scheduler's accounting; so a GPU runner plugs in here, whole steps at a time, and
//! not op by op. Not here: which tokens to compute (`sched`), what to do with logits
//! (`engine`).

/// A token's index in the model's vocabulary.
pub type Token = u32;

/// Positions that one KV block holds. The scheduler's accounting uses the same number.
pub const BLOCK_TOKENS: usize = 16;

/// What one step computes: some tokens of some sequences.
///
/// ```text
/// tokens    [ a4 | b0 b1 b2 b3 | c9 ]          one row per token, sequences side by side
/// sequences   A       B          C
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Token ids of all rows, sequence by sequence, positions ascending.
    pub tokens: Vec<Token>,
    /// The sequences, in row order; their `num_tokens` add up to `tokens.len()`.
    pub sequences: Vec<BatchSequence>,
}

/// One sequence's share of a [`Batch`].
#[derive(Clone, Debug)]
pub struct BatchSequence {
    /// Positions `0..num_past` are already in the cache; this step computes
    /// `num_past..num_past + num_tokens`.
    pub num_past: usize,
    /// Rows of `tokens` that belong to this sequence; at least 1.
    pub num_tokens: usize,
    /// The block table: `blocks[p / BLOCK_TOKENS]` holds position `p`. Long enough for
    /// `num_past + num_tokens` positions.
    pub blocks: Vec<u32>,
    /// Which of this sequence's rows need logits or states.
    pub logits: LogitRows,
}

/// Which rows of a sequence the output head is computed for, or whose states are wanted as it
/// would have read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// None: the prompt goes on in a later step.
    None,
    /// Only the last, to choose the next token.
    Last,
    /// Every row: scoring, or verifying drafts.
    All,
    /// No logits, but the state of the last row.
    LastState,
    /// No logits, but the states of every row: embedding.
    AllStates,
}

/// What one step gives: logits, row-major `[num_rows, vocab]`, and hidden states, row-major
/// `[num_state_rows, hidden]`. Rows of each in the order of the batch's sequences and, within one,
/// of its positions. Only rows asked for by [`LogitRows`].
///
/// A state is the residual stream behind the last layer after the final norm: what the output
/// head multiplies.
#[derive(Debug)]
pub struct Logits<'a> {
    /// The values, `num_rows * vocab` of them.
    pub values: &'a mut [f32],
    /// Length of a row of logits.
    pub vocab: usize,
    /// The states, `num_state_rows * hidden` of them.
    pub states: &'a [f32],
    /// Length of a row of states.
    pub hidden: usize,
}

impl Logits<'_> {
    /// The row at `row_idx`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row_mut(&mut self, row_idx: usize) -> &mut [f32] {
        &mut self.values[row_idx * self.vocab..][..self.vocab]
    }

    /// The state at `row_idx`, counted among states alone.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn state(&self, row_idx: usize) -> &[f32] {
        &self.states[row_idx * self.hidden..][..self.hidden]
    }
}

/// What the engine has to know of the model behind a [`Runner`].
#[derive(Clone, Debug)]
pub struct RunnerShape {
    /// Rows of the output head: logits per row.
    pub vocab: usize,
    /// Values of a hidden state.
    pub hidden: usize,
    /// Longest sequence the model was made for, in tokens.
    pub context_max: usize,
    /// KV blocks this runner has room for; block ids are `0..num_blocks`.
    pub num_blocks: usize,
    /// Bytes of one KV block over all layers.
    pub block_bytes: usize,
    /// Weights hash and kernel set: equal fingerprints give equal greedy bytes.
    pub fingerprint: String,
}

/// Computes batches. Implemented by the CPU decoder; later by GPUs.
pub trait Runner: Send {
    /// Fixed facts about the model and its cache.
    fn shape(&self) -> &RunnerShape;

    /// Computes one step and stores the new keys and values.
    ///
    /// Output rows depend only on their own sequence: never on neighbours, chunk sizes
    /// or thread count (batch invariance, ARCHITECTURE.md).
    ///
    /// # Errors
    ///
    /// [`RunnerError::BadBatch`] if a token or block is out of range or a table too short.
    /// The cache is then unchanged.
    fn forward(&mut self, batch: &Batch) -> Result<Logits<'_>, RunnerError>;
}

/// Why a step could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The batch contradicts itself or the model.
    #[error("bad batch: {reason}")]
    BadBatch {
        /// What contradicts what.
        reason: String,
    },
}
