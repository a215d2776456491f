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
    /// Of prompts whose every row is wanted, at most so many tokens are computed in a step.
    prompt_rows_max: usize,
    /// Steps divided so far, modulo [`PROMPT_SHARE`]: spreads the prompts' share over steps when
    /// the budget is not a multiple of it (or is 1).
    turn: usize,
    /// The oldest sequence that may have been passed over: answers go round from here.
    next_row: SeqId,
    /// Indices of sequences with prompts to compute; kept to reuse its memory.
    prompts: Vec<usize>,
}

impl Divider {
    pub(crate) fn new(step_tokens_max: usize, prompt_rows_max: usize) -> Divider {
        assert!(step_tokens_max > 0 && prompt_rows_max > 0);
        Divider {
            step_tokens_max,
            prompt_rows_max,
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
            if seq.num_due() > 1 {
                self.prompts.push(idx);
                prompt_tokens += useful(seq, self.prompt_rows_max);
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
        let (each, rest) = (
            self.step_tokens_max / PROMPT_SHARE,
            self.step_tokens_max % PROMPT_SHARE,
        );
        let before = rest * self.turn / PROMPT_SHARE;
        let after = rest * (self.turn + 1) / PROMPT_SHARE;
        self.turn = (self.turn + 1) % PROMPT_SHARE;
        each + after - before
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
            if seq.num_due() == 1 {
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
        let mut rows_left = self.prompt_rows_max;
        let mut grant = |seq: &mut Sequence, tokens_max: usize| {
            let taken = budget.take(tokens_max.min(useful(seq, rows_left)));
            seq.granted += taken;
            if seq.has_bounded_rows() {
                rows_left -= taken;
            }
        };
        grant(&mut running[oldest], half);
        self.prompts
            .sort_unstable_by_key(|&idx| (running[idx].num_owed(), idx));
        for &idx in &self.prompts {
            grant(&mut running[idx], usize::MAX);
        }
    }
}

/// Tokens that a sequence could be granted in a step beyond what it has, if there is room for
/// `rows_left` rows of prompts that want them all.
fn useful(seq: &Sequence, rows_left: usize) -> usize {
    let num_left = seq.num_due() - seq.granted;
    match seq.has_bounded_rows() {
        true => num_left.min(rows_left),
        false => num_left,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What sequences that owe so much are granted in each of the next steps.
    fn grants<const STEPS: usize>(step_tokens_max: usize, owed: &[usize]) -> [Vec<usize>; STEPS] {
        let mut divider = Divider::new(step_tokens_max, usize::MAX);
        let seq = |(id, &owed): (usize, &usize)| {
            Sequence::new(SeqId(id as u64), vec![0; owed], 1, Duration::ZERO)
        };
        let mut running: Vec<Sequence> = owed.iter().enumerate().map(seq).collect();
        [(); STEPS].map(|()| {
            divider.divide(&mut running);
            running.iter().map(|seq| seq.granted).collect()
        })
    }

    #[test]
    fn answers_come_first_and_prompts_share_the_rest() {
        for (owed, expected) in [
            (&[1, 1, 1][..], [1, 1, 1]),
            (&[20, 1, 1], [6, 1, 1]),
            (&[20, 20, 1], [7, 0, 1]),
            (&[20, 3, 1], [4, 3, 1]),
            (&[20, 19, 18], [4, 0, 4]),
            (&[2, 3, 20], [2, 3, 3]),
        ] {
            let [granted] = grants(8, owed);
            assert_eq!(granted, expected, "owed {owed:?}");
        }
    }

    #[test]
    fn a_quarter_is_kept_for_prompts_but_no_more_than_they_owe() {
        let mut owed = vec![1; 16];
        owed[0] = 2;
        let [granted] = grants(16, &owed);
        assert_eq!((granted[0], granted.iter().sum::<usize>()), (2, 16));
        owed[0] = 99;
        let [granted] = grants(16, &owed);
        assert_eq!((granted[0], granted.iter().sum::<usize>()), (4, 16));
    }

    #[test]
    fn a_budget_below_four_keeps_the_prompts_share_over_several_steps() {
        assert_eq!(
            grants::<4>(1, &[9, 1]),
            [[0, 1], [0, 1], [0, 1], [1, 0]],
            "one step in four"
        );
        let twice = grants::<8>(2, &[9, 1, 1]).map(|granted| granted[0]);
        assert_eq!(twice, [0, 1, 0, 1, 0, 1, 0, 1], "one token in four");
    }

    #[test]
    fn a_budget_without_end_gives_everybody_all_they_owe() {
        for granted in grants::<4>(usize::MAX, &[1, 20, 3]) {
            assert_eq!(granted, [1, 20, 3]);
        }
    }

    #[test]
    fn nobody_is_passed_over_twice_before_everybody_had_a_turn() {
        let rounds = grants::<5>(2, &[1, 1, 1, 1, 1]);
        let total: Vec<usize> = (0..5)
            .map(|idx| rounds.iter().map(|it| it[idx]).sum())
            .collect();
        assert_eq!(total, [2; 5]);
    }
}
