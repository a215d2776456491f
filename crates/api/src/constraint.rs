//! What an answer must look like, in the words of four dialects that mean the same.
//!
//! ```text
//! OpenAI      response_format: {type: json_object} | {type: json_schema, json_schema: {schema, …}}
//! vLLM        structured_outputs: {json | json_object | regex | choice | grammar}
//! vLLM, older guided_json, guided_regex, guided_choice, guided_grammar
//! llama.cpp   grammar, json_schema, response_format: {type: json_object, schema}
//! ```
//!
//! A request may use one of them. Whether a schema or grammar can be obeyed is not known here.

use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::fields::Fields;
use crate::json;

/// What an answer must look like, as far as the request says.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// The field that says so, with its path: what is wrong deeper down is named from here.
    pub param: String,
    /// The demand.
    pub form: Form,
    /// How JSON documents are spaced.
    pub spacing: Spacing,
}

/// What is demanded.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Any JSON object.
    JsonObject,
    /// A JSON document that this schema accepts.
    JsonSchema(Value),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of this grammar.
    Grammar(String),
}

/// How JSON documents are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// As the model likes, within reason.
    Free,
    /// No white space between tokens (`disable_any_whitespace`).
    Dense,
}

/// Reads whatever field says what the answer must look like.
///
/// # Errors
///
/// [`RequestError`], naming the field; also if two fields say something.
pub(crate) fn read(fields: &Fields) -> Result<Option<Constraint>, RequestError> {
    let mut found: Option<Constraint> = None;
    for (name, read) in READERS {
        let Some(value) = fields.get(name) else {
            continue;
        };
        let Some(constraint) = read(name, value)? else {
            continue;
        };
        if let Some(other) = &found {
            let first = other.param.split('.').next().unwrap_or_default();
            return Err(RequestError::Contradiction {
                param: (*name).to_owned(),
                reason: format!(
                    "cannot be combined with '{first}': both say what the answer must look like"
                ),
            });
        }
        found = Some(constraint);
    }
    Ok(found)
}

/// Reads one field; `None` if it demands nothing.
type Reader = fn(&str, &Value) -> Result<Option<Constraint>, RequestError>;

const READERS: &[(&str, Reader)] = &[
    ("response_format", response_format),
    ("structured_outputs", structured_outputs),
    ("guided_json", |param, value| {
        some(param, Form::JsonSchema(schema(param, value)?))
    }),
    ("guided_regex", |param, value| {
        some(param, Form::Regex(text(param, value)?))
    }),
    ("guided_choice", |param, value| {
        some(param, Form::Choice(texts(param, value)?))
    }),
    ("guided_grammar", |param, value| {
        some(param, Form::Grammar(text(param, value)?))
    }),
    // llama.cpp takes an empty grammar for none.
    ("grammar", |param, value| match value.as_str() {
        Some("") => Ok(None),
        _ => some(param, Form::Grammar(text(param, value)?)),
    }),
    ("json_schema", |param, value| {
        some(param, Form::JsonSchema(schema(param, value)?))
    }),
];

fn some(param: &str, form: Form) -> Result<Option<Constraint>, RequestError> {
    Ok(Some(Constraint {
        param: param.to_owned(),
        form,
        spacing: Spacing::Free,
    }))
}

fn response_format(param: &str, value: &Value) -> Result<Option<Constraint>, RequestError> {
    let expected = "an object with a 'type'";
    let object = value.as_object();
    let Some(object) = object else {
        return Err(RequestError::invalid(param, expected, value));
    };
    let kind_param = format!("{param}.type");
    let Some(kind) = present(object, "type") else {
        return Err(RequestError::Missing {
            param: kind_param,
            expected: "\"text\", \"json_object\" or \"json_schema\"".to_owned(),
        });
    };
    match kind.as_str() {
        Some("text") => {
            expect_keys(param, object, &["type"])?;
            Ok(None)
        }
        Some("json_object") => {
            expect_keys(param, object, &["type", "schema"])?;
            let Some(source) = present(object, "schema") else {
                return some(param, Form::JsonObject);
            };
            let param = format!("{param}.schema");
            some(&param, Form::JsonSchema(schema(&param, source)?))
        }
        Some("json_schema") => {
            expect_keys(param, object, &["type", "json_schema"])?;
            named_schema(
                &format!("{param}.json_schema"),
                present(object, "json_schema"),
            )
        }
        Some(_) => Err(RequestError::Unsupported {
            param: kind_param,
            accepted: "\"text\", \"json_object\" or \"json_schema\"".to_owned(),
        }),
        None => Err(RequestError::invalid(kind_param, "a string", kind)),
    }
}

/// `{name, description, schema, strict}`: the name and description are labels, and every schema is
/// obeyed strictly.
fn named_schema(param: &str, value: Option<&Value>) -> Result<Option<Constraint>, RequestError> {
    let missing = |param: String, expected: &str| RequestError::Missing {
        param,
        expected: expected.to_owned(),
    };
    let value = value.ok_or_else(|| missing(param.to_owned(), "an object with a 'schema'"))?;
    let Some(object) = value.as_object() else {
        return Err(RequestError::invalid(
            param,
            "an object with a 'schema'",
            value,
        ));
    };
    expect_keys(param, object, &["name", "description", "schema", "strict"])?;
    for label in ["name", "description"] {
        if let Some(value) = present(object, label).filter(|value| !value.is_string()) {
            return Err(RequestError::invalid(
                format!("{param}.{label}"),
                "a string",
                value,
            ));
        }
    }
    if let Some(strict) = present(object, "strict").filter(|strict| !strict.is_boolean()) {
        return Err(RequestError::invalid(
            format!("{param}.strict"),
            "true or false",
            strict,
        ));
    }
    let at = format!("{param}.schema");
    let source = present(object, "schema");
    let source = source.ok_or_else(|| missing(at.clone(), "a JSON schema"))?;
    some(&at, Form::JsonSchema(schema(&at, source)?))
}

fn structured_outputs(param: &str, value: &Value) -> Result<Option<Constraint>, RequestError> {
    let Some(object) = value.as_object() else {
        return Err(RequestError::invalid(param, "an object", value));
    };
    let (mut found, mut spacing) = (None::<Constraint>, Spacing::Free);
    for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let at = format!("{param}.{}", key.chars().take(64).collect::<String>());
        let flag = || {
            let wrong = || RequestError::invalid(at.as_str(), "true or false", value);
            value.as_bool().ok_or_else(wrong)
        };
        let form = match key.as_str() {
            "json" => Form::JsonSchema(schema(&at, value)?),
            "json_object" => match flag()? {
                true => Form::JsonObject,
                false => continue,
            },
            "regex" => Form::Regex(text(&at, value)?),
            "choice" => Form::Choice(texts(&at, value)?),
            "grammar" => Form::Grammar(text(&at, value)?),
            // There is nothing to fall back to.
            "disable_fallback" => {
                flag()?;
                continue;
            }
            "disable_any_whitespace" => {
                if flag()? {
                    spacing = Spacing::Dense;
                }
                continue;
            }
            "disable_additional_properties" if value == &Value::Bool(false) => continue,
            _ => {
                return Err(RequestError::Unsupported {
                    param: at,
                    accepted: String::new(),
                });
            }
        };
        if let Some(first) = &found {
            return Err(RequestError::Contradiction {
                param: at,
                reason: format!(
                    "cannot be combined with '{}': only one form may be given",
                    first.param
                ),
            });
        }
        found = some(&at, form)?;
    }
    match found {
        Some(constraint) => Ok(Some(Constraint {
            spacing,
            ..constraint
        })),
        None if present(object, "json_object").is_some() => Ok(None),
        None => Err(RequestError::Missing {
            param: param.to_owned(),
            expected: "one of 'json', 'json_object', 'regex', 'choice' and 'grammar'".to_owned(),
        }),
    }
}

fn present<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// A key nobody knows could be a demand that would go unheard.
fn expect_keys(
    param: &str,
    object: &Map<String, Value>,
    keys: &[&str],
) -> Result<(), RequestError> {
    let given = object.iter().filter(|(_, value)| !value.is_null());
    match given
        .map(|(key, _)| key)
        .find(|key| !keys.contains(&key.as_str()))
    {
        None => Ok(()),
        Some(key) => Err(RequestError::Unsupported {
            param: format!("{param}.{}", key.chars().take(64).collect::<String>()),
            accepted: String::new(),
        }),
    }
}

/// A schema, as an object or (as vLLM takes it too) as its text.
fn schema(param: &str, value: &Value) -> Result<Value, RequestError> {
    match value {
        Value::Object(_) | Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match json::object(text.as_bytes()) {
            Ok(object) => Ok(Value::Object(object)),
            Err(error) => Err(RequestError::Contradiction {
                param: param.to_owned(),
                reason: format!("is a text that holds no schema: {error}"),
            }),
        },
        _ => Err(RequestError::invalid(param, "a JSON schema", value)),
    }
}

fn text(param: &str, value: &Value) -> Result<String, RequestError> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(RequestError::invalid(param, "a non-empty string", value)),
    }
}

fn texts(param: &str, value: &Value) -> Result<Vec<String>, RequestError> {
    let expected = "a list of non-empty strings";
    match value.as_array() {
        Some(items) if !items.is_empty() => {
            let items = items.iter().enumerate();
            items
                .map(|(idx, item)| text(&format!("{param}[{idx}]"), item))
                .collect()
        }
        _ => Err(RequestError::invalid(param, expected, value)),
    }
}
