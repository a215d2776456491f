//! Messages of blocks: text, calls of tools, their results, thinking.

use serde_json::{Map, Value};

use crate::Limits;
use crate::conversation::{
    Conversation, content_text, given, list_at, not_built, object_at, text_at,
};
use crate::error::RequestError;

/// Adds all messages to a conversation.
pub(super) fn read(
    value: &Value,
    conversation: &mut Conversation,
    limits: &Limits,
) -> Result<(), RequestError> {
    let messages = list_at(value, "messages", limits.num_messages_max)?;
    if messages.is_empty() {
        let expected = "a list of at least one message";
        return Err(RequestError::invalid("messages", expected, value));
    }
    for (idx, message) in messages.iter().enumerate() {
        let path = format!("messages[{idx}]");
        let message = object_at(message, &path)?;
        let role = text_at(message, &path, "role")?;
        if !["user", "assistant"].contains(&role) {
            return Err(RequestError::Invalid {
                param: format!("{path}.role"),
                expected: "\"user\" or \"assistant\" ('system' is a field of its own)".to_owned(),
                got: "another word".to_owned(),
            });
        }
        match given(message, "content") {
            Some(empty @ Value::Array(blocks)) if blocks.is_empty() => {
                // Only an answer may be about to begin.
                let begins = role == "assistant" && idx > 0 && idx + 1 == messages.len();
                if !begins {
                    let expected = "a string or a list of at least one block";
                    return Err(RequestError::invalid(
                        format!("{path}.content"),
                        expected,
                        empty,
                    ));
                }
            }
            Some(Value::Array(blocks)) => {
                for (idx, block) in blocks.iter().enumerate() {
                    let path = format!("{path}.content[{idx}]");
                    add(role, object_at(block, &path)?, &path, conversation)?;
                }
            }
            content => {
                let text = content_text(content, &format!("{path}.content"), &[])?;
                conversation.go_on(role, text, &path);
            }
        }
    }
    Ok(())
}

fn add(
    role: &str,
    block: &Map<String, Value>,
    path: &str,
    conversation: &mut Conversation,
) -> Result<(), RequestError> {
    match (role, text_at(block, path, "type")?) {
        (_, "text") => {
            let text = text_at(block, path, "text")?;
            conversation.go_on(role, text.to_owned(), path);
        }
        ("assistant", "tool_use") => {
            let (id, name) = (text_at(block, path, "id")?, text_at(block, path, "name")?);
            let input = given(block, "input").unwrap_or(&Value::Null);
            object_at(input, &format!("{path}.input"))?;
            conversation.call(id, name, &input.to_string(), path);
        }
        ("assistant", "thinking") => conversation.think(text_at(block, path, "thinking")?),
        ("user", "tool_result") => {
            let id = text_at(block, path, "tool_use_id")?;
            // A tool may have nothing to say.
            let text = match given(block, "content") {
                None => String::new(),
                content => content_text(content, &format!("{path}.content"), &["text"])?,
            };
            let failed = given(block, "is_error") == Some(&Value::Bool(true));
            let text = if failed {
                format!("Error: {text}")
            } else {
                text
            };
            conversation.result(id, text, path);
        }
        ("assistant", _) => {
            let accepted = "\"text\", \"tool_use\" or \"thinking\"";
            return Err(not_built(format!("{path}.type"), accepted));
        }
        (_, _) => {
            let accepted = "\"text\" or \"tool_result\"";
            return Err(not_built(format!("{path}.type"), accepted));
        }
    }
    Ok(())
}
