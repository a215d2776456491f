//! GGUF v2 and v3: one file with metadata and tensors.
//!
//! ```text
//! | "GGUF" version num_tensors num_keys | key value … | name dims type offset … | pad | tensor data |
//! ```
//!
//! The one idea: everything up to the tensor data is walked and checked once, when the file is opened; after that
//! nothing can fail but asking for what is not there. Values and tensors are borrowed from the map.
//!
//! Not here: what a key or tensor is for; big-endian and split files, which are refused by name.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod error;
mod metadata;
mod reader;
mod tensors;
mod value;

use std::collections::HashMap;
use std::path::Path;

pub use error::{GgufError, Place};
pub use tensors::{Refusal, TensorEntry, TensorView};
pub use value::{Array, Elements, FromValue, Strings, Value, ValueType};

use crate::Limits;
use crate::mapped::FileBytes;
use metadata::Metadata;
use reader::Reader;
use tensors::read_table;
use value::check_limit;

/// Bytes of the smallest possible metadata entry: length, one letter, type, one byte.
const KEY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Bytes of the smallest possible tensor entry: length, one letter, axis count, one axis, type, offset.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// What the specification says if a file does not.
const ALIGNMENT_DEFAULT: u32 = 32;

/// An opened GGUF file, wholly checked but for the content of its tensors.
#[derive(Debug)]
pub struct Gguf {
    file: FileBytes,
    version: u32,
    alignment: u32,
    metadata: Metadata,
    tensors: Vec<TensorEntry>,
    idx_by_tensor: HashMap<String, usize>,
}

/// Opening.
impl Gguf {
    /// Maps a file and checks its header.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, is no GGUF file we read, is truncated or contradicts itself. A tensor of an
    /// unsupported type is not an error here: see [`Gguf::check_supported`].
    ///
    /// # Cost
    ///
    /// Reads the header once, no tensor data: milliseconds even for a vocabulary of 262 144 tokens.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let file = FileBytes::map(path).map_err(|source| GgufError::Open {
            path: path.to_owned(),
            source,
        })?;
        Gguf::read(file, &Limits::STANDARD)
    }

    /// As [`Gguf::open`], for bytes in memory.
    ///
    /// # Errors
    ///
    /// As [`Gguf::open`].
    pub fn parse(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Gguf::parse_within(bytes, &Limits::STANDARD)
    }

    /// As [`Gguf::parse`], under other limits.
    ///
    /// # Errors
    ///
    /// As [`Gguf::open`].
    pub fn parse_within(bytes: Vec<u8>, limits: &Limits) -> Result<Gguf, GgufError> {
        Gguf::read(FileBytes::Owned(bytes), limits)
    }

    fn read(file: FileBytes, limits: &Limits) -> Result<Gguf, GgufError> {
        let bytes = file.as_slice();
        let mut reader = Reader::new(bytes);
        let header = read_header(&mut reader)?;

        check_count(
            &reader,
            Place::Keys,
            header.num_keys,
            limits.num_keys_max,
            KEY_BYTES_MIN,
        )?;
        let metadata = Metadata::read(&mut reader, header.num_keys, limits)?;
        let alignment = alignment_of(&metadata, bytes, limits)?;
        refuse_split(&metadata, bytes)?;

        check_count(
            &reader,
            Place::Tensors,
            header.num_tensors,
            limits.num_tensors_max,
            TENSOR_BYTES_MIN,
        )?;
        let tensors = read_table(&mut reader, header.num_tensors, alignment, limits)?;
        let idx_by_tensor = tensors
            .iter()
            .enumerate()
            .map(|(idx, tensor)| (tensor.name.clone(), idx))
            .collect();
        Ok(Gguf {
            version: header.version,
            alignment,
            metadata,
            tensors,
            idx_by_tensor,
            file,
        })
    }
}

/// Metadata.
impl Gguf {
    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What tensor offsets are multiples of, in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// All keys with their values, in file order.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, Value<'_>)> {
        self.metadata.iter(self.file.as_slice())
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.metadata.get(self.file.as_slice(), key)
    }

    /// The value of a key as a `T` ([`FromValue`] lists what that can be), or `None` if the key is absent.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), formats::gguf::GgufError> {
    /// # let gguf = formats::gguf::Gguf::open("model.gguf".as_ref())?;
    /// let base = gguf.find::<f32>("llama.rope.freq_base")?.unwrap_or(10_000.0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`GgufError::WrongType`] if the key has a value of another type.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        self.metadata.find(self.file.as_slice(), key)
    }

    /// The value of a key that must be there, as a `T`.
    ///
    /// # Errors
    ///
    /// [`GgufError::MissingKey`] or [`GgufError::WrongType`].
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.find(key)?.ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
        })
    }
}

/// Tensors.
impl Gguf {
    /// The tensor table in file order, with those we cannot read.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// Whether the file has a tensor of this name, readable or not.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.idx_by_tensor.contains_key(name)
    }

    /// The content of a tensor, or `None` if the file has none of this name.
    ///
    /// # Errors
    ///
    /// [`GgufError::UnsupportedType`] or [`GgufError::PartialBlock`] if its type is refused.
    pub fn find_tensor(&self, name: &str) -> Result<Option<TensorView<'_>>, GgufError> {
        match self.idx_by_tensor.get(name) {
            Some(&idx) => self.view(&self.tensors[idx]).map(Some),
            None => Ok(None),
        }
    }

    /// The content of a tensor that must be there.
    ///
    /// # Errors
    ///
    /// As [`Gguf::find_tensor`], and [`GgufError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, GgufError> {
        self.find_tensor(name)?
            .ok_or_else(|| GgufError::MissingTensor {
                tensor: name.to_owned(),
            })
    }

    /// Refuses the file if any of its tensors is of a type we do not read. To be called before serving it: a
    /// model that needs none of the refused tensors is not one anybody meant to load.
    ///
    /// # Errors
    ///
    /// That of the first tensor refused.
    pub fn check_supported(&self) -> Result<(), GgufError> {
        match self.refused().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Every tensor we cannot read, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&TensorEntry, GgufError)> {
        self.tensors.iter().filter_map(|tensor| match tensor.ty {
            Ok(_) => None,
            Err(refusal) => Some((tensor, tensor.refusal_error(refusal))),
        })
    }

    /// Gives the memory behind a tensor's content back to the system, once it has been repacked. The view stays
    /// valid: reading it again costs page faults, nothing else.
    pub fn forget(&self, tensor: &TensorView<'_>) {
        if let Some(&idx) = self.idx_by_tensor.get(tensor.name) {
            self.file.forget(self.tensors[idx].range.clone());
        }
    }

    fn view<'a>(&'a self, tensor: &'a TensorEntry) -> Result<TensorView<'a>, GgufError> {
        let ty = tensor.ty.map_err(|refusal| tensor.refusal_error(refusal))?;
        let bytes = &self.file.as_slice()[tensor.range.clone()];
        Ok(TensorView {
            name: &tensor.name,
            dims: &tensor.dims,
            ty,
            bytes,
        })
    }
}

struct Header {
    version: u32,
    num_tensors: u64,
    num_keys: u64,
}

fn read_header(reader: &mut Reader<'_>) -> Result<Header, GgufError> {
    let magic = reader
        .array::<4>()
        .map_err(|short| short.at(Place::Header))?;
    if &magic != b"GGUF" {
        return Err(GgufError::NotGguf { found: magic });
    }
    let version = reader.u32().map_err(|short| short.at(Place::Header))?;
    match version {
        2 | 3 => (),
        // A small number written the other way round.
        _ if version != 0 && version.trailing_zeros() >= 16 => return Err(GgufError::BigEndian),
        _ => return Err(GgufError::Version { version }),
    }
    let num_tensors = reader.u64().map_err(|short| short.at(Place::Header))?;
    let num_keys = reader.u64().map_err(|short| short.at(Place::Header))?;
    Ok(Header {
        version,
        num_tensors,
        num_keys,
    })
}

/// Checks a count of entries against its limit and against the bytes that are left, before anything is
/// read or allocated for them.
fn check_count(
    reader: &Reader<'_>,
    place: Place,
    count: u64,
    count_max: u64,
    bytes_each_min: u64,
) -> Result<(), GgufError> {
    check_limit(|| place.clone(), "entries", count, count_max)?;
    let needed_bytes = count.saturating_mul(bytes_each_min);
    let available_bytes = reader.bytes_left();
    if needed_bytes > available_bytes {
        return Err(GgufError::Truncated {
            place,
            needed_bytes,
            available_bytes,
        });
    }
    Ok(())
}

/// Only a `u32` will do: the specification says so, and a fallback would read the weights from the wrong place.
fn alignment_of(metadata: &Metadata, file: &[u8], limits: &Limits) -> Result<u32, GgufError> {
    let key = "general.alignment";
    match metadata.get(file, key) {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::U32(found)) if found.is_power_of_two() && found <= limits.alignment_max => {
            Ok(found)
        }
        Some(Value::U32(found)) => Err(GgufError::BadAlignment {
            found,
            limit: limits.alignment_max,
        }),
        Some(other) => Err(GgufError::WrongType {
            key: key.to_owned(),
            expected: "u32",
            found: other.describe(),
        }),
    }
}

fn refuse_split(metadata: &Metadata, file: &[u8]) -> Result<(), GgufError> {
    match metadata.find::<u64>(file, "split.count")? {
        Some(count) if count > 1 => Err(GgufError::Split { count }),
        _ => Ok(()),
    }
}
