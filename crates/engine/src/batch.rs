//! Translates a plan into what a runner computes. The only place where the words of `sched`
//! (sequences, plan items) and of `model` (rows, block tables) meet.
//!
//! ```text
//! plan    A: past 37, 1 token, samples   B: past 0, 16 tokens          C: past 80, 2 tokens, scores
//! batch   [ a37                        | b0 b1 … b15                 | c80 c81                    ]
//! logits  row 0 = A                      none                          rows 1, 2 = C
//! ```

use model::runner::{Batch, BatchSequence, LogitRows};
use sched::{PlanItem, Scheduler, SeqId, StepPlan};

/// The batch of the current step, in buffers that all steps share.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    batch: Batch,
    /// Sequences of earlier steps, kept for the memory of their block tables.
    spare: Vec<BatchSequence>,
}

impl Layout {
    /// Lays out `plan` and returns the batch. Its logits, or for those that `wants_states` names its
    /// states, have [`num_rows`] rows for each item, in the plan's order.
    pub(crate) fn lay_out(
        &mut self,
        plan: &StepPlan,
        scheduler: &Scheduler,
        wants_states: impl Fn(SeqId) -> bool,
    ) -> &Batch {
        self.batch.tokens.clear();
        self.spare.append(&mut self.batch.sequences);
        for item in &plan.items {
            let tokens = &scheduler.tokens(item.seq)[item.num_past..][..item.num_tokens];
            self.batch.tokens.extend_from_slice(tokens);
            let mut sequence = sequence_of(item, scheduler, self.spare.pop());
            if wants_states(item.seq) {
                sequence.logits = states_for(sequence.logits);
            }
            self.batch.sequences.push(sequence);
        }
        &self.batch
    }

    /// What [`Layout::lay_out`] returned last.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }
}

fn sequence_of(
    item: &PlanItem,
    scheduler: &Scheduler,
    recycled: Option<BatchSequence>,
) -> BatchSequence {
    let mut blocks = recycled.map(|sequence| sequence.blocks).unwrap_or_default();
    blocks.clear();
    blocks.extend(scheduler.blocks(item.seq).iter().map(|block| block.0));
    BatchSequence {
        num_past: item.num_past,
        num_tokens: item.num_tokens,
        blocks,
        logits: match item {
            PlanItem { scores: true, .. } => LogitRows::All,
            PlanItem { samples: true, .. } => LogitRows::Last,
            PlanItem { .. } => LogitRows::None,
        },
    }
}

/// States in place of logits.
fn states_for(rows: LogitRows) -> LogitRows {
    match rows {
        LogitRows::None => LogitRows::None,
        LogitRows::Last | LogitRows::LastState => LogitRows::LastState,
        LogitRows::All | LogitRows::AllStates => LogitRows::AllStates,
    }
}

/// Rows of logits, or of states, that belong to `item`: of its last positions.
pub(crate) fn num_rows(item: &PlanItem) -> usize {
    match item.scores {
        true => item.num_tokens,
        false => usize::from(item.samples),
    }
}
