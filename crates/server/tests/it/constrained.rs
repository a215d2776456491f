//! Answers that must be of a form: every field that asks for one, in either mode, and what is
//! refused.

use serde_json::{Value, json};
use text::TokenId;

use crate::harness::{Running, Setup, chat, refusal};
use crate::http::Frame;

fn with(mut body: Value, more: &Value) -> Value {
    let more = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("a request").extend(more);
    body
}

fn content(running: &Running, more: &Value) -> (String, String) {
    let body = with(chat(), more);
    let reply = running.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 200, "{body}");
    let answer = reply.json();
    let choice = &answer["choices"][0];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (
        text(&choice["message"]["content"]),
        text(&choice["finish_reason"]),
    )
}

fn complete(running: &Running, more: &Value) -> (String, String) {
    running.complete(&with(json!({"prompt": "say", "temperature": 0}), more))
}

fn streamed(running: &Running, more: &Value) -> (String, String) {
    let frames = running
        .stream("/v1/chat/completions", &with(chat(), more))
        .all();
    assert_eq!(frames.last(), Some(&Frame::Done));
    let (mut content, mut reason) = (String::new(), String::new());
    for frame in frames {
        if let Frame::Json(chunk) = frame {
            let choice = &chunk["choices"][0];
            content += choice["delta"]["content"].as_str().unwrap_or_default();
            reason += choice["finish_reason"].as_str().unwrap_or_default();
        }
    }
    (content, reason)
}

/// A schema whose only document this is, white space apart.
fn point() -> Value {
    json!({
        "type": "object",
        "properties": {"x": {"const": 3}, "name": {"enum": ["abc"]}},
        "required": ["x", "name"], "additionalProperties": false
    })
}

fn is_point(answer: &(String, String)) {
    let document: Value = serde_json::from_str(&answer.0).expect("a document");
    assert_eq!(document, json!({"x": 3, "name": "abc"}));
    assert_eq!(answer.1, "stop");
}

#[test]
fn every_field_that_asks_for_a_schema_gets_it_in_either_mode() {
    let running = Setup::new().start();
    for more in [
        json!({"response_format": {"type": "json_schema", "json_schema":
            {"name": "point", "schema": point(), "strict": true, "description": "d"}}}),
        json!({"response_format": {"type": "json_object", "schema": point()}}),
        json!({"structured_outputs": {"json": point()}}),
        json!({"structured_outputs": {"json": point().to_string(), "disable_fallback": true}}),
        json!({"guided_json": point(), "guided_decoding_backend": "xgrammar"}),
        json!({"guided_json": point().to_string()}),
        json!({"json_schema": point()}),
    ] {
        is_point(&content(&running, &more));
        is_point(&streamed(&running, &more));
        is_point(&complete(&running, &more));
    }
    let dense = json!({"structured_outputs": {"json": point(), "disable_any_whitespace": true}});
    assert_eq!(content(&running, &dense).0, r#"{"x":3,"name":"abc"}"#);
}

#[test]
fn expressions_lists_and_grammars_bind_the_answer() {
    let running = Setup::new().start();
    for (more, expected) in [
        (
            json!({"structured_outputs": {"regex": "[x-z]{2}!"}}),
            &["xy!", "yz!", "xz!"][..],
        ),
        (json!({"guided_regex": "^q$"}), &["q"]),
        (
            json!({"structured_outputs": {"choice": ["positive", "negative"]}}),
            &["positive", "negative"],
        ),
        (json!({"guided_choice": ["only"]}), &["only"]),
        (
            json!({"structured_outputs": {"grammar": "root ::= \"a\" [q-r]"}}),
            &["aq", "ar"],
        ),
        (
            json!({"guided_grammar": "start: \"t\" | \"u\""}),
            &["t", "u"],
        ),
        (
            json!({"grammar": "root ::= \"yes\" | \"no\""}),
            &["yes", "no"],
        ),
    ] {
        for (answer, reason) in [
            content(&running, &more),
            streamed(&running, &more),
            complete(&running, &more),
        ] {
            assert!(
                expected.contains(&answer.as_str()) || more.to_string().contains("x-z"),
                "{more}: {answer}"
            );
            assert_eq!(reason, "stop", "{more}");
        }
    }
    let (any, reason) = content(
        &running,
        &json!({"response_format": {"type": "json_object"}, "max_tokens": 200}),
    );
    match reason.as_str() {
        "stop" => assert!(
            serde_json::from_str::<Value>(&any)
                .expect("a document")
                .is_object()
        ),
        other => assert_eq!(other, "length"),
    }
}

#[test]
fn what_demands_nothing_changes_nothing() {
    let running = Setup::new().start();
    let free = complete(&running, &json!({}));
    for more in [
        json!({"response_format": {"type": "text"}}),
        json!({"response_format": null, "grammar": ""}),
        json!({"structured_outputs": {"json_object": false}}),
    ] {
        assert_eq!(complete(&running, &more), free, "{more}");
    }
}

#[test]
fn a_limit_within_a_document_is_called_one() {
    let running = Setup::new().start();
    let more = json!({"guided_json": point(), "max_tokens": 4});
    assert_eq!(content(&running, &more).1, "length");
    assert_eq!(streamed(&running, &more).1, "length");
}

#[test]
fn several_answers_each_keep_to_the_form() {
    let running = Setup::new().start();
    let more = json!({"guided_choice": ["ab", "cd", "ef"], "n": 4, "temperature": 2, "seed": 1});
    let answer = running
        .post("/v1/chat/completions", &with(chat(), &more))
        .json();
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 4);
    for choice in choices {
        let text = choice["message"]["content"].as_str().expect("a text");
        assert!(["ab", "cd", "ef"].contains(&text), "{text}");
    }
}

#[test]
fn a_stop_string_never_cuts_a_document() {
    let running = Setup::new().start();
    for stop in ["b", "}", "\"", ":", "abc"] {
        is_point(&content(
            &running,
            &json!({"guided_json": point(), "stop": [stop]}),
        ));
    }
    is_point(&content(
        &running,
        &json!({"guided_json": point(), "ignore_eos": true, "min_tokens": 2}),
    ));
}

#[test]
fn what_cannot_be_obeyed_is_refused_with_its_path() {
    let running = Setup::new().start();
    let schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    let at = "response_format.json_schema.schema";
    for (more, param) in [
        (
            json!({"response_format": "json"}),
            "response_format".to_owned(),
        ),
        (
            json!({"response_format": {}}),
            "response_format.type".to_owned(),
        ),
        (
            json!({"response_format": {"type": "xml"}}),
            "response_format.type".to_owned(),
        ),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "response_format.json_schema".to_owned(),
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            at.to_owned(),
        ),
        (
            json!({"response_format": {"type": "json_object", "shema": {}}}),
            "response_format.shema".to_owned(),
        ),
        (schema(json!(7)), at.to_owned()),
        (
            schema(json!({"properties": {"x": {"type": "string", "format": "color"}}})),
            format!("{at}.properties.x.format"),
        ),
        (
            schema(json!({"anyOf": [{"not": {}}]})),
            format!("{at}.anyOf[0].not"),
        ),
        (
            schema(json!({"$ref": "https://example.com/s"})),
            format!("{at}.$ref"),
        ),
        (schema(json!({"$ref": "#"})), format!("{at}.$ref")),
        (
            json!({"structured_outputs": {}}),
            "structured_outputs".to_owned(),
        ),
        (
            json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}),
            "structured_outputs.".to_owned(),
        ),
        (
            json!({"structured_outputs": {"structural_tag": {}}}),
            "structured_outputs.structural_tag".to_owned(),
        ),
        (
            json!({"structured_outputs": {"json": {}, "whitespace_pattern": " "}}),
            "structured_outputs.whitespace_pattern".to_owned(),
        ),
        (json!({"guided_regex": "("}), "guided_regex".to_owned()),
        (json!({"guided_regex": 5}), "guided_regex".to_owned()),
        (json!({"guided_choice": []}), "guided_choice".to_owned()),
        (
            json!({"guided_choice": ["a", 1]}),
            "guided_choice[1]".to_owned(),
        ),
        (
            json!({"guided_grammar": "root ::= root"}),
            "guided_grammar".to_owned(),
        ),
        (json!({"grammar": "what is this"}), "grammar".to_owned()),
        (json!({"guided_json": "{"}), "guided_json".to_owned()),
        (
            json!({"guided_regex": "a", "guided_choice": ["b"]}),
            "guided_choice".to_owned(),
        ),
        (
            json!({"response_format": {"type": "json_object"}, "json_schema": {}}),
            "json_schema".to_owned(),
        ),
    ] {
        for (path, body) in [
            ("/v1/chat/completions", chat()),
            ("/v1/completions", json!({"prompt": "a"})),
        ] {
            let (status, refused, _) = refusal(running.post(path, &with(body, &more)));
            let refused = refused.unwrap_or_default();
            assert_eq!(status, 400, "{more}");
            assert!(
                refused == param || (param.ends_with('.') && refused.starts_with(&param)),
                "{more}: {refused}"
            );
        }
    }
    running.canary();
}

/// Case F2, through everything: each is refused and the server goes on.
#[test]
fn hostile_forms_are_refused_while_others_are_served() {
    let running = Setup::new().start();
    running.canary();
    let groups = "(".repeat(60_000) + &")".repeat(60_000);
    let names: Vec<String> = (0..100_000).map(|idx| format!("value {idx}")).collect();
    for more in [
        json!({"guided_regex": "^+a$"}),
        json!({"guided_regex": "(?<=x)*"}),
        json!({"guided_regex": groups}),
        json!({"guided_regex": "a{1,100000000}"}),
        json!({"guided_json": {"type": "array", "maxItems": u64::MAX}}),
        json!({"guided_json": {"type": "string", "minLength": 1_000_000_000}}),
        json!({"guided_json": {"enum": names}}),
        json!({"guided_choice": names}),
        json!({"guided_grammar": "root ::= root"}),
        json!({"guided_grammar": groups}),
    ] {
        let (status, param, _) =
            refusal(running.post("/v1/chat/completions", &with(chat(), &more)));
        assert_eq!(status, 400, "{:.80}", more.to_string());
        assert!(param.is_some_and(|param| param.starts_with("guided_")));
        running.canary();
    }
    let refused = running.metric("fulcrum_constraints_total{reason=\"refused\"");
    assert!(refused >= 8.0, "{refused}");
}

#[test]
fn a_request_that_leaves_its_constraint_nothing_is_the_callers_fault() {
    let running = Setup::new().start();
    let tokenizer = crate::harness::tiny().0;
    let is_q = |id: &u32| tokenizer.token_bytes(TokenId(*id)) == Some(b"q".as_slice());
    let bans: serde_json::Map<String, Value> = (0..tokenizer.vocab() as u32)
        .filter(is_q)
        .map(|id| (id.to_string(), json!(-100)))
        .collect();
    let body = with(chat(), &json!({"guided_choice": ["q"], "logit_bias": bans}));
    let (status, _, code) = refusal(running.post("/v1/chat/completions", &body));
    assert_eq!((status, code.as_str()), (400, "constraint_failed"));
    running.canary();
}
