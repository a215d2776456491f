//! Where a model's description and weights come from: a GGUF file, or a folder as Hugging Face
//! transformers writes it.
//!
//! The one idea: both are a description and a table of named tensors, so everything behind
//! this file (`inventory.rs`, `weights.rs`) sees one table with one way of writing shapes, and
//! only `arch` asks which kind it is.
//!
//! ```text
//! model.gguf                 metadata + tensors
//! folder/config.json         description
//!        model.safetensors   tensors, or
//!        model.safetensors.index.json + its shards
//! ```
//!
//! Not here: what a key or a tensor means; tokenizers and templates beside the weights.

mod folder;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use formats::GgmlType;
use formats::gguf::{Gguf, GgufError};
use formats::safetensors::SafetensorsError;

pub use self::folder::Folder;

/// An opened model: headers read and checked, no weights yet.
#[derive(Debug)]
pub struct Source {
    container: Container,
    tensors: Vec<StoredTensor>,
    idx_by_name: HashMap<String, usize>,
}

/// The two kinds of sources.
#[derive(Debug)]
pub enum Container {
    /// One file that holds everything.
    Gguf(Gguf),
    /// A folder with `config.json` and safetensors.
    Folder(Folder),
}

/// A row of the tensor table.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Its name.
    pub name: String,
    /// Its shape, the fastest-running axis first: `dims[0]` is the length of a row. Empty for a single value.
    pub dims: Vec<usize>,
    /// How its values are stored, or why nothing here reads them.
    pub ty: Result<GgmlType, UnreadableType>,
    /// Bytes in the file; 0 if nobody knows.
    pub num_bytes: usize,
}

impl StoredTensor {
    /// Number of values.
    pub fn num_values(&self) -> u64 {
        // Sound for what a file really holds; of an unreadable type nobody has checked the size.
        self.dims
            .iter()
            .fold(1, |product: u64, &dim| product.saturating_mul(dim as u64))
    }
}

/// An element type that weights are not read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableType {
    /// Its name as the file has it.
    pub name: String,
    /// Tensor, type and what would be read, in a sentence.
    pub reason: String,
}

/// A tensor's content, borrowed from its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub name: &'a str,
    /// The fastest-running axis first.
    pub dims: &'a [usize],
    pub ty: GgmlType,
    /// All rows, one after the other.
    pub bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Values in a row; 1 for a single value.
    pub(crate) fn row_len(&self) -> usize {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows, over all further axes.
    pub(crate) fn num_rows(&self) -> usize {
        self.dims.iter().skip(1).product()
    }

    /// The bytes of row `row_idx`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub(crate) fn row(&self, row_idx: usize) -> &'a [u8] {
        let row_bytes = self.bytes.len() / self.num_rows();
        &self.bytes[row_idx * row_bytes..(row_idx + 1) * row_bytes]
    }
}

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file of the folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There are no weights where they are looked for.
    #[error("{} holds neither model.safetensors nor model.safetensors.index.json", folder.display())]
    NoWeights {
        /// Where they are not.
        folder: PathBuf,
    },
    /// The file is not a sound GGUF file.
    #[error(transparent)]
    Gguf {
        /// What is wrong with it.
        #[from]
        source: GgufError,
    },
    /// The weights of the folder are not sound.
    #[error("the weights in {} cannot be used", folder.display())]
    Weights {
        /// Where they are.
        folder: PathBuf,
        /// What is wrong with them.
        source: SafetensorsError,
    },
    /// A file that describes the model is larger than any such file is.
    #[error("{} has {found} bytes, more than the limit of {limit}", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The largest that is read.
        limit: u64,
    },
    /// A file that describes the model is no JSON object.
    #[error("{} is not a JSON object", path.display())]
    Json {
        /// Which.
        path: PathBuf,
        /// Where it breaks.
        source: serde_json::Error,
    },
}

impl Source {
    /// Opens a GGUF file, a folder, or the folder of a `.json` or `.safetensors` file. With the
    /// path of a `.json` file, that file is read as the configuration instead of `config.json`; with
    /// that of a `.safetensors` file, only that file's tensors are.
    ///
    /// # Errors
    ///
    /// [`SourceError`].
    ///
    /// # Cost
    ///
    /// Reads headers, no weights.
    pub fn open(path: &Path) -> Result<Source, SourceError> {
        let is = |ending: &str| path.extension().is_some_and(|found| found == ending);
        if path.is_dir() || is("json") || is("safetensors") {
            return Ok(Source::from(Folder::open(path)?));
        }
        Ok(Source::from(Gguf::open(path)?))
    }

    /// Which kind it is.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// The GGUF file, if it is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.container {
            Container::Gguf(file) => Some(file),
            Container::Folder(_) => None,
        }
    }

    /// The folder, if it is one.
    pub fn folder(&self) -> Option<&Folder> {
        match &self.container {
            Container::Gguf(_) => None,
            Container::Folder(folder) => Some(folder),
        }
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// The tensor of this name, if there is one.
    pub(crate) fn stored(&self, name: &str) -> Option<&StoredTensor> {
        self.idx_by_name.get(name).map(|&idx| &self.tensors[idx])
    }

    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.idx_by_name.contains_key(name)
    }

    /// The content of a tensor, if it is there and its type is one we read.
    pub(crate) fn view(&self, name: &str) -> Option<View<'_>> {
        let stored = self.stored(name)?;
        let ty = *stored.ty.as_ref().ok()?;
        let bytes = match &self.container {
            Container::Gguf(file) => file.tensor(name).ok()?.bytes,
            Container::Folder(folder) => folder.weights().find_tensor(name)?.bytes,
        };
        Some(View {
            name: &stored.name,
            dims: &stored.dims,
            ty,
            bytes,
        })
    }

    /// Gives the memory behind a tensor's content back to the system, once it has been repacked.
    pub(crate) fn forget(&self, name: &str) {
        match &self.container {
            Container::Gguf(file) => {
                if let Ok(view) = file.tensor(name) {
                    file.forget(&view);
                }
            }
            Container::Folder(folder) => {
                if let Some(view) = folder.weights().find_tensor(name) {
                    folder.weights().forget(&view);
                }
            }
        }
    }

    fn new(container: Container, tensors: Vec<StoredTensor>) -> Source {
        let names = tensors.iter().map(|tensor| tensor.name.clone());
        Source {
            container,
            idx_by_name: names.zip(0..).collect(),
            tensors,
        }
    }
}

impl From<Gguf> for Source {
    fn from(file: Gguf) -> Source {
        let unreadable: HashMap<&str, String> = file
            .refused()
            .map(|(tensor, error)| (tensor.name.as_str(), error.to_string()))
            .collect();
        let stored = |tensor: &formats::gguf::TensorEntry| StoredTensor {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            ty: tensor.ty.map_err(|refusal| UnreadableType {
                name: match refusal {
                    formats::gguf::Refusal::Type(ty) => ty.to_string(),
                    formats::gguf::Refusal::PartialBlock(ty) => format!("{ty} in partial blocks"),
                },
                reason: unreadable
                    .get(tensor.name.as_str())
                    .cloned()
                    .unwrap_or_default(),
            }),
            num_bytes: tensor.num_bytes(),
        };
        let tensors = file.tensors().iter().map(stored).collect();
        Source::new(Container::Gguf(file), tensors)
    }
}

impl From<Folder> for Source {
    fn from(folder: Folder) -> Source {
        let stored = |tensor: &formats::safetensors::TensorEntry| StoredTensor {
            name: tensor.name.clone(),
            dims: tensor.shape.iter().rev().copied().collect(),
            ty: tensor.dtype.ggml_type().ok_or_else(|| UnreadableType {
                name: tensor.dtype.to_string(),
                reason: format!(
                    "tensor {:?} has type {}; weights are read from F32, F16 and BF16",
                    tensor.name, tensor.dtype
                ),
            }),
            num_bytes: tensor.shape.iter().product::<usize>() * tensor.dtype.value_bytes(),
        };
        let tensors = folder.weights().tensors().iter().map(stored).collect();
        Source::new(Container::Folder(folder), tensors)
    }
}
