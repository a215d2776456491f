//! How much one step may compute, and how it is shared out among debts.
//!
//! The one idea: memory is settled before anything here runs, so sharing out is arithmetic that
//! cannot fail and never has to be undone. This is the only file that knows a step is bounded by
//! tokens; a bound in time replaces [`StepBudget`] and nothing else.
//!
//! ```text
//!  budget   │ answers: one token each (rows) │ prompts                             │
//!                                            │ half: the oldest │ rest: least owed │
//! ```

use crate::SeqId;
use crate::sequence::Sequence;

/// Prompts get at least one token in this many while they owe any, even when answers alone would
/// fill the step: a quarter slows full-width answering by at most a third and bounds a prompt's
/// wait. It only binds when more sequences answer than three quarters of the budget.
const PROMPT_SHARE: usize = 4;

/// What is left of one step.
#[derive(Debug)]
struct StepBudget {
    tokens_left: usize,
}

impl StepBudget {
    /// Takes up to `wanted` tokens and returns how many.
    fn take(&mut self, wanted: usize) -> usize {
        let taken = wanted.min(self.tokens_left);
        self.tokens_left -= taken;
        taken
    }
}

/// Shares out the budget of each step. Remembers whose turn it is when not all fit.
#[derive(Debug)]
pub(crate) struct Divider {
    step_tokens_max: usize,
    /// Steps divided so far, modulo [`PROMPT_SHARE`]: spreads the prompts' share over steps when
    /// the budget is not a multiple of it (or is 1).
    turn: usize,
    /// The oldest sequence that may have been passed over: answers go round from here.
    next_row: SeqId,
    /// Indices of sequences with prompts to compute; kept to reuse its memory.
    prompts: Vec<usize>,
}

impl Divider {
    pub(crate) fn new(step_tokens_max: usize) -> Divider {
        assert!(step_tokens_max > 0);
        Divider {
            step_tokens_max,
            turn: 0,
            next_row: SeqId(0),
            prompts: Vec::new(),
        }
    }

    /// Sets `granted` of every running sequence (oldest first) for the coming step.
    ///
    /// Who owes one token gets it: an answer's pause is felt, and it costs the least. What is left
    /// goes to longer debts. The oldest of them has half, so that long prompts always progress;
    /// the other half goes to the least owed, so that short prompts overtake.
    pub(crate) fn divide(&mut self, running: &mut [Sequence]) {
        debug_assert!(running.is_sorted_by_key(|seq| seq.id), "oldest first");
        self.prompts.clear();
        let mut prompt_tokens = 0;
        for (idx, seq) in running.iter_mut().enumerate() {
            seq.granted = 0;
            if seq.num_owed() > 1 {
                self.prompts.push(idx);
                prompt_tokens += seq.num_owed();
            }
        }
        let mut budget = StepBudget {
            tokens_left: self.step_tokens_max,
        };
        let kept_for_prompts = self.prompt_share().min(prompt_tokens);
        self.grant_rows(running, &mut budget, kept_for_prompts);
        self.grant_prompts(running, &mut budget);
        let num_granted: usize = running.iter().map(|seq| seq.granted).sum();
        assert!(
            num_granted + budget.tokens_left == self.step_tokens_max,
            "tokens are granted once"
        );
        assert!(
            num_granted > 0 || running.is_empty(),
            "a step with work does some"
        );
    }

    /// The prompts' guaranteed share of this step: a quarter over any four steps.
    fn prompt_share(&mut self) -> usize {
        let before = self.step_tokens_max * self.turn / PROMPT_SHARE;
        let after = self.step_tokens_max * (self.turn + 1) / PROMPT_SHARE;
        self.turn = (self.turn + 1) % PROMPT_SHARE;
        after - before
    }

    /// One token to each sequence that owes one, going round so that nobody is passed over twice
    /// before everybody had a turn.
    fn grant_rows(&mut self, running: &mut [Sequence], budget: &mut StepBudget, kept: usize) {
        assert!(kept <= budget.tokens_left);
        let start = running.partition_point(|seq| seq.id < self.next_row);
        let (older, newer) = running.split_at_mut(start);
        for seq in newer.iter_mut().chain(older) {
            if budget.tokens_left == kept {
                break;
            }
            if seq.num_owed() == 1 {
                seq.granted = budget.take(1);
                self.next_row = SeqId(seq.id.0 + 1);
            }
        }
    }

    /// Half to the oldest, then least owed first (the older of equals).
    fn grant_prompts(&mut self, running: &mut [Sequence], budget: &mut StepBudget) {
        let Some(&oldest) = self.prompts.first() else {
            return;
        };
        let half = budget.tokens_left.div_ceil(2);
        running[oldest].granted = budget.take(half.min(running[oldest].num_owed()));
        self.prompts
            .sort_unstable_by_key(|&idx| (running[idx].num_owed(), idx));
        for &idx in &self.prompts {
            let seq = &mut running[idx];
            seq.granted += budget.take(seq.num_owed() - seq.granted);
        }
    }
}
