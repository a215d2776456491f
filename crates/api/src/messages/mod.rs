//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's dialect.
//!
//! A request becomes a chat request ([`crate::chat`]): blocks become messages, tool calls
//! and results; what Anthropic says with objects (`tool_choice`, `thinking`) becomes chat's
//! words for the same.
//!
//! Source: Anthropic's API reference, "Messages".

mod blocks; // what was said so far

pub mod answer;

use serde_json::{Map, Value, json};

use crate::Limits;
use crate::chat::ChatRequest;
use crate::conversation::{
    Renamed, Translation, Words, content_text, given, list_at, not_built, object_at, text_at,
};
use crate::error::RequestError;
use crate::fields::{Endpoint, Fields};
use crate::json as body_json;

/// What a body is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An answer, whose length must be bounded.
    Answer,
    /// How many tokens its prompt has.
    Count,
}

const WORDS: Words = Words {
    renamed: RENAMED,
    tool_schema: ".input_schema",
};

const RENAMED: &[Renamed] = &[
    ("stop", "stop_sequences"),
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    ("reasoning_effort", "output_config.effort"),
    ("chat_template_kwargs.enable_thinking", "thinking"),
    (
        "parallel_tool_calls",
        "tool_choice.disable_parallel_tool_use",
    ),
    ("continue_final_message", "messages"),
    ("add_generation_prompt", "messages"),
];

/// Reads a request body as the chat request it means.
///
/// # Errors
///
/// [`RequestError`], naming the field.
pub fn parse(body: &[u8], purpose: Purpose, limits: &Limits) -> Result<ChatRequest, RequestError> {
    let mut fields = Fields::read(body_json::object(body)?, Endpoint::Messages)?;
    let mut chat = Translation::default();
    if let Some(system) = fields.get("system") {
        let text = content_text(Some(system), "system", &["text"])?;
        chat.conversation.say("system", text, "system");
    }
    let messages = fields
        .take("messages")
        .ok_or_else(|| missing("messages", "a list of messages"))?;
    blocks::read(&messages, &mut chat.conversation, limits)?;
    if purpose == Purpose::Answer && fields.get("max_tokens").is_none() {
        return Err(missing("max_tokens", "a positive integer"));
    }
    for same in ["model", "max_tokens", "temperature", "top_p", "stream"] {
        chat.take(&mut fields, same, same);
    }
    // An empty list asks for nothing in both dialects.
    read_stops(fields.take("stop_sequences"), &mut chat)?;
    if fields.text("service_tier") == Some("standard_only") {
        // What OpenAI calls the same.
        chat.set("service_tier", "flex".into());
    }
    for field in Endpoint::Messages.shared() {
        chat.take(&mut fields, field.name, field.name);
    }
    chat.take(&mut fields, "top_k", "top_k");
    if chat.conversation.ends_with_the_assistant() {
        // The answer goes on with the assistant's last words.
        chat.set("continue_final_message", true.into());
        chat.set("add_generation_prompt", false.into());
    }
    read_thinking(fields.get("thinking"), &mut chat)?;
    read_output_config(fields.get("output_config"), &mut chat)?;
    if let Some(tools) = fields.get("tools") {
        chat.set("tools", chat_tools(tools, limits)?);
    }
    read_tool_choice(fields.get("tool_choice"), &mut chat)?;
    let mut request = chat.read(&WORDS, limits)?;
    request.unknown = fields.unknown;
    Ok(request)
}

fn missing(param: &str, expected: &str) -> RequestError {
    RequestError::Missing {
        param: param.to_owned(),
        expected: expected.to_owned(),
    }
}

fn read_stops(value: Option<Value>, chat: &mut Translation) -> Result<(), RequestError> {
    match value {
        None => (),
        Some(list @ Value::Array(_)) => chat.set("stop", list),
        Some(other) => {
            return Err(RequestError::invalid(
                "stop_sequences",
                "a list of strings",
                &other,
            ));
        }
    }
    Ok(())
}

fn read_thinking(value: Option<&Value>, chat: &mut Translation) -> Result<(), RequestError> {
    let Some(value) = value else {
        return Ok(());
    };
    let thinking = object_at(value, "thinking")?;
    let enabled = match text_at(thinking, "thinking", "type")? {
        "enabled" => {
            let budget = given(thinking, "budget_tokens").unwrap_or(&Value::Null);
            if budget.as_u64().is_none_or(|num_tokens| num_tokens < 1024) {
                let expected = "an integer of at least 1024";
                return Err(RequestError::invalid(
                    "thinking.budget_tokens",
                    expected,
                    budget,
                ));
            }
            true
        }
        "adaptive" => true,
        "disabled" => false,
        _ => {
            return Err(RequestError::Invalid {
                param: "thinking.type".to_owned(),
                expected: "\"enabled\", \"adaptive\" or \"disabled\"".to_owned(),
                got: "another word".to_owned(),
            });
        }
    };
    let variables = chat
        .object
        .entry("chat_template_kwargs")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(variables) = variables.as_object_mut() {
        variables
            .entry("enable_thinking")
            .or_insert(Value::Bool(enabled));
    }
    Ok(())
}

fn read_output_config(value: Option<&Value>, chat: &mut Translation) -> Result<(), RequestError> {
    let Some(value) = value else {
        return Ok(());
    };
    let config = object_at(value, "output_config")?;
    if let Some(effort) = given(config, "effort") {
        chat.set("reasoning_effort", effort.clone());
    }
    let Some(format) = given(config, "format") else {
        return Ok(());
    };
    let path = "output_config.format";
    let format = object_at(format, path)?;
    if text_at(format, path, "type")? != "json_schema" {
        return Err(not_built("output_config.format.type", "\"json_schema\""));
    }
    let schema = given(format, "schema")
        .ok_or_else(|| missing("output_config.format.schema", "a JSON schema"))?;
    let named = json!({"name": "output", "schema": schema, "strict": true});
    chat.set(
        "response_format",
        json!({"type": "json_schema", "json_schema": named}),
    );
    Ok(())
}

fn chat_tools(value: &Value, limits: &Limits) -> Result<Value, RequestError> {
    let tools = list_at(value, "tools", limits.num_messages_max)?;
    let nested = tools.iter().enumerate().map(|(idx, tool)| {
        let path = format!("tools[{idx}]");
        let tool = object_at(tool, &path)?;
        if given(tool, "type").is_some_and(|kind| kind != "custom") {
            return Err(not_built(format!("{path}.type"), "\"custom\""));
        }
        let mut function = Map::new();
        function.insert("name".to_owned(), text_at(tool, &path, "name")?.into());
        let schema = given(tool, "input_schema")
            .ok_or_else(|| missing(&format!("{path}.input_schema"), "a JSON schema"))?;
        object_at(schema, &format!("{path}.input_schema"))?;
        if let Some(description) = given(tool, "description") {
            function.insert("description".to_owned(), description.clone());
        }
        function.insert("parameters".to_owned(), schema.clone());
        if let Some(strict) = given(tool, "strict") {
            function.insert("strict".to_owned(), strict.clone());
        }
        Ok(json!({"type": "function", "function": function}))
    });
    Ok(Value::Array(nested.collect::<Result<_, _>>()?))
}

fn read_tool_choice(value: Option<&Value>, chat: &mut Translation) -> Result<(), RequestError> {
    let Some(value) = value else {
        return Ok(());
    };
    let choice = object_at(value, "tool_choice")?;
    let said = match text_at(choice, "tool_choice", "type")? {
        "auto" => json!("auto"),
        "any" => json!("required"),
        "none" => json!("none"),
        "tool" => {
            let name = text_at(choice, "tool_choice", "name")?;
            json!({"type": "function", "function": {"name": name}})
        }
        _ => {
            return Err(RequestError::Invalid {
                param: "tool_choice.type".to_owned(),
                expected: "\"auto\", \"any\", \"tool\" or \"none\"".to_owned(),
                got: "another word".to_owned(),
            });
        }
    };
    chat.set("tool_choice", said);
    match given(choice, "disable_parallel_tool_use") {
        None => (),
        Some(Value::Bool(disabled)) => chat.set("parallel_tool_calls", (!disabled).into()),
        Some(other) => {
            let param = "tool_choice.disable_parallel_tool_use";
            return Err(RequestError::invalid(param, "true or false", other));
        }
    }
    Ok(())
}
