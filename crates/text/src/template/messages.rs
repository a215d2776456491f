//! Messages in the shape that a template can read.
//!
//! OpenAI clients send content as text, as a list of parts, or as null, and tool-call arguments as a JSON string.
//! Templates differ in which of these they understand, and nothing in a model file says so. The one idea: try
//! it. When a template is compiled, it renders a few tiny conversations, and what comes out tells.
//!
//! Source: the capabilities that llama.cpp's `minja` and vLLM's content-format detection look for.

use serde_json::{Value, json};

use super::TemplateError;

/// A word that no template contains by chance.
const NEEDLE: &str = "n33dle";

/// How a template wants the parts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageShape {
    content: Content,
    null: Null,
    arguments: Arguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// The template reads text only: lists of parts are joined.
    Text,
    /// The template reads lists only: text becomes a list of one part.
    Parts,
    /// It reads both.
    Either,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Null {
    /// The template asks whether content is null.
    Kept,
    /// It would fail or print "None".
    MadeEmpty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arguments {
    /// A JSON string is parsed first, or the template would quote it twice.
    Parsed,
    AsGiven,
}

impl MessageShape {
    /// Every message passes unchanged.
    pub(super) const AS_GIVEN: MessageShape = MessageShape {
        content: Content::Either,
        null: Null::Kept,
        arguments: Arguments::AsGiven,
    };

    /// Finds the shape by rendering small conversations; `render` gives `None` if the template refuses.
    pub(super) fn probe(render: impl Fn(&[Value]) -> Option<String>) -> MessageShape {
        let content = Content::probe(&render);
        let with_null = render(&tool_call_turn(content, Value::Null));
        let prints_none = |output: &String| output.contains("None") || output.contains("null");
        let (null, calls) = match with_null {
            Some(output) if !prints_none(&output) => (Null::Kept, Some(output)),
            _ => (Null::MadeEmpty, render(&tool_call_turn(content, "".into()))),
        };
        // A template that prints the object as Python would was made for strings.
        let reads_objects =
            |output: String| output.contains(NEEDLE) && !output.contains(&format!("'{NEEDLE}'"));
        let arguments = match calls.is_some_and(reads_objects) {
            true => Arguments::Parsed,
            false => Arguments::AsGiven,
        };
        MessageShape {
            content,
            null,
            arguments,
        }
    }

    /// The messages as the template can read them.
    pub(super) fn arrange(self, messages: &[Value]) -> Result<Vec<Value>, TemplateError> {
        let mut messages = messages.to_vec();
        for message in &mut messages {
            if let Some(content) = message.get_mut("content") {
                self.arrange_content(content)?;
            }
            if self.arguments == Arguments::Parsed {
                parse_arguments(message);
            }
        }
        Ok(messages)
    }

    fn arrange_content(self, content: &mut Value) -> Result<(), TemplateError> {
        if content.is_null() && self.null == Null::MadeEmpty {
            *content = "".into();
        }
        match (&*content, self.content) {
            (Value::Array(parts), Content::Text) => *content = joined_text(parts)?.into(),
            (Value::String(text), Content::Parts) => {
                *content = json!([{"type": "text", "text": text}]);
            }
            _ => (),
        }
        Ok(())
    }
}

impl Content {
    fn probe(render: impl Fn(&[Value]) -> Option<String>) -> Content {
        let text = render(&[json!({"role": "user", "content": NEEDLE})]);
        let part = json!({"type": "text", "text": NEEDLE});
        let parts = render(&[json!({"role": "user", "content": [part]})]);
        let reads = |output: &Option<String>| output.as_ref().is_some_and(|o| o.contains(NEEDLE));
        if text.is_some() && text == parts {
            Content::Either
        } else if reads(&parts) && !reads(&text) {
            Content::Parts
        } else {
            Content::Text
        }
    }
}

/// A question, answered by a call with the needle in its arguments.
fn tool_call_turn(shape: Content, content: Value) -> [Value; 2] {
    let question = match shape {
        Content::Parts => json!([{"type": "text", "text": "x"}]),
        Content::Text | Content::Either => json!("x"),
    };
    let arguments = json!({NEEDLE: 1});
    let call = json!({
        // Mistral's templates demand nine letters or digits.
        "id": "abcdefghi",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
    });
    [
        json!({"role": "user", "content": question}),
        json!({"role": "assistant", "content": content, "tool_calls": [call]}),
    ]
}

/// The texts of `parts`, a line each: parts are separate pieces, and joining them without
/// a border would glue the last word of one to the first of the next.
fn joined_text(parts: &[Value]) -> Result<String, TemplateError> {
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        let text = part.as_str().or_else(|| part.get("text")?.as_str());
        texts.push(text.ok_or_else(|| TemplateError::Refused {
            reason: format!(
                "a content part of type {} is not text",
                part.get("type").unwrap_or(&Value::Null)
            ),
        })?);
    }
    Ok(texts.join("\n"))
}

/// `"{\"city\": \"Bonn\"}"` becomes the object; what is not a JSON object stays.
fn parse_arguments(message: &mut Value) {
    let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) else {
        return;
    };
    for call in calls {
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            continue;
        };
        let parsed = arguments.as_str().map(serde_json::from_str::<Value>);
        if let Some(Ok(object @ Value::Object(_))) = parsed {
            *arguments = object;
        }
    }
}
