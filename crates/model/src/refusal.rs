//! Why a model file cannot be served: one reason at a time, each naming its key or tensor.
//!
//! The one idea: reading a file's description gathers *all* reasons instead of stopping at
//! the first, so `fulcrum inspect` can list them and a user does not fix a file one error
//! at a time. Not here: broken files ([`formats`] refuses those before we look).

use std::fmt;

/// One reason against a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No decoder is known for this architecture.
    #[error("architecture `{name}` is not supported (supported: {supported})")]
    Architecture {
        /// What the file says.
        name: String,
        /// What would have been understood.
        supported: String,
    },

    /// A metadata key that the architecture needs is not there.
    #[error("metadata key `{key}` is missing")]
    MissingKey {
        /// Its full name.
        key: String,
    },

    /// A metadata value has the wrong type or is out of bounds.
    #[error("metadata key `{key}` is {actual}, expected {expected}")]
    BadValue {
        /// Its full name.
        key: String,
        /// What would have been accepted.
        expected: String,
        /// What stands there.
        actual: String,
    },

    /// The value is sound, and asks for something this decoder does not compute.
    #[error("metadata key `{key}` = {value}: not supported ({supported})")]
    UnsupportedFeature {
        /// Its full name.
        key: String,
        /// What it asks for.
        value: String,
        /// What would have been accepted.
        supported: &'static str,
    },

    /// A tensor that the architecture needs is not there.
    #[error("tensor `{name}` {dims} is missing")]
    MissingTensor {
        /// Its name.
        name: String,
        /// The shape it should have.
        dims: Dims,
    },

    /// A tensor does not have the shape that the metadata calls for.
    #[error("tensor `{name}` has shape {actual}, expected {expected}")]
    TensorShape {
        /// Its name.
        name: String,
        /// From the metadata.
        expected: Dims,
        /// From the tensor table.
        actual: Dims,
    },

    /// A tensor holds a number that would make every output not-a-number.
    #[error("tensor `{name}` holds {value} at index {idx}, expected {expected}")]
    TensorValue {
        /// Its name.
        name: String,
        /// Which element.
        idx: usize,
        /// The number.
        value: String,
        /// What would have been accepted.
        expected: String,
    },

    /// A weight is infinite or not a number, which would make every answer so.
    #[error("tensor `{name}` holds a value in row {row_idx} that is infinite or not a number")]
    NotFinite {
        /// Its name.
        name: String,
        /// The first such row.
        row_idx: usize,
    },

    /// Weights so large that no scale of 16 bits reaches them.
    #[error("tensor `{name}` holds values in row {row_idx} that are too large to be quantised")]
    TooLarge {
        /// Its name.
        name: String,
        /// The first such row.
        row_idx: usize,
    },

    /// A tensor is stored in a type that nothing here reads.
    #[error("{reason}")]
    TensorType {
        /// Its name.
        name: String,
        /// Name, type and the supported list, in a sentence.
        reason: String,
    },

    /// A tensor that the architecture has no place for. Leaving it out would compute
    /// another function than the one trained, without a word; so it is an error.
    #[error("tensor `{name}` {dims} has no place in architecture `{architecture}`")]
    UnexpectedTensor {
        /// Its name.
        name: String,
        /// Its shape.
        dims: Dims,
        /// The architecture without such a tensor.
        architecture: &'static str,
    },
}

/// A tensor's dimensions as GGUF lists them, the fastest-running first: `[576, 1536]` is 1536 rows of 576.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims(pub Vec<usize>);

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Several reasons as one message, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals(pub Vec<Refusal>);

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More than this many are counted, not listed: a wrong width repeats in every layer.
        const LISTED_MAX: usize = 8;
        for (idx, refusal) in self.0.iter().take(LISTED_MAX).enumerate() {
            let separator = if idx == 0 { "" } else { "; " };
            write!(f, "{separator}{refusal}")?;
        }
        match self.0.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            num_more => write!(f, "; and {num_more} more"),
        }
    }
}
