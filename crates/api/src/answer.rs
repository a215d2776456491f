//! What goes out: whole answers, stream chunks, the list of models, errors.
//!
//! Strict: every key of OpenAI's schema is there, in a fixed order, and `finish_reason`
//! is `null` or an allowed word. Types borrow, because a chunk is written once per token.

use serde::{Serialize, Serializer};
use utoipa::openapi::{ArrayBuilder, RefOr, Schema, schema};
use utoipa::{PartialSchema, ToSchema};

use crate::logprobs::{ChatLogprobs, CompletionLogprobs, PromptPlace};
use crate::timeline::Timeline;

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// The answer limit or the context.
    Length,
    /// Calls, all of them complete.
    ToolCalls,
    /// The server ended it; an error event follows (a word of vLLM's, not of OpenAI's).
    Abort,
}

/// What stopped a choice, if it was the request's own `stop` or `stop_token_ids`
/// (vLLM's extension; the key is absent otherwise).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StopReason {
    /// The stop string.
    Text(String),
    /// The stop token.
    Token(u32),
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Answer tokens.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// More about the prompt.
    pub prompt_tokens_details: PromptTokensDetails,
    /// More about the answer.
    pub completion_tokens_details: CompletionTokensDetails,
}

/// More about an answer's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompletionTokensDetails {
    /// Of reasoning, where it can be told apart.
    pub reasoning_tokens: u64,
}

/// More about a prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokensDetails {
    /// Taken from the prefix cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// Adds up.
    pub fn new(num_prompt: u64, num_cached: u64, num_completion: u64) -> Usage {
        Usage {
            prompt_tokens: num_prompt,
            completion_tokens: num_completion,
            total_tokens: num_prompt + num_completion,
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: num_cached,
            },
            completion_tokens_details: CompletionTokensDetails::default(),
        }
    }

    /// The same, with `num_reasoning` of the answer tokens told as reasoning.
    #[must_use]
    pub fn with_reasoning(self, num_reasoning: u64) -> Usage {
        Usage {
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: num_reasoning,
            },
            ..self
        }
    }
}

/// What all documents of one answer have in common.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Head<'a> {
    /// `chatcmpl-…` or `cmpl-…`.
    pub id: &'a str,
    /// The kind of document.
    // Under its own name it would be taken for any object.
    #[schema(value_type = Kind)]
    pub object: Object,
    /// Seconds since 1970, UTC.
    pub created: u64,
    /// The served name the request used.
    pub model: &'a str,
    /// Equal fingerprints give equal greedy bytes.
    pub system_fingerprint: &'a str,
    /// The tier that was had, if the request names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'static str>,
}

type Kind = Object;

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum Object {
    /// A whole chat answer.
    #[serde(rename = "chat.completion")]
    Chat,
    /// A part of one.
    #[serde(rename = "chat.completion.chunk")]
    ChatChunk,
    /// A whole completion, or a part of one.
    #[serde(rename = "text_completion")]
    Completion,
}

/// A whole answer or a chunk of one; `C` is the type of its choices.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Document<'a, C> {
    /// Identity.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// One per choice; none in the chunk that carries usage.
    pub choices: &'a [C],
    /// Token counts.
    #[serde(skip_serializing_if = "UsageField::is_absent")]
    pub usage: UsageField,
    /// What else was asked for.
    #[serde(flatten)]
    pub extras: DocumentExtras<'a>,
}

/// Keys that are there only if asked for (vLLM's extensions), and llama.cpp's timings.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct DocumentExtras<'a> {
    /// The prompt of a chat answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<&'a [u32]>,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<&'a str>,
    /// How likely each of its tokens was; nothing precedes the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<&'a [Option<PromptPlace>]>,
    /// Where the time went: in whole answers and in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// The same in full, by choice, if the request's header asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Vec<Timeline>>,
}

/// llama.cpp's account of where the time went. Of several choices tokens are added up, and
/// the longest times count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Timings {
    /// Prompt tokens taken from the prefix cache.
    pub cache_n: u64,
    /// Prompt tokens computed.
    pub prompt_n: u64,
    /// Milliseconds from the first step to the first token.
    pub prompt_ms: f64,
    /// The same a token.
    pub prompt_per_token_ms: f64,
    /// Tokens a second; 0 where no time was measured.
    pub prompt_per_second: f64,
    /// Answer tokens.
    pub predicted_n: u64,
    /// Milliseconds from the first token to the last.
    pub predicted_ms: f64,
    /// The same a token.
    pub predicted_per_token_ms: f64,
    /// Tokens a second; 0 where no time was measured.
    pub predicted_per_second: f64,
    /// Milliseconds from the request's arrival to its first step; absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<f64>,
}

/// The `usage` key of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageField {
    /// No such key: the stream was not asked for usage.
    Absent,
    /// `null`: it comes later.
    Null,
    /// The counts.
    Told(Usage),
}

impl UsageField {
    fn is_absent(&self) -> bool {
        *self == UsageField::Absent
    }
}

impl PartialSchema for UsageField {
    fn schema() -> RefOr<Schema> {
        Option::<Usage>::schema()
    }
}

impl ToSchema for UsageField {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Option::<Usage>::schemas(schemas);
    }
}

impl Serialize for UsageField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            UsageField::Absent | UsageField::Null => serializer.serialize_none(),
            UsageField::Told(usage) => usage.serialize(serializer),
        }
    }
}

/// Always `null`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Never;

impl PartialSchema for Never {
    fn schema() -> RefOr<Schema> {
        schema::Object::with_type(schema::Type::Null).into()
    }
}

impl ToSchema for Never {}

/// Always `[]`.
#[derive(Clone, Copy, Debug)]
pub struct Empty;

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(std::iter::empty::<()>())
    }
}

impl PartialSchema for Empty {
    fn schema() -> RefOr<Schema> {
        let array = ArrayBuilder::new().items(Never::schema());
        array.max_items(Some(0)).into()
    }
}

impl ToSchema for Empty {}

/// A choice of a whole chat answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatChoice<'a> {
    /// Which.
    pub index: u32,
    /// What was said.
    pub message: ChatMessage<'a>,
    /// Of all its tokens, if asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Ids of its tokens, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What was said.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatMessage<'a> {
    /// `assistant`.
    pub role: &'static str,
    /// The text; `null` if there are only calls.
    pub content: Option<&'a str>,
    /// `null`.
    pub refusal: Never,
    /// What was thought, under the two names that clients look for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<&'a str>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<&'a str>,
    /// What was called; absent if nothing was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall<'a>>,
}

/// A call in a whole answer.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct ToolCall<'a> {
    /// What its result refers to.
    pub id: &'a str,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is called with what.
    pub function: CalledFunction<'a>,
}

/// What is called with what.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct CalledFunction<'a> {
    /// The function; absent in a chunk that goes on with its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// JSON text, or more of it.
    pub arguments: &'a str,
}

/// What is new of a call in a chat chunk.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct ToolCallDelta<'a> {
    /// Which of the answer's calls.
    pub index: usize,
    /// What its result refers to, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    /// `function`, in the first chunk.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// What is new.
    pub function: CalledFunction<'a>,
}

/// A choice of a chat chunk.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatChunkChoice<'a> {
    /// Which.
    pub index: u32,
    /// What is new.
    pub delta: Delta<'a>,
    /// Of the tokens that are new, if asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// `null` until the terminal chunk.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Ids of its tokens, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What is new in a chat chunk; empty in the terminal one.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct Delta<'a> {
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// More text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
    /// More of what is thought, under the two names that clients look for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<&'a str>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<&'a str>,
    /// More of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<[ToolCallDelta<'a>; 1]>,
}

/// A choice of a completion, whole or chunk.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CompletionChoice<'a> {
    /// Which prompt it answers.
    pub index: u32,
    /// The text, or more of it.
    pub text: &'a str,
    /// Of its tokens, if asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// `null` until the terminal chunk.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Ids of its tokens, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Its prompt's, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<&'a [u32]>,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<&'a str>,
    /// How likely each token of the prompt was; nothing precedes the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<PromptPlace>>>,
}

/// `/v1/models`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelList<'a> {
    /// `list`.
    pub object: &'static str,
    /// One per served name.
    pub data: Vec<ModelCard<'a>>,
}

/// `/v1/models/{id}`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelCard<'a> {
    /// The served name.
    pub id: &'a str,
    /// `model`.
    pub object: &'static str,
    /// When it was loaded, seconds since 1970.
    pub created: u64,
    /// Who serves it.
    pub owned_by: &'static str,
    /// The model behind the name.
    pub root: &'a str,
    /// `null`: no adapter.
    pub parent: Never,
    /// Context in tokens.
    pub max_model_len: usize,
}

/// `/version`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Version<'a> {
    /// Of this server.
    pub version: &'a str,
}

/// The health routes, while all is well.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Healthy {
    /// `ok`.
    pub status: &'static str,
}

/// `/livez`, while all is well.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Alive {
    /// `ok`.
    pub status: &'static str,
    /// `loading`, `idle` or `busy`.
    pub engine: &'static str,
}

/// `/openapi.json`, as far as it describes itself.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Described {
    /// The version of OpenAPI.
    pub openapi: String,
    /// By path and method.
    pub paths: std::collections::BTreeMap<String, serde_json::Value>,
}

/// `{"error": …}`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody<'a> {
    /// The error.
    pub error: ErrorObject<'a>,
}

/// OpenAI's error object.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorObject<'a> {
    /// For people.
    pub message: &'a str,
    /// The class, as in `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field at fault.
    pub param: Option<&'a str>,
    /// For programs.
    pub code: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head<'_> = Head {
        id: "chatcmpl-1",
        object: Object::ChatChunk,
        created: 7,
        model: "m",
        system_fingerprint: "f",
        service_tier: None,
    };

    fn chunk(delta: Delta<'_>, finish_reason: Option<FinishReason>, usage: UsageField) -> String {
        let choices = [ChatChunkChoice {
            index: 0,
            delta,
            logprobs: None,
            token_ids: None,
            finish_reason,
            stop_reason: None,
        }];
        let document = Document {
            head: HEAD,
            choices: &choices,
            usage,
            extras: DocumentExtras::default(),
        };
        serde_json::to_string(&document).unwrap()
    }

    #[test]
    fn a_chunk_has_every_key_of_the_schema() {
        let delta = Delta {
            role: None,
            content: Some("Hel"),
            ..Delta::default()
        };
        assert_eq!(
            chunk(delta, None, UsageField::Null),
            concat!(
                r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","#,
                r#""system_fingerprint":"f","choices":[{"index":0,"delta":{"content":"Hel"},"#,
                r#""logprobs":null,"finish_reason":null}],"usage":null}"#
            )
        );
    }

    /// Case A5.
    #[test]
    fn a_stream_not_asked_for_usage_has_no_such_key() {
        let terminal = chunk(
            Delta::default(),
            Some(FinishReason::Length),
            UsageField::Absent,
        );
        assert!(
            terminal.ends_with(r#""delta":{},"logprobs":null,"finish_reason":"length"}]}"#),
            "{terminal}"
        );
    }

    #[test]
    fn the_usage_chunk_has_no_choices() {
        let choices: [ChatChunkChoice<'_>; 0] = [];
        let usage = UsageField::Told(Usage::new(10, 8, 5));
        let json = serde_json::to_string(&Document {
            head: HEAD,
            choices: &choices,
            usage,
            extras: DocumentExtras::default(),
        })
        .unwrap();
        assert!(json.ends_with(concat!(
            r#""choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"#,
            r#""prompt_tokens_details":{"cached_tokens":8},"#,
            r#""completion_tokens_details":{"reasoning_tokens":0}}}"#
        )), "{json}");
    }
}
