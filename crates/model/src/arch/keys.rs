//! The description of one model, read with bounds.
//!
//! The one idea: a key that is missing or wrong is noted, and a harmless stand-in returned,
//! so that an architecture file is a plain list of what it wants and still every fault of
//! a file comes out at once. A spec built from stand-ins never leaves [`super::describe`].
//!
//! Keys have their GGUF names everywhere; where the description is a `config.json`, `store.rs` knows what
//! they are called there. So a family is read by one function from both.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::store::{Fact, Store};
use crate::inventory::Role;
use crate::naming::Naming;
use crate::refusal::{Dims, Refusal};
use crate::spec::{LIMITS, NormPlacement, RopeDivisors, RopeScaling, Yarn};

/// A description's keys, and what is wrong with them.
pub(crate) struct Keys<'a> {
    pub(super) store: Store<'a>,
    architecture: &'static str,
    pub(super) naming: Naming,
    /// Keys asked for, to report the others. In a cell because asking changes no answer.
    read: RefCell<BTreeSet<String>>,
    refusals: Vec<Refusal>,
    /// Values that are sound one by one and contradict each other. Told only if nothing else is
    /// wrong: with a stand-in among them they would be false.
    contradictions: Vec<Refusal>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(store: Store<'a>, architecture: &'static str) -> Keys<'a> {
        Keys {
            naming: Naming::of(store.source()),
            store,
            architecture,
            read: RefCell::default(),
            refusals: Vec::new(),
            contradictions: Vec::new(),
        }
    }

    pub(super) fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// Whether the description is a `config.json`.
    pub(super) fn is_config(&self) -> bool {
        matches!(self.store, Store::Config(_))
    }

    pub(super) fn into_refusals(self) -> Vec<Refusal> {
        if self.refusals.is_empty() {
            self.contradictions
        } else {
            self.refusals
        }
    }

    /// Keys of this architecture that nothing asked for.
    pub(super) fn unread(&self) -> Vec<String> {
        let read = self.read.borrow();
        let mut keys = self.store.keys();
        keys.retain(|key| !read.contains(key));
        keys
    }

    /// Whether a key was asked for.
    pub(super) fn was_read(&self, key: &str) -> bool {
        self.read.borrow().contains(&self.full(key))
    }

    /// A whole number within `bounds`.
    pub(super) fn count(&mut self, key: &str, bounds: RangeInclusive<usize>) -> usize {
        let stand_in = *bounds.start();
        match self.value(key) {
            Some(_) => self.optional_count(key, bounds).unwrap_or(stand_in),
            None => {
                self.refusals.push(Refusal::MissingKey {
                    key: self.full(key),
                });
                stand_in
            }
        }
    }

    /// A whole number within `bounds`, or `default` if the key is missing.
    pub(super) fn count_or(
        &mut self,
        key: &str,
        bounds: RangeInclusive<usize>,
        default: usize,
    ) -> usize {
        self.optional_count(key, bounds).unwrap_or(default)
    }

    /// A whole number within `bounds`, if the key is there.
    pub(super) fn optional_count(
        &mut self,
        key: &str,
        bounds: RangeInclusive<usize>,
    ) -> Option<usize> {
        let value = self.value(key)?;
        let whole = match value {
            Fact::Integer(number) => usize::try_from(number).ok(),
            _ => None,
        };
        if let Some(number) = whole.filter(|number| bounds.contains(number)) {
            return Some(number);
        }
        let expected = format!("a whole number in {}..={}", bounds.start(), bounds.end());
        self.refuse_value(key, expected, value.describe());
        Some(*bounds.start())
    }

    /// A number within `bounds`.
    pub(super) fn number(&mut self, key: &str, bounds: RangeInclusive<f32>) -> f32 {
        let stand_in = *bounds.start();
        if self.value(key).is_none() {
            self.refusals.push(Refusal::MissingKey {
                key: self.full(key),
            });
        }
        self.optional_number(key, bounds).unwrap_or(stand_in)
    }

    /// A number within `bounds`, if the key is there.
    pub(super) fn optional_number(
        &mut self,
        key: &str,
        bounds: RangeInclusive<f32>,
    ) -> Option<f32> {
        let value = self.value(key)?;
        let number = match value {
            Fact::Number(number) => Some(number as f32),
            // A whole number is written without a point in JSON.
            Fact::Integer(number) if self.is_config() => Some(number as f32),
            _ => None,
        };
        // Not-a-number is in no range.
        if let Some(number) = number.filter(|number| bounds.contains(number)) {
            return Some(number);
        }
        let expected = format!("a number in {:?}..={:?}", bounds.start(), bounds.end());
        self.refuse_value(key, expected, value.describe());
        Some(*bounds.start())
    }

    /// Notes a value that contradicts another.
    pub(super) fn refuse_contradiction(&mut self, key: &str, expected: String, actual: usize) {
        let actual = actual.to_string();
        self.contradictions.push(Refusal::BadValue {
            key: self.full(key),
            expected,
            actual,
        });
    }

    /// Notes a feature that no decoder here computes, by the key's own name.
    pub(super) fn refuse_feature(&mut self, key: &str, value: String, supported: &'static str) {
        let refusal = Refusal::UnsupportedFeature {
            key: self.full(key),
            value,
            supported,
        };
        self.refusals.push(refusal);
    }

    /// Notes that a key is missing.
    pub(super) fn refuse_missing(&mut self, key: &str) {
        let key = self.full(key);
        self.refusals.push(Refusal::MissingKey { key });
    }

    pub(super) fn refuse_value(&mut self, key: &str, expected: String, actual: String) {
        self.refusals.push(Refusal::BadValue {
            key: self.full(key),
            expected,
            actual,
        });
    }

    /// Notes a feature asked for by `key` that no decoder here computes. Zero and `false` ask for nothing.
    pub(super) fn refuse_if_set(&mut self, key: &str, supported: &'static str) {
        let Some(value) = self.value(key) else { return };
        let is_off = match value {
            Fact::Flag(on) => !on,
            Fact::Number(number) => number == 0.0,
            Fact::Integer(number) => number == 0,
            Fact::Text(_) | Fact::List | Fact::Odd(_) => false,
        };
        if !is_off {
            self.refuse_feature(key, value.describe(), supported);
        }
    }

    /// A flag, or `default` if the key is missing.
    pub(super) fn flag_or(&mut self, key: &str, default: bool) -> bool {
        match self.value(key) {
            None => default,
            Some(Fact::Flag(on)) => on,
            Some(other) => {
                self.refuse_value(key, "true or false".to_owned(), other.describe());
                default
            }
        }
    }

    /// A word, if the key is there.
    pub(super) fn word(&mut self, key: &str) -> Option<String> {
        match self.value(key)? {
            Fact::Text(text) => Some(text),
            other => {
                self.refuse_value(key, "a string".to_owned(), other.describe());
                None
            }
        }
    }

    /// Rows of the embedding: the one statement of the vocabulary that all files make.
    pub(super) fn vocab(&mut self) -> usize {
        // No tensor at all is reported by the inventory, with its shape.
        let embedding = self.naming.name(Role::Embedding, NormPlacement::Before);
        let dims = self.store.source().dims(&embedding);
        let rows = dims.and_then(|dims| dims.get(1).copied()).unwrap_or(1);
        let stated = self.count_or("vocab_size", 1..=LIMITS.vocab_max, rows);
        if stated != rows {
            let expected = format!("{rows}, the rows of `{embedding}`");
            self.refuse_contradiction("vocab_size", expected, stated);
        }
        if rows > LIMITS.vocab_max {
            let expected = format!("at most {} rows in `{embedding}`", LIMITS.vocab_max);
            self.refuse_contradiction("vocab_size", expected, rows);
        }
        rows
    }

    /// Whether something plays a role, whatever its tensor is called.
    pub(super) fn has(&self, role: Role) -> bool {
        let name = self.naming.name(role, NormPlacement::Before);
        self.store.source().has_tensor(&name)
    }

    /// The values of a small tensor of floats, `[len]`, of which every one is within `bounds`.
    pub(super) fn divisors(&mut self, name: &str, len: usize) -> Vec<f32> {
        let bounds = LIMITS.rope_divisor;
        let name = name.to_owned();
        let Some(dims) = self.store.source().dims(&name) else {
            let dims = Dims(vec![len]);
            self.refusals.push(Refusal::MissingTensor { name, dims });
            return vec![1.0; len];
        };
        let Ok(values) = self.store.floats(&name, len) else {
            let (expected, actual) = (Dims(vec![len]), Dims(dims));
            self.refusals.push(Refusal::TensorShape {
                name,
                expected,
                actual,
            });
            return vec![1.0; len];
        };
        let Some(idx) = values.iter().position(|value| !bounds.contains(value)) else {
            return values;
        };
        self.refusals.push(Refusal::TensorValue {
            name,
            idx,
            value: values[idx].to_string(),
            expected: format!("a number in {:?}..={:?}", bounds.start(), bounds.end()),
        });
        vec![1.0; len]
    }

    /// Leading values of a head that rotate: all, unless the file says fewer.
    pub(super) fn rope_dims(&mut self, head_dim: usize) -> usize {
        let num_dims = self.count_or("rope.dimension_count", 2..=LIMITS.head_dim_max, head_dim);
        if num_dims > head_dim || !num_dims.is_multiple_of(2) {
            let expected = format!("an even number up to the head width {head_dim}");
            self.refuse_contradiction("rope.dimension_count", expected, num_dims);
        }
        num_dims
    }

    /// Base of a rotation's frequencies.
    pub(super) fn rope_base(&mut self, key: &str, default: f32) -> f32 {
        self.optional_number(key, LIMITS.rope_base)
            .unwrap_or(default)
    }

    /// How the context was stretched. Kinds we do not compute are refused by name.
    pub(super) fn rope_scaling(&mut self) -> RopeScaling {
        // An older key for linear scaling, still found in files.
        let old_factor = self.optional_number("rope.scale_linear", LIMITS.rope_factor);
        let Some(kind) = self.word("rope.scaling.type") else {
            return old_factor.map_or(RopeScaling::None, linear);
        };
        match kind.as_str() {
            "none" => RopeScaling::None,
            // A matter of divisors, which have tensors of their own: the family asks for them.
            "longrope" if self.architecture == "phi3" => RopeScaling::None,
            "linear" => linear(match old_factor {
                Some(factor) => factor,
                None => self.number("rope.scaling.factor", LIMITS.rope_factor),
            }),
            "yarn" => RopeScaling::Yarn(self.yarn()),
            other => {
                self.refuse_feature(
                    "rope.scaling.type",
                    format!("{other:?}"),
                    "none, linear, yarn",
                );
                RopeScaling::None
            }
        }
    }

    fn yarn(&mut self) -> Yarn {
        const KEY: &str = "rope.scaling.yarn_ext_factor";
        if let Some(mix) = self
            .optional_number(KEY, 0.0..=f32::MAX)
            .filter(|mix| *mix != 1.0)
        {
            let expected = "1, a full ramp between kept and stretched frequencies".to_owned();
            self.refuse_value(KEY, expected, mix.to_string());
        }
        let factor = self.number("rope.scaling.factor", LIMITS.rope_factor);
        let original_context = self.count(
            "rope.scaling.original_context_length",
            1..=LIMITS.context_max,
        );
        let mut multiplier = |key: &str, default| {
            self.optional_number(&format!("rope.scaling.{key}"), LIMITS.multiplier)
                .unwrap_or(default)
        };
        Yarn {
            factor,
            original_context,
            beta_fast: multiplier("yarn_beta_fast", 32.0),
            beta_slow: multiplier("yarn_beta_slow", 1.0),
            magnitude: multiplier("attn_factor", 1.0) * multiplier("yarn_attn_factor", 1.0),
        }
    }

    /// Whether the file brings divisors of the frequencies.
    pub(super) fn rope_divisors(&self) -> RopeDivisors {
        if self.has(Role::RopeDivisors) {
            RopeDivisors::FromFile
        } else {
            RopeDivisors::None
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<Fact> {
        let (full, value) = self.store.find(key);
        self.read.borrow_mut().insert(full);
        value
    }

    fn full(&self, key: &str) -> String {
        self.store.find(key).0
    }
}

fn linear(factor: f32) -> RopeScaling {
    RopeScaling::Linear { factor }
}
