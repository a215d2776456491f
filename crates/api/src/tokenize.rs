//! `/tokenize` and `/detokenize`, in the two shapes that clients send.
//!
//! ```text
//! vLLM       {"prompt": …, "add_special_tokens": true}       -> {"count", "max_model_len", "tokens", "token_strs"}
//!            {"messages": […], "add_generation_prompt": true} -> the same
//! llama.cpp  {"content": …, "add_special": false, "with_pieces": false} -> {"tokens"}
//! ```
//!
//! The key that carries the text tells which is which; a key of another shape beside it would
//! be ignored, so it is refused. A detokenize request looks the same in both dialects, so its
//! answer carries both names of the text.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::chat::{Message, Turn, read_messages, template_variables, turn};
use crate::completion::Bos;
use crate::error::RequestError;
use crate::fields::{Neutral, expect_built, unsupported};
use crate::params::token_ids;
use crate::{Limits, json};

/// What is to be made into tokens.
#[derive(Clone, Debug)]
pub struct TokenizeRequest {
    /// The served name asked for.
    pub model: Option<String>,
    /// The text.
    pub source: Source,
    /// What the answer looks like.
    pub shape: TokenizeShape,
}

/// Text to be made into tokens.
#[derive(Clone, Debug)]
pub enum Source {
    /// A raw prompt.
    Text {
        /// The text; may be empty.
        text: String,
        /// Whether it gets the model's BOS.
        bos: Bos,
        /// Whether control-token text in it is read as control tokens.
        control_text: ControlText,
    },
    /// A conversation, rendered by the model's template.
    Messages {
        /// At least one.
        messages: Vec<Message>,
        /// Whether the template opens the assistant's turn.
        turn: Turn,
        /// Further variables of the template.
        template_variables: Map<String, Value>,
    },
}

/// What each shape reads, its first key telling it from the others.
const CONTENT_KEYS: &[&str] = &["content", "add_special", "parse_special", "with_pieces"];
const PROMPT_KEYS: &[&str] = &["prompt", "add_special_tokens", "return_token_strs"];
const MESSAGES_KEYS: &[&str] = &[
    "messages",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
    "add_special_tokens",
    "return_token_strs",
];

/// Whether control-token text is read as control tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlText {
    /// It is: the default of both dialects.
    Parsed,
    /// It is text like any other (`parse_special: false`).
    Plain,
}

/// What a tokenize answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizeShape {
    /// vLLM's.
    Counted(Pieces),
    /// llama.cpp's.
    Bare(Pieces),
}

/// Whether the answer tells each token's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// It does.
    Told,
    /// Ids alone.
    Left,
}

/// What is to be made into text.
#[derive(Clone, Debug)]
pub struct DetokenizeRequest {
    /// The served name asked for.
    pub model: Option<String>,
    /// May be empty; may lie outside the vocabulary.
    pub tokens: Vec<u32>,
}

/// The answer to `/tokenize`, in the dialect that was asked.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Tokenized {
    /// vLLM's.
    Counted(Counted),
    /// llama.cpp's.
    Bare(Bare),
}

/// vLLM's answer to `/tokenize`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Counted {
    /// Number of tokens.
    pub count: usize,
    /// The model's context.
    pub max_model_len: usize,
    /// The ids.
    pub tokens: Vec<u32>,
    /// Each token's text, if asked for.
    pub token_strs: Option<Vec<String>>,
}

/// llama.cpp's answer to `/tokenize`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Bare {
    /// Ids alone.
    Ids {
        /// The ids.
        tokens: Vec<u32>,
    },
    /// Ids with their texts.
    Pieces {
        /// The tokens.
        tokens: Vec<Piece>,
    },
}

/// A token with its text.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Piece {
    /// The id.
    pub id: u32,
    /// Its text, or its bytes if they are no text of their own.
    pub piece: PieceText,
}

/// A token's text.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum PieceText {
    /// Whole characters.
    Text(String),
    /// Part of a character.
    Bytes(Vec<u8>),
}

/// The answer to `/detokenize`, under both names.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Detokenized {
    /// vLLM's name.
    pub prompt: String,
    /// llama.cpp's name.
    pub content: String,
}

impl TokenizeRequest {
    /// Reads a request body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<TokenizeRequest, RequestError> {
        let mut object = json::object(body)?;
        let model = text(&mut object, "model")?;
        let (source, shape) = if let Some(content) = text(&mut object, "content")? {
            content_source(&object, content)?
        } else if let Some(prompt) = text(&mut object, "prompt")? {
            prompt_source(&object, prompt)?
        } else {
            messages_source(&object, limits)?
        };
        Ok(TokenizeRequest {
            model,
            source,
            shape,
        })
    }
}

impl DetokenizeRequest {
    /// Reads a request body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn parse(body: &[u8]) -> Result<DetokenizeRequest, RequestError> {
        let mut object = json::object(body)?;
        let model = text(&mut object, "model")?;
        match object.get("tokens") {
            Some(Value::Array(items)) => Ok(DetokenizeRequest {
                model,
                tokens: token_ids("tokens", items)?,
            }),
            None | Some(Value::Null) => Err(RequestError::Missing {
                param: "tokens".to_owned(),
                expected: "a list of token ids".to_owned(),
            }),
            Some(other) => Err(RequestError::invalid(
                "tokens",
                "a list of token ids",
                other,
            )),
        }
    }
}

fn content_source(
    object: &Map<String, Value>,
    text: String,
) -> Result<(Source, TokenizeShape), RequestError> {
    expect_only(object, CONTENT_KEYS)?;
    let source = Source::Text {
        text,
        bos: bos(flag(object, "add_special")?.unwrap_or(false)),
        control_text: control_text(flag(object, "parse_special")?.unwrap_or(true)),
    };
    let pieces = pieces(flag(object, "with_pieces")?.unwrap_or(false));
    Ok((source, TokenizeShape::Bare(pieces)))
}

fn prompt_source(
    object: &Map<String, Value>,
    text: String,
) -> Result<(Source, TokenizeShape), RequestError> {
    expect_only(object, PROMPT_KEYS)?;
    let source = Source::Text {
        text,
        bos: bos(flag(object, "add_special_tokens")?.unwrap_or(true)),
        control_text: ControlText::Parsed,
    };
    Ok((source, counted(object)?))
}

fn messages_source(
    object: &Map<String, Value>,
    limits: &Limits,
) -> Result<(Source, TokenizeShape), RequestError> {
    let given = |key: &str| object.get(key).filter(|value| !value.is_null());
    let messages = given("messages").ok_or_else(|| RequestError::Missing {
        param: "prompt".to_owned(),
        expected: "one of 'prompt', 'messages' and 'content'".to_owned(),
    })?;
    expect_only(object, MESSAGES_KEYS)?;
    // The template writes the BOS.
    if flag(object, "add_special_tokens")? == Some(true) {
        return Err(unsupported("add_special_tokens", &[Neutral::Flag(false)]));
    }
    let source = Source::Messages {
        messages: read_messages(messages, limits)?,
        turn: turn(
            flag(object, "add_generation_prompt")?,
            flag(object, "continue_final_message")?,
        )?,
        template_variables: template_variables(given("chat_template_kwargs").cloned())?,
    };
    Ok((source, counted(object)?))
}

fn counted(object: &Map<String, Value>) -> Result<TokenizeShape, RequestError> {
    let told = flag(object, "return_token_strs")?.unwrap_or(false);
    Ok(TokenizeShape::Counted(pieces(told)))
}

/// Refuses keys that are known and would be ignored: those of the other shapes, and what
/// completion requests refuse as well. Other keys are passed over.
fn expect_only(object: &Map<String, Value>, read: &[&str]) -> Result<(), RequestError> {
    let shapes = [CONTENT_KEYS, PROMPT_KEYS, MESSAGES_KEYS];
    for (key, value) in object {
        if value.is_null() || read.contains(&key.as_str()) {
            continue;
        }
        if shapes.iter().any(|keys| keys.contains(&key.as_str())) {
            return Err(unsupported(key, &[]));
        }
        expect_built(key, value)?;
    }
    Ok(())
}

fn bos(adds: bool) -> Bos {
    if adds { Bos::ModelRule } else { Bos::Never }
}

fn control_text(parses: bool) -> ControlText {
    if parses {
        ControlText::Parsed
    } else {
        ControlText::Plain
    }
}

fn pieces(told: bool) -> Pieces {
    if told { Pieces::Told } else { Pieces::Left }
}

fn text(object: &mut Map<String, Value>, key: &str) -> Result<Option<String>, RequestError> {
    match object.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(RequestError::invalid(key, "a string", &other)),
    }
}

fn flag(object: &Map<String, Value>, key: &str) -> Result<Option<bool>, RequestError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(RequestError::invalid(key, "true or false", other)),
    }
}
