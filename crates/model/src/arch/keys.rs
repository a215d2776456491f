//! Metadata keys of one architecture, read with bounds.
//!
//! The one idea: a key that is missing or wrong is noted, and a harmless stand-in returned,
//! so that an architecture file is a plain list of what it wants and still every fault of
//! a file comes out at once. A spec built from stand-ins never leaves [`super::describe`].

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use formats::gguf::{Gguf, Value};

use crate::refusal::Refusal;
use crate::spec::{LIMITS, RopeDivisors, RopeScaling, Yarn};

const ARCHITECTURE_KEY: &str = "general.architecture";

/// The tensor of divisors of Llama 3's rotation.
pub(crate) const ROPE_DIVISORS: &str = "rope_freqs.weight";

/// The embedding matrix, which also says how large the vocabulary is.
pub(crate) const EMBEDDING: &str = "token_embd.weight";

/// The name of the file's architecture.
pub(super) fn architecture(file: &Gguf) -> Result<&str, Refusal> {
    let key = ARCHITECTURE_KEY.to_owned();
    match file.get(ARCHITECTURE_KEY) {
        None => Err(Refusal::MissingKey { key }),
        Some(value) => text(value).ok_or_else(|| Refusal::BadValue {
            key,
            expected: "a string".to_owned(),
            actual: value.describe(),
        }),
    }
}

/// A file's keys under `{architecture}.`, and what is wrong with them.
pub(crate) struct Keys<'a> {
    file: &'a Gguf,
    architecture: &'static str,
    /// Keys asked for, to report the others. In a cell because asking changes no answer.
    read: RefCell<BTreeSet<String>>,
    refusals: Vec<Refusal>,
    /// Values that are sound one by one and contradict each other. Told only if nothing else is
    /// wrong: with a stand-in among them they would be false.
    contradictions: Vec<Refusal>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(file: &'a Gguf, architecture: &'static str) -> Keys<'a> {
        Keys {
            file,
            architecture,
            read: RefCell::default(),
            refusals: Vec::new(),
            contradictions: Vec::new(),
        }
    }

    pub(super) fn architecture(&self) -> &'static str {
        self.architecture
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
        let prefix = format!("{}.", self.architecture);
        let read = self.read.borrow();
        self.file
            .metadata()
            .map(|(key, _)| key)
            .filter(|key| key.starts_with(&prefix) && !read.contains(*key))
            .map(str::to_owned)
            .collect()
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
        let whole = value
            .integer()
            .and_then(|number| usize::try_from(number).ok());
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
            Value::F32(number) => Some(number),
            Value::F64(number) => Some(number as f32),
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

    fn refuse_value(&mut self, key: &str, expected: String, actual: String) {
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
            Value::Bool(on) => !on,
            Value::F32(number) => number == 0.0,
            Value::F64(number) => number == 0.0,
            other => other.integer() == Some(0),
        };
        if !is_off {
            let refusal = Refusal::UnsupportedFeature {
                key: self.full(key),
                value: value.describe(),
                supported,
            };
            self.refusals.push(refusal);
        }
    }

    /// Rows of the embedding: the one statement of the vocabulary that all files make.
    pub(super) fn vocab(&mut self) -> usize {
        // No tensor at all is reported by the inventory, with its shape.
        let embedding = self
            .file
            .tensors()
            .iter()
            .find(|tensor| tensor.name == EMBEDDING);
        let rows = embedding
            .and_then(|tensor| tensor.dims.get(1).copied())
            .unwrap_or(1);
        let stated = self.count_or("vocab_size", 1..=LIMITS.vocab_max, rows);
        if stated != rows {
            let expected = format!("{rows}, the rows of `token_embd.weight`");
            self.refuse_contradiction("vocab_size", expected, stated);
        }
        if rows > LIMITS.vocab_max {
            let expected = format!("at most {} rows in `token_embd.weight`", LIMITS.vocab_max);
            self.refuse_contradiction("vocab_size", expected, rows);
        }
        rows
    }

    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.file.has_tensor(name)
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
        let kind = match self.value("rope.scaling.type") {
            None => return old_factor.map_or(RopeScaling::None, linear),
            Some(value) => value,
        };
        let Some(kind) = text(kind) else {
            self.refuse_value("rope.scaling.type", "a string".to_owned(), kind.describe());
            return RopeScaling::None;
        };
        match kind {
            "none" => RopeScaling::None,
            "linear" => linear(match old_factor {
                Some(factor) => factor,
                None => self.number("rope.scaling.factor", LIMITS.rope_factor),
            }),
            "yarn" => RopeScaling::Yarn(self.yarn()),
            other => {
                self.refusals.push(Refusal::UnsupportedFeature {
                    key: self.full("rope.scaling.type"),
                    value: format!("{other:?}"),
                    supported: "none, linear, yarn",
                });
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
        if self.has_tensor(ROPE_DIVISORS) {
            RopeDivisors::FromFile
        } else {
            RopeDivisors::None
        }
    }

    fn value(&self, key: &str) -> Option<Value<'a>> {
        let full = self.full(key);
        let value = self.file.get(&full);
        self.read.borrow_mut().insert(full);
        value
    }

    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }
}

fn text(value: Value<'_>) -> Option<&str> {
    match value {
        Value::String(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn linear(factor: f32) -> RopeScaling {
    RopeScaling::Linear { factor }
}
