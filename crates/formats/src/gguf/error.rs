//! Why a GGUF file was refused, naming the key or tensor at fault.
//!
//! Sorted by fault: the machine, a file of another kind, a broken file, a sound file we cannot use. Names come
//! from the file, so they are printed quoted and escaped: a message stays one line whatever they hold.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ggml::{GgmlType, SupportedList, UnsupportedType};

/// Why a GGUF file, or something in it, was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The fields are what the message says.
pub enum GgufError {
    // The machine.
    /// The file could not be opened or mapped.
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: io::Error },

    // Another kind of file.
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it begins with \"{}\" instead of \"GGUF\"", found.escape_ascii())]
    NotGguf { found: [u8; 4] },
    /// The version is byte-swapped: a file written for a big-endian machine.
    #[error("big-endian GGUF files are not supported")]
    BigEndian,
    /// Version 1 had 32-bit lengths and has not been written since August 2023; later ones are unknown.
    #[error("GGUF version {version} is not supported, only 2 and 3")]
    Version { version: u32 },
    /// One part of a model split over several files.
    #[error(
        "this is one of {count} parts of a split GGUF file (split.count); merge them into one file first"
    )]
    Split { count: u64 },

    // A broken file.
    /// The file ends before what it declares.
    #[error("file is truncated: {place} needs {needed_bytes} bytes, {available_bytes} are left")]
    Truncated {
        place: Place,
        needed_bytes: u64,
        available_bytes: u64,
    },
    /// A count or length above its bound in [`Limits`](crate::Limits).
    #[error("{place}: {found} is over the limit of {limit} {unit}")]
    OverLimit {
        place: Place,
        unit: &'static str,
        found: u64,
        limit: u64,
    },
    /// A key or tensor name that is empty or not UTF-8.
    #[error("{place} has an empty name or one that is not UTF-8")]
    BadName { place: Place },
    /// A value type id nobody knows.
    #[error("{place} has unknown value type {id}")]
    BadValueType { place: Place, id: u32 },
    /// An array of arrays: legal in the specification, used by nobody, a way to nest without end.
    #[error("{place} is an array of arrays, which is not supported")]
    NestedArray { place: Place },
    /// A boolean that is neither 0 nor 1.
    #[error("{place} holds {byte} where a boolean (0 or 1) must stand")]
    BadBool { place: Place, byte: u8 },
    /// The same key or tensor name twice.
    #[error("{place} appears twice")]
    Duplicate { place: Place },
    /// `general.alignment` is zero, not a power of two or too large.
    #[error("general.alignment is {found}, but must be a power of two up to {limit}")]
    BadAlignment { found: u32, limit: u32 },
    /// A dimension of zero, or no dimension at all.
    #[error("{place} has a dimension of zero, or none at all: {dims:?}")]
    EmptyTensor { place: Place, dims: Vec<u64> },
    /// Dimensions whose product, or whose size in bytes, does not fit.
    #[error("{place} has dimensions {dims:?}, whose size overflows")]
    SizeOverflow { place: Place, dims: Vec<u64> },
    /// An offset that is not a multiple of the alignment.
    #[error(
        "{place} starts at offset {offset}, which is not a multiple of the alignment {alignment}"
    )]
    Misaligned {
        place: Place,
        offset: u64,
        alignment: u32,
    },
    /// Two tensors share bytes. No writer does that, and it would let a small file claim endless weights.
    #[error("tensors {first:?} and {second:?} overlap")]
    Overlap { first: String, second: String },

    // A sound file that lacks or holds something we cannot use.
    /// A metadata key is absent.
    #[error("metadata key {key:?} is missing")]
    MissingKey { key: String },
    /// A metadata value of another type, or out of the range of the wanted one.
    #[error("metadata key {key:?}: expected {expected}, found {found}")]
    WrongType {
        key: String,
        expected: &'static str,
        found: String,
    },
    /// A tensor is absent.
    #[error("tensor {tensor:?} is missing")]
    MissingTensor { tensor: String },
    /// A tensor is stored in a type we do not read.
    #[error("tensor {tensor:?} has unsupported type {ty}; supported are {SupportedList}")]
    UnsupportedType { tensor: String, ty: UnsupportedType },
    /// A tensor's rows are not whole blocks of its type.
    #[error(
        "tensor {tensor:?} of type {} ({ty}) has rows of {row_len} values, not a multiple of its block of {}; \
         supported are whole blocks of {SupportedList}", ty.id(), ty.block_len()
    )]
    PartialBlock {
        tensor: String,
        ty: GgmlType,
        row_len: usize,
    },
}

/// What part of a file a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Magic, version and the two counts.
    Header,
    /// The list of metadata keys as a whole.
    Keys,
    /// A metadata key whose name is not known yet, counted from 0.
    KeyAt(u64),
    /// A metadata key.
    Key(String),
    /// The list of tensors as a whole.
    Tensors,
    /// A tensor whose name is not known yet, counted from 0.
    TensorAt(u64),
    /// A tensor.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => f.write_str("the header"),
            Place::Keys => f.write_str("the list of metadata keys"),
            Place::KeyAt(idx) => write!(f, "metadata key number {idx}"),
            Place::Key(key) => write!(f, "metadata key {key:?}"),
            Place::Tensors => f.write_str("the list of tensors"),
            Place::TensorAt(idx) => write!(f, "tensor number {idx}"),
            Place::Tensor(name) => write!(f, "tensor {name:?}"),
        }
    }
}
