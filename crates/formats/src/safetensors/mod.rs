//! Safetensors: named tensors without metadata to speak of, in one file or several.
//!
//! ```text
//! | header length (8) | {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …} | data |
//! ```
//!
//! The one idea is that of [`gguf`](crate::gguf): the header is checked once, on opening, and views cannot fail. An
//! index is a list of such files with one name space.
//!
//! Read by our own code and not the `safetensors` crate, because refusals have to name the tensor at fault, and because
//! of two tensors of one name that crate silently keeps the last.
//!
//! Not here: `config.json` and whatever else lies beside the weights.
//!
//! Source: <https://github.com/huggingface/safetensors#format>.

mod error;
mod header;
mod index;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

pub use error::SafetensorsError;
pub use write::{NewTensor, write_safetensors};

use crate::mapped::FileBytes;
use crate::{GgmlType, Limits};

/// One safetensors file, or all files of an index, wholly checked but for the content of the tensors.
#[derive(Debug)]
pub struct Safetensors {
    shards: Vec<FileBytes>,
    tensors: Vec<TensorEntry>,
    idx_by_tensor: HashMap<String, usize>,
}

/// One tensor of the header.
#[derive(Clone, Debug)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape, slowest axis first: the last is the length of a row. Empty for a single value; may hold zeros.
    pub shape: Vec<usize>,
    shard_idx: usize,
    range: Range<usize>,
}

/// A tensor's content, borrowed from the file.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape, slowest axis first.
    pub shape: &'a [usize],
    /// Its values, little-endian, in any alignment.
    pub bytes: &'a [u8],
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8_E4M3,
    F8_E5M2,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

/// `(type, name, bytes per value)`.
const DTYPES: [(Dtype, &str, usize); 15] = [
    (Dtype::Bool, "BOOL", 1),
    (Dtype::U8, "U8", 1),
    (Dtype::I8, "I8", 1),
    (Dtype::F8_E4M3, "F8_E4M3", 1),
    (Dtype::F8_E5M2, "F8_E5M2", 1),
    (Dtype::U16, "U16", 2),
    (Dtype::I16, "I16", 2),
    (Dtype::F16, "F16", 2),
    (Dtype::BF16, "BF16", 2),
    (Dtype::U32, "U32", 4),
    (Dtype::I32, "I32", 4),
    (Dtype::F32, "F32", 4),
    (Dtype::U64, "U64", 8),
    (Dtype::I64, "I64", 8),
    (Dtype::F64, "F64", 8),
];

impl Dtype {
    /// Its name in a header.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Bytes of one value.
    pub fn value_bytes(self) -> usize {
        self.row().2
    }

    /// The same type in GGML's terms, for [`dequantize`](crate::quant::dequantize); `None` if weights do not come
    /// in it.
    pub fn ggml_type(self) -> Option<GgmlType> {
        match self {
            Dtype::F32 => Some(GgmlType::F32),
            Dtype::F16 => Some(GgmlType::F16),
            Dtype::BF16 => Some(GgmlType::BF16),
            _ => None,
        }
    }

    fn from_name(name: &str) -> Option<Dtype> {
        DTYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    fn row(self) -> &'static (Dtype, &'static str, usize) {
        DTYPES
            .iter()
            .find(|row| row.0 == self)
            .expect("every variant has its row")
    }

    /// All names, for messages.
    fn list() -> String {
        DTYPES.map(|row| row.1).join(", ")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Safetensors {
    /// Maps a `.safetensors` file, or with a `.json` path the index of a sharded model and all its shards.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened, is truncated or contradicts itself, or if the index names a file that is not
    /// plainly beside it, or a tensor that is not there.
    ///
    /// # Cost
    ///
    /// Reads headers, no tensor data.
    pub fn open(path: &Path) -> Result<Safetensors, SafetensorsError> {
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            return index::open(path, &Limits::STANDARD);
        }
        let file = FileBytes::map(path).map_err(|source| SafetensorsError::Open {
            path: path.to_owned(),
            source,
        })?;
        Safetensors::single(file, &Limits::STANDARD)
    }

    /// As [`Safetensors::open`], for one file's bytes in memory.
    ///
    /// # Errors
    ///
    /// As [`Safetensors::open`].
    pub fn parse(bytes: Vec<u8>) -> Result<Safetensors, SafetensorsError> {
        Safetensors::parse_within(bytes, &Limits::STANDARD)
    }

    /// As [`Safetensors::parse`], under other limits.
    ///
    /// # Errors
    ///
    /// As [`Safetensors::open`].
    pub fn parse_within(bytes: Vec<u8>, limits: &Limits) -> Result<Safetensors, SafetensorsError> {
        Safetensors::single(FileBytes::Owned(bytes), limits)
    }

    fn single(file: FileBytes, limits: &Limits) -> Result<Safetensors, SafetensorsError> {
        let tensors = header::read(file.as_slice(), 0, limits)?;
        Ok(Safetensors::new(vec![file], tensors))
    }

    fn new(shards: Vec<FileBytes>, tensors: Vec<TensorEntry>) -> Safetensors {
        let idx_by_tensor = tensors
            .iter()
            .enumerate()
            .map(|(idx, tensor)| (tensor.name.clone(), idx))
            .collect();
        Safetensors {
            shards,
            tensors,
            idx_by_tensor,
        }
    }

    /// All tensors: by place in a file, by name with an index.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// The content of a tensor, or `None` if there is none of this name.
    pub fn find_tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let tensor = &self.tensors[*self.idx_by_tensor.get(name)?];
        let bytes = &self.shards[tensor.shard_idx].as_slice()[tensor.range.clone()];
        Some(TensorView {
            name: &tensor.name,
            dtype: tensor.dtype,
            shape: &tensor.shape,
            bytes,
        })
    }

    /// The content of a tensor that must be there.
    ///
    /// # Errors
    ///
    /// [`SafetensorsError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, SafetensorsError> {
        self.find_tensor(name)
            .ok_or_else(|| SafetensorsError::MissingTensor {
                tensor: name.to_owned(),
            })
    }

    /// Gives the memory behind a tensor's content back to the system, once it has been repacked. The view stays
    /// valid: reading it again costs page faults, nothing else.
    pub fn forget(&self, tensor: &TensorView<'_>) {
        if let Some(&idx) = self.idx_by_tensor.get(tensor.name) {
            let tensor = &self.tensors[idx];
            self.shards[tensor.shard_idx].forget(tensor.range.clone());
        }
    }
}
