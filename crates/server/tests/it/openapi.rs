//! `/openapi.json` says what the server does: every route is in it, and real answers are of
//! the schemas it gives.

use serde_json::{Value, json};

use crate::harness::{MODEL, Running, Setup, chat};

fn document(running: &Running) -> Value {
    let reply = running.get("/openapi.json");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.json()
}

/// What speaks against `value` being of `schema`; none if it is.
fn fault(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let found = document.pointer(name.trim_start_matches('#'));
        let found = found.unwrap_or_else(|| panic!("{name} is nowhere"));
        return fault(document, found, value);
    }
    for alternatives in ["anyOf", "oneOf"] {
        let Some(schemas) = schema[alternatives].as_array() else {
            continue;
        };
        let faults: Vec<_> = schemas
            .iter()
            .map(|schema| fault(document, schema, value))
            .collect();
        if faults.iter().all(Option::is_some) {
            return Some(format!("none of {alternatives}: {faults:?}"));
        }
    }
    for schema in schema["allOf"].as_array().into_iter().flatten() {
        if let Some(fault) = fault(document, schema, value) {
            return Some(fault);
        }
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Some(format!("{value} is not one of {words:?}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |kind: &&str| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("an unknown type: {other}"),
    };
    if !types.is_empty() && !types.iter().any(is) {
        return Some(format!("{value} is none of {types:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        if !schema["items"].is_null()
            && let Some(fault) = fault(document, &schema["items"], item)
        {
            return Some(fault);
        }
    }
    let object = value.as_object()?;
    for key in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(key.as_str().expect("keys are text")) {
            return Some(format!("{key} is missing in {value}"));
        }
    }
    let properties = schema["properties"].as_object()?;
    properties.iter().find_map(|(key, schema)| {
        let fault = fault(document, schema, object.get(key)?)?;
        Some(format!("{key}: {fault}"))
    })
}

/// The keys a schema knows, through references and compositions.
fn keys(document: &Value, schema: &Value) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let found = document.pointer(name.trim_start_matches('#'));
        return keys(document, found.expect("checked before"));
    }
    let own = schema["properties"].as_object().into_iter().flatten();
    let own = own.map(|(key, _)| key.clone());
    let all = schema["allOf"].as_array().into_iter().flatten();
    own.chain(all.flat_map(|schema| keys(document, schema)))
        .collect()
}

#[test]
fn every_operation_of_the_document_is_served() {
    let running = Setup::new().start();
    let document = document(&running);
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 20, "{}", paths.len());
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.replace("{model}", MODEL).replace("{response_id}", "x");
            let reply = match method.as_str() {
                "get" => running.get(&path),
                "post" => running.post(&path, &json!({})),
                "delete" => running.delete(&path),
                other => panic!("an unknown method: {other}"),
            };
            let status = reply.status.to_string();
            let body = reply.text();
            let code =
                serde_json::from_str::<Value>(&body).map(|body| body["error"]["code"].clone());
            assert!(
                code.is_err() || code.is_ok_and(|code| code != "unknown_url"),
                "{method} {path}"
            );
            assert!(
                operation["responses"].get(&status).is_some(),
                "{path} {status}"
            );
        }
    }
}

/// Bodies of the document's own operations, and their answers.
#[test]
fn answers_are_of_the_schemas_that_the_document_gives() {
    let running = Setup::new().start();
    let document = document(&running);
    let response = running.post("/v1/responses", &json!({"input": "x"})).json();
    let kept = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    let message = json!([{"role": "user", "content": "x"}]);
    let mut with_logprobs = chat();
    with_logprobs["logprobs"] = json!(true);
    with_logprobs["top_logprobs"] = json!(2);
    let asked: Vec<(&str, &str, String, Value)> = vec![
        ("/v1/chat/completions", "post", String::new(), chat()),
        ("/v1/chat/completions", "post", String::new(), with_logprobs),
        (
            "/v1/completions",
            "post",
            String::new(),
            json!({"prompt": ["5", "4"], "logprobs": 2, "echo": true}),
        ),
        ("/v1/chat/completions/render", "post", String::new(), chat()),
        (
            "/v1/completions/render",
            "post",
            String::new(),
            json!({"prompt": "5"}),
        ),
        ("/apply-template", "post", String::new(), chat()),
        (
            "/v1/responses",
            "post",
            String::new(),
            json!({"input": "x", "temperature": 0}),
        ),
        (
            "/v1/responses",
            "post",
            String::new(),
            json!({"input": "x", "max_output_tokens": 1}),
        ),
        (
            "/v1/responses/{response_id}",
            "get",
            kept.clone(),
            Value::Null,
        ),
        (
            "/v1/responses/{response_id}/input_items",
            "get",
            format!("{kept}/input_items"),
            Value::Null,
        ),
        (
            "/v1/messages",
            "post",
            String::new(),
            json!({"max_tokens": 9, "messages": message}),
        ),
        (
            "/v1/messages/count_tokens",
            "post",
            String::new(),
            json!({"messages": message}),
        ),
        ("/v1/models", "get", String::new(), Value::Null),
        (
            "/tokenize",
            "post",
            String::new(),
            json!({"prompt": "x", "return_token_strs": true}),
        ),
        (
            "/tokenize",
            "post",
            String::new(),
            json!({"content": "x", "with_pieces": true}),
        ),
        (
            "/detokenize",
            "post",
            String::new(),
            json!({"tokens": [1, 2]}),
        ),
        ("/version", "get", String::new(), Value::Null),
        ("/readyz", "get", String::new(), Value::Null),
        ("/v1/responses/{response_id}", "delete", kept, Value::Null),
    ];
    for (path, method, address, body) in asked {
        let address = if address.is_empty() {
            path.to_owned()
        } else {
            address
        };
        let reply = match method {
            "get" => running.get(&address),
            "delete" => running.delete(&address),
            _ => running.post(&address, &body),
        };
        assert_eq!(reply.status, 200, "{address} {body}");
        let answer = reply.json();
        let content = &document["paths"][path][method]["responses"]["200"]["content"];
        let schema = &content["application/json"]["schema"];
        assert!(schema.is_object(), "{path}");
        assert_eq!(fault(&document, schema, &answer), None, "{path}: {answer}");
        // Nor does the answer have keys that the document hides.
        let known = keys(&document, schema);
        for key in answer.as_object().into_iter().flatten().map(|(key, _)| key) {
            assert!(known.is_empty() || known.contains(key), "{path}: {key}");
        }
    }
}

#[test]
fn refusals_are_of_their_dialects_schema() {
    let running = Setup::new().start();
    let document = document(&running);
    for path in [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/tokenize",
    ] {
        let refusal = running.post(path, &json!({})).json();
        let responses = &document["paths"][path]["post"]["responses"];
        let schema = &responses["400"]["content"]["application/json"]["schema"];
        assert_eq!(
            fault(&document, schema, &refusal),
            None,
            "{path}: {refusal}"
        );
    }
}

#[test]
fn the_document_needs_a_key_like_everything_else() {
    let running = Setup::new().with_keys(&["sk-one"]).start();
    assert_eq!(running.get("/openapi.json").status, 401);
}
