//! A writer of GGUF files that knows where every field went, so that a test can break exactly one.
//!
//! ```
//! use testkit::gguf::Builder;
//!
//! let mut file = Builder::new()
//!     .with("general.architecture", "llama")
//!     .tensor("w", &[4, 2], 0, vec![0; 32])
//!     .build();
//! file.set_u64("tensor[w].dims[1]", 1 << 42);
//! assert!(file.bytes.starts_with(b"GGUF"));
//! ```
//!
//! Fields are called `magic`, `version`, `num_tensors`, `num_keys`; `key[K].name_len`, `.name`, `.type`,
//! `.element`, `.len` (of arrays and strings), `.value`; `tensor[T].name_len`, `.name`, `.num_dims`, `.dims[i]`,
//! `.type`, `.offset`, `.data`; and `padding` before the data.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// A metadata value. `From` is there for the usual Rust types.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Vec<u8>),
    /// The type id of the elements, and the elements.
    Array(u32, Vec<Value>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// The id of the value's type in a file.
    pub fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => 7,
            Value::String(_) => 8,
            Value::Array(..) => 9,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
        }
    }
}

macro_rules! value_from {
    ($($ty:ty => $variant:ident, $id:literal;)*) => {$(
        impl From<$ty> for Value {
            fn from(value: $ty) -> Value {
                Value::$variant(value)
            }
        }
        impl From<Vec<$ty>> for Value {
            fn from(values: Vec<$ty>) -> Value {
                Value::Array($id, values.into_iter().map(Value::from).collect())
            }
        }
    )*};
}
value_from! {
    i8 => I8, 1;
    u16 => U16, 2;
    i16 => I16, 3;
    u32 => U32, 4;
    i32 => I32, 5;
    f32 => F32, 6;
    bool => Bool, 7;
    u64 => U64, 10;
    i64 => I64, 11;
    f64 => F64, 12;
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::String(value.as_bytes().to_vec())
    }
}

impl From<Vec<String>> for Value {
    fn from(values: Vec<String>) -> Value {
        Value::Array(
            8,
            values
                .iter()
                .map(|value| Value::from(value.as_str()))
                .collect(),
        )
    }
}

/// What a file will hold. Keys and tensors are written in the order they were added.
#[derive(Clone, Debug)]
pub struct Builder {
    version: u32,
    alignment: u64,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dims: Vec<u64>,
    type_id: u32,
    bytes: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// An empty file of version 3 with the usual alignment of 32 bytes.
    pub fn new() -> Builder {
        Builder {
            version: 3,
            alignment: 32,
            metadata: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Sets the version written. The layout stays that of versions 2 and 3.
    pub fn version(mut self, version: u32) -> Builder {
        self.version = version;
        self
    }

    /// Aligns tensor data to so many bytes, and says so in `general.alignment`.
    pub fn alignment(mut self, alignment: u32) -> Builder {
        assert!(
            alignment > 0,
            "to write a wrong alignment, set the field of the finished file"
        );
        self.alignment = u64::from(alignment);
        self.with("general.alignment", alignment)
    }

    /// Sets a key; replaces its value if it is there.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Builder {
        let value = value.into();
        match self.metadata.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a key even if it is there.
    pub fn with_duplicate(mut self, key: &str, value: impl Into<Value>) -> Builder {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// Removes a key.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub fn without(mut self, key: &str) -> Builder {
        let num_before = self.metadata.len();
        self.metadata.retain(|(known, _)| known != key);
        assert!(self.metadata.len() < num_before, "no key {key}");
        self
    }

    /// Adds a tensor. `dims[0]` is the length of a row. Nothing is checked.
    pub fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, bytes: Vec<u8>) -> Builder {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            type_id,
            bytes,
        });
        self
    }

    /// Removes a tensor.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub fn without_tensor(mut self, name: &str) -> Builder {
        let num_before = self.tensors.len();
        self.tensors.retain(|tensor| tensor.name != name);
        assert!(self.tensors.len() < num_before, "no tensor {name}");
        self
    }

    /// Adds a tensor that has shape, type and bytes of another.
    ///
    /// # Panics
    ///
    /// If there is no tensor `from`.
    pub fn copy_tensor(mut self, from: &str, to: &str) -> Builder {
        let original = self.tensors.iter().find(|tensor| tensor.name == from);
        let original = original.unwrap_or_else(|| panic!("no tensor {from}"));
        self.tensors.push(Tensor {
            name: to.to_owned(),
            ..original.clone()
        });
        self
    }

    /// Lays the file out.
    pub fn build(&self) -> File {
        let mut file = File {
            bytes: Vec::new(),
            fields: BTreeMap::new(),
        };
        file.push("magic", b"GGUF");
        file.push("version", &self.version.to_le_bytes());
        file.push("num_tensors", &(self.tensors.len() as u64).to_le_bytes());
        file.push("num_keys", &(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            let field = format!("key[{key}]");
            file.push_string(
                &format!("{field}.name_len"),
                &format!("{field}.name"),
                key.as_bytes(),
            );
            file.push(&format!("{field}.type"), &value.type_id().to_le_bytes());
            file.push_value(&field, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            offset = offset.next_multiple_of(self.alignment);
            file.push_tensor_entry(tensor, offset);
            offset += tensor.bytes.len() as u64;
        }
        for (idx, tensor) in self.tensors.iter().enumerate() {
            let padding = (file.bytes.len() as u64).next_multiple_of(self.alignment)
                - file.bytes.len() as u64;
            let padding_field = if idx == 0 {
                "padding".to_owned()
            } else {
                format!("padding[{idx}]")
            };
            file.push(&padding_field, &vec![0; padding as usize]);
            file.push(&format!("tensor[{}].data", tensor.name), &tensor.bytes);
        }
        file
    }

    /// Writes the file.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn write(&self, path: &Path) {
        self.build().write(path);
    }
}

/// A finished file, with the place of each of its fields.
#[derive(Clone, Debug)]
pub struct File {
    /// What will stand on disk.
    pub bytes: Vec<u8>,
    fields: BTreeMap<String, Range<usize>>,
}

impl File {
    /// Where a field lies.
    ///
    /// # Panics
    ///
    /// If there is no field of that name.
    pub fn field(&self, name: &str) -> Range<usize> {
        self.fields
            .get(name)
            .unwrap_or_else(|| panic!("no field {name}, only {:?}", self.fields.keys()))
            .clone()
    }

    /// Every field with its range.
    pub fn fields(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.fields
            .iter()
            .map(|(name, range)| (name.as_str(), range.clone()))
    }

    /// Overwrites a field with as many bytes.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or there is no such field.
    pub fn set(&mut self, name: &str, bytes: &[u8]) {
        let range = self.field(name);
        assert_eq!(range.len(), bytes.len(), "field {name} has another length");
        self.bytes[range].copy_from_slice(bytes);
    }

    /// Overwrites a 4-byte field.
    ///
    /// # Panics
    ///
    /// As [`File::set`].
    pub fn set_u32(&mut self, name: &str, value: u32) {
        self.set(name, &value.to_le_bytes());
    }

    /// Overwrites an 8-byte field.
    ///
    /// # Panics
    ///
    /// As [`File::set`].
    pub fn set_u64(&mut self, name: &str, value: u64) {
        self.set(name, &value.to_le_bytes());
    }

    /// Writes the file.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn push(&mut self, name: &str, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.fields.insert(name.to_owned(), start..self.bytes.len());
    }

    fn push_string(&mut self, len_field: &str, field: &str, bytes: &[u8]) {
        self.push(len_field, &(bytes.len() as u64).to_le_bytes());
        self.push(field, bytes);
    }

    fn push_value(&mut self, field: &str, value: &Value) {
        let value_field = format!("{field}.value");
        match value {
            Value::U8(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::I8(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::U16(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::I16(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::U32(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::I32(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::F32(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::Bool(value) => self.push(&value_field, &[u8::from(*value)]),
            Value::U64(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::I64(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::F64(value) => self.push(&value_field, &value.to_le_bytes()),
            Value::String(bytes) => self.push_string(&format!("{field}.len"), &value_field, bytes),
            Value::Array(element, values) => {
                self.push(&format!("{field}.element"), &element.to_le_bytes());
                self.push(
                    &format!("{field}.len"),
                    &(values.len() as u64).to_le_bytes(),
                );
                let start = self.bytes.len();
                for (idx, value) in values.iter().enumerate() {
                    self.push_value(&format!("{field}[{idx}]"), value);
                }
                self.fields.insert(value_field, start..self.bytes.len());
            }
        }
    }

    fn push_tensor_entry(&mut self, tensor: &Tensor, offset: u64) {
        let field = format!("tensor[{}]", tensor.name);
        self.push_string(
            &format!("{field}.name_len"),
            &format!("{field}.name"),
            tensor.name.as_bytes(),
        );
        self.push(
            &format!("{field}.num_dims"),
            &(tensor.dims.len() as u32).to_le_bytes(),
        );
        for (idx, dim) in tensor.dims.iter().enumerate() {
            self.push(&format!("{field}.dims[{idx}]"), &dim.to_le_bytes());
        }
        self.push(&format!("{field}.type"), &tensor.type_id.to_le_bytes());
        self.push(&format!("{field}.offset"), &offset.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_file_cover_it_without_gaps() {
        let file = Builder::new()
            .alignment(64)
            .with("text", "abc")
            .with("list", vec![1u32, 2])
            .tensor("a", &[3], 0, vec![1; 12])
            .tensor("b", &[1], 0, vec![2; 4])
            .build();
        let mut covered = vec![false; file.bytes.len()];
        for (_, range) in file.fields() {
            covered[range].fill(true);
        }
        assert!(covered.iter().all(|&covered| covered));
        assert_eq!(file.bytes[file.field("tensor[b].data")], [2; 4]);
        let start_of_data = file.field("tensor[a].data").start;
        assert_eq!(start_of_data % 64, 0);
        let offset = u64::from_le_bytes(
            file.bytes[file.field("tensor[b].offset")]
                .try_into()
                .unwrap(),
        );
        assert_eq!(
            file.field("tensor[b].data").start - start_of_data,
            offset as usize
        );
    }

    #[test]
    fn setting_a_field_changes_that_field_alone() {
        let sound = Builder::new().with("k", 7u32).build();
        let mut broken = sound.clone();
        broken.set_u32("key[k].value", 8);
        let changed: Vec<usize> = (0..sound.bytes.len())
            .filter(|&at| sound.bytes[at] != broken.bytes[at])
            .collect();
        assert_eq!(changed, [sound.field("key[k].value").start]);
    }
}
