//! References of a schema that come back to themselves without a value between.
//!
//! The one idea: such a schema says nothing, and its compiler would not end. A reference within a
//! property or an item may recurse, since a document ends somewhere.
//!
//! Not here: whether a reference points at anything (`schema.rs`).

use std::collections::HashMap;

use serde_json::Value;

use super::error::CompileError;
use super::schema::{Path, look_up};

/// Follows what bears on one value (`$ref`, `anyOf`, …) and refuses what comes back to itself: such a
/// schema says nothing, and its compiler would not end.
pub(super) struct Grounded<'a> {
    root: &'a Value,
    seen: HashMap<&'a str, Visit>,
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    Open,
    Done,
}

impl<'a> Grounded<'a> {
    pub(super) fn new(root: &'a Value) -> Grounded<'a> {
        Grounded {
            root,
            seen: HashMap::new(),
        }
    }

    /// Checks every reference within `value`.
    pub(super) fn check_all(&mut self, value: &'a Value, path: &Path) -> Result<(), CompileError> {
        match value {
            Value::Object(object) => {
                if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                    self.follow(reference, &path.key("$ref"))?;
                }
                for (key, value) in object {
                    self.check_all(value, &path.key(key))?;
                }
            }
            Value::Array(items) => {
                for (idx, item) in items.iter().enumerate() {
                    self.check_all(item, &path.idx(idx))?;
                }
            }
            _ => (),
        }
        Ok(())
    }

    fn follow(&mut self, reference: &'a str, path: &Path) -> Result<(), CompileError> {
        match self.seen.get(reference) {
            Some(Visit::Done) => return Ok(()),
            Some(Visit::Open) => {
                return path.refuse("comes back to itself without a value between");
            }
            None => (),
        }
        self.seen.insert(reference, Visit::Open);
        if let Some(target) = look_up(self.root, reference) {
            self.in_place(target, path)?;
        }
        self.seen.insert(reference, Visit::Done);
        Ok(())
    }

    fn in_place(&mut self, schema: &'a Value, path: &Path) -> Result<(), CompileError> {
        let Value::Object(object) = schema else {
            return Ok(());
        };
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            self.follow(reference, path)?;
        }
        for keyword in ["anyOf", "oneOf", "allOf"] {
            for branch in object
                .get(keyword)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.in_place(branch, path)?;
            }
        }
        Ok(())
    }
}
