//! A model's folder: its configuration as JSON, and its safetensors.
//!
//! The one idea: everything in it is hostile; sizes are bounded before anything is read, and shards are
//! looked for in the folder alone. Not here: what the configuration means (`arch`).

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use formats::safetensors::{Safetensors, SafetensorsError};
use serde_json::{Map, Value};

use super::SourceError;

/// Bytes of a file that describes a model. Real ones have some thousand; one with the names of
/// 100,000 labels a few million.
const JSON_BYTES_MAX: u64 = 8 << 20;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// An opened folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    config: Map<String, Value>,
    weights: Safetensors,
}

impl Folder {
    /// Opens the folder `path`, or the one of a `.json` configuration or a `.safetensors` file in it.
    pub(super) fn open(path: &Path) -> Result<Folder, SourceError> {
        let is_folder = path.is_dir();
        let folder = if is_folder {
            path
        } else {
            path.parent().unwrap_or(Path::new(""))
        };
        let is_weights = !is_folder && is_weights(path);
        let config = match is_folder || is_weights {
            true => folder.join(CONFIG),
            false => path.to_owned(),
        };
        let weights = match is_weights {
            true => path.to_owned(),
            false => find_weights(folder)?,
        };
        Ok(Folder {
            config: read_object(&config)?,
            weights: Safetensors::open(&weights).map_err(|source| weights_error(folder, source))?,
            path: folder.to_owned(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration: `config.json`.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// The JSON object in a file of the folder; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is too large, or is no JSON object.
    pub fn object(&self, name: &str) -> Result<Option<Map<String, Value>>, SourceError> {
        let path = self.path.join(name);
        match path.exists() {
            true => read_object(&path).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn weights(&self) -> &Safetensors {
        &self.weights
    }
}

/// An index is named like a configuration and lists weights.
fn is_weights(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
}

/// The single file if there is one: it is what transformers looks for first.
fn find_weights(folder: &Path) -> Result<PathBuf, SourceError> {
    let found = [WEIGHTS, INDEX].map(|name| folder.join(name));
    let found = found.into_iter().find(|path| path.exists());
    found.ok_or_else(|| SourceError::NoWeights {
        folder: folder.to_owned(),
    })
}

fn weights_error(folder: &Path, source: SafetensorsError) -> SourceError {
    SourceError::Weights {
        folder: folder.to_owned(),
        source,
    }
}

/// Reads a JSON object. Nesting is bounded by the parser, the rest by the size.
fn read_object(path: &Path) -> Result<Map<String, Value>, SourceError> {
    let read_error = |source| SourceError::Read {
        path: path.to_owned(),
        source,
    };
    // A pipe or a device would block or never end.
    let found = std::fs::metadata(path).map_err(read_error)?;
    if !found.is_file() {
        let reason = std::io::Error::other("not a regular file");
        return Err(read_error(reason));
    }
    if found.len() > JSON_BYTES_MAX {
        return Err(SourceError::TooLarge {
            path: path.to_owned(),
            found: found.len(),
            limit: JSON_BYTES_MAX,
        });
    }
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(JSON_BYTES_MAX).read_to_end(&mut text))
        .map_err(read_error)?;
    serde_json::from_slice(&text).map_err(|source| SourceError::Json {
        path: path.to_owned(),
        source,
    })
}
