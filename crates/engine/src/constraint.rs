//! What an answer must look like, one token at a time.
//!
//! The one idea: the engine knows no grammar. It asks which tokens may come next while the model
//! computes, and tells which one was chosen. Not here: how a schema, a regular expression or a grammar
//! becomes a [`Constraint`].

use std::fmt::Debug;

use text::TokenId;

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
