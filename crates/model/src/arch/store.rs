//! Where a description's keys stand: GGUF metadata, or a `config.json` with names of its own.
//!
//! The one idea: one vocabulary, that of GGUF, and a table of what each word is called in `config.json`. Both key
//! styles of such files are in it: rotations in an object of their own, or flat.

use formats::gguf::{self, Gguf};
use formats::quant;
use serde_json::{Map, Value};

use crate::refusal::Refusal;
use crate::source::{Folder, SourceRef};

const ARCHITECTURE_KEY: &str = "general.architecture";

/// GGUF's words and those of `config.json`; the first that is there counts.
const CONFIG_KEYS: &[(&str, &[&str])] = &[
    ("embedding_length", &["hidden_size", "n_embd"]),
    (
        "context_length",
        &["max_position_embeddings", "n_positions"],
    ),
    ("block_count", &["num_hidden_layers", "n_layer"]),
    ("feed_forward_length", &["intermediate_size", "n_inner"]),
    ("vocab_size", &["vocab_size"]),
    ("attention.head_count", &["num_attention_heads", "n_head"]),
    ("attention.head_count_kv", &["num_key_value_heads"]),
    ("attention.key_length", &["head_dim"]),
    ("attention.value_length", &["head_dim"]),
    ("attention.layer_norm_rms_epsilon", &["rms_norm_eps"]),
    (
        "attention.layer_norm_epsilon",
        &["layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"],
    ),
    ("attention.sliding_window", &["sliding_window"]),
    (
        "attention.sliding_window_pattern",
        &["sliding_window_pattern", "_sliding_window_pattern"],
    ),
    ("attention.scale", &["attention_multiplier"]),
    ("attn_logit_softcapping", &["attn_logit_softcapping"]),
    ("final_logit_softcapping", &["final_logit_softcapping"]),
    ("embedding_scale", &["embedding_multiplier"]),
    ("residual_scale", &["residual_multiplier"]),
    ("logit_scale", &["logits_scaling"]),
    ("expert_count", &["num_local_experts", "num_experts"]),
    ("expert_used_count", &["num_experts_per_tok"]),
    ("expert_feed_forward_length", &["moe_intermediate_size"]),
];

/// What a key says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    Integer(i128),
    Number(f64),
    Flag(bool),
    Text(String),
    List,
    /// Something else, in words.
    Odd(String),
}

impl Fact {
    /// In words, for a refusal.
    pub(super) fn describe(&self) -> String {
        match self {
            Fact::Integer(number) => number.to_string(),
            // Metadata is in single precision, where `1e-5` is that and not its double.
            Fact::Number(number) => (*number as f32).to_string(),
            Fact::Flag(on) => on.to_string(),
            Fact::Text(text) => {
                // A word of a foreign file; more than this is none.
                const CHARS_MAX: usize = 100;
                format!("{:?}", text.chars().take(CHARS_MAX).collect::<String>())
            }
            Fact::List => "a list".to_owned(),
            Fact::Odd(words) => words.clone(),
        }
    }

    pub(super) fn of_json(value: &Value) -> Option<Fact> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(on) => Fact::Flag(*on),
            Value::String(text) => Fact::Text(text.clone()),
            Value::Array(_) => Fact::List,
            Value::Object(_) => Fact::Odd("an object".to_owned()),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Fact::Integer(number.into()),
                None => number
                    .as_f64()
                    .map_or(Fact::Odd(number.to_string()), Fact::Number),
            },
        })
    }

    fn of_metadata(value: gguf::Value<'_>) -> Fact {
        match value {
            gguf::Value::Bool(on) => Fact::Flag(on),
            gguf::Value::F32(number) => Fact::Number(number.into()),
            gguf::Value::F64(number) => Fact::Number(number),
            gguf::Value::String(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Fact::Text(text.to_owned()),
                Err(_) => Fact::Odd(value.describe()),
            },
            other => match other.integer() {
                Some(number) => Fact::Integer(number),
                None => Fact::Odd(other.describe()),
            },
        }
    }
}

/// Where keys stand.
#[derive(Clone, Copy)]
pub(super) enum Store<'a> {
    /// Under a prefix, the architecture's name.
    Gguf {
        file: &'a Gguf,
        prefix: &'static str,
    },
    Config(&'a Folder),
}

impl<'a> Store<'a> {
    pub(super) fn source(self) -> SourceRef<'a> {
        match self {
            Store::Gguf { file, .. } => SourceRef::Gguf(file),
            Store::Config(folder) => SourceRef::Folder(folder),
        }
    }

    /// The object in `config.json`, if it is one.
    pub(super) fn config(self) -> Option<&'a Map<String, Value>> {
        match self {
            Store::Gguf { .. } => None,
            Store::Config(folder) => Some(folder.config()),
        }
    }

    /// What a key is called here, and what it says.
    pub(super) fn find(self, key: &str) -> (String, Option<Fact>) {
        match self {
            Store::Gguf { file, prefix } => {
                let full = format!("{prefix}.{key}");
                let value = file.get(&full).map(Fact::of_metadata);
                (full, value)
            }
            Store::Config(folder) => {
                let row = CONFIG_KEYS.iter().find(|(known, _)| *known == key);
                let names = row.map_or(std::slice::from_ref(&key), |(_, names)| names);
                let said = names.iter().find_map(|name| {
                    Some((
                        (*name).to_owned(),
                        Fact::of_json(folder.config().get(*name)?)?,
                    ))
                });
                match said {
                    Some((name, fact)) => (name, Some(fact)),
                    None => (names[0].to_owned(), None),
                }
            }
        }
    }

    /// All keys that may say something about the decoder.
    pub(super) fn keys(self) -> Vec<String> {
        match self {
            Store::Gguf { file, prefix } => {
                let prefix = format!("{prefix}.");
                let keys = file.metadata().map(|(key, _)| key);
                keys.filter(|key| key.starts_with(&prefix))
                    .map(str::to_owned)
                    .collect()
            }
            Store::Config(folder) => folder.config().keys().cloned().collect(),
        }
    }

    /// A short tensor's values.
    ///
    /// # Errors
    ///
    /// What is there instead.
    pub(super) fn floats(self, name: &str, len: usize) -> Result<Vec<f32>, String> {
        let dims = self.source().dims(name).ok_or("nothing")?;
        let num_values: usize = dims.iter().product();
        if num_values != len {
            return Err(format!("{num_values} values"));
        }
        let raw = self.source().raw(name).map_err(|error| error.to_string())?;
        let mut values = vec![0.0; len];
        quant::dequantize(raw.ty, raw.bytes, &mut values);
        Ok(values)
    }
}

/// The name of a source's architecture.
pub(super) fn architecture(source: SourceRef<'_>) -> Result<String, Refusal> {
    let (key, value) = match source {
        SourceRef::Gguf(file) => (
            ARCHITECTURE_KEY,
            file.get(ARCHITECTURE_KEY).map(Fact::of_metadata),
        ),
        SourceRef::Folder(folder) => (
            "model_type",
            folder.config().get("model_type").and_then(Fact::of_json),
        ),
    };
    let key = key.to_owned();
    match value {
        None => Err(Refusal::MissingKey { key }),
        Some(Fact::Text(name)) => Ok(name),
        Some(other) => Err(Refusal::BadValue {
            key,
            expected: "a string".to_owned(),
            actual: other.describe(),
        }),
    }
}
