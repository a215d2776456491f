//! Where a model comes from: a GGUF file, or a folder as Hugging Face keeps models.
//!
//! The one idea: both are a description and a table of named tensors. What keys and names
//! mean is said once each (`arch`, `naming.rs`); everything after that sees neither.
//!
//! Not here: tokenizers and templates, which lie in the same files (`text`).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use formats::GgmlType;
use formats::gguf::{self, Gguf};
use formats::safetensors::{Dtype, Safetensors};
use serde_json::{Map, Value};

use crate::load::LoadError;
use crate::refusal::Refusal;

/// Bytes of a `config.json` that are read; real ones have a few thousand.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// A model's files, opened and not loaded.
#[derive(Debug)]
pub enum Source {
    /// One GGUF file.
    Gguf(Gguf),
    /// `config.json` with safetensors.
    Folder(Folder),
}

/// A tensor as its file lists it: for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Its name.
    pub name: String,
    /// Its type, as `BF16`; of one that cannot be read, its name.
    pub ty: String,
    /// Its shape, fastest axis first.
    pub dims: Vec<usize>,
    /// Bytes in the file; 0 if nobody knows.
    pub num_bytes: usize,
}

/// A folder with `config.json` and `model.safetensors`, or an index of several.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    config: Map<String, Value>,
    tensors: Safetensors,
}

/// A [`Source`], a [`Gguf`] or a [`Folder`], borrowed.
#[derive(Clone, Copy, Debug)]
pub enum SourceRef<'a> {
    /// One GGUF file.
    Gguf(&'a Gguf),
    /// `config.json` with safetensors.
    Folder(&'a Folder),
}

impl Source {
    /// Opens a GGUF file, or a folder with `config.json` and safetensors; of a folder, the path of its configuration
    /// or of its weights will do as well.
    ///
    /// # Errors
    ///
    /// [`LoadError::File`], [`LoadError::Weights`] and [`LoadError::Config`].
    ///
    /// # Cost
    ///
    /// Reads descriptions, no weights.
    pub fn open(path: &Path) -> Result<Source, LoadError> {
        if path.is_dir() || is_named(path, ".json") || is_named(path, ".safetensors") {
            Folder::open(path).map(Source::Folder)
        } else {
            Ok(Source::Gguf(Gguf::open(path)?))
        }
    }

    /// The GGUF file, if it is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match self {
            Source::Gguf(file) => Some(file),
            Source::Folder(_) => None,
        }
    }

    /// The folder, if it is one.
    pub fn folder(&self) -> Option<&Folder> {
        match self {
            Source::Gguf(_) => None,
            Source::Folder(folder) => Some(folder),
        }
    }

    /// Every tensor, in the file's order.
    pub fn tensors(&self) -> Vec<StoredTensor> {
        let rows = SourceRef::from(self).table().into_iter().map(|entry| {
            let ty = entry.ty.map_or_else(|other| other, |ty| ty.to_string());
            StoredTensor {
                name: entry.name.to_owned(),
                ty,
                dims: entry.dims,
                num_bytes: entry.num_bytes,
            }
        });
        rows.collect()
    }
}

impl Folder {
    /// Opens `config.json` and the weights beside it. With the path of a `.json` file that one is read as the
    /// configuration, and with that of a `.safetensors` file or an index those weights are.
    ///
    /// # Errors
    ///
    /// [`LoadError::Config`] if the description is missing, too long, or no JSON object;
    /// [`LoadError::Weights`] if the weights are missing or not sound.
    pub fn open(path: &Path) -> Result<Folder, LoadError> {
        let is_weights = is_named(path, ".safetensors") || is_named(path, INDEX);
        let is_config = !is_weights && is_named(path, ".json");
        let folder = match is_weights || is_config {
            true => path.parent().unwrap_or(Path::new("")),
            false => path,
        };
        let config = match is_config {
            true => path.to_owned(),
            false => folder.join("config.json"),
        };
        let weights = match is_weights {
            true => path.to_owned(),
            false => find_weights(folder),
        };
        Ok(Folder {
            path: folder.to_owned(),
            config: read_config(&config)?,
            tensors: Safetensors::open(&weights)?,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The object in `config.json`.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }
}

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn is_named(path: &Path, ending: &str) -> bool {
    path.to_string_lossy().ends_with(ending)
}

/// One file if there is one: it is what the reference implementation looks for first.
fn find_weights(folder: &Path) -> PathBuf {
    let (single, index) = (folder.join(WEIGHTS), folder.join(INDEX));
    if !single.exists() && index.exists() {
        index
    } else {
        single
    }
}

fn read_config(path: &Path) -> Result<Map<String, Value>, LoadError> {
    let refuse = |reason: String| LoadError::Config {
        path: path.to_owned(),
        reason,
    };
    let mut text = Vec::new();
    // Before it is opened: opening a pipe would wait for somebody who writes to it.
    let file = std::fs::metadata(path).and_then(|metadata| match metadata.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is no file")),
    });
    file.and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(refuse(format!("it has more than {CONFIG_BYTES_MAX} bytes")));
    }
    match serde_json::from_slice(&text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err(refuse("it is no JSON object".to_owned())),
        Err(error) => Err(refuse(error.to_string())),
    }
}

impl<'a> From<&'a Source> for SourceRef<'a> {
    fn from(source: &'a Source) -> SourceRef<'a> {
        match source {
            Source::Gguf(file) => SourceRef::Gguf(file),
            Source::Folder(folder) => SourceRef::Folder(folder),
        }
    }
}

impl<'a> From<&'a Gguf> for SourceRef<'a> {
    fn from(file: &'a Gguf) -> SourceRef<'a> {
        SourceRef::Gguf(file)
    }
}

impl<'a> From<&'a Folder> for SourceRef<'a> {
    fn from(folder: &'a Folder) -> SourceRef<'a> {
        SourceRef::Folder(folder)
    }
}

/// A tensor's bytes as they are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawTensor<'a> {
    pub ty: GgmlType,
    pub bytes: &'a [u8],
}

/// One line of a tensor table.
#[derive(Debug)]
pub(crate) struct TableEntry<'a> {
    pub name: &'a str,
    /// Fastest axis first.
    pub dims: Vec<usize>,
    /// Its type's name if that can be read, else the reason.
    pub ty: Result<GgmlType, String>,
    pub num_bytes: usize,
}

impl<'a> SourceRef<'a> {
    /// Whether there is a tensor of this name.
    pub(crate) fn has_tensor(self, name: &str) -> bool {
        match self {
            SourceRef::Gguf(file) => file.has_tensor(name),
            SourceRef::Folder(folder) => folder.tensors.find_tensor(name).is_some(),
        }
    }

    /// A tensor's dimensions, fastest axis first.
    pub(crate) fn dims(self, name: &str) -> Option<Vec<usize>> {
        match self {
            SourceRef::Gguf(file) => {
                let found = file.tensors().iter().find(|tensor| tensor.name == name);
                found.map(|tensor| tensor.dims.clone())
            }
            SourceRef::Folder(folder) => {
                let tensor = folder.tensors.find_tensor(name)?;
                Some(tensor.shape.iter().rev().copied().collect())
            }
        }
    }

    /// The bytes of a tensor.
    pub(crate) fn raw(self, name: &str) -> Result<RawTensor<'a>, LoadError> {
        match self {
            SourceRef::Gguf(file) => {
                let view = file.tensor(name)?;
                Ok(RawTensor {
                    ty: view.ty,
                    bytes: view.bytes,
                })
            }
            SourceRef::Folder(folder) => {
                let view = folder.tensors.tensor(name)?;
                let ty = view
                    .dtype
                    .ggml_type()
                    .ok_or_else(|| LoadError::refused(unreadable(view.name, view.dtype)))?;
                Ok(RawTensor {
                    ty,
                    bytes: view.bytes,
                })
            }
        }
    }

    /// Gives the memory behind a tensor back to the system.
    pub(crate) fn forget(self, name: &str) {
        match self {
            SourceRef::Gguf(file) => {
                if let Ok(Some(view)) = file.find_tensor(name) {
                    file.forget(&view);
                }
            }
            SourceRef::Folder(folder) => {
                if let Some(view) = folder.tensors.find_tensor(name) {
                    folder.tensors.forget(&view);
                }
            }
        }
    }

    /// All tensors, in the file's order.
    pub(crate) fn table(self) -> Vec<TableEntry<'a>> {
        match self {
            SourceRef::Gguf(file) => file.tensors().iter().map(gguf_entry).collect(),
            SourceRef::Folder(folder) => {
                let views = folder.tensors.tensors().iter();
                let entry = |tensor: &'a formats::safetensors::TensorEntry| TableEntry {
                    name: &tensor.name,
                    dims: tensor.shape.iter().rev().copied().collect(),
                    ty: tensor
                        .dtype
                        .ggml_type()
                        .ok_or_else(|| tensor.dtype.to_string()),
                    num_bytes: tensor.shape.iter().product::<usize>() * tensor.dtype.value_bytes(),
                };
                views.map(entry).collect()
            }
        }
    }

    /// Tensors of types that nothing here reads.
    pub(crate) fn unreadable(self) -> Vec<Refusal> {
        match self {
            SourceRef::Gguf(file) => file
                .refused()
                .map(|(tensor, error)| Refusal::TensorType {
                    name: tensor.name.clone(),
                    reason: error.to_string(),
                })
                .collect(),
            SourceRef::Folder(folder) => folder
                .tensors
                .tensors()
                .iter()
                // Masks that old checkpoints stored; what has a place is compared by name.
                .filter(|tensor| tensor.dtype.ggml_type().is_none())
                .filter(|tensor| !matches!(tensor.dtype, Dtype::Bool | Dtype::U8))
                .map(|tensor| unreadable(&tensor.name, tensor.dtype))
                .collect(),
        }
    }
}

fn gguf_entry(tensor: &gguf::TensorEntry) -> TableEntry<'_> {
    let ty = match &tensor.ty {
        Ok(ty) => Ok(*ty),
        Err(gguf::Refusal::Type(ty)) => Err(ty.to_string()),
        Err(gguf::Refusal::PartialBlock(ty)) => Err(format!("{ty} in partial blocks")),
    };
    TableEntry {
        name: &tensor.name,
        dims: tensor.dims.clone(),
        ty,
        num_bytes: tensor.num_bytes(),
    }
}

fn unreadable(name: &str, dtype: Dtype) -> Refusal {
    Refusal::TensorType {
        name: name.to_owned(),
        reason: format!("tensor `{name}` has type {dtype}; weights are read as F32, F16 or BF16"),
    }
}
