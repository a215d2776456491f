//! Why a safetensors file or index was refused, naming the tensor or shard at fault.
//!
//! Sorted by fault: the machine, a broken file, a broken index, a sound file that lacks what was asked for. Names
//! come from the file, so they are printed quoted and escaped.

use std::io;
use std::path::PathBuf;

/// Why a safetensors file, or something in it, was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The fields are what the message says.
pub enum SafetensorsError {
    // The machine.
    /// A file could not be opened or mapped.
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// A file could not be written, for example because the disk is full. Nothing is left behind.
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },

    // A broken file.
    /// The file ends before what it declares.
    #[error("file is truncated: {place} needs {needed_bytes} bytes, {available_bytes} are left")]
    Truncated {
        place: String,
        needed_bytes: u64,
        available_bytes: u64,
    },
    /// The header's length is above its bound in [`Limits`](crate::Limits).
    #[error("{place} of {found} bytes is over the limit of {limit}")]
    OverLimit {
        place: &'static str,
        found: u64,
        limit: u64,
    },
    /// The header is no JSON, or not the JSON it should be: wrong types, duplicate names, too many tensors.
    #[error("header is not valid")]
    Header { source: serde_json::Error },
    /// An element type we do not know.
    #[error(
        "tensor {tensor:?} has unknown type {dtype:?}; known are {}",
        super::Dtype::list()
    )]
    UnknownDtype { tensor: String, dtype: String },
    /// A range that ends before it starts.
    #[error("tensor {tensor:?} has data from byte {start} to {end}, which is backwards")]
    Backwards {
        tensor: String,
        start: u64,
        end: u64,
    },
    /// Shape and range disagree, or the size of the shape overflows.
    #[error(
        "tensor {tensor:?} of type {dtype} and shape {shape:?} does not take the {num_bytes} bytes it is given"
    )]
    SizeMismatch {
        tensor: String,
        dtype: super::Dtype,
        shape: Vec<u64>,
        num_bytes: u64,
    },
    /// Data that belongs to two tensors, or to none: the specification allows neither.
    #[error(
        "tensor {tensor:?} starts at byte {found} of the data, but what comes before it ends at {expected}"
    )]
    NotContiguous {
        tensor: String,
        expected: u64,
        found: u64,
    },
    /// Bytes after the last tensor.
    #[error("{num_bytes} bytes after the last tensor belong to none")]
    TrailingBytes { num_bytes: u64 },

    // A broken index.
    /// The index is no JSON, or not the JSON it should be.
    #[error("index is not valid")]
    Index { source: serde_json::Error },
    /// A shard name that is not the plain name of a file beside the index.
    #[error("index names shard {shard:?} for tensor {tensor:?}; only plain file names are allowed")]
    ShardName { shard: String, tensor: String },
    /// A shard that cannot be opened.
    #[error("shard {shard:?}, named by the index for tensor {tensor:?}, cannot be opened")]
    ShardMissing {
        shard: String,
        tensor: String,
        source: io::Error,
    },
    /// A shard that is itself broken.
    #[error("shard {shard:?} is not sound")]
    Shard {
        shard: String,
        source: Box<SafetensorsError>,
    },
    /// More shards than any model has.
    #[error("index names {found} shards, over the limit of {limit}")]
    TooManyShards { found: usize, limit: usize },
    /// A tensor is not in the shard that the index names.
    #[error("tensor {tensor:?} is not in shard {shard:?}, where the index says it is")]
    NotInShard { tensor: String, shard: String },

    // A sound file.
    /// A tensor is absent.
    #[error("tensor {tensor:?} is missing")]
    MissingTensor { tensor: String },
}
