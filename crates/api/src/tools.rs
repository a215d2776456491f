//! Tools in a chat: those offered, whether they must be called, and the calls of earlier turns.
//!
//! Everything is checked before any work: names, shapes, and that a choice names a tool that is offered. What a
//! schema means is checked by whoever enforces it.
//!
//! Source: the OpenAI API reference, "Chat", "Function calling".

use serde_json::{Map, Value, json};

use crate::Limits;
use crate::error::{RequestError, kind};
use crate::fields::Fields;
use crate::params::too_many;

/// Bytes of a function's name.
const NAME_BYTES_MAX: usize = 64;

/// The tools of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools {
    /// Those that may be called, in the request's order; none if they may not.
    pub offered: Vec<Tool>,
    /// Whether one must be.
    pub choice: ToolChoice,
    /// Whether one answer may call several.
    pub parallel: ParallelCalls,
}

/// A function that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its place in the request's list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments; any object if absent.
    pub parameters: Option<Value>,
    /// Whether arguments must keep to it.
    pub strictness: Strictness,
    /// All of it as it was sent, for the template.
    pub definition: Value,
}

/// Whether arguments must keep to their schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// The model sees the schema.
    #[default]
    Told,
    /// Arguments that break it are not possible.
    Enforced,
}

/// Whether a tool must be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// At least one of those offered.
    Required,
}

/// Whether one answer may call several tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParallelCalls {
    /// It may.
    #[default]
    Allowed,
    /// One at most.
    One,
}

impl Tools {
    /// Reads `tools`, `tool_choice` and `parallel_tool_calls`.
    pub(crate) fn read(fields: &Fields, limits: &Limits) -> Result<Tools, RequestError> {
        let offered = match fields.get("tools") {
            None => Vec::new(),
            Some(value) => read_tools(value, limits)?,
        };
        let mut tools = Tools {
            offered,
            choice: ToolChoice::Auto,
            parallel: match fields.flag("parallel_tool_calls") {
                Some(false) => ParallelCalls::One,
                _ => ParallelCalls::Allowed,
            },
        };
        if let Some(choice) = fields.get("tool_choice") {
            tools.choose(choice)?;
        }
        Ok(tools)
    }

    /// Applies `tool_choice`.
    fn choose(&mut self, choice: &Value) -> Result<(), RequestError> {
        match choice.as_str() {
            Some("none") => {
                // What must not be called is not shown either.
                self.offered.clear();
                return Ok(());
            }
            Some("auto") => return Ok(()),
            Some("required" | "any") => return self.require("tool_choice"),
            _ => {}
        }
        match choice.get("type").and_then(Value::as_str) {
            Some("function") => {
                let name = function_name("tool_choice", choice)?;
                self.keep("tool_choice.function.name", &[name])?;
                self.parallel = ParallelCalls::One;
                self.require("tool_choice")
            }
            Some("allowed_tools") => self.allow(choice),
            _ => Err(RequestError::invalid(
                "tool_choice",
                "\"none\", \"auto\", \"required\", a function or allowed_tools",
                choice,
            )),
        }
    }

    /// `{"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}`.
    fn allow(&mut self, choice: &Value) -> Result<(), RequestError> {
        const PATH: &str = "tool_choice.allowed_tools";
        // The Responses API has the same without the nesting.
        let allowed = choice.get("allowed_tools").unwrap_or(choice);
        let list = allowed.get("tools").and_then(Value::as_array);
        let list = list.ok_or_else(|| {
            RequestError::invalid(format!("{PATH}.tools"), "a list of functions", allowed)
        })?;
        let names: Result<Vec<&str>, RequestError> = list
            .iter()
            .map(|tool| function_name(&format!("{PATH}.tools"), tool))
            .collect();
        self.keep(&format!("{PATH}.tools"), &names?)?;
        match allowed.get("mode").and_then(Value::as_str) {
            Some("required") => self.require(PATH),
            Some("auto") | None => Ok(()),
            Some(_) => {
                let mode = allowed.get("mode").unwrap_or(&Value::Null);
                Err(RequestError::invalid(
                    format!("{PATH}.mode"),
                    "\"auto\" or \"required\"",
                    mode,
                ))
            }
        }
    }

    fn require(&mut self, param: &str) -> Result<(), RequestError> {
        if self.offered.is_empty() {
            return Err(RequestError::Contradiction {
                param: param.to_owned(),
                reason: "demands a call, but no 'tools' are offered".to_owned(),
            });
        }
        self.choice = ToolChoice::Required;
        Ok(())
    }

    /// Leaves only tools of these names.
    fn keep(&mut self, param: &str, names: &[&str]) -> Result<(), RequestError> {
        let is_offered = |name: &&&str| self.offered.iter().any(|tool| tool.name == **name);
        if let Some(absent) = names.iter().find(|name| !is_offered(name)) {
            return Err(RequestError::Contradiction {
                param: param.to_owned(),
                reason: format!("names {absent:?}, which is not among 'tools'"),
            });
        }
        self.offered
            .retain(|tool| names.contains(&tool.name.as_str()));
        Ok(())
    }

    /// Whether calls must keep to a grammar: a call is demanded, or a schema is enforced.
    pub fn are_enforced(&self) -> bool {
        let is_strict = |tool: &Tool| tool.strictness == Strictness::Enforced;
        self.choice == ToolChoice::Required || self.offered.iter().any(is_strict)
    }
}

fn function_name<'a>(param: &str, value: &'a Value) -> Result<&'a str, RequestError> {
    let name = value
        .pointer("/function/name")
        .or_else(|| value.get("name"));
    name.and_then(Value::as_str)
        .ok_or_else(|| RequestError::Missing {
            param: format!("{param}.function.name"),
            expected: "a function's name".to_owned(),
        })
}

fn read_tools(value: &Value, limits: &Limits) -> Result<Vec<Tool>, RequestError> {
    let Value::Array(items) = value else {
        return Err(RequestError::invalid("tools", "a list of tools", value));
    };
    if items.len() > limits.num_tools_max {
        return Err(too_many("tools", limits.num_tools_max, items.len()));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(items.len());
    for (idx, item) in items.iter().enumerate() {
        let path = format!("tools[{idx}]");
        let tool = Tool {
            index: idx,
            ..read_tool(&path, item)?
        };
        if tools.iter().any(|known| known.name == tool.name) {
            return Err(RequestError::Contradiction {
                param: format!("{path}.function.name"),
                reason: format!("{:?} is offered twice", tool.name),
            });
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn read_tool(path: &str, item: &Value) -> Result<Tool, RequestError> {
    match item.get("type").and_then(Value::as_str) {
        Some("function") => {}
        Some(_) => {
            return Err(RequestError::Unsupported {
                param: format!("{path}.type"),
                accepted: "\"function\"".to_owned(),
            });
        }
        None => return Err(RequestError::invalid(path, "a tool with a 'type'", item)),
    }
    let path = format!("{path}.function");
    let Some(Value::Object(function)) = item.get("function") else {
        let function = item.get("function").unwrap_or(&Value::Null);
        return Err(RequestError::invalid(path, "a function", function));
    };
    let name = function.get("name").unwrap_or(&Value::Null);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_name =
        |name: &&str| (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter);
    let Some(name) = name.as_str().filter(is_name) else {
        let expected = "a name of up to 64 letters, digits, '_', '-' and '.'";
        return Err(RequestError::invalid(
            format!("{path}.name"),
            expected,
            name,
        ));
    };
    if let Some(description) = function
        .get("description")
        .filter(|value| !value.is_null() && !value.is_string())
    {
        return Err(RequestError::invalid(
            format!("{path}.description"),
            "a string",
            description,
        ));
    }
    let parameters = function.get("parameters").filter(|value| !value.is_null());
    if let Some(other) = parameters.filter(|value| !value.is_object()) {
        return Err(RequestError::invalid(
            format!("{path}.parameters"),
            "a JSON schema",
            other,
        ));
    }
    let strictness = match function.get("strict") {
        None | Some(Value::Null | Value::Bool(false)) => Strictness::Told,
        Some(Value::Bool(true)) => Strictness::Enforced,
        Some(other) => {
            return Err(RequestError::invalid(
                format!("{path}.strict"),
                "true or false",
                other,
            ));
        }
    };
    Ok(Tool {
        index: 0,
        name: name.to_owned(),
        parameters: parameters.cloned(),
        strictness,
        definition: item.clone(),
    })
}

/// Reads the calls of an assistant's turn: ids, names and arguments as templates expect them.
pub(crate) fn read_calls(
    path: &str,
    object: &Map<String, Value>,
    limits: &Limits,
) -> Result<Vec<Value>, RequestError> {
    let path = format!("{path}.tool_calls");
    let items = match object.get("tool_calls") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(RequestError::invalid(path, "a list of calls", other)),
    };
    if items.len() > limits.num_tools_max {
        return Err(too_many(&path, limits.num_tools_max, items.len()));
    }
    let read = |(idx, item)| read_call(&format!("{path}[{idx}]"), item);
    items.iter().enumerate().map(read).collect()
}

fn read_call(path: &str, item: &Value) -> Result<Value, RequestError> {
    match item.get("type") {
        None | Some(Value::Null) => {}
        Some(kind) if kind.as_str() == Some("function") => {}
        Some(_) => {
            return Err(RequestError::Unsupported {
                param: format!("{path}.type"),
                accepted: "\"function\"".to_owned(),
            });
        }
    }
    let text = |pointer: &str, key: &str| {
        let value = item.pointer(pointer).unwrap_or(&Value::Null);
        let found = value.as_str().filter(|text| !text.is_empty());
        found.ok_or_else(|| {
            RequestError::invalid(format!("{path}.{key}"), "a non-empty string", value)
        })
    };
    let name = text("/function/name", "function.name")?;
    let arguments = item.pointer("/function/arguments").unwrap_or(&Value::Null);
    let arguments = read_arguments(&format!("{path}.function.arguments"), arguments)?;
    let id = match item.get("id") {
        None | Some(Value::Null) => "",
        Some(_) => text("/id", "id")?,
    };
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Arguments that are no object are refused whatever the template would do with them, as vLLM does: one
/// that prints them as they are would teach the model to write calls that nobody can read.
fn read_arguments(param: &str, value: &Value) -> Result<Value, RequestError> {
    let got = match value {
        Value::Object(_) => return Ok(value.clone()),
        Value::Null => return Ok(json!("{}")),
        Value::String(text) if text.trim().is_empty() => return Ok(json!("{}")),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(_)) => return Ok(value.clone()),
            Ok(other) => format!("the JSON of {}", kind(&other)),
            Err(_) => "a string that is no JSON".to_owned(),
        },
        other => kind(other).to_owned(),
    };
    Err(RequestError::Invalid {
        param: param.to_owned(),
        expected: "an object, or the JSON of one".to_owned(),
        got,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatRequest;

    const LIMITS: Limits = crate::TEST_LIMITS;

    fn read(fields: Value) -> Result<Tools, RequestError> {
        let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
        let object = body.as_object_mut().expect("it is one");
        object.extend(fields.as_object().expect("an object").clone());
        ChatRequest::parse(body.to_string().as_bytes(), &LIMITS).map(|request| request.tools)
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    }

    fn names(tools: &Tools) -> Vec<&str> {
        tools
            .offered
            .iter()
            .map(|tool| tool.name.as_str())
            .collect()
    }

    #[test]
    fn a_choice_says_which_tools_may_or_must_be_called() {
        let both = json!([function("f"), function("g")]);
        let choose = |choice: Value| {
            read(json!({"tools": both, "tool_choice": choice})).expect("it is sound")
        };
        let auto = choose(json!("auto"));
        assert_eq!(
            (names(&auto), auto.choice),
            (vec!["f", "g"], ToolChoice::Auto)
        );
        assert_eq!(names(&choose(json!("none"))), Vec::<&str>::new());
        assert_eq!(choose(json!("required")).choice, ToolChoice::Required);
        let named = choose(json!({"type": "function", "function": {"name": "g"}}));
        assert_eq!(
            (names(&named), named.choice),
            (vec!["g"], ToolChoice::Required)
        );
        let allowed = choose(
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("f")]}}),
        );
        assert_eq!(
            (names(&allowed), allowed.choice),
            (vec!["f"], ToolChoice::Auto)
        );
    }

    #[test]
    fn what_is_wrong_with_tools_is_named_with_its_place() {
        let one = |tool: Value| json!({"tools": [tool]});
        let named = |name: Value| one(json!({"type": "function", "function": {"name": name}}));
        for (fields, place) in [
            (json!({"tools": {}}), "tools"),
            (one(json!({"type": "web_search"})), "tools[0].type"),
            (one(json!({"type": "function"})), "tools[0].function"),
            (named(json!("a b")), "tools[0].function.name"),
            (named(json!("a".repeat(65))), "tools[0].function.name"),
            (named(json!(7)), "tools[0].function.name"),
            (
                json!({"tools": [function("f"), function("f")]}),
                "tools[1].function.name",
            ),
            (
                one(json!({"type": "function", "function": {"name": "f", "parameters": []}})),
                "tools[0].function.parameters",
            ),
            (
                one(json!({"type": "function", "function": {"name": "f", "strict": 1}})),
                "tools[0].function.strict",
            ),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (
                json!({"tools": [function("f")], "tool_choice": "maybe"}),
                "tool_choice",
            ),
            (
                json!({"tools": [function("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
                "tool_choice.function.name",
            ),
        ] {
            let error = read(fields.clone()).expect_err("it is refused");
            assert_eq!(error.param(), Some(place), "{fields}");
        }
    }

    #[test]
    fn earlier_calls_are_kept_as_templates_expect_them() {
        let body = json!({"messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]});
        let request =
            ChatRequest::parse(body.to_string().as_bytes(), &LIMITS).expect("it is sound");
        let told = request.messages[1].to_template_value();
        assert_eq!(told["content"], Value::Null);
        assert_eq!(told["reasoning_content"], "hm");
        assert_eq!(told["tool_calls"][0]["function"]["arguments"], "{\"a\": 1}");
        assert_eq!(
            request.messages[2].to_template_value()["tool_call_id"],
            "c1"
        );
    }

    #[test]
    fn an_earlier_call_without_a_name_is_refused_with_its_place() {
        let body = json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]});
        let error = ChatRequest::parse(body.to_string().as_bytes(), &LIMITS).expect_err("no name");
        assert_eq!(
            error.param(),
            Some("messages[0].tool_calls[0].function.name")
        );
    }
}
