//! `/v1/completions`: raw prompts, as text or as token ids.

use serde_json::Value;

use crate::error::RequestError;
use crate::fields::{Endpoint, Fields};
use crate::params::{Generation, token_ids, too_many};
use crate::report::Told;
use crate::{Limits, json};

/// A completion request, read and checked as far as its text goes.
#[derive(Clone, Debug)]
pub struct CompletionRequest {
    /// At least one prompt; each becomes a choice of the same index.
    pub prompts: Vec<Prompt>,
    /// Whether text prompts get the model's BOS.
    pub bos: Bos,
    /// What it has in common with chat.
    pub generation: Generation,
    /// Keys nobody knows, for the log.
    pub unknown: Vec<String>,
}

/// A prompt, not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text still to be encoded.
    Text(String),
    /// Token ids, taken as they are; they may lie outside the vocabulary.
    Ids(Vec<u32>),
}

/// Whether text prompts get the model's BOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bos {
    /// As the model's own rule says.
    ModelRule,
    /// Never (`add_special_tokens: false`).
    Never,
}

const FORMS: &str = "a string, a list of strings, a list of token ids, or a list of such lists";

impl CompletionRequest {
    /// Reads a request body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<CompletionRequest, RequestError> {
        let mut fields = Fields::read(json::object(body)?, Endpoint::Completion)?;
        let generation = Generation::read(&fields, limits)?;
        expect_work(&generation)?;
        let bos = match fields.flag("add_special_tokens") {
            Some(false) => Bos::Never,
            _ => Bos::ModelRule,
        };
        let prompt = fields.take("prompt").ok_or_else(|| RequestError::Missing {
            param: "prompt".to_owned(),
            expected: FORMS.to_owned(),
        })?;
        Ok(CompletionRequest {
            prompts: read_prompts("prompt", prompt, limits)?,
            bos,
            generation,
            unknown: fields.unknown,
        })
    }
}

/// An answer of no tokens is asked for only to learn about the prompt.
fn expect_work(generation: &Generation) -> Result<(), RequestError> {
    let report = &generation.report;
    let scores = report.echo == Told::Told || report.prompt_logprobs.is_some();
    match generation.ending.max_tokens {
        Some(limit) if limit.num_tokens == 0 && !scores => Err(RequestError::Contradiction {
            param: limit.param.to_owned(),
            reason: "may be 0 only with 'echo' or 'prompt_logprobs'".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The four documented forms. The first item decides which list it is; a mixed list is
/// an error at the first item of another kind.
pub(crate) fn read_prompts(
    param: &str,
    value: Value,
    limits: &Limits,
) -> Result<Vec<Prompt>, RequestError> {
    let items = match value {
        Value::String(text) => return Ok(vec![text_prompt(param, Value::String(text))?]),
        Value::Array(items) => items,
        other => return Err(RequestError::invalid(param, FORMS, &other)),
    };
    let each = |items: Vec<Value>, read: fn(&str, Value) -> Result<Prompt, RequestError>| {
        let read_at = |(idx, item)| read(&format!("{param}[{idx}]"), item);
        items.into_iter().enumerate().map(read_at).collect()
    };
    match items.first() {
        None => Err(RequestError::invalid(
            param,
            "not empty",
            &Value::Array(items),
        )),
        Some(Value::Number(_)) => Ok(vec![Prompt::Ids(token_ids(param, &items)?)]),
        Some(_) if items.len() > limits.num_prompts_max => {
            Err(too_many(param, limits.num_prompts_max, items.len()))
        }
        Some(Value::String(_)) => each(items, text_prompt),
        Some(Value::Array(_)) => each(items, ids_prompt),
        Some(other) => Err(RequestError::invalid(
            format!("{param}[0]"),
            "a string, a token id or a list of token ids",
            other,
        )),
    }
}

fn text_prompt(param: &str, value: Value) -> Result<Prompt, RequestError> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(Prompt::Text(text)),
        other => Err(RequestError::invalid(param, "a non-empty string", &other)),
    }
}

fn ids_prompt(param: &str, value: Value) -> Result<Prompt, RequestError> {
    match value {
        Value::Array(items) if !items.is_empty() => Ok(Prompt::Ids(token_ids(param, &items)?)),
        other => Err(RequestError::invalid(
            param,
            "a non-empty list of token ids",
            &other,
        )),
    }
}
