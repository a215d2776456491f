//! What chat and completion requests have in common: how tokens are chosen, when the
//! answer ends, and how it is delivered. Values are within the table's bounds; what they
//! default to is the server's business (request, then the model's own, then OpenAI's).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::constraint::{self, Constraint};
use crate::error::RequestError;
use crate::fields::Fields;
use crate::report::{Answers, Report};
use crate::urgency::Urgency;
use crate::{Limits, NUM_STOPS_MAX};

/// How the answer is made and delivered, as far as the request says.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The served name asked for.
    pub model: Option<String>,
    /// Whole or streamed.
    pub delivery: Delivery,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// When the answer ends.
    pub ending: Ending,
    /// What it tells besides its text.
    pub report: Report,
    /// How many there are.
    pub answers: Answers,
    /// The end of its id, if the caller chose one.
    pub request_id: Option<String>,
    /// What the answer must look like; `None` is free text.
    pub constraint: Option<Constraint>,
    /// How urgent it is.
    pub urgency: Urgency,
}

/// How an answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// In one JSON document.
    Whole,
    /// As server-sent events.
    Stream(StreamUsage),
}

/// Where a stream tells token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamUsage {
    /// Nowhere.
    Never,
    /// In one chunk of its own before the end.
    AtEnd,
    /// In every chunk so far, and in one of its own before the end.
    InEveryChunk,
}

/// How tokens are chosen, as far as the request says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// 0 to 2; 0 is greedy.
    pub temperature: Option<f64>,
    /// Above 0, at most 1.
    pub top_p: Option<f64>,
    /// How many of the likeliest are kept.
    pub top_k: Option<TopK>,
    /// 0 to 1.
    pub min_p: Option<f64>,
    /// 0.01 to 10.
    pub repetition_penalty: Option<f64>,
    /// -2 to 2.
    pub presence_penalty: Option<f64>,
    /// -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Token id to a value of -100 to 100. Ids may lie outside the vocabulary.
    pub logit_bias: BTreeMap<u32, f32>,
    /// The only tokens allowed, at least one; ids may lie outside the vocabulary.
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Texts that must not be completed; none is blank.
    pub bad_words: Vec<String>,
    /// Any 64-bit number.
    pub seed: Option<i64>,
}

/// How many of the likeliest tokens are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopK {
    /// All of them (`-1` and `0`).
    All,
    /// This many, at least one.
    Keep(u32),
}

/// When an answer ends, as far as the request says.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The answer limit.
    pub max_tokens: Option<AnswerLimit>,
    /// End tokens are banned before this many.
    pub min_tokens: u32,
    /// At most four, none empty.
    pub stops: Vec<String>,
    /// Ids may lie outside the vocabulary.
    pub stop_token_ids: Vec<u32>,
    /// Whether the stop string that matched belongs to the answer.
    pub matched_stop: MatchedStop,
    /// What the model's own end tokens do.
    pub end_tokens: EndTokens,
    /// Whether control tokens have text.
    pub control_names: ControlNames,
}

/// An answer limit, and which field set it (errors name it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimit {
    /// At least 1, but for scoring (`max_tokens: 0` with `echo` or `prompt_logprobs`).
    pub num_tokens: u32,
    /// `max_tokens` or `max_completion_tokens`.
    pub param: &'static str,
}

/// Whether the stop string that matched belongs to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedStop {
    /// It is cut off: OpenAI's contract.
    Dropped,
    /// It is kept (`include_stop_str_in_output`).
    Kept,
}

/// Whether control tokens that do not end the answer have text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlNames {
    /// They have none.
    Dropped,
    /// Their names (`skip_special_tokens: false`).
    Shown,
}

/// What the model's own end tokens do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndTokens {
    /// They end the answer.
    End,
    /// They are tokens like any other (`ignore_eos`).
    Ignored,
}

impl Generation {
    /// Reads the common fields.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn read(fields: &Fields, limits: &Limits) -> Result<Generation, RequestError> {
        let delivery = delivery(fields)?;
        Ok(Generation {
            model: fields.text("model").map(str::to_owned),
            delivery,
            sampling: sampling(fields, limits)?,
            ending: ending(fields, limits)?,
            report: Report::read(fields, delivery)?,
            answers: Answers::read(fields, delivery)?,
            request_id: fields.text("request_id").map(request_id).transpose()?,
            constraint: constraint::read(fields)?,
            urgency: Urgency::read(fields),
        })
    }
}

/// An id that can stand in a header or a log line as it is.
fn request_id(id: &str) -> Result<String, RequestError> {
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(id.to_owned());
    }
    Err(RequestError::Invalid {
        param: "request_id".to_owned(),
        expected: "visible ASCII characters".to_owned(),
        got: "others".to_owned(),
    })
}

fn delivery(fields: &Fields) -> Result<Delivery, RequestError> {
    let streams = fields.flag("stream").unwrap_or(false);
    let Some(options) = fields.get("stream_options") else {
        return Ok(if streams {
            Delivery::Stream(StreamUsage::Never)
        } else {
            Delivery::Whole
        });
    };
    let Value::Object(options) = options else {
        return Err(RequestError::invalid(
            "stream_options",
            "an object",
            options,
        ));
    };
    let mut include_usage = false;
    let mut in_every_chunk = false;
    for (key, value) in options.iter().filter(|(_, value)| !value.is_null()) {
        let flag = match key.as_str() {
            "include_usage" => &mut include_usage,
            "continuous_usage_stats" => &mut in_every_chunk,
            "include_obfuscation" if value == &Value::Bool(false) => continue,
            "include_obfuscation" => {
                return Err(RequestError::Unsupported {
                    param: "stream_options.include_obfuscation".to_owned(),
                    accepted: "false".to_owned(),
                });
            }
            _ => continue,
        };
        *flag = value.as_bool().ok_or_else(|| {
            RequestError::invalid(format!("stream_options.{key}"), "true or false", value)
        })?;
    }
    if !streams {
        return Err(RequestError::Contradiction {
            param: "stream_options".to_owned(),
            reason: "is only allowed when 'stream' is true".to_owned(),
        });
    }
    Ok(Delivery::Stream(match (include_usage, in_every_chunk) {
        (false, false) => StreamUsage::Never,
        (true, false) => StreamUsage::AtEnd,
        (true, true) => StreamUsage::InEveryChunk,
        (false, true) => {
            return Err(RequestError::Contradiction {
                param: "stream_options.continuous_usage_stats".to_owned(),
                reason: "needs 'stream_options.include_usage'".to_owned(),
            });
        }
    }))
}

fn sampling(fields: &Fields, limits: &Limits) -> Result<Sampling, RequestError> {
    Ok(Sampling {
        temperature: fields.number("temperature"),
        top_p: fields.number("top_p"),
        top_k: fields
            .integer("top_k")
            .map(|kept| match u32::try_from(kept) {
                Ok(kept) if kept > 0 => TopK::Keep(kept),
                _ => TopK::All,
            }),
        min_p: fields.number("min_p"),
        repetition_penalty: fields.number("repetition_penalty"),
        presence_penalty: fields.number("presence_penalty"),
        frequency_penalty: fields.number("frequency_penalty"),
        logit_bias: fields
            .get("logit_bias")
            .map_or(Ok(BTreeMap::new()), |value| logit_bias(value, limits))?,
        allowed_token_ids: fields
            .get("allowed_token_ids")
            .map(|value| allowed_token_ids(value, limits))
            .transpose()?,
        bad_words: fields
            .get("bad_words")
            .map_or(Ok(Vec::new()), |value| bad_words(value, limits))?,
        seed: fields.integer("seed"),
    })
}

fn allowed_token_ids(value: &Value, limits: &Limits) -> Result<Vec<u32>, RequestError> {
    let num_max = limits.num_allowed_token_ids_max;
    match value {
        Value::Array(items) if items.len() > num_max => {
            Err(too_many("allowed_token_ids", num_max, items.len()))
        }
        Value::Array(items) if !items.is_empty() => token_ids("allowed_token_ids", items),
        _ => {
            let expected = "a non-empty list of token ids";
            Err(RequestError::invalid("allowed_token_ids", expected, value))
        }
    }
}

fn bad_words(value: &Value, limits: &Limits) -> Result<Vec<String>, RequestError> {
    let Value::Array(items) = value else {
        let expected = "a list of strings";
        return Err(RequestError::invalid("bad_words", expected, value));
    };
    if items.len() > limits.num_bad_words_max {
        return Err(too_many("bad_words", limits.num_bad_words_max, items.len()));
    }
    let bytes_max = limits.bad_word_bytes_max;
    let word = |(idx, item): (usize, &Value)| match item.as_str() {
        Some(text) if !text.trim().is_empty() && text.len() <= bytes_max => Ok(text.to_owned()),
        _ => Err(RequestError::Invalid {
            param: format!("bad_words[{idx}]"),
            expected: format!("a string of at most {bytes_max} bytes, not blank"),
            got: length(item),
        }),
    };
    items.iter().enumerate().map(word).collect()
}

fn logit_bias(value: &Value, limits: &Limits) -> Result<BTreeMap<u32, f32>, RequestError> {
    let Value::Object(entries) = value else {
        let expected = "an object of token ids and numbers";
        return Err(RequestError::invalid("logit_bias", expected, value));
    };
    if entries.len() > limits.num_logit_biases_max {
        return Err(too_many(
            "logit_bias",
            limits.num_logit_biases_max,
            entries.len(),
        ));
    }
    let mut biases = BTreeMap::new();
    for (key, value) in entries {
        let id = canonical_id(key).ok_or_else(|| RequestError::Invalid {
            param: "logit_bias".to_owned(),
            expected: "an object whose keys are token ids in decimal".to_owned(),
            got: "an object with another key".to_owned(),
        })?;
        let bias = value
            .as_f64()
            .filter(|bias| (-100.0..=100.0).contains(bias));
        let bias = bias.ok_or_else(|| {
            RequestError::invalid(
                format!("logit_bias.{id}"),
                "a number from -100 to 100",
                value,
            )
        })?;
        biases.insert(id, bias as f32);
    }
    Ok(biases)
}

/// A token id as exactly one text can write it: no sign, no blanks, no leading zeros.
fn canonical_id(key: &str) -> Option<u32> {
    let digits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (key == "0" || !key.starts_with('0'));
    canonical.then(|| key.parse().ok()).flatten()
}

fn ending(fields: &Fields, limits: &Limits) -> Result<Ending, RequestError> {
    let limit = |param: &'static str| {
        let num_tokens = u32::try_from(fields.integer(param)?).ok()?;
        Some(AnswerLimit { num_tokens, param })
    };
    let ending = Ending {
        max_tokens: limit("max_completion_tokens").or_else(|| limit("max_tokens")),
        min_tokens: fields.integer("min_tokens").map_or(0, |min| {
            u32::try_from(min).expect("the table bounds it to 32 bits")
        }),
        stops: fields
            .get("stop")
            .map_or(Ok(Vec::new()), |value| stops(value, limits))?,
        stop_token_ids: fields
            .get("stop_token_ids")
            .map_or(Ok(Vec::new()), |value| stop_token_ids(value, limits))?,
        matched_stop: match fields.flag("include_stop_str_in_output") {
            Some(true) => MatchedStop::Kept,
            _ => MatchedStop::Dropped,
        },
        end_tokens: match fields.flag("ignore_eos") {
            Some(true) => EndTokens::Ignored,
            _ => EndTokens::End,
        },
        control_names: match fields.flag("skip_special_tokens") {
            Some(false) => ControlNames::Shown,
            _ => ControlNames::Dropped,
        },
    };
    match ending.max_tokens {
        Some(limit) if ending.min_tokens > limit.num_tokens => Err(RequestError::Contradiction {
            param: "min_tokens".to_owned(),
            reason: format!("must not exceed '{}'", limit.param),
        }),
        _ => Ok(ending),
    }
}

fn stops(value: &Value, limits: &Limits) -> Result<Vec<String>, RequestError> {
    let one = |param: String, value: &Value| match value.as_str() {
        Some(text) if !text.is_empty() && text.len() <= limits.stop_bytes_max => {
            Ok(text.to_owned())
        }
        _ => {
            let expected = format!(
                "a non-empty string of at most {} bytes",
                limits.stop_bytes_max
            );
            Err(RequestError::Invalid {
                param,
                expected,
                got: length(value),
            })
        }
    };
    match value {
        Value::Array(items) if items.len() > NUM_STOPS_MAX => {
            Err(too_many("stop", NUM_STOPS_MAX, items.len()))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(idx, item)| one(format!("stop[{idx}]"), item))
            .collect(),
        Value::String(_) => Ok(vec![one("stop".to_owned(), value)?]),
        other => Err(RequestError::invalid(
            "stop",
            "a string or a list of strings",
            other,
        )),
    }
}

fn length(value: &Value) -> String {
    match value.as_str() {
        Some(text) if !text.is_empty() => format!("a string of {} bytes", text.len()),
        _ => crate::error::describe(value),
    }
}

fn stop_token_ids(value: &Value, limits: &Limits) -> Result<Vec<u32>, RequestError> {
    let Value::Array(items) = value else {
        return Err(RequestError::invalid(
            "stop_token_ids",
            "a list of token ids",
            value,
        ));
    };
    if items.len() > limits.num_stop_token_ids_max {
        return Err(too_many(
            "stop_token_ids",
            limits.num_stop_token_ids_max,
            items.len(),
        ));
    }
    token_ids("stop_token_ids", items)
}

/// Reads token ids: whole numbers of 32 bits, never narrowed.
pub(crate) fn token_ids(param: &str, items: &[Value]) -> Result<Vec<u32>, RequestError> {
    items
        .iter()
        .enumerate()
        .map(|(idx, item)| {
            let id = item.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| RequestError::invalid(format!("{param}[{idx}]"), "a token id", item))
        })
        .collect()
}

/// A list longer than its bound.
pub(crate) fn too_many(param: &str, num_max: usize, num: usize) -> RequestError {
    RequestError::Invalid {
        param: param.to_owned(),
        expected: format!("at most {num_max} entries"),
        got: num.to_string(),
    }
}
