//! The metadata section: keys in file order, an index by name, typed look-ups.

use std::collections::HashMap;

use super::error::{GgufError, Place};
use super::reader::Reader;
use super::tensors::read_name;
use super::value::{FromValue, RawValue, Value};
use crate::Limits;

/// Checked keys and where their values lie. Look-ups are given the file they were read from.
#[derive(Debug)]
pub(super) struct Metadata {
    entries: Vec<(String, RawValue)>,
    idx_by_key: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn read(
        reader: &mut Reader<'_>,
        num_keys: u64,
        limits: &Limits,
    ) -> Result<Metadata, GgufError> {
        let mut entries = Vec::new();
        let mut idx_by_key = HashMap::new();
        for idx in 0..num_keys {
            let key = read_name(reader, || Place::KeyAt(idx), limits)?;
            let value = RawValue::read(reader, &key, limits)?;
            if idx_by_key.insert(key.clone(), entries.len()).is_some() {
                return Err(GgufError::Duplicate {
                    place: Place::Key(key),
                });
            }
            entries.push((key, value));
        }
        Ok(Metadata {
            entries,
            idx_by_key,
        })
    }

    pub(super) fn iter<'a>(
        &'a self,
        file: &'a [u8],
    ) -> impl ExactSizeIterator<Item = (&'a str, Value<'a>)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value.value(file)))
    }

    pub(super) fn get<'a>(&self, file: &'a [u8], key: &str) -> Option<Value<'a>> {
        let idx = *self.idx_by_key.get(key)?;
        Some(self.entries[idx].1.value(file))
    }

    pub(super) fn find<'a, T: FromValue<'a>>(
        &self,
        file: &'a [u8],
        key: &str,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(file, key) else {
            return Ok(None);
        };
        match T::from_value(value) {
            Some(wanted) => Ok(Some(wanted)),
            None => Err(GgufError::WrongType {
                key: key.to_owned(),
                expected: T::EXPECTED,
                found: value.describe(),
            }),
        }
    }
}
