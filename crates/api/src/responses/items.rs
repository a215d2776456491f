//! Items of a conversation: messages, calls, their results, reasoning.

use serde_json::{Value, json};

use super::Object;
use crate::Limits;
use crate::conversation::{
    Conversation, content_text, given, list_at, not_built, object_at, text_at,
};
use crate::error::RequestError;

const FORMS: &str = "a string or a list of items";
/// Text parts of either side.
const TEXTS: &[&str] = &["input_text", "output_text", "text", "refusal"];

/// The request's items, each with a type and an id, so that they can be listed later.
pub(super) fn read_input(
    value: Option<Value>,
    limits: &Limits,
) -> Result<Vec<Value>, RequestError> {
    let mut items = match value {
        None => {
            return Err(RequestError::Missing {
                param: "input".to_owned(),
                expected: FORMS.to_owned(),
            });
        }
        Some(Value::String(text)) => {
            let content = json!([{"type": "input_text", "text": text}]);
            vec![json!({"type": "message", "role": "user", "content": content})]
        }
        Some(Value::Array(items)) if items.is_empty() => {
            let empty = Value::Array(items);
            return Err(RequestError::invalid("input", "not empty", &empty));
        }
        Some(list @ Value::Array(_)) => {
            list_at(&list, "input", limits.num_messages_max)?;
            let Value::Array(items) = list else {
                unreachable!("matched above")
            };
            items
        }
        Some(other) => return Err(RequestError::invalid("input", FORMS, &other)),
    };
    for (idx, item) in items.iter_mut().enumerate() {
        let path = format!("input[{idx}]");
        let got = item.clone();
        let Value::Object(item) = item else {
            return Err(RequestError::invalid(path, "an item", &got));
        };
        complete(item, &path)?;
    }
    Ok(items)
}

/// The short form of a message leaves its type out and may have plain text as content;
/// listed items are always in the long form.
fn complete(item: &mut Object, path: &str) -> Result<(), RequestError> {
    if given(item, "type").is_none() && given(item, "role").is_some() {
        item.insert("type".to_owned(), "message".into());
    }
    let kind = text_at(item, path, "type")?.to_owned();
    if kind == "message" {
        let part = match given(item, "role").and_then(Value::as_str) {
            Some("assistant") => "output_text",
            _ => "input_text",
        };
        if let Some(Value::String(text)) = given(item, "content") {
            let content = match part {
                "output_text" => json!([{"type": part, "text": text, "annotations": []}]),
                _ => json!([{"type": part, "text": text}]),
            };
            item.insert("content".to_owned(), content);
        }
        item.entry("status").or_insert("completed".into());
    }
    Ok(())
}

/// Adds an item to a conversation.
pub(super) fn add(
    item: &Value,
    path: &str,
    conversation: &mut Conversation,
) -> Result<(), RequestError> {
    let item = object_at(item, path)?;
    match text_at(item, path, "type")? {
        "message" => {
            let role = text_at(item, path, "role")?;
            if !["user", "assistant", "system", "developer"].contains(&role) {
                return Err(RequestError::Invalid {
                    param: format!("{path}.role"),
                    expected: "\"user\", \"assistant\", \"system\" or \"developer\"".to_owned(),
                    got: "another word".to_owned(),
                });
            }
            let text = content_text(given(item, "content"), &format!("{path}.content"), TEXTS)?;
            conversation.say(role, text, path);
        }
        "function_call" => {
            let (id, name) = (
                text_at(item, path, "call_id")?,
                text_at(item, path, "name")?,
            );
            let arguments = text_at(item, path, "arguments")?;
            conversation.call(id, name, arguments, path);
        }
        "function_call_output" => {
            let id = text_at(item, path, "call_id")?;
            let text = content_text(given(item, "output"), &format!("{path}.output"), TEXTS)?;
            conversation.result(id, text, path);
        }
        "reasoning" => {
            for part in reasoning_parts(item, path)? {
                conversation.think(part);
            }
        }
        _ => {
            let accepted =
                "\"message\", \"function_call\", \"function_call_output\" or \"reasoning\"";
            return Err(not_built(format!("{path}.type"), accepted));
        }
    }
    Ok(())
}

/// The reasoning itself, or a summary of it if that is all there is.
fn reasoning_parts<'a>(item: &'a Object, path: &str) -> Result<Vec<&'a str>, RequestError> {
    for key in ["content", "summary"] {
        let path = format!("{path}.{key}");
        let parts = match given(item, key) {
            Some(parts) => list_at(parts, &path, usize::MAX)?,
            None => continue,
        };
        if parts.is_empty() {
            continue;
        }
        let texts = parts.iter().enumerate().map(|(idx, part)| {
            let path = format!("{path}[{idx}]");
            text_at(object_at(part, &path)?, &path, "text")
        });
        return texts.collect();
    }
    Ok(Vec::new())
}
