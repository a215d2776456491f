//! Every field of `/v1/responses`.
//!
//! Source: OpenAI's reference, "Responses".

use crate::urgency::SERVICE_TIERS;

use super::{
    Field, NOTHING, Neutral, OFF, On, Shape, TEMPERATURE, TOKENS_MAX, TOP_P, hint, neutral, obeyed,
    refused,
};

/// The table. What it says is translated into a chat request (`api::responses`).
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    // What is asked, and how it comes back.
    obeyed("model", On::Own, Shape::Text { bytes_max: 512 }, "a served name; the default model if absent"),
    obeyed("input", On::Own, Shape::Structured("a string or a list of items"), "items of type `message` (text parts), `function_call`, `function_call_output`, `reasoning`"),
    obeyed("instructions", On::Own, Shape::Structured("a string"), "the system message; not carried over by `previous_response_id`"),
    obeyed("previous_response_id", On::Own, Shape::Text { bytes_max: 128 }, "goes on after a stored response; 400 if it is not stored (any more)"),
    obeyed("store", On::Own, Shape::Flag, "keep the response in memory, within bounds, the oldest leave first; default true"),
    obeyed("background", On::Own, Shape::Flag, "answer at once and work on without a client; only with `store`, not with `stream`"),
    obeyed("stream", On::Own, Shape::Flag, "server-sent events with names"),
    obeyed("stream_options", On::Own, Shape::Structured("an object"), "`include_obfuscation` must be false; only with `stream`"),
    obeyed("include", On::Own, Shape::Structured("a list of words"), "`reasoning.encrypted_content` and what belongs to tools that are not built ask for nothing: reasoning comes in the clear"),
    // When the answer ends, and how tokens are chosen.
    obeyed("max_output_tokens", On::Own, Shape::Integer { min: 1, max: TOKENS_MAX }, "answer tokens at most, reasoning included; with the prompt it must fit the context"),
    obeyed("temperature", On::Own, TEMPERATURE, "0 is greedy"),
    obeyed("top_p", On::Own, TOP_P, "1 is off"),
    obeyed("text", On::Own, Shape::Structured("an object"), "`format` (`text`, `json_object`, `json_schema`) as `response_format` of chat; `verbosity` must be `medium`"),
    obeyed("reasoning", On::Own, Shape::Structured("an object"), "`effort` as `reasoning_effort` of chat; `summary` is a hint: the reasoning itself is told"),
    obeyed("tools", On::Own, Shape::Structured("a list of tools"), "type `function` only"),
    obeyed("tool_choice", On::Own, Shape::Structured("\"none\", \"auto\", \"required\" or a function"), "as in chat"),
    obeyed("parallel_tool_calls", On::Own, Shape::Flag, "as in chat"),
    // Labels and hints.
    hint("metadata", Shape::Object, "labels; told back"),
    hint("user", Shape::Text { bytes_max: 4096 }, "a label; told back"),
    hint("safety_identifier", Shape::Text { bytes_max: 4096 }, "a label; told back"),
    hint("prompt_cache_key", Shape::Text { bytes_max: 4096 }, "a hint; prefixes are always found by content"),
    obeyed("service_tier", On::Own, Shape::OneOf(SERVICE_TIERS), "as in chat"),
    hint("max_tool_calls", Shape::Integer { min: 1, max: i32::MAX as i64 }, "counts calls of built-in tools only, and there are none"),
    // Not built.
    neutral("truncation", &[Neutral::Text("disabled")], "a conversation is never cut"),
    neutral("top_logprobs", super::ZERO, "no log probabilities; chat has them"),
    neutral("prompt_cache_retention", &[Neutral::Text("in_memory")], "the prefix cache is in memory"),
    neutral("context_management", NOTHING, "a conversation is never cut"),
    neutral("generate", &[Neutral::Flag(true)], "a response is an answer"),
    neutral("enable_response_messages", OFF, "items only"),
    hint("prompt_cache_options", Shape::Object, "hints; prefixes are always found by content"),
    refused("access_programs", "there are none"),
    refused("background_options", "a background response is begun at once"),
    refused("image", "text only"),
    refused("conversation", "no conversation objects; `previous_response_id` goes on"),
    refused("prompt", "no stored prompts"),
    refused("moderation", "no moderation"),
];
