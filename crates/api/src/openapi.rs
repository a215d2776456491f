//! The OpenAPI document, made of what answers requests: bodies from the table of fields that
//! reads them, answers from the types that are written, routes from whoever has them.
//!
//! So it cannot say anything else than the server does. What it leaves open are rules between
//! fields and the inside of a few structured values; those are refused with 400.
//!
//! Source: the OpenAPI specification, version 3.1.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{ArrayBuilder, RefOr, Schema};

use crate::fields::{Endpoint, Field, Neutral, Rule, Shape};
use crate::{answer, messages};

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// How it is asked.
    pub method: Method,
    /// The path; `{name}` stands for one part of it, `{*name}` for all the rest.
    pub path: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Pairs of name and meaning that may stand behind `?`.
    pub query: &'static [(&'static str, &'static str)],
    /// What is sent.
    pub body: Body,
    /// What comes back.
    pub answer: Answer,
}

/// How something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Works.
    Post,
    /// Forgets.
    Delete,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Nothing.
    None,
    /// An object along an endpoint's table.
    Table(Endpoint),
    /// An object with these keys, of which one group must be there whole.
    Keys(&'static [&'static [&'static str]]),
}

/// What comes back with status 200.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// JSON.
    Json(Told),
    /// JSON, or server-sent events of such documents if `stream` is true.
    Either(Told),
    /// Text.
    Text,
}

/// A type that is written, as a schema.
#[derive(Clone, Copy, Debug)]
pub struct Told(fn(&mut Schemas) -> RefOr<Schema>);

type Schemas = Vec<(String, RefOr<Schema>)>;

impl Told {
    /// Documents of this type.
    pub const fn of<T: ToSchema>() -> Told {
        Told(named::<T>)
    }

    /// Answers with choices of this type.
    pub const fn choices_of<C: ToSchema>() -> Told {
        Told(choices::<C>)
    }

    /// Lists of documents of this type.
    pub const fn list_of<T: ToSchema>() -> Told {
        Told(list::<T>)
    }
}

fn named<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    called::<T>(T::name().into_owned(), schemas)
}

fn called<T: ToSchema>(name: String, schemas: &mut Schemas) -> RefOr<Schema> {
    schemas.push((name.clone(), T::schema()));
    T::schemas(schemas);
    RefOr::Ref(utoipa::openapi::Ref::from_schema_name(name))
}

/// A generic type has one name for all its parameters, and does not bring along their schemas.
fn choices<C: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    named::<C>(schemas);
    called::<answer::Document<'_, C>>(format!("{}Document", C::name()), schemas)
}

fn list<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    ArrayBuilder::new().items(named::<T>(schemas)).into()
}

/// The document of these operations.
///
/// # Panics
///
/// If two types that are written have the same name.
pub fn document(operations: &[Operation], version: &str) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let path = operation.path.replace("{*", "{");
        let described = describe(operation, &mut schemas);
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[operation.method.word()] = described;
    }
    let mut by_name: Map<String, Value> = Map::new();
    for (name, schema) in schemas {
        let schema = to_value(&schema);
        let earlier = by_name.insert(name.clone(), schema.clone());
        assert!(
            earlier.is_none_or(|earlier| earlier == schema),
            "two types are called {name}"
        );
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fulcrum",
            "version": version,
            "description": "A model server that speaks OpenAI's and Anthropic's dialects.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": by_name,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        // Without keys everything is open.
        "security": [{}, {"bearer": []}, {"key": []}],
    })
}

fn to_value<T: serde::Serialize>(schema: &T) -> Value {
    serde_json::to_value(schema).expect("schemas are JSON")
}

impl Method {
    fn word(self) -> &'static str {
        match self {
            Method::Get => "get",
            Method::Post => "post",
            Method::Delete => "delete",
        }
    }
}

/// Statuses of refusals; which of them a path can give is not told apart.
const REFUSALS: &[(&str, &str)] = &[
    ("400", "the request is wrong"),
    ("401", "no valid key"),
    ("404", "no such thing"),
    ("408", "the body did not come in time"),
    ("413", "the body is too large"),
    ("415", "the body is not JSON"),
    ("431", "the headers are too large"),
    ("500", "the server failed"),
    ("503", "the server cannot now; `Retry-After` says when"),
];

fn describe(operation: &Operation, schemas: &mut Schemas) -> Value {
    let refusal = if operation.path.starts_with("/v1/messages") {
        to_value(&named::<messages::answer::ErrorBody<'_>>(schemas))
    } else {
        to_value(&named::<answer::ErrorBody<'_>>(schemas))
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), success(operation.answer, schemas));
    for (status, description) in REFUSALS {
        let content = json!({"application/json": {"schema": refusal}});
        let refusal = json!({"description": description, "content": content});
        responses.insert((*status).to_owned(), refusal);
    }
    let in_path = operation.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let name = name.trim_start_matches('*');
        let schema = json!({"type": "string", "minLength": 1});
        Some(json!({"name": name, "in": "path", "required": true, "schema": schema}))
    });
    let in_query = operation.query.iter().map(|(name, says)| {
        let schema = json!({"type": "string"});
        json!({"name": name, "in": "query", "description": says, "schema": schema})
    });
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let mut described = json!({
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = body_schema(operation.body) {
        let content = json!({"application/json": {"schema": body}});
        described["requestBody"] = json!({"required": true, "content": content});
    }
    described
}

fn success(answer: Answer, schemas: &mut Schemas) -> Value {
    let content = match answer {
        Answer::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
        Answer::Json(told) => {
            json!({"application/json": {"schema": to_value(&told.0(schemas))}})
        }
        Answer::Either(told) => json!({
            "application/json": {"schema": to_value(&told.0(schemas))},
            "text/event-stream": {"schema": {"type": "string"}},
        }),
    };
    json!({"description": "done", "content": content})
}

fn body_schema(body: Body) -> Option<Value> {
    match body {
        Body::None => None,
        Body::Table(endpoint) => {
            let properties: Map<String, Value> = endpoint
                .fields()
                .map(|field| (field.name.to_owned(), field_schema(field, endpoint)))
                .collect();
            Some(json!({
                "type": "object",
                "properties": properties,
                "required": required(endpoint),
            }))
        }
        Body::Keys(groups) => {
            let group = |keys: &&[&str]| json!({"required": keys});
            let groups: Vec<Value> = groups.iter().map(group).collect();
            Some(json!({"type": "object", "anyOf": groups}))
        }
    }
}

/// Fields without which an endpoint has nothing to do.
fn required(endpoint: Endpoint) -> &'static [&'static str] {
    match endpoint {
        Endpoint::Chat | Endpoint::Messages => &["messages"],
        Endpoint::Completion => &["prompt"],
        Endpoint::Responses | Endpoint::Embeddings => &["input"],
    }
}

/// `null` is the same as absent, everywhere but where a field is required.
fn field_schema(field: &Field, endpoint: Endpoint) -> Value {
    let mut schema = match field.rule {
        Rule::Obeyed(shape) | Rule::Hint(shape) => shape_schema(shape, field.name, endpoint),
        Rule::Neutral(values) => json!({"enum": values.iter().map(neutral).collect::<Vec<_>>()}),
        Rule::Refused => json!({"type": "null"}),
    };
    if !required(endpoint).contains(&field.name) && !matches!(field.rule, Rule::Refused) {
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    }
    schema["description"] = field.note.into();
    schema
}

fn neutral(value: &Neutral) -> Value {
    serde_json::from_str(&value.says()).expect("neutral values are JSON")
}

fn shape_schema(shape: Shape, name: &str, endpoint: Endpoint) -> Value {
    match shape {
        Shape::Number { min, max, .. } => json!({"type": "number", "minimum": min, "maximum": max}),
        Shape::Integer { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Text { bytes_max } => json!({"type": "string", "maxLength": bytes_max}),
        Shape::OneOf(words) => json!({"enum": words}),
        Shape::Object => json!({"type": "object"}),
        Shape::Structured(says) => structured(says, name, endpoint),
    }
}

/// What is read by a function of its own; without a row here the words have to do.
fn structured(says: &str, name: &str, endpoint: Endpoint) -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let ids = json!({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}});
    match name {
        "messages" => message_list(endpoint),
        "prompt" => json!({"anyOf": [text, ids.clone(),
            {"type": "array", "minItems": 1, "items": text},
            {"type": "array", "minItems": 1, "items": ids}]}),
        "input" if endpoint == Endpoint::Responses => json!({"anyOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": {"type": "object"}}]}),
        "input" => json!({"anyOf": [text, ids.clone(),
            {"type": "array", "minItems": 1, "items": text},
            {"type": "array", "minItems": 1, "items": ids}]}),
        "stop" => json!({"anyOf": [text, {"type": "array", "maxItems": 4, "items": text}]}),
        "stop_sequences" => json!({"type": "array", "maxItems": 4, "items": text}),
        "stop_token_ids" | "allowed_token_ids" => ids,
        "logit_bias" | "stream_options" | "text" | "reasoning" | "thinking" | "output_config" => {
            json!({"type": "object", "title": says})
        }
        "instructions" => json!({"type": "string"}),
        _ => json!({"title": says}),
    }
}

fn message_list(endpoint: Endpoint) -> Value {
    let roles: &[&str] = match endpoint {
        Endpoint::Messages => &["user", "assistant"],
        _ => &["system", "developer", "user", "assistant", "tool"],
    };
    // Other parts and keys a message may have are in the reference, not here.
    let part = json!({
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}},
    });
    let parts = json!({"type": "array", "items": part});
    let content = json!({"anyOf": [{"type": "string"}, parts]});
    json!({"type": "array", "minItems": 1, "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": roles}, "content": content},
    }})
}
