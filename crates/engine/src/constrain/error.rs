//! Why something does not compile, sorted by whose fault it is.

use std::time::Duration;

/// Why a form has no constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A part of a schema is malformed, unsupported or too large.
    #[error("{reason}")]
    Schema {
        /// Where, from the schema's root: `properties.size.format`; empty for the schema as a whole.
        path: String,
        /// What is wrong there, as in "is not supported".
        reason: String,
    },
    /// A regular expression, list or grammar is malformed, unsupported or too large.
    #[error("{reason}")]
    Grammar {
        /// What is wrong with it.
        reason: String,
    },
    /// It is well-formed, but its automaton would be too large.
    #[error("is too complex: {reason}")]
    TooComplex {
        /// Which bound it met.
        reason: String,
    },
    /// It took too long.
    #[error("is too complex: it did not compile within {} ms", limit.as_millis())]
    TooSlow {
        /// The bound.
        limit: Duration,
    },
    /// Too much else is being compiled.
    #[error("{num_compiling} grammars are being compiled already")]
    Busy {
        /// How many.
        num_compiling: usize,
    },
    /// The vocabulary cannot be used, or there is no thread.
    #[error("constrained output is not available: {reason}")]
    Unavailable {
        /// Why, for the log.
        reason: String,
    },
}

/// Bytes of other people's words that a reason repeats.
const QUOTED_BYTES_MAX: usize = 300;

/// The line of an error that says most, cut where it gets long: it may quote what the caller sent.
pub(super) fn in_short(error: &str) -> String {
    // A regular expression's fault is named last, below a drawing of where it is.
    let cause = error
        .lines()
        .find_map(|line| line.trim().strip_prefix("error: "));
    let line = cause.or(error.lines().next()).unwrap_or_default().trim();
    let mut end = line.len().min(QUOTED_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line[..end].to_owned()
}
