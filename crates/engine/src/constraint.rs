//! What an answer must look like, one token at a time.
//!
//! The one idea: the engine knows no grammar. It asks which tokens may come next while the model
//! computes, and tells which one was chosen. Not here: how a schema, a regular expression or a grammar
//! becomes a [`Constraint`] (`constrain/`), or on which thread it is asked (`masks.rs`).

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use text::TokenId;

use crate::engine::panic_message;

/// The state of one constrained answer.
pub trait Constraint: Debug + Send {
    /// Sets bit `id % 32` of `allowed[id / 32]` for every token that may come next and clears all others.
    /// End tokens are among them if and only if the answer is complete as it stands.
    ///
    /// `allowed` has a bit for every token of the vocabulary.
    ///
    /// # Errors
    ///
    /// [`ConstraintError`]; the answer then ends with an error, never with output that breaks its rule.
    fn fill(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError>;

    /// Moves on by a token that [`Constraint::fill`] allowed.
    ///
    /// # Errors
    ///
    /// [`ConstraintError`] if the token was not allowed, or the state outgrew its bounds.
    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError>;

    /// Whether the answer is complete as it stands.
    fn is_complete(&mut self) -> bool;

    /// Whether the answer is complete and nothing but an end token may follow.
    fn is_exhausted(&mut self) -> bool;

    /// An independent copy in the same state, for a second answer to the same prompt.
    fn fork(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Box<dyn Constraint> {
        self.fork()
    }
}

/// Why an answer cannot go on within its constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the constraint cannot go on: {reason}")]
pub struct ConstraintError {
    /// In the words of whoever keeps the constraint.
    pub reason: String,
}

/// The constraint of one answer in the making, and the tokens it allows next.
///
/// Fails closed: without a fresh mask nothing may be chosen.
#[derive(Debug)]
pub(crate) struct Constrained {
    rule: Box<dyn Constraint>,
    /// One bit a token.
    allowed: Vec<u32>,
    filled: Result<(), ConstraintError>,
    ends: Ends,
}

/// The tokens that end a constrained answer, and from when on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// The model's own end tokens.
    pub(crate) end_tokens: Vec<TokenId>,
    /// The request's stop ids: they count as end tokens, so that none cuts an answer short.
    pub(crate) stop_ids: Vec<TokenId>,
    /// An answer of fewer tokens goes on if its constraint lets it.
    pub(crate) min_tokens: u32,
}

impl Constrained {
    /// For a vocabulary of `vocab` tokens.
    pub(crate) fn new(rule: Box<dyn Constraint>, ends: Ends, vocab: usize) -> Constrained {
        Constrained {
            rule,
            allowed: vec![0; vocab.div_ceil(32)],
            filled: Err(not_filled()),
            ends,
        }
    }

    /// Finds out which tokens may come next. A panic in the constraint is its answer's trouble alone.
    pub(crate) fn fill(&mut self, answer_idx: u32) {
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            self.rule.fill(&mut self.allowed)?;
            self.settle_ends(answer_idx)
        }));
        self.filled = attempt.unwrap_or_else(|panic| {
            Err(ConstraintError {
                reason: panic_message(&*panic),
            })
        });
    }

    /// End tokens and stop ids may be chosen where the answer is complete, and nowhere else; before
    /// `min_tokens` only if nothing else may.
    fn settle_ends(&mut self, answer_idx: u32) -> Result<(), ConstraintError> {
        let is_complete = self.rule.is_complete();
        let Constrained { allowed, ends, .. } = self;
        let all_ends = || ends.end_tokens.iter().chain(&ends.stop_ids);
        for token in all_ends() {
            if let Some(word) = allowed.get_mut(token.0 as usize / 32) {
                *word &= !(1 << (token.0 % 32));
            }
        }
        let may_go_on = allowed.iter().any(|&word| word != 0);
        if is_complete && !(may_go_on && answer_idx < ends.min_tokens) {
            for token in all_ends() {
                if let Some(word) = allowed.get_mut(token.0 as usize / 32) {
                    *word |= 1 << (token.0 % 32);
                }
            }
        }
        if !is_complete && !may_go_on {
            return Err(ConstraintError {
                reason: "no token of the vocabulary goes on with it".to_owned(),
            });
        }
        Ok(())
    }

    /// One bit a token, of those that may come next.
    pub(crate) fn allowed(&self) -> Result<&[u32], ConstraintError> {
        self.filled.clone()?;
        Ok(&self.allowed)
    }

    /// Moves on by a token that is no end of the answer.
    pub(crate) fn accept(&mut self, token: TokenId) -> Result<Progress, ConstraintError> {
        self.filled = Err(not_filled());
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            self.rule.accept(token)?;
            Ok(if self.rule.is_exhausted() {
                Progress::Exhausted
            } else if self.rule.is_complete() {
                Progress::Complete
            } else {
                Progress::Open
            })
        }));
        attempt.unwrap_or_else(|panic| {
            Err(ConstraintError {
                reason: panic_message(&*panic),
            })
        })
    }
}

/// How far a constrained answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something is missing.
    Open,
    /// It may end here.
    Complete,
    /// It must end here.
    Exhausted,
}

fn not_filled() -> ConstraintError {
    ConstraintError {
        reason: "its mask was not computed".to_owned(),
    }
}
