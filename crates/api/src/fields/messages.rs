//! Every field of `/v1/messages` and `/v1/messages/count_tokens`.
//!
//! Source: Anthropic's reference, "Messages".

use super::{
    Field, NOTHING, Neutral, On, Shape, TOKENS_MAX, TOP_P, hint, neutral, obeyed, refused,
};

const TEMPERATURE: Shape = Shape::Number {
    min: 0.0,
    max: 1.0,
    says: "a number from 0 to 1",
};

/// The table. What it says is translated into a chat request (`api::messages`).
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    // What is asked, and how it comes back.
    obeyed("model", On::Own, Shape::Text { bytes_max: 512 }, "a served name; the default model if absent"),
    obeyed("messages", On::Own, Shape::Structured("a list of messages"), "blocks of type `text`, `tool_use`, `tool_result`, `thinking`; the result of a failed tool (`is_error`) is told as `Error: …`"),
    obeyed("system", On::Own, Shape::Structured("a string or a list of text blocks"), "the system message"),
    obeyed("stream", On::Own, Shape::Flag, "server-sent events with names"),
    // When the answer ends, and how tokens are chosen.
    obeyed("max_tokens", On::Own, Shape::Integer { min: 1, max: TOKENS_MAX }, "required but for `count_tokens`; with the prompt it must fit the context"),
    obeyed("stop_sequences", On::Own, Shape::Structured("a list of at most 4 non-empty strings"), "texts that end the answer and are not part of it"),
    obeyed("temperature", On::Own, TEMPERATURE, "0 is greedy"),
    obeyed("top_p", On::Own, TOP_P, "1 is off"),
    obeyed("top_k", On::Own, Shape::Integer { min: 0, max: i32::MAX as i64 }, "0 is off"),
    obeyed("thinking", On::Own, Shape::Structured("an object"), "`type` `enabled`, `adaptive` or `disabled` sets the template's `enable_thinking`; `budget_tokens` is a hint, `max_tokens` is the bound"),
    obeyed("output_config", On::Own, Shape::Structured("an object"), "`format` of type `json_schema` as `response_format` of chat, `effort` as `reasoning_effort`"),
    obeyed("tools", On::Own, Shape::Structured("a list of tools"), "tools with an `input_schema`; none that a server would run"),
    obeyed("tool_choice", On::Own, Shape::Structured("an object"), "`type` `auto`, `any`, `tool` or `none`; `disable_parallel_tool_use`"),
    // Labels and hints.
    hint("metadata", Shape::Object, "labels"),
    obeyed("service_tier", On::Own, Shape::OneOf(&["auto", "standard_only"]), "`standard_only` is the class standard; see the guide on classes"),
    hint("cache_control", Shape::Object, "a hint, here and on every block; prefixes are always found by content"),
    // Not built.
    neutral("mcp_servers", NOTHING, "no remote tools"),
    neutral("betas", NOTHING, "no beta features"),
    hint("user_profile_id", Shape::Text { bytes_max: 4096 }, "a label"),
    neutral("speed", &[Neutral::Text("standard")], "there is one speed"),
    refused("diagnostics", "no diagnostics of the prefix cache"),
    refused("output_format", "send `output_config.format`"),
    refused("container", "no containers"),
    refused("context_management", "a conversation is never cut"),
    refused("inference_geo", "there is one place"),
];
