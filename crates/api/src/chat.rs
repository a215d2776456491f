//! `/v1/chat/completions`: a conversation and how to go on with it.

use serde_json::{Map, Value};

pub use crate::conversation::OwnNames;
use crate::error::RequestError;
use crate::fields::{Endpoint, Fields};
use crate::params::{Generation, too_many};
use crate::tools::{Tools, read_calls};
use crate::{Limits, json};

/// A chat request, read and checked as far as its text goes.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The conversation, at least one message.
    pub messages: Vec<Message>,
    /// Whether the template opens the assistant's turn.
    pub turn: Turn,
    /// Further variables of the chat template.
    pub template_variables: Map<String, Value>,
    /// What may be called.
    pub tools: Tools,
    /// Whether the answer tells its reasoning.
    pub reasoning: Reasoning,
    /// What it has in common with completions.
    pub generation: Generation,
    /// Keys nobody knows, for the log.
    pub unknown: Vec<String>,
    /// What the request calls these fields, if it was made in another dialect.
    pub names: OwnNames,
}

/// Whether the template opens the assistant's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The answer starts a new assistant message.
    Opened,
    /// The text goes on where the conversation ends (`add_generation_prompt: false`).
    Left,
    /// The answer goes on with the last message, whose turn stays open
    /// (`continue_final_message`).
    Continued,
}

/// Whether an answer tells the model's reasoning, where that can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Beside its content.
    Told,
    /// Not at all (`include_reasoning: false`).
    Dropped,
}

/// One message. Content parts are already joined by line breaks, as other servers do
/// for templates that know only text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said; may be empty.
    pub content: String,
    /// The speaker's name.
    pub name: Option<String>,
    /// The call a tool message answers.
    pub tool_call_id: Option<String>,
    /// The calls an assistant's message made, as templates expect them.
    pub tool_calls: Vec<Value>,
    /// What the assistant thought.
    pub reasoning: Option<String>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator's instructions (`developer` is the newer word for the same).
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

impl Role {
    /// The word templates know.
    pub fn word(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

impl Message {
    /// The message as chat templates expect it.
    pub fn to_template_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("role".to_owned(), self.role.word().into());
        // Templates tell a call without words by its null.
        let is_silent = self.content.is_empty() && !self.tool_calls.is_empty();
        let content = (!is_silent).then(|| self.content.clone());
        object.insert("content".to_owned(), content.into());
        if !self.tool_calls.is_empty() {
            object.insert("tool_calls".to_owned(), self.tool_calls.clone().into());
        }
        if let Some(reasoning) = &self.reasoning {
            object.insert("reasoning_content".to_owned(), reasoning.clone().into());
        }
        if let Some(name) = &self.name {
            object.insert("name".to_owned(), name.clone().into());
        }
        if let Some(id) = &self.tool_call_id {
            object.insert("tool_call_id".to_owned(), id.clone().into());
        }
        Value::Object(object)
    }
}

impl ChatRequest {
    /// Reads a request body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<ChatRequest, RequestError> {
        ChatRequest::read(json::object(body)?, limits)
    }

    /// Reads a request's object; other dialects are translated into one.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn read(object: Map<String, Value>, limits: &Limits) -> Result<ChatRequest, RequestError> {
        let mut fields = Fields::read(object, Endpoint::Chat)?;
        let generation = Generation::read(&fields, limits)?;
        let turn = turn(
            fields.flag("add_generation_prompt"),
            fields.flag("continue_final_message"),
        )?;
        let mut template_variables = template_variables(fields.take("chat_template_kwargs"))?;
        if let Some(effort) = fields.get("reasoning_effort").and_then(Value::as_str) {
            apply_effort(effort, &mut template_variables);
        }
        let tools = Tools::read(&fields, limits)?;
        let reasoning = match fields.flag("include_reasoning") {
            Some(false) => Reasoning::Dropped,
            _ => Reasoning::Told,
        };
        let messages = fields
            .take("messages")
            .ok_or_else(|| RequestError::Missing {
                param: "messages".to_owned(),
                expected: "a list of messages".to_owned(),
            })?;
        Ok(ChatRequest {
            messages: read_messages(&messages, limits)?,
            turn,
            template_variables,
            tools,
            reasoning,
            generation,
            unknown: fields.unknown,
            names: OwnNames::default(),
        })
    }
}

/// How much to think is the template's affair: it is told, unless `chat_template_kwargs` said so already.
fn apply_effort(effort: &str, variables: &mut Map<String, Value>) {
    variables
        .entry("reasoning_effort")
        .or_insert_with(|| effort.into());
    if effort == "none" {
        variables.entry("enable_thinking").or_insert(false.into());
    }
}

/// What two flags say together.
pub(crate) fn turn(
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
) -> Result<Turn, RequestError> {
    match (add_generation_prompt, continue_final_message) {
        (Some(true), Some(true)) => Err(RequestError::Contradiction {
            param: "continue_final_message".to_owned(),
            reason: "cannot go with 'add_generation_prompt': true".to_owned(),
        }),
        (_, Some(true)) => Ok(Turn::Continued),
        (Some(false), _) => Ok(Turn::Left),
        _ => Ok(Turn::Opened),
    }
}

/// Variables the renderer sets itself; a request must not forge them.
const RESERVED: &[&str] = &[
    "messages",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "tools",
    "documents",
];

pub(crate) fn template_variables(value: Option<Value>) -> Result<Map<String, Value>, RequestError> {
    match value {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => match RESERVED.iter().find(|key| object.contains_key(**key))
        {
            None => Ok(object),
            Some(key) => Err(RequestError::Unsupported {
                param: format!("chat_template_kwargs.{key}"),
                accepted: String::new(),
            }),
        },
        Some(other) => Err(RequestError::invalid(
            "chat_template_kwargs",
            "an object",
            &other,
        )),
    }
}

pub(crate) fn read_messages(value: &Value, limits: &Limits) -> Result<Vec<Message>, RequestError> {
    match value {
        Value::Array(items) if items.is_empty() => Err(RequestError::invalid(
            "messages",
            "a list of at least one message",
            value,
        )),
        Value::Array(items) if items.len() > limits.num_messages_max => {
            Err(too_many("messages", limits.num_messages_max, items.len()))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(idx, item)| read_message(&format!("messages[{idx}]"), item, limits))
            .collect(),
        other => Err(RequestError::invalid(
            "messages",
            "a list of messages",
            other,
        )),
    }
}

/// Message keys of other people's answers that would change the meaning if dropped;
/// empty ones are harmless.
const MESSAGE_UNSUPPORTED: &[&str] = &["function_call", "audio", "refusal"];

fn read_message(path: &str, value: &Value, limits: &Limits) -> Result<Message, RequestError> {
    let Value::Object(object) = value else {
        return Err(RequestError::invalid(path, "a message object", value));
    };
    for key in MESSAGE_UNSUPPORTED {
        match object.get(*key) {
            None | Some(Value::Null) => (),
            Some(Value::Array(items)) if items.is_empty() => (),
            Some(_) => {
                return Err(RequestError::Unsupported {
                    param: format!("{path}.{key}"),
                    accepted: String::new(),
                });
            }
        }
    }
    let role = read_role(path, object.get("role"))?;
    let tool_calls = match role {
        Role::Assistant => read_calls(path, object, limits)?,
        Role::System | Role::User | Role::Tool => Vec::new(),
    };
    let reasoning = match optional_text(path, "reasoning_content", object)? {
        Some(reasoning) => Some(reasoning),
        None => optional_text(path, "reasoning", object)?,
    };
    let content = match object.get("content") {
        // A call, or a thought cut short, needs no words.
        None | Some(Value::Null) if !tool_calls.is_empty() || reasoning.is_some() => String::new(),
        content => read_content(path, content)?,
    };
    Ok(Message {
        role,
        content,
        tool_calls,
        reasoning,
        name: optional_text(path, "name", object)?,
        tool_call_id: optional_text(path, "tool_call_id", object)?,
    })
}

fn read_role(path: &str, value: Option<&Value>) -> Result<Role, RequestError> {
    let param = format!("{path}.role");
    let expected = "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"";
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Err(RequestError::Missing {
            param,
            expected: expected.to_owned(),
        });
    };
    match value.as_str() {
        Some("system" | "developer") => Ok(Role::System),
        Some("user") => Ok(Role::User),
        Some("assistant") => Ok(Role::Assistant),
        Some("tool") => Ok(Role::Tool),
        _ => Err(RequestError::invalid(param, expected, value)),
    }
}

fn read_content(path: &str, value: Option<&Value>) -> Result<String, RequestError> {
    let param = format!("{path}.content");
    match value {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Result<Vec<&str>, RequestError> = parts
                .iter()
                .enumerate()
                .map(|(idx, part)| read_part(&format!("{param}[{idx}]"), part))
                .collect();
            Ok(texts?.join("\n"))
        }
        None | Some(Value::Null) => Err(RequestError::Missing {
            param,
            expected: "a string or a list of text parts".to_owned(),
        }),
        Some(other) => Err(RequestError::invalid(
            param,
            "a string or a list of text parts",
            other,
        )),
    }
}

fn read_part<'a>(path: &str, part: &'a Value) -> Result<&'a str, RequestError> {
    match part.get("type").and_then(Value::as_str) {
        Some("text") => {
            let text = part.get("text").unwrap_or(&Value::Null);
            text.as_str()
                .ok_or_else(|| RequestError::invalid(format!("{path}.text"), "a string", text))
        }
        Some(_) => Err(RequestError::Unsupported {
            param: format!("{path}.type"),
            accepted: "\"text\"".to_owned(),
        }),
        None => Err(RequestError::invalid(path, "a part with a 'type'", part)),
    }
}

fn optional_text(
    path: &str,
    key: &str,
    object: &Map<String, Value>,
) -> Result<Option<String>, RequestError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(RequestError::invalid(
            format!("{path}.{key}"),
            "a string",
            other,
        )),
    }
}
