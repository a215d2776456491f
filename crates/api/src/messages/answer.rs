//! What `/v1/messages` says: the message, its blocks, the events of a stream, errors.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer::{self, Never};

/// An answer, or the beginning of one.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnthropicMessage)]
pub struct Message<'a> {
    /// `msg_…`.
    pub id: &'a str,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `assistant`.
    pub role: &'static str,
    /// The served name.
    pub model: &'a str,
    /// What was said.
    pub content: Vec<Block<'a>>,
    /// Why it ended; `null` at the beginning of a stream.
    pub stop_reason: Option<StopReason>,
    /// What ended it, if a stop sequence did.
    pub stop_sequence: Option<&'a str>,
    /// Token counts.
    pub usage: Usage,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicStopReason)]
pub enum StopReason {
    /// By itself.
    EndTurn,
    /// At its limit.
    MaxTokens,
    /// At a text of `stop_sequences`.
    StopSequence,
    /// It waits for a tool.
    ToolUse,
}

/// A piece of an answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicBlock)]
pub enum Block<'a> {
    /// To the reader.
    Text {
        /// The text.
        text: &'a str,
        /// `null`: nothing is cited.
        citations: Never,
    },
    /// To itself.
    Thinking {
        /// The text.
        thinking: &'a str,
        /// Empty: nothing is signed.
        signature: &'static str,
    },
    /// To a tool.
    ToolUse {
        /// What its result refers to.
        id: &'a str,
        /// The tool.
        name: &'a str,
        /// Arguments; empty at the beginning of a stream.
        input: Value,
    },
}

/// Token counts in this dialect's words: what was cached is counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicUsage)]
pub struct Usage {
    /// Prompt tokens that were computed.
    pub input_tokens: u64,
    /// 0: the cache costs nothing to fill.
    pub cache_creation_input_tokens: u64,
    /// Prompt tokens taken from the prefix cache.
    pub cache_read_input_tokens: u64,
    /// Answer tokens, thinking included.
    pub output_tokens: u64,
}

impl From<answer::Usage> for Usage {
    fn from(usage: answer::Usage) -> Usage {
        let num_cached = usage.prompt_tokens_details.cached_tokens;
        Usage {
            input_tokens: usage.prompt_tokens.saturating_sub(num_cached),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: num_cached,
            output_tokens: usage.completion_tokens,
        }
    }
}

/// An event of a stream; its name is its type.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicEvent)]
pub enum Event<'a> {
    /// The first.
    MessageStart {
        /// Without content.
        message: Message<'a>,
    },
    /// A block begins.
    ContentBlockStart {
        /// Which.
        index: usize,
        /// Empty.
        content_block: Block<'a>,
    },
    /// More of it.
    ContentBlockDelta {
        /// Which.
        index: usize,
        /// What is new.
        delta: BlockDelta<'a>,
    },
    /// It ends.
    ContentBlockStop {
        /// Which.
        index: usize,
    },
    /// The end, and why.
    MessageDelta {
        /// Why.
        delta: MessageDelta<'a>,
        /// All counts.
        usage: Usage,
    },
    /// The last.
    MessageStop,
    /// A sign of life.
    Ping,
    /// The last instead, if the server fails.
    Error {
        /// Why.
        error: ErrorObject<'a>,
    },
}

impl Event<'_> {
    /// The event's name.
    pub fn name(&self) -> &'static str {
        match self {
            Event::MessageStart { .. } => "message_start",
            Event::ContentBlockStart { .. } => "content_block_start",
            Event::ContentBlockDelta { .. } => "content_block_delta",
            Event::ContentBlockStop { .. } => "content_block_stop",
            Event::MessageDelta { .. } => "message_delta",
            Event::MessageStop => "message_stop",
            Event::Ping => "ping",
            Event::Error { .. } => "error",
        }
    }
}

/// What is new in a block.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicBlockDelta)]
pub enum BlockDelta<'a> {
    /// More text.
    TextDelta {
        /// It.
        text: &'a str,
    },
    /// More thinking.
    ThinkingDelta {
        /// It.
        thinking: &'a str,
    },
    /// More of a tool's arguments.
    InputJsonDelta {
        /// JSON text, which need not be whole.
        partial_json: &'a str,
    },
}

/// How a message ended.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = AnthropicMessageDelta)]
pub struct MessageDelta<'a> {
    /// Why.
    pub stop_reason: StopReason,
    /// What ended it, if a stop sequence did.
    pub stop_sequence: Option<&'a str>,
}

/// `/v1/messages/count_tokens`.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = AnthropicTokenCount)]
pub struct TokenCount {
    /// Of the whole prompt.
    pub input_tokens: u64,
}

/// An error document.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnthropicErrorBody)]
pub struct ErrorBody<'a> {
    /// `error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The error.
    pub error: ErrorObject<'a>,
    /// Of the request, as in the headers.
    pub request_id: Option<&'a str>,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnthropicErrorObject)]
pub struct ErrorObject<'a> {
    /// The class, as in `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// For people.
    pub message: &'a str,
}
