//! Compiled forms by what they were made of, least recently used first to go.
//!
//! Kept automata are pristine: answers work on copies, so that no answer's trouble is another's.

use std::collections::{BTreeMap, HashMap};

use super::matcher::Automaton;

/// See the module.
pub(super) struct Cache {
    bytes_max: usize,
    num_bytes: usize,
    entries: HashMap<String, Entry>,
    /// Key by last use.
    by_use: BTreeMap<u64, String>,
    num_uses: u64,
}

struct Entry {
    automaton: Automaton,
    num_bytes: usize,
    last_use: u64,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache {
            bytes_max,
            num_bytes: 0,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            num_uses: 0,
        }
    }

    /// What was made of `key`, if it is still there.
    pub(super) fn get(&mut self, key: &str) -> Option<&Automaton> {
        let entry = self.entries.get_mut(key)?;
        self.num_uses += 1;
        let key = self.by_use.remove(&entry.last_use)?;
        entry.last_use = self.num_uses;
        self.by_use.insert(self.num_uses, key);
        Some(&entry.automaton)
    }

    /// How many were ever kept.
    #[cfg(test)]
    pub(super) fn num_compiled(&self) -> usize {
        self.entries.len()
    }

    /// Keeps `automaton`, and lets go of as much as its size demands. One that is larger than all of
    /// the cache is not kept.
    pub(super) fn insert(&mut self, key: String, automaton: Automaton) {
        // The key stands here twice.
        let num_bytes = automaton.num_bytes() + 2 * key.len();
        if num_bytes > self.bytes_max || self.entries.contains_key(&key) {
            return;
        }
        while self.num_bytes + num_bytes > self.bytes_max {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.num_bytes -= entry.num_bytes;
            }
        }
        self.num_uses += 1;
        self.num_bytes += num_bytes;
        self.by_use.insert(self.num_uses, key.clone());
        let entry = Entry {
            automaton,
            num_bytes,
            last_use: self.num_uses,
        };
        self.entries.insert(key, entry);
        debug_assert_eq!(self.entries.len(), self.by_use.len());
    }
}
