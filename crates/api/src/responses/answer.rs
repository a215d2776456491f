//! What `/v1/responses` says: the response, its items, and the events of a stream.
//!
//! Strict: every key that the SDKs' types demand is there. A stream opens and closes each
//! item and each of its parts with events of their own; clients wait for every `…done`.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Storage, Terms};
use crate::answer::{Empty, Never, Usage};

/// A response, finished or not.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Response {
    /// `resp_…`.
    pub id: String,
    /// `response`.
    pub object: &'static str,
    /// Seconds since 1970, UTC.
    pub created_at: u64,
    /// The same, of its end.
    pub completed_at: Option<u64>,
    /// How far it is.
    pub status: Status,
    /// Whether it was made without a client.
    pub background: bool,
    /// Why there is none.
    pub error: Option<ResponseError>,
    /// Why it is cut short.
    pub incomplete_details: Option<IncompleteDetails>,
    /// As asked.
    pub instructions: Option<String>,
    /// As asked.
    pub max_output_tokens: Option<u64>,
    /// As asked.
    pub max_tool_calls: Option<u64>,
    /// As asked.
    pub metadata: Value,
    /// The served name.
    pub model: String,
    /// What was said.
    pub output: Vec<OutputItem>,
    /// As asked.
    pub parallel_tool_calls: bool,
    /// As asked.
    pub previous_response_id: Option<String>,
    /// As asked.
    pub prompt_cache_key: Option<String>,
    /// As asked.
    pub reasoning: Value,
    /// As asked.
    pub safety_identifier: Option<String>,
    /// The tier that was had.
    pub service_tier: &'static str,
    /// Whether it can be asked for later.
    pub store: bool,
    /// What was used.
    pub temperature: f64,
    /// As asked.
    pub text: Value,
    /// As asked.
    pub tool_choice: Value,
    /// As asked.
    pub tools: Value,
    /// 0.
    pub top_logprobs: u32,
    /// What was used.
    pub top_p: f64,
    /// `disabled`.
    pub truncation: &'static str,
    /// Token counts, at the end.
    pub usage: Option<ResponseUsage>,
    /// As asked.
    pub user: Option<String>,
}

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits, and nobody for it.
    Queued,
    /// It is being made.
    InProgress,
    /// All of it is there.
    Completed,
    /// It was cut short.
    Incomplete,
    /// The server could not finish it.
    Failed,
    /// A client ended it.
    Cancelled,
}

/// Why there is no response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ResponseError {
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// Why a response is cut short.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens`.
    pub reason: &'static str,
}

/// Token counts in this dialect's words.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct ResponseUsage {
    /// Prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// More about them.
    pub input_tokens_details: InputTokensDetails,
    /// Answer tokens, reasoning included.
    pub output_tokens: u64,
    /// More about them.
    pub output_tokens_details: OutputTokensDetails,
    /// Both.
    pub total_tokens: u64,
}

/// More about a prompt's tokens.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct InputTokensDetails {
    /// Taken from the prefix cache.
    pub cached_tokens: u64,
}

/// More about an answer's tokens.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct OutputTokensDetails {
    /// Of reasoning.
    pub reasoning_tokens: u64,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> ResponseUsage {
        ResponseUsage {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: usage.completion_tokens_details.reasoning_tokens,
            },
            total_tokens: usage.total_tokens,
        }
    }
}

/// Something the model said.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// To the reader.
    Message {
        /// `msg_…`.
        id: String,
        /// `assistant`.
        role: &'static str,
        /// How far it is.
        status: Status,
        /// One text, once it began.
        content: Vec<ContentPart>,
    },
    /// To a tool.
    FunctionCall {
        /// `fc_…`.
        id: String,
        /// What its result refers to.
        call_id: String,
        /// The function.
        name: String,
        /// JSON text.
        arguments: String,
        /// How far it is.
        status: Status,
    },
    /// To itself.
    Reasoning {
        /// `rs_…`.
        id: String,
        /// Empty: the reasoning itself is told.
        summary: Empty,
        /// One text, once it began.
        content: Vec<ContentPart>,
        /// `null`: the reasoning is told in the clear.
        encrypted_content: Never,
        /// How far it is.
        status: Status,
    },
}

/// A part of an item.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Of a message.
    OutputText {
        /// The text.
        text: String,
        /// Empty: nothing is cited.
        annotations: Empty,
        /// Empty: chat has them.
        logprobs: Empty,
    },
    /// Of reasoning.
    ReasoningText {
        /// The text.
        text: String,
    },
}

/// What a response is about, beside its terms.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `resp_…`.
    pub id: String,
    /// Seconds since 1970, UTC.
    pub created_at: u64,
    /// The served name.
    pub model: String,
    /// The temperature used.
    pub temperature: f64,
    /// The `top_p` used.
    pub top_p: f64,
    /// The tier that was had; `default` if none was asked for.
    pub service_tier: &'static str,
}

impl Response {
    /// One of which nothing was said yet.
    pub fn new(subject: Subject, terms: &Terms, status: Status) -> Response {
        Response {
            id: subject.id,
            object: "response",
            created_at: subject.created_at,
            completed_at: None,
            status,
            background: terms.attendance == super::Attendance::Background,
            error: None,
            incomplete_details: None,
            instructions: terms.instructions.clone(),
            max_output_tokens: terms.max_output_tokens,
            max_tool_calls: terms.max_tool_calls,
            metadata: terms.metadata.clone(),
            model: subject.model,
            output: Vec::new(),
            parallel_tool_calls: terms.parallel_tool_calls,
            previous_response_id: terms.previous_response_id.clone(),
            prompt_cache_key: terms.prompt_cache_key.clone(),
            reasoning: terms.reasoning.clone(),
            safety_identifier: terms.safety_identifier.clone(),
            service_tier: subject.service_tier,
            store: terms.storage == Storage::Kept,
            temperature: subject.temperature,
            text: terms.text.clone(),
            tool_choice: terms.tool_choice.clone(),
            tools: terms.tools.clone(),
            top_logprobs: 0,
            top_p: subject.top_p,
            truncation: "disabled",
            usage: None,
            user: terms.user.clone(),
        }
    }
}

/// An event of a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Event<'a> {
    /// Its name, which stands in the frame too.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Counts up from 0.
    pub sequence_number: u64,
    /// What happened.
    #[serde(flatten)]
    pub happened: Happened<'a>,
}

/// What an event tells.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Happened<'a> {
    /// `response.created`, `.in_progress`, `.completed`, `.incomplete`, `.failed`.
    Whole {
        /// As it stands now.
        response: &'a Response,
    },
    /// `response.output_item.added`, `.done`.
    Item {
        /// Which.
        output_index: usize,
        /// As it stands now.
        item: &'a OutputItem,
    },
    /// `response.content_part.added`, `.done`.
    Part {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// 0.
        content_index: usize,
        /// As it stands now.
        part: &'a ContentPart,
    },
    /// `response.output_text.delta`.
    TextDelta {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// 0.
        content_index: usize,
        /// More text.
        delta: &'a str,
        /// Empty: chat has them.
        logprobs: Empty,
    },
    /// `response.output_text.done`.
    TextDone {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// 0.
        content_index: usize,
        /// All of it.
        text: &'a str,
        /// Empty: chat has them.
        logprobs: Empty,
    },
    /// `response.reasoning_text.delta`.
    ReasoningDelta {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// 0.
        content_index: usize,
        /// More text.
        delta: &'a str,
    },
    /// `response.reasoning_text.done`.
    ReasoningDone {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// 0.
        content_index: usize,
        /// All of it.
        text: &'a str,
    },
    /// `response.function_call_arguments.delta`.
    ArgumentsDelta {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// More JSON text.
        delta: &'a str,
    },
    /// `response.function_call_arguments.done`.
    ArgumentsDone {
        /// The item.
        item_id: &'a str,
        /// Its index.
        output_index: usize,
        /// The function.
        name: &'a str,
        /// All of it.
        arguments: &'a str,
    },
}

/// `GET /v1/responses/{id}/input_items`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ItemList<'a> {
    /// `list`.
    pub object: &'static str,
    /// The items.
    pub data: Vec<&'a Value>,
    /// Id of the first.
    pub first_id: Option<&'a str>,
    /// Id of the last.
    pub last_id: Option<&'a str>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// `DELETE /v1/responses/{id}`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Deleted<'a> {
    /// Of the response that was.
    pub id: &'a str,
    /// `response`.
    pub object: &'static str,
    /// `true`.
    pub deleted: bool,
}
