//! `/v1/responses`: a conversation of items, kept by the server if asked.
//!
//! A request becomes a chat request ([`crate::chat`]) and [`Terms`], which is everything the
//! answer repeats or that only this dialect has: whether it is stored, whether anybody waits.
//!
//! Source: the OpenAI API reference, "Responses".

mod items; // what was said so far

pub mod answer;

use serde_json::{Map, Value, json};

use crate::chat::ChatRequest;
use crate::conversation::{
    Renamed, Translation, Words, given, list_at, not_built, object_at, text_at,
};
use crate::error::RequestError;
use crate::fields::{Endpoint, Fields};
use crate::{Limits, json as body_json};

/// A request, checked as far as its own text goes.
#[derive(Debug)]
pub struct ResponsesRequest {
    fields: Fields,
    /// What its items say, and what only this dialect has.
    pub terms: Terms,
}

/// What the answer repeats, and how it is kept and delivered.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The system message.
    pub instructions: Option<String>,
    /// The response this one goes on after.
    pub previous_response_id: Option<String>,
    /// The request's own items, each with an id.
    pub input: Vec<Value>,
    /// Whether it can be asked for later.
    pub storage: Storage,
    /// Whether somebody waits for it.
    pub attendance: Attendance,
    /// The answer limit, as asked.
    pub max_output_tokens: Option<u64>,
    /// The bound on built-in calls, as asked.
    pub max_tool_calls: Option<u64>,
    /// As asked.
    pub temperature: Option<f64>,
    /// As asked.
    pub top_p: Option<f64>,
    /// As asked, or OpenAI's default.
    pub parallel_tool_calls: bool,
    /// `text` as the answer tells it.
    pub text: Value,
    /// `tools` as the answer tells them.
    pub tools: Value,
    /// `tool_choice` as the answer tells it.
    pub tool_choice: Value,
    /// `reasoning` as the answer tells it.
    pub reasoning: Value,
    /// Labels.
    pub metadata: Value,
    /// A label.
    pub user: Option<String>,
    /// A label.
    pub safety_identifier: Option<String>,
    /// A hint.
    pub prompt_cache_key: Option<String>,
}

/// Whether a response can be asked for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// It is kept, within the server's bounds.
    Kept,
    /// Nothing is (`store: false`).
    Nothing,
}

/// Whether somebody waits for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// The request's own connection.
    Attended,
    /// Nobody (`background: true`).
    Background,
}

const WORDS: Words = Words {
    renamed: RENAMED,
    tool_schema: ".parameters",
};

const RENAMED: &[Renamed] = &[
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("messages", "input"),
];

impl ResponsesRequest {
    /// Reads a request body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<ResponsesRequest, RequestError> {
        let mut fields = Fields::read(body_json::object(body)?, Endpoint::Responses)?;
        let terms = Terms::read(&mut fields, limits)?;
        Ok(ResponsesRequest { fields, terms })
    }

    /// The chat request it means, after what was said before: the items of the response it
    /// goes on after, empty if there is none.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn into_chat(
        self,
        earlier: &[Value],
        limits: &Limits,
    ) -> Result<(ChatRequest, Terms), RequestError> {
        let ResponsesRequest { mut fields, terms } = self;
        let mut chat = Translation::default();
        if let Some(instructions) = &terms.instructions {
            let says = &mut chat.conversation;
            says.say("system", instructions.clone(), "instructions");
        }
        for item in earlier {
            items::add(item, "previous_response_id", &mut chat.conversation)?;
        }
        for (idx, item) in terms.input.iter().enumerate() {
            items::add(item, &format!("input[{idx}]"), &mut chat.conversation)?;
        }
        chat.take(&mut fields, "max_output_tokens", "max_completion_tokens");
        for same in [
            "model",
            "temperature",
            "top_p",
            "parallel_tool_calls",
            "service_tier",
            "stream",
        ] {
            chat.take(&mut fields, same, same);
        }
        for field in Endpoint::Responses.shared() {
            chat.take(&mut fields, field.name, field.name);
        }
        read_text(fields.get("text"), &mut chat)?;
        read_reasoning(fields.get("reasoning"), &mut chat)?;
        if let Some(tools) = fields.get("tools") {
            chat.set("tools", chat_tools(tools, limits)?);
        }
        if let Some(choice) = fields.get("tool_choice") {
            chat.set("tool_choice", chat_tool_choice(choice)?);
        }
        let mut request = chat.read(&WORDS, limits)?;
        request.unknown = fields.unknown;
        Ok((request, terms))
    }
}

impl Terms {
    fn read(fields: &mut Fields, limits: &Limits) -> Result<Terms, RequestError> {
        read_include(fields.get("include"))?;
        read_stream_options(fields)?;
        let text = |name: &str| fields.text(name).map(str::to_owned);
        let count = |name: &str| fields.integer(name).and_then(|num| u64::try_from(num).ok());
        let or = |name: &str, default: Value| fields.get(name).cloned().unwrap_or(default);
        let storage = match fields.flag("store") {
            Some(false) => Storage::Nothing,
            _ => Storage::Kept,
        };
        Ok(Terms {
            instructions: read_instructions(fields.get("instructions"))?,
            previous_response_id: text("previous_response_id"),
            storage,
            attendance: attendance(fields, storage)?,
            max_output_tokens: count("max_output_tokens"),
            max_tool_calls: count("max_tool_calls"),
            temperature: fields.number("temperature"),
            top_p: fields.number("top_p"),
            parallel_tool_calls: fields.flag("parallel_tool_calls").unwrap_or(true),
            text: text_told(fields.get("text")),
            tools: tools_told(fields.get("tools")),
            tool_choice: or("tool_choice", "auto".into()),
            reasoning: reasoning_told(fields.get("reasoning")),
            metadata: or("metadata", json!({})),
            user: text("user"),
            safety_identifier: text("safety_identifier"),
            prompt_cache_key: text("prompt_cache_key"),
            input: items::read_input(fields.take("input"), limits)?,
        })
    }
}

fn read_instructions(value: Option<&Value>) -> Result<Option<String>, RequestError> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(RequestError::invalid("instructions", "a string", other)),
    }
}

fn attendance(fields: &Fields, storage: Storage) -> Result<Attendance, RequestError> {
    let contradiction = |reason: &str| RequestError::Contradiction {
        param: "background".to_owned(),
        reason: reason.to_owned(),
    };
    if fields.flag("background") != Some(true) {
        return Ok(Attendance::Attended);
    }
    if storage == Storage::Nothing {
        return Err(contradiction(
            "needs 'store': nobody could ask for it later",
        ));
    }
    if fields.flag("stream") == Some(true) {
        return Err(contradiction(
            "cannot be combined with 'stream' by this server",
        ));
    }
    Ok(Attendance::Background)
}

/// What `include` may name: parts that are told anyway, or that belong to tools which are not
/// built and so never occur.
const INCLUDE_NOTHING: &[&str] = &[
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

const INCLUDE_EXPECTED: &str = "a word of OpenAI's list of includable parts";

fn read_include(value: Option<&Value>) -> Result<(), RequestError> {
    let Some(value) = value else {
        return Ok(());
    };
    for (idx, item) in list_at(value, "include", 64)?.iter().enumerate() {
        let param = format!("include[{idx}]");
        match item.as_str() {
            Some(word) => expect_includable(&param, word)?,
            None => return Err(RequestError::invalid(param, INCLUDE_EXPECTED, item)),
        }
    }
    Ok(())
}

/// Refuses a part that `include` names and that is not told.
///
/// # Errors
///
/// [`RequestError`] about `param`.
pub fn expect_includable(param: &str, part: &str) -> Result<(), RequestError> {
    match part {
        "message.output_text.logprobs" => Err(not_built(param, "")),
        known if INCLUDE_NOTHING.contains(&known) => Ok(()),
        _ => Err(RequestError::Invalid {
            param: param.to_owned(),
            expected: INCLUDE_EXPECTED.to_owned(),
            got: "another word".to_owned(),
        }),
    }
}

fn read_stream_options(fields: &Fields) -> Result<(), RequestError> {
    let Some(options) = fields.get("stream_options") else {
        return Ok(());
    };
    let options = object_at(options, "stream_options")?;
    match given(options, "include_obfuscation") {
        None | Some(Value::Bool(false)) => (),
        Some(_) => {
            return Err(not_built("stream_options.include_obfuscation", "false"));
        }
    }
    if fields.flag("stream") == Some(true) {
        return Ok(());
    }
    Err(RequestError::Contradiction {
        param: "stream_options".to_owned(),
        reason: "is only allowed when 'stream' is true".to_owned(),
    })
}

/// `text.format` is flat; chat nests a schema's name and body.
fn read_text(value: Option<&Value>, chat: &mut Translation) -> Result<(), RequestError> {
    let Some(value) = value else {
        return Ok(());
    };
    let text = object_at(value, "text")?;
    match given(text, "verbosity").map(|value| (value, value.as_str())) {
        None | Some((_, Some("medium"))) => (),
        Some((_, Some("low" | "high"))) => return Err(not_built("text.verbosity", "\"medium\"")),
        Some((other, _)) => {
            let expected = "\"low\", \"medium\" or \"high\"";
            return Err(RequestError::invalid("text.verbosity", expected, other));
        }
    }
    let Some(format) = given(text, "format") else {
        return Ok(());
    };
    let format = object_at(format, "text.format")?;
    let kind = text_at(format, "text.format", "type")?;
    if kind == "json_schema" {
        let mut schema = format.clone();
        schema.remove("type");
        chat.set(
            "response_format",
            json!({"type": kind, "json_schema": schema}),
        );
    } else {
        chat.set("response_format", Value::Object(format.clone()));
    }
    Ok(())
}

const SUMMARIES: &[&str] = &["auto", "concise", "detailed"];

fn read_reasoning(value: Option<&Value>, chat: &mut Translation) -> Result<(), RequestError> {
    let Some(value) = value else {
        return Ok(());
    };
    let reasoning = object_at(value, "reasoning")?;
    for key in ["summary", "generate_summary"] {
        match given(reasoning, key) {
            Some(word) if !word.as_str().is_some_and(|word| SUMMARIES.contains(&word)) => {
                let expected = "\"auto\", \"concise\" or \"detailed\"";
                return Err(RequestError::invalid(
                    format!("reasoning.{key}"),
                    expected,
                    word,
                ));
            }
            _ => (),
        }
    }
    if let Some(effort) = given(reasoning, "effort") {
        chat.set("reasoning_effort", effort.clone());
    }
    Ok(())
}

/// Flat tools become chat's nested ones.
fn chat_tools(value: &Value, limits: &Limits) -> Result<Value, RequestError> {
    let tools = list_at(value, "tools", limits.num_messages_max)?;
    let nested = tools.iter().enumerate().map(|(idx, tool)| {
        let path = format!("tools[{idx}]");
        let tool = object_at(tool, &path)?;
        match text_at(tool, &path, "type")? {
            "function" => {
                let mut function = tool.clone();
                function.remove("type");
                Ok(json!({"type": "function", "function": function}))
            }
            _ => Err(not_built(format!("{path}.type"), "\"function\"")),
        }
    });
    Ok(Value::Array(nested.collect::<Result<_, _>>()?))
}

fn chat_tool_choice(value: &Value) -> Result<Value, RequestError> {
    let Value::Object(choice) = value else {
        return Ok(value.clone());
    };
    match text_at(choice, "tool_choice", "type")? {
        "function" => {
            let name = text_at(choice, "tool_choice", "name")?;
            Ok(json!({"type": "function", "function": {"name": name}}))
        }
        _ => Err(not_built("tool_choice.type", "\"function\"")),
    }
}

fn text_told(value: Option<&Value>) -> Value {
    let format = value.and_then(|text| text.get("format"));
    let format = format.filter(|format| !format.is_null()).cloned();
    json!({
        "format": format.unwrap_or_else(|| json!({"type": "text"})),
        "verbosity": "medium",
    })
}

fn reasoning_told(value: Option<&Value>) -> Value {
    let part = |key: &str| value.and_then(|reasoning| reasoning.get(key)).cloned();
    json!({"effort": part("effort"), "summary": part("summary")})
}

/// Clients demand every key of a tool, also those the request left out.
fn tools_told(value: Option<&Value>) -> Value {
    let mut tools = value.cloned().unwrap_or_else(|| json!([]));
    for tool in tools.as_array_mut().into_iter().flatten() {
        if let Some(tool) = tool.as_object_mut() {
            for key in ["description", "parameters"] {
                tool.entry(key).or_insert(Value::Null);
            }
            tool.entry("strict").or_insert(Value::Bool(false));
        }
    }
    tools
}

/// Keys of an object in no particular place; helps readers of items.
type Object = Map<String, Value>;
