//! A batch, checked and laid out for computing: nothing after this module can fail.
//!
//! ```text
//! tokens      [ a4 | b0 b1 b2 b3 | c9 ]
//! positions     4    0  1  2  3    9        what rope turns by
//! head_rows     0             4    5        rows that the output head is computed for
//! ```

use std::collections::HashSet;

use tensor::kv::KvSlot;

use crate::runner::{BLOCK_TOKENS, Batch, BatchSequence, LogitRows, RunnerError, RunnerShape};

/// Row by row what a batch asks for. Reused from step to step, so that a step allocates
/// only when it is larger than all before.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Position of each row in its sequence: `[num_rows]`.
    pub positions: Vec<u32>,
    /// Where each row's keys and values go: `[num_rows]`.
    pub slots: Vec<KvSlot>,
    /// Rows whose logits are wanted, ascending.
    pub head_rows: Vec<usize>,
    /// Rows whose states are wanted, ascending.
    pub state_rows: Vec<usize>,
    /// Blocks this step writes, to see that no two rows share a place.
    written: HashSet<u32>,
}

impl Layout {
    /// Checks `batch` against the runner and itself, and lays it out.
    ///
    /// # Errors
    ///
    /// [`RunnerError::BadBatch`] naming the first contradiction.
    pub(crate) fn fill(&mut self, batch: &Batch, shape: &RunnerShape) -> Result<(), RunnerError> {
        self.positions.clear();
        self.slots.clear();
        self.head_rows.clear();
        self.state_rows.clear();
        self.written.clear();
        for (row_idx, &token) in batch.tokens.iter().enumerate() {
            if token as usize >= shape.vocab {
                return bad(format!(
                    "token {token} in row {row_idx}, vocabulary is {}",
                    shape.vocab
                ));
            }
        }
        for (sequence_idx, sequence) in batch.sequences.iter().enumerate() {
            check_sequence(sequence_idx, sequence, shape)?;
            let first_written = sequence.num_past / BLOCK_TOKENS;
            let num_blocks = num_blocks_used(sequence);
            for &block in &sequence.blocks[first_written..num_blocks] {
                if !self.written.insert(block) {
                    return bad(format!(
                        "block {block} is written twice, last by sequence {sequence_idx}"
                    ));
                }
            }
            self.push(sequence);
        }
        for (sequence_idx, sequence) in batch.sequences.iter().enumerate() {
            // A block that one sequence writes and another only reads would make the result
            // depend on the order of the two.
            let read = &sequence.blocks[..sequence.num_past / BLOCK_TOKENS];
            if let Some(block) = read.iter().find(|block| self.written.contains(block)) {
                return bad(format!(
                    "block {block} is read by sequence {sequence_idx} and written"
                ));
            }
        }
        match self.positions.len() == batch.tokens.len() {
            true => Ok(()),
            false => bad(format!(
                "sequences hold {} rows, but there are {} tokens",
                self.positions.len(),
                batch.tokens.len()
            )),
        }
    }

    fn push(&mut self, sequence: &BatchSequence) {
        let first_row = self.positions.len();
        for position in sequence.num_past..sequence.num_past + sequence.num_tokens {
            // Within the context, which is far below 2^32.
            self.positions.push(position as u32);
            self.slots.push(KvSlot::of(&sequence.blocks, position));
        }
        let rows = first_row..self.positions.len();
        match sequence.logits {
            LogitRows::None => (),
            LogitRows::Last => self.head_rows.push(rows.end - 1),
            LogitRows::All => self.head_rows.extend(rows),
            LogitRows::LastState => self.state_rows.push(rows.end - 1),
            LogitRows::AllStates => self.state_rows.extend(rows),
        }
    }
}

fn check_sequence(
    sequence_idx: usize,
    sequence: &BatchSequence,
    shape: &RunnerShape,
) -> Result<(), RunnerError> {
    if sequence.num_tokens == 0 {
        return bad(format!("sequence {sequence_idx} has no tokens"));
    }
    // A sum of two numbers that may be anything.
    let num_positions = sequence.num_past.saturating_add(sequence.num_tokens);
    if num_positions > shape.context_max {
        return bad(format!(
            "sequence {sequence_idx} reaches {num_positions} positions, the context holds {}",
            shape.context_max
        ));
    }
    let num_blocks = num_blocks_used(sequence);
    if sequence.blocks.len() < num_blocks {
        return bad(format!(
            "sequence {sequence_idx} has {} blocks for {num_positions} positions, needs {num_blocks}",
            sequence.blocks.len()
        ));
    }
    let used = &sequence.blocks[..num_blocks];
    match used
        .iter()
        .find(|&&block| block as usize >= shape.num_blocks)
    {
        Some(block) => bad(format!(
            "sequence {sequence_idx} names block {block}, there are {}",
            shape.num_blocks
        )),
        None => Ok(()),
    }
}

/// Blocks that hold a sequence's positions up to the end of this step.
fn num_blocks_used(sequence: &BatchSequence) -> usize {
    (sequence.num_past + sequence.num_tokens).div_ceil(BLOCK_TOKENS)
}

fn bad<T>(reason: String) -> Result<T, RunnerError> {
    Err(RunnerError::BadBatch { reason })
}
