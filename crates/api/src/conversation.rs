//! Other dialects said in chat's words: a conversation is put together message by message,
//! and what chat's own reader then finds wrong is told in the words it was asked in.
//!
//! The one idea: there is one reader of messages, tools, formats and bounds ([`crate::chat`]).
//! A dialect only rewrites its body into chat's, so whatever chat learns, all of them can do,
//! and none can be laxer than another.
//!
//! Not here: what the other dialects look like ([`crate::responses`], [`crate::messages`]).

use serde_json::{Map, Value, json};

use crate::Limits;
use crate::chat::ChatRequest;
use crate::error::RequestError;
use crate::fields::Fields;

/// Messages in chat's shape, and where in the request each came from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    messages: Vec<Map<String, Value>>,
    origins: Vec<String>,
    /// Reasoning that belongs to the assistant's message to come.
    reasoning: Option<String>,
}

impl Conversation {
    /// Somebody says something: a message of its own, but for the assistant, whose text and
    /// calls are items of their own elsewhere and one message in chat.
    pub fn say(&mut self, role: &str, text: String, origin: &str) {
        if role == "assistant" {
            return self.go_on(role, text, origin);
        }
        let message = self.push(role, origin);
        message.insert("content".to_owned(), text.into());
    }

    /// Somebody goes on, in the same message if nobody else spoke since.
    pub fn go_on(&mut self, role: &str, text: String, origin: &str) {
        let message = self.last_of(role, origin);
        let content = message.entry("content").or_insert(Value::Null);
        match content {
            Value::String(so_far) => {
                so_far.push('\n');
                so_far.push_str(&text);
            }
            other => *other = text.into(),
        }
    }

    /// The assistant thought before what it says or calls next.
    pub fn think(&mut self, text: &str) {
        let reasoning = self.reasoning.get_or_insert_default();
        if !reasoning.is_empty() {
            reasoning.push('\n');
        }
        reasoning.push_str(text);
    }

    /// The assistant calls a tool; `arguments` is JSON text.
    pub fn call(&mut self, id: &str, name: &str, arguments: &str, origin: &str) {
        let call = json!({
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        });
        let message = self.last_of("assistant", origin);
        message.entry("content").or_insert(Value::Null);
        let calls = message
            .entry("tool_calls")
            .or_insert_with(|| Value::Array(Vec::new()));
        let calls = calls.as_array_mut().expect("nobody else writes this key");
        calls.push(call);
    }

    /// A tool answers a call.
    pub fn result(&mut self, call_id: &str, text: String, origin: &str) {
        let message = self.push("tool", origin);
        message.insert("tool_call_id".to_owned(), call_id.into());
        message.insert("content".to_owned(), text.into());
    }

    /// Whether the assistant has the last word.
    pub fn ends_with_the_assistant(&self) -> bool {
        self.last_role() == Some("assistant")
    }

    fn last_role(&self) -> Option<&str> {
        self.messages.last()?.get("role")?.as_str()
    }

    /// The message that a role is still saying, or a new one.
    fn last_of(&mut self, role: &str, origin: &str) -> &mut Map<String, Value> {
        if self.last_role() != Some(role) || self.reasoning.is_some() {
            self.push(role, origin);
        }
        self.messages.last_mut().expect("one was just pushed")
    }

    fn push(&mut self, role: &str, origin: &str) -> &mut Map<String, Value> {
        let mut message = Map::new();
        message.insert("role".to_owned(), role.into());
        // What was thought before somebody else spoke belongs to nothing that was said.
        if let Some(reasoning) = self.reasoning.take()
            && role == "assistant"
        {
            message.insert("reasoning_content".to_owned(), reasoning.into());
        }
        self.messages.push(message);
        self.origins.push(origin.to_owned());
        self.messages.last_mut().expect("one was just pushed")
    }
}

/// A whole request in chat's words.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    pub conversation: Conversation,
    /// Chat's other fields.
    pub object: Map<String, Value>,
}

/// Chat's name of a field, and the dialect's.
pub(crate) type Renamed = (&'static str, &'static str);

impl Translation {
    /// A field whose value is the same in both dialects, if it is there.
    pub fn take(&mut self, fields: &mut Fields, from: &str, to: &str) {
        if let Some(value) = fields.take(from) {
            self.object.insert(to.to_owned(), value);
        }
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: Value) {
        self.object.insert(name.to_owned(), value);
    }

    /// Lets chat's reader read it; its faults are told in `words`, those about a message at the
    /// message's origin.
    pub fn read(self, words: &'static Words, limits: &Limits) -> Result<ChatRequest, RequestError> {
        let Translation {
            conversation: Conversation {
                messages, origins, ..
            },
            mut object,
        } = self;
        let messages = messages.into_iter().map(Value::Object).collect();
        object.insert("messages".to_owned(), Value::Array(messages));
        let names = OwnNames(Some(Translated { origins, words }));
        match ChatRequest::read(object, limits) {
            Ok(request) => Ok(ChatRequest { names, ..request }),
            Err(error) => Err(error.renamed(|param| names.own(param))),
        }
    }
}

/// What a request calls the fields that chat's reader knows by other names.
#[derive(Clone, Debug, Default)]
pub struct OwnNames(Option<Translated>);

#[derive(Clone, Debug)]
struct Translated {
    /// Of each message.
    origins: Vec<String>,
    words: &'static Words,
}

/// A dialect's words for chat's.
#[derive(Debug)]
pub(crate) struct Words {
    /// Longer ones first.
    pub renamed: &'static [Renamed],
    /// Chat's `tools[0].function.parameters` is `tools[0]` and this.
    pub tool_schema: &'static str,
}

impl OwnNames {
    /// The request's own name of a field that chat calls `param`.
    pub fn own(&self, param: &str) -> String {
        let Some(Translated { origins, words }) = &self.0 else {
            return param.to_owned();
        };
        let message = param.strip_prefix("messages[").and_then(|rest| {
            let (idx, _deeper) = rest.split_once(']')?;
            origins.get(idx.parse::<usize>().ok()?)
        });
        if let Some(origin) = message {
            return origin.clone();
        }
        let starts = |chat: &str| {
            param
                .strip_prefix(chat)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        match words.renamed.iter().find(|(chat, _)| starts(chat)) {
            Some((chat, own)) => format!("{own}{}", &param[chat.len()..]),
            None if param.starts_with("tools[") => {
                param
                    .replacen(".function", "", 1)
                    .replacen(".parameters", words.tool_schema, 1)
            }
            None => param.replacen(".function", "", 1),
        }
    }
}

/// The value of a key, unless it is absent or null.
pub(crate) fn given<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// A string that must be there.
pub(crate) fn text_at<'a>(
    object: &'a Map<String, Value>,
    path: &str,
    key: &str,
) -> Result<&'a str, RequestError> {
    let param = || format!("{path}.{key}");
    match given(object, key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(RequestError::invalid(param(), "a string", other)),
        None => Err(RequestError::Missing {
            param: param(),
            expected: "a string".to_owned(),
        }),
    }
}

/// What was asked for is known and not built.
pub(crate) fn not_built(param: impl Into<String>, accepted: &str) -> RequestError {
    RequestError::Unsupported {
        param: param.into(),
        accepted: accepted.to_owned(),
    }
}

/// A value that must be an object.
pub(crate) fn object_at<'a>(
    value: &'a Value,
    path: &str,
) -> Result<&'a Map<String, Value>, RequestError> {
    value
        .as_object()
        .ok_or_else(|| RequestError::invalid(path, "an object", value))
}

/// A value that must be a list of at most `num_max` entries.
pub(crate) fn list_at<'a>(
    value: &'a Value,
    path: &str,
    num_max: usize,
) -> Result<&'a [Value], RequestError> {
    match value {
        Value::Array(items) if items.len() <= num_max => Ok(items),
        Value::Array(items) => Err(crate::params::too_many(path, num_max, items.len())),
        other => Err(RequestError::invalid(path, "a list", other)),
    }
}

/// The texts of content that is a string or a list of parts of the types named, a line each.
pub(crate) fn content_text(
    value: Option<&Value>,
    path: &str,
    types: &[&str],
) -> Result<String, RequestError> {
    match value {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(idx, part)| {
                let path = format!("{path}[{idx}]");
                part_text(object_at(part, &path)?, &path, types)
            });
            Ok(texts.collect::<Result<Vec<&str>, _>>()?.join("\n"))
        }
        Some(other) => Err(RequestError::invalid(
            path,
            "a string or a list of text parts",
            other,
        )),
        None => Err(RequestError::Missing {
            param: path.to_owned(),
            expected: "a string or a list of text parts".to_owned(),
        }),
    }
}

fn part_text<'a>(
    part: &'a Map<String, Value>,
    path: &str,
    types: &[&str],
) -> Result<&'a str, RequestError> {
    let kind = text_at(part, path, "type")?;
    if !types.contains(&kind) {
        let words: Vec<String> = types.iter().map(|word| format!("\"{word}\"")).collect();
        return Err(not_built(format!("{path}.type"), &words.join(" or ")));
    }
    // A refusal's text stands under its own name.
    let key = if kind == "refusal" { "refusal" } else { "text" };
    text_at(part, path, key)
}
