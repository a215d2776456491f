//! `tokenizer.json` as it is written: the types that serde reads.
//!
//! Unknown kinds of steps are an error that names them, since serde lists what it knows. Fields that do not change ids
//! are left out.
//!
//! Source: the serialization of `tokenizers` 0.23.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// The whole file. `truncation` and `padding` are for training; prompts are neither cut nor filled.
#[derive(Deserialize)]
pub(super) struct TokenizerFile {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    pub(super) normalizer: Option<serde_json::Value>,
    pub(super) pre_tokenizer: Option<serde_json::Value>,
    pub(super) post_processor: Option<serde_json::Value>,
    pub(super) decoder: Option<serde_json::Value>,
    pub(super) model: ModelFile,
}

#[derive(Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    /// Whether it is looked for in normalized text.
    #[serde(default)]
    pub(super) normalized: bool,
    #[serde(default)]
    pub(super) special: bool,
}

#[derive(Deserialize)]
pub(super) struct ModelFile {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) vocab: Vocab,
    pub(super) merges: Option<Vec<Merge>>,
    pub(super) dropout: Option<f64>,
    pub(super) unk_token: Option<String>,
    pub(super) continuing_subword_prefix: Option<String>,
    pub(super) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
}

/// `"a b"`, or `["a", "b"]` in newer files.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Merge {
    Line(String),
    Pair(String, String),
}

/// Texts with their ids, in the order of the file, twins included.
#[derive(Default)]
pub(super) enum Vocab {
    Texts(Vec<(String, u32)>),
    /// A list with scores, as Unigram has it.
    Scored,
    #[default]
    Absent,
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Vocab, D::Error> {
        struct VocabVisitor;

        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens with their ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut texts = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    texts.push(entry);
                }
                Ok(Vocab::Texts(texts))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab, A::Error> {
                while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                Ok(Vocab::Scored)
            }
        }

        deserializer.deserialize_any(VocabVisitor)
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Normalizer {
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Lowercase,
    Prepend {
        prepend: String,
    },
    Replace {
        pattern: PatternFile,
        content: String,
    },
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    Sequence {
        normalizers: Vec<Normalizer>,
    },
}

#[derive(Deserialize)]
pub(super) enum PatternFile {
    String(String),
    Regex(String),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreTokenizer {
    ByteLevel {
        #[serde(default = "yes")]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Split {
        pattern: PatternFile,
        behavior: BehaviorFile,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        #[serde(default)]
        individual_digits: bool,
    },
    Punctuation {
        #[serde(default = "BehaviorFile::isolated")]
        behavior: BehaviorFile,
    },
    Metaspace {
        replacement: char,
        /// The older form of `prepend_scheme`.
        add_prefix_space: Option<bool>,
        prepend_scheme: Option<PrependScheme>,
        split: Option<bool>,
    },
    Whitespace,
    WhitespaceSplit,
    #[serde(rename = "BertPreTokenizer")]
    Bert,
    CharDelimiterSplit {
        delimiter: char,
    },
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Deserialize)]
pub(super) enum BehaviorFile {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

impl BehaviorFile {
    fn isolated() -> BehaviorFile {
        BehaviorFile::Isolated
    }
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum PrependScheme {
    First,
    Never,
    Always,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum PostProcessor {
    ByteLevel {},
    TemplateProcessing {
        single: Vec<TemplatePiece>,
        #[serde(default)]
        special_tokens: std::collections::HashMap<String, TemplateToken>,
    },
    RobertaProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    BertProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    Sequence {
        processors: Vec<PostProcessor>,
    },
}

#[derive(Deserialize)]
pub(super) enum TemplatePiece {
    SpecialToken { id: String },
    Sequence { id: String },
}

#[derive(Deserialize)]
pub(super) struct TemplateToken {
    pub(super) ids: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Decoder {
    ByteLevel {},
    ByteFallback {},
    Fuse {},
    Metaspace {
        replacement: char,
        add_prefix_space: Option<bool>,
        prepend_scheme: Option<PrependScheme>,
    },
    Replace {
        pattern: PatternFile,
        content: String,
    },
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    Sequence {
        decoders: Vec<Decoder>,
    },
}
