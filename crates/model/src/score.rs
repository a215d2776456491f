//! Logits of chosen positions of one text, for comparing with other engines.
//!
//! The one idea: chunk size never changes a bit, so chunks may end wherever a wanted row
//! is, and the output head is computed for no other.

use std::collections::BTreeSet;

use crate::runner::{BLOCK_TOKENS, Batch, BatchSequence, LogitRows, Runner, RunnerError, Token};

/// Rows computed in one step: bounds the memory of a long text.
const CHUNK_TOKENS_MAX: usize = 512;
/// Rows whose logits are held at once: 64 rows of a vocabulary of 262 144 are 64 MiB.
const CHUNK_LOGITS_MAX: usize = 64;

/// Computes the logits that follow each position in `rows` of the text `tokens`, calling
/// `each(position, logits)` in ascending order of position; `logits` is `[vocab]`.
///
/// Uses blocks 0, 1, … of the cache, whatever they held: for a runner nobody else uses.
///
/// # Errors
///
/// [`RunnerError::BadBatch`] if a token is out of range, or the text is longer than the
/// context or the cache, or a position is not in the text.
pub fn score(
    runner: &mut dyn Runner,
    tokens: &[Token],
    rows: &BTreeSet<usize>,
    mut each: impl FnMut(usize, &[f32]),
) -> Result<(), RunnerError> {
    if let Some(row) = rows.last().filter(|&&row| row >= tokens.len()) {
        let reason = format!(
            "position {row} is wanted of a text of {} tokens",
            tokens.len()
        );
        return Err(RunnerError::BadBatch { reason });
    }
    let num_blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    if num_blocks > runner.shape().num_blocks {
        let has = runner.shape().num_blocks;
        let reason = format!(
            "{} tokens need {num_blocks} KV blocks, there are {has}",
            tokens.len()
        );
        return Err(RunnerError::BadBatch { reason });
    }
    // The number of blocks is within a runner's, whose ids are u32.
    let blocks: Vec<u32> = (0..num_blocks as u32).collect();
    let mut num_past = 0;
    while num_past < tokens.len() {
        let (num_tokens, wanted) = next_chunk(rows, num_past, tokens.len());
        let batch = Batch {
            tokens: tokens[num_past..num_past + num_tokens].to_vec(),
            sequences: vec![BatchSequence {
                num_past,
                num_tokens,
                blocks: blocks.clone(),
                logits: wanted,
            }],
        };
        let mut logits = runner.forward(&batch)?;
        let first_row = match wanted {
            LogitRows::None => num_past + num_tokens,
            LogitRows::Last => num_past + num_tokens - 1,
            LogitRows::All => num_past,
            LogitRows::LastState | LogitRows::AllStates => {
                unreachable!("next_chunk asks for logits")
            }
        };
        for position in first_row..num_past + num_tokens {
            each(position, logits.row_mut(position - first_row));
        }
        num_past += num_tokens;
    }
    Ok(())
}

/// Tokens of the next chunk and which of its rows are wanted: a run of wanted rows, or
/// everything up to the next wanted one.
fn next_chunk(rows: &BTreeSet<usize>, start: usize, end: usize) -> (usize, LogitRows) {
    let num_wanted = rows
        .range(start..)
        .zip(start..)
        .take_while(|(row, at)| *row == at)
        .count();
    if num_wanted > 0 {
        return (num_wanted.min(CHUNK_LOGITS_MAX), LogitRows::All);
    }
    let num_tokens = (end - start).min(CHUNK_TOKENS_MAX);
    match rows.range(start..start + num_tokens).next() {
        Some(row) => (row + 1 - start, LogitRows::Last),
        None => (num_tokens, LogitRows::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(rows: &[usize], num_tokens: usize) -> Vec<(usize, LogitRows)> {
        let rows = rows.iter().copied().collect();
        let mut start = 0;
        let mut chunks = Vec::new();
        while start < num_tokens {
            chunks.push(next_chunk(&rows, start, num_tokens));
            start += chunks[chunks.len() - 1].0;
        }
        chunks
    }

    #[test]
    fn a_chunk_ends_at_each_wanted_row_and_the_rest_is_computed_without_head() {
        let expected = [
            (1, LogitRows::All),
            (5, LogitRows::Last),
            (3, LogitRows::All),
            (1, LogitRows::None),
        ];
        assert_eq!(chunks(&[0, 5, 6, 7, 8], 10), expected);
    }

    #[test]
    fn long_runs_are_cut_to_bound_memory() {
        let all: Vec<usize> = (0..100).collect();
        assert_eq!(
            chunks(&all, 100),
            [(64, LogitRows::All), (36, LogitRows::All)]
        );
        assert_eq!(
            chunks(&[], 600),
            [(512, LogitRows::None), (88, LogitRows::None)]
        );
    }
}
