//! The one table of everything a client is known to send, and what becomes of it.
//!
//! A field is obeyed, or it is a hint that may be taken or left, or it asks for
//! something that is not built: then it is refused by name, unless its value is one that
//! asks for nothing (`n: 1`, `logprobs: false`, `tools: []`). So no known parameter is
//! ever silently ignored. Fields that are in no dialect we know are passed over and
//! reported, so that the server can say so once in its log. `null` is the same as
//! absent, everywhere.
//!
//! `docs/reference/parameters.md` lists this table; a test keeps the two in step.
//!
//! Source: OpenAI's reference; vLLM's chat and completion protocols; llama.cpp's server.

mod embeddings; // the table of /v1/embeddings
mod messages; // the table of /v1/messages
mod responses; // the table of /v1/responses

use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::urgency::SERVICE_TIERS;
use crate::{NUM_ANSWERS_MAX, NUM_TOP_LOGPROBS_MAX};

/// Which request a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// `/v1/chat/completions` and `/v1/completions`.
    Both,
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// The one endpoint whose table it is in.
    Own,
}

/// One endpoint that reads its fields along the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages` and `/v1/messages/count_tokens`.
    Messages,
    /// `/v1/embeddings`.
    Embeddings,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key in the request's object.
    pub name: &'static str,
    /// Where it may stand.
    pub on: On,
    /// What becomes of it.
    pub rule: Rule,
    /// What it does, or why it does nothing, for the reference.
    pub note: &'static str,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Read, checked and done as asked.
    Obeyed(Shape),
    /// Checked, and then without effect: a label or a hint by its own definition.
    Hint(Shape),
    /// Not built: accepted only with a value that asks for nothing.
    Neutral(&'static [Neutral]),
    /// Not built, and every value asks for something.
    Refused,
}

/// Type and bounds of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Any number in a closed interval.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
        /// The interval in words.
        says: &'static str,
    },
    /// A whole number in a closed interval, written as one (`1`, not `1.0`).
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// `true` or `false`.
    Flag,
    /// A string of bounded length.
    Text {
        /// Bytes at most.
        bytes_max: usize,
    },
    /// One of a few words.
    OneOf(&'static [&'static str]),
    /// A JSON object.
    Object,
    /// Read by a function of its own.
    Structured(&'static str),
}

/// A value that asks for nothing.
#[derive(Clone, Copy, Debug)]
pub enum Neutral {
    /// `true` or `false`.
    Flag(bool),
    /// A number, however it is written.
    Number(f64),
    /// A word.
    Text(&'static str),
    /// A list of words.
    List(&'static [&'static str]),
    /// `{"type": word}` and nothing else.
    Type(&'static str),
}

const fn obeyed(name: &'static str, on: On, shape: Shape, note: &'static str) -> Field {
    Field {
        name,
        on,
        rule: Rule::Obeyed(shape),
        note,
    }
}

const fn hint(name: &'static str, shape: Shape, note: &'static str) -> Field {
    Field {
        name,
        on: On::Both,
        rule: Rule::Hint(shape),
        note,
    }
}

const fn neutral(name: &'static str, values: &'static [Neutral], note: &'static str) -> Field {
    Field {
        name,
        on: On::Both,
        rule: Rule::Neutral(values),
        note,
    }
}

/// As [`neutral`], where another endpoint obeys the field.
const fn neutral_in_completions(
    name: &'static str,
    values: &'static [Neutral],
    note: &'static str,
) -> Field {
    Field {
        name,
        on: On::Completion,
        rule: Rule::Neutral(values),
        note,
    }
}

const fn refused(name: &'static str, note: &'static str) -> Field {
    Field {
        name,
        on: On::Both,
        rule: Rule::Refused,
        note,
    }
}

const fn only(on: On, field: Field) -> Field {
    Field { on, ..field }
}

/// Answer tokens are counted in 32 bits.
const TOKENS_MAX: i64 = u32::MAX as i64;
const OFF: &[Neutral] = &[Neutral::Flag(false)];
const ON: &[Neutral] = &[Neutral::Flag(true)];
const ZERO: &[Neutral] = &[Neutral::Number(0.0)];
const ONE: &[Neutral] = &[Neutral::Number(1.0)];
const NOTHING: &[Neutral] = &[Neutral::List(&[])];
const TEMPERATURE: Shape = Shape::Number {
    min: 0.0,
    max: 2.0,
    says: "a number from 0 to 2",
};
const PENALTY: Shape = Shape::Number {
    min: -2.0,
    max: 2.0,
    says: "a number from -2 to 2",
};
const TOP_P: Shape = Shape::Number {
    min: f64::MIN_POSITIVE,
    max: 1.0,
    says: "a number above 0 and at most 1",
};
const PRIORITY: Shape = Shape::Integer {
    min: i32::MIN as i64,
    max: i32::MAX as i64,
};
const TIMEOUT: Shape = Shape::Number {
    min: 0.001,
    max: 604_800.0,
    says: "a number of seconds from 0.001 to 604800",
};
const MIN_P: Shape = Shape::Number {
    min: 0.0,
    max: 1.0,
    says: "a number from 0 to 1",
};
// Not below 0.01: logits are divided by it, and the quotient must stay a number.
const REPETITION: Shape = Shape::Number {
    min: 0.01,
    max: 10.0,
    says: "a number from 0.01 to 10",
};

/// The table.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    // What is asked, and how it comes back.
    obeyed("model", On::Both, Shape::Text { bytes_max: 512 }, "a served name; the default model if absent"),
    obeyed("messages", On::Chat, Shape::Structured("a list of messages"), "the conversation; see below"),
    obeyed("prompt", On::Completion, Shape::Structured("a string, a list of strings, a list of token ids, or a list of such lists"), "several prompts give several choices, by index; control-token text in a string is read as control tokens"),
    obeyed("stream", On::Both, Shape::Flag, "server-sent events"),
    obeyed("stream_options", On::Both, Shape::Structured("an object"), "`include_usage`, `continuous_usage_stats`; only with `stream`"),
    obeyed("add_generation_prompt", On::Chat, Shape::Flag, "whether the template opens the assistant's turn; default true"),
    obeyed("chat_template_kwargs", On::Chat, Shape::Object, "further variables of the chat template"),
    obeyed("continue_final_message", On::Chat, Shape::Flag, "the answer goes on with the last message instead of starting a turn; not with `add_generation_prompt: true`"),
    obeyed("add_special_tokens", On::Completion, Shape::Flag, "whether a text prompt gets the model's BOS; default true"),
    only(On::Chat, neutral("add_special_tokens", OFF, "the template writes them")),
    obeyed("n", On::Both, Shape::Integer { min: 1, max: NUM_ANSWERS_MAX as i64 }, "answers to each prompt, which is computed once; all must have a place in an idle server"),
    obeyed("best_of", On::Completion, Shape::Integer { min: 1, max: NUM_ANSWERS_MAX as i64 }, "makes this many answers and gives the `n` likeliest a token; usage counts them all; not with `stream`"),
    obeyed("request_id", On::Both, Shape::Text { bytes_max: 128 }, "the end of the answer's `id`: visible ASCII; the header `x-request-id` is told apart"),
    // What an answer tells besides its text.
    obeyed("logprobs", On::Chat, Shape::Flag, "log-probabilities of the answer's tokens, the end token included: the model's own, before bias, penalties and temperature"),
    obeyed("top_logprobs", On::Chat, Shape::Integer { min: 0, max: NUM_TOP_LOGPROBS_MAX as i64 }, "and of the likeliest tokens in each place; needs `logprobs`"),
    obeyed("logprobs", On::Completion, Shape::Structured("an integer from 0 to 20"), "log-probabilities of the answer's tokens (of the prompt's too with `echo`) and of this many of the likeliest in each place"),
    obeyed("echo", On::Completion, Shape::Flag, "the prompt comes first in the text"),
    only(On::Chat, neutral("echo", OFF, "messages are not repeated")),
    obeyed("prompt_logprobs", On::Both, Shape::Integer { min: 0, max: NUM_TOP_LOGPROBS_MAX as i64 }, "log-probabilities of the prompt's tokens and of this many of the likeliest in each place; such a prompt is computed whole; not with `stream`"),
    obeyed("return_tokens_as_token_ids", On::Both, Shape::Flag, "tokens are named `token_id:ID` in log-probabilities"),
    obeyed("return_token_ids", On::Both, Shape::Flag, "`prompt_token_ids`, and each choice's `token_ids`"),
    obeyed("return_prompt_text", On::Both, Shape::Flag, "`prompt_text`: the prompt as the model reads it"),
    obeyed("timings_per_token", On::Both, Shape::Flag, "`timings` in every chunk of a stream, not only in the last"),
    // Tools and reasoning.
    obeyed("tools", On::Chat, Shape::Structured("a list of functions"), "what may be called; `strict` functions are called with arguments that keep to their schema"),
    obeyed("tool_choice", On::Chat, Shape::Structured("\"none\", \"auto\", \"required\", a function, or allowed_tools"), "whether and what must be called"),
    obeyed("parallel_tool_calls", On::Chat, Shape::Flag, "false: one call at most"),
    obeyed("reasoning_effort", On::Chat, Shape::OneOf(&["none", "minimal", "low", "medium", "high", "xhigh"]), "told to the template; `none` also sets its `enable_thinking` to false"),
    obeyed("include_reasoning", On::Chat, Shape::Flag, "false: reasoning is left out of the answer"),
    // When the answer ends.
    obeyed("max_tokens", On::Chat, Shape::Integer { min: 1, max: TOKENS_MAX }, "answer tokens at most; with the prompt it must fit the context"),
    obeyed("max_tokens", On::Completion, Shape::Integer { min: 0, max: TOKENS_MAX }, "the same; 0, with `echo` or `prompt_logprobs` only, computes the prompt and no answer"),
    obeyed("max_completion_tokens", On::Chat, Shape::Integer { min: 1, max: TOKENS_MAX }, "wins over `max_tokens`"),
    obeyed("min_tokens", On::Both, Shape::Integer { min: 0, max: TOKENS_MAX }, "no end token before this many; at most the answer limit"),
    obeyed("stop", On::Both, Shape::Structured("a non-empty string, or a list of at most 4"), "texts that end the answer and are not part of it"),
    obeyed("stop_token_ids", On::Both, Shape::Structured("a list of token ids"), "tokens that end the answer"),
    obeyed("include_stop_str_in_output", On::Both, Shape::Flag, "keep the stop string that matched"),
    obeyed("skip_special_tokens", On::Both, Shape::Flag, "false: control tokens that do not end the answer stand in its text by their names"),
    obeyed("ignore_eos", On::Both, Shape::Flag, "go on past the model's own end tokens"),
    // How tokens are chosen.
    obeyed("temperature", On::Both, TEMPERATURE, "0 is greedy"),
    obeyed("top_p", On::Both, TOP_P, "1 is off"),
    obeyed("top_k", On::Both, Shape::Integer { min: -1, max: i32::MAX as i64 }, "-1 and 0 are off"),
    obeyed("min_p", On::Both, MIN_P, "0 is off"),
    obeyed("presence_penalty", On::Both, PENALTY, "looks at answer tokens only"),
    obeyed("frequency_penalty", On::Both, PENALTY, "looks at answer tokens only"),
    obeyed("repetition_penalty", On::Both, REPETITION, "looks at prompt and answer; 1 is off"),
    obeyed("logit_bias", On::Both, Shape::Structured("an object of token ids (as strings) and numbers from -100 to 100"), "-100 bans, 100 forces"),
    obeyed("allowed_token_ids", On::Both, Shape::Structured("a non-empty list of token ids"), "the only tokens an answer may have, besides end tokens"),
    obeyed("bad_words", On::Both, Shape::Structured("a list of non-empty strings"), "texts whose tokens, with or without a space before them, are never completed"),
    obeyed("seed", On::Both, Shape::Integer { min: i64::MIN, max: i64::MAX }, "same seed and request, same text; a fresh one if absent"),
    // Labels and hints.
    hint("user", Shape::Text { bytes_max: 4096 }, "a label"),
    hint("metadata", Shape::Object, "labels"),
    hint("safety_identifier", Shape::Text { bytes_max: 4096 }, "a label"),
    hint("prompt_cache_key", Shape::Text { bytes_max: 4096 }, "a hint; prefixes are always found by content"),
    hint("session_id", Shape::Text { bytes_max: 4096 }, "a hint for routers"),
    hint("spaces_between_special_tokens", Shape::Flag, "no vocabulary served here adds such spaces"),
    obeyed("service_tier", On::Both, Shape::OneOf(SERVICE_TIERS), "`priority` is the class interactive, `flex` standard, `batch` batch; `auto` and `default` leave it to header, key, route and `stream`; what was had is told back; see the guide on classes"),
    neutral("store", OFF, "nothing is stored"),
    neutral("prompt_cache_retention", &[Neutral::Text("in_memory")], "the prefix cache is in memory"),
    // Known in OpenAI's API, not built yet.
    neutral("functions", NOTHING, "send `tools`"),
    neutral("function_call", &[Neutral::Text("none")], "send `tool_choice`"),
    neutral_in_completions("tools", NOTHING, "tools are for conversations"),
    neutral_in_completions("tool_choice", &[Neutral::Text("none")], "tools are for conversations"),
    neutral_in_completions("parallel_tool_calls", ON, "tools are for conversations"),
    neutral_in_completions("reasoning_effort", &[Neutral::Text("none")], "reasoning is told apart in conversations"),
    neutral_in_completions("include_reasoning", ON, "reasoning is told apart in conversations"),
    obeyed("response_format", On::Both, Shape::Structured("an object with a type"), "`text`, `json_object` (also with `schema`) or `json_schema`; see the guide on structured output"),
    neutral("modalities", &[Neutral::List(&["text"])], "text only"),
    neutral("verbosity", &[Neutral::Text("medium")], "no verbosity control"),
    neutral("suffix", &[Neutral::Text("")], "no insertion"),
    refused("audio", "text only"),
    refused("prediction", "no predicted output"),
    refused("web_search_options", "no search"),
    // vLLM's extras.
    neutral("use_beam_search", OFF, "no beam search"),
    neutral("length_penalty", ONE, "no beam search"),
    refused("truncate_prompt_tokens", "a prompt is never cut"),
    refused("truncation_side", "a prompt is never cut"),
    refused("logprob_token_ids", "no log probabilities"),
    neutral("documents", NOTHING, "no retrieval"),
    refused("chat_template", "the model's own template is used"),
    refused("mm_processor_kwargs", "text only"),
    obeyed("structured_outputs", On::Both, Shape::Structured("an object"), "one of `json`, `json_object`, `regex`, `choice`, `grammar`; also `disable_any_whitespace`"),
    obeyed("guided_json", On::Both, Shape::Structured("a JSON schema, or its text"), "the older word for `structured_outputs.json`"),
    obeyed("guided_regex", On::Both, Shape::Structured("a regular expression"), "the older word for `structured_outputs.regex`"),
    obeyed("guided_choice", On::Both, Shape::Structured("a list of strings"), "the older word for `structured_outputs.choice`"),
    obeyed("guided_grammar", On::Both, Shape::Structured("a grammar in Lark or GBNF"), "the older word for `structured_outputs.grammar`"),
    hint("guided_decoding_backend", Shape::Text { bytes_max: 64 }, "there is one backend, llguidance"),
    refused("guided_whitespace_pattern", "white space is short; `structured_outputs.disable_any_whitespace` takes it away"),
    obeyed("priority", On::Both, PRIORITY, "order among the requests of one class and tenant, lower first; never changes the class"),
    obeyed("timeout", On::Both, TIMEOUT, "seconds after which the answer is worth nothing: it is ended, with 504 or an error event; a class may have a shorter one"),
    refused("cache_salt", "the prefix cache is shared by all callers"),
    refused("kv_transfer_params", "no transfer of KV blocks"),
    refused("vllm_xargs", "no extensions"),
    refused("thinking_token_budget", "no reasoning control"),
    refused("repetition_detection", "no repetition detection"),
    neutral("stream_interval", ONE, "an event a token"),
    // llama.cpp's extras.
    neutral("cache_prompt", ON, "prefixes are cached for all or for none"),
    neutral("id_slot", &[Neutral::Number(-1.0)], "there are no slots"),
    refused("n_predict", "send `max_tokens`"),
    obeyed("grammar", On::Both, Shape::Structured("a grammar in GBNF or Lark"), "the answer is a text of this grammar"),
    obeyed("json_schema", On::Both, Shape::Structured("a JSON schema, or its text"), "the answer is a document that this schema accepts"),
    neutral("mirostat", ZERO, "no mirostat"),
    refused("mirostat_tau", "no mirostat"),
    refused("mirostat_eta", "no mirostat"),
    neutral("dry_multiplier", ZERO, "no DRY penalty"),
    refused("dry_base", "no DRY penalty"),
    refused("dry_allowed_length", "no DRY penalty"),
    refused("dry_penalty_last_n", "no DRY penalty"),
    refused("dry_sequence_breakers", "no DRY penalty"),
    neutral("xtc_probability", ZERO, "no XTC"),
    refused("xtc_threshold", "no XTC"),
    neutral("typical_p", ONE, "no typical sampling"),
    neutral("repeat_penalty", ONE, "send `repetition_penalty`"),
    refused("repeat_last_n", "penalties look at everything"),
    neutral("reasoning_format", &[Neutral::Text("none")], "reasoning is part of the text"),
    refused("reasoning_control", "no reasoning control"),
    neutral("n_probs", ZERO, "no log probabilities"),
    refused("samplers", "the order of samplers is fixed"),
];

/// Extensions of vLLM's and llama.cpp's that mean the same in every dialect that generates:
/// rows of [`FIELDS`] that the tables of `/v1/responses` and `/v1/messages` share.
const SHARED: &[&str] = &[
    "chat_template_kwargs",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "priority",
    "repetition_penalty",
    "seed",
    "stop_token_ids",
    "timeout",
    "top_k",
];

impl Endpoint {
    /// The rows of its own; [`FIELDS`] for both older endpoints.
    pub fn table(self) -> &'static [Field] {
        match self {
            Endpoint::Chat | Endpoint::Completion => FIELDS,
            Endpoint::Responses => responses::FIELDS,
            Endpoint::Messages => messages::FIELDS,
            Endpoint::Embeddings => embeddings::FIELDS,
        }
    }

    /// Every field it reads or refuses by a row: its own table's, and those it shares.
    pub fn fields(self) -> impl Iterator<Item = &'static Field> {
        let own = self.table().iter();
        own.filter(move |field| field.on.includes(self))
            .chain(self.shared())
    }

    /// Rows of [`FIELDS`] that it reads although it has a table of its own.
    pub fn shared(self) -> impl Iterator<Item = &'static Field> {
        FIELDS.iter().filter(move |field| self.shares(field.name))
    }

    fn shares(self, name: &str) -> bool {
        let has_table = matches!(self, Endpoint::Responses | Endpoint::Messages);
        has_table && SHARED.contains(&name) && !self.table().iter().any(|field| field.name == name)
    }

    fn field(self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name)
    }

    /// Whether a field that this endpoint has no row for is one of another's, whose meaning it
    /// would be wrong to pass over.
    fn is_foreign(self, name: &str) -> bool {
        FIELDS.iter().any(|field| field.name == name)
    }
}

/// Refuses a field that asks for something not built, whatever the endpoint; passes every other.
pub(crate) fn expect_built(name: &str, value: &Value) -> Result<(), RequestError> {
    match FIELDS.iter().find(|field| field.name == name) {
        Some(field) if matches!(field.rule, Rule::Neutral(_) | Rule::Refused) => field.check(value),
        _ => Ok(()),
    }
}

/// A request's object after the walk: every known field is of its shape.
#[derive(Clone, Debug)]
pub struct Fields {
    endpoint: Endpoint,
    object: Map<String, Value>,
    /// Keys in no dialect we know, in the request's order.
    pub unknown: Vec<String>,
}

impl Fields {
    /// Walks an object along the table.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`] or [`RequestError::Unsupported`] for the first field, in
    /// the request's own order, that breaks its rule. A field of the other endpoint
    /// counts as unsupported here.
    pub fn read(object: Map<String, Value>, endpoint: Endpoint) -> Result<Fields, RequestError> {
        let mut unknown = Vec::new();
        for (key, value) in &object {
            if value.is_null() {
                continue;
            }
            match endpoint.field(key) {
                Some(field) => field.check(value)?,
                None if endpoint.is_foreign(key) => return Err(unsupported(key, &[])),
                None => unknown.push(key.clone()),
            }
        }
        Ok(Fields {
            endpoint,
            object,
            unknown,
        })
    }

    /// A field's value; `None` if absent or null.
    pub fn get(&self, name: &str) -> Option<&Value> {
        debug_assert!(
            self.endpoint.field(name).is_some() || self.endpoint.is_foreign(name),
            "{name} is in a table"
        );
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Takes a field's value out, to own it without a copy.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.object
            .get_mut(name)
            .map(Value::take)
            .filter(|value| !value.is_null())
    }

    pub(crate) fn is_chat(&self) -> bool {
        self.endpoint == Endpoint::Chat
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(Value::as_f64)
    }

    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(Value::as_bool)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }
}

impl On {
    fn includes(self, endpoint: Endpoint) -> bool {
        match self {
            On::Both | On::Own => true,
            On::Chat => endpoint == Endpoint::Chat,
            On::Completion => endpoint == Endpoint::Completion,
        }
    }
}

impl Field {
    fn check(&self, value: &Value) -> Result<(), RequestError> {
        match self.rule {
            Rule::Obeyed(shape) | Rule::Hint(shape) => shape.check(self.name, value),
            Rule::Neutral(accepted) if accepted.iter().any(|neutral| neutral.is(value)) => Ok(()),
            Rule::Neutral(accepted) => Err(unsupported(self.name, accepted)),
            Rule::Refused => Err(unsupported(self.name, &[])),
        }
    }
}

pub(crate) fn unsupported(param: &str, accepted: &[Neutral]) -> RequestError {
    let words: Vec<String> = accepted.iter().map(Neutral::says).collect();
    RequestError::Unsupported {
        param: param.to_owned(),
        accepted: words.join(" or "),
    }
}

impl Shape {
    fn check(&self, param: &str, value: &Value) -> Result<(), RequestError> {
        let fits = match self {
            Shape::Number { min, max, .. } => value
                .as_f64()
                .is_some_and(|number| (*min..=*max).contains(&number)),
            Shape::Integer { min, max } => value
                .as_i64()
                .is_some_and(|number| (*min..=*max).contains(&number)),
            Shape::Flag => value.is_boolean(),
            Shape::Text { bytes_max } => {
                value.as_str().is_some_and(|text| text.len() <= *bytes_max)
            }
            Shape::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Shape::Object => value.is_object(),
            // Its reader reports faults deeper down, with their path.
            Shape::Structured(_) => true,
        };
        if fits {
            Ok(())
        } else {
            Err(RequestError::invalid(param, self.says(), value))
        }
    }

    /// What is allowed, in words.
    pub fn says(&self) -> String {
        match self {
            Shape::Number { says, .. } | Shape::Structured(says) => (*says).to_owned(),
            Shape::Integer { min, max } => format!("an integer from {min} to {max}"),
            Shape::Flag => "true or false".to_owned(),
            Shape::Text { bytes_max } => format!("a string of at most {bytes_max} bytes"),
            Shape::OneOf(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                quoted.join(" or ")
            }
            Shape::Object => "an object".to_owned(),
        }
    }
}

impl Neutral {
    fn is(&self, value: &Value) -> bool {
        match self {
            Neutral::Flag(flag) => value.as_bool() == Some(*flag),
            Neutral::Number(number) => value.as_f64() == Some(*number),
            Neutral::Text(text) => value.as_str() == Some(text),
            Neutral::List(words) => value.as_array().is_some_and(|items| {
                items.len() == words.len()
                    && items
                        .iter()
                        .zip(*words)
                        .all(|(item, word)| item.as_str() == Some(word))
            }),
            Neutral::Type(word) => value.as_object().is_some_and(|object| {
                object.len() == 1 && object.get("type").and_then(Value::as_str) == Some(word)
            }),
        }
    }

    /// The value as JSON.
    pub fn says(&self) -> String {
        match self {
            Neutral::Flag(flag) => flag.to_string(),
            Neutral::Number(number) => number.to_string(),
            Neutral::Text(text) => format!("\"{text}\""),
            Neutral::List(words) => Value::from(words.to_vec()).to_string(),
            Neutral::Type(word) => format!("{{\"type\":\"{word}\"}}"),
        }
    }
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
