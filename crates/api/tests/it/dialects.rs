//! Two other dialects, read as the chat requests they mean.

use api::RequestError;
use api::chat::{ChatRequest, Role};
use api::fields::Endpoint;
use api::messages::{self, Purpose};
use api::responses::{Attendance, ResponsesRequest, Storage};
use serde_json::{Value, json};

use crate::LIMITS;

type Read = fn(&Value) -> Result<ChatRequest, RequestError>;

fn responses(body: &Value) -> Result<ChatRequest, RequestError> {
    let request = ResponsesRequest::parse(body.to_string().as_bytes(), &LIMITS)?;
    Ok(request.into_chat(&[], &LIMITS)?.0)
}

fn message(body: &Value) -> Result<ChatRequest, RequestError> {
    messages::parse(body.to_string().as_bytes(), Purpose::Answer, &LIMITS)
}

fn said(request: &ChatRequest) -> Vec<Value> {
    let messages = request.messages.iter();
    messages
        .map(|message| message.to_template_value())
        .collect()
}

#[test]
fn a_plain_input_is_one_user_message() {
    let request = responses(&json!({"input": "hi", "max_output_tokens": 5, "top_k": 3})).unwrap();
    assert_eq!(said(&request), [json!({"role": "user", "content": "hi"})]);
    let limit = request.generation.ending.max_tokens.unwrap();
    assert_eq!(limit.num_tokens, 5);
    assert!(request.generation.sampling.top_k.is_some());
}

#[test]
fn items_become_messages_in_their_order_behind_the_instructions() {
    let request = responses(&json!({
        "instructions": "be brief",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
            {"role": "developer", "content": "d"},
        ],
    }))
    .unwrap();
    let roles: Vec<Role> = request
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [Role::System, Role::User, Role::Assistant, Role::System]
    );
    let contents: Vec<Value> = said(&request)
        .iter()
        .map(|message| message["content"].clone())
        .collect();
    assert_eq!(contents, ["be brief", "a\nb", "c", "d"]);
}

#[test]
fn what_only_responses_have_is_in_the_terms() {
    let body = json!({"input": "hi", "store": true, "background": true});
    let request = ResponsesRequest::parse(body.to_string().as_bytes(), &LIMITS).unwrap();
    assert_eq!(request.terms.attendance, Attendance::Background);
    assert_eq!(request.terms.storage, Storage::Kept);
    let input = &request.terms.input;
    assert_eq!(input.len(), 1);
    assert_eq!(
        input[0]["content"],
        json!([{"type": "input_text", "text": "hi"}])
    );
}

#[test]
fn blocks_of_one_side_are_one_message() {
    let request = message(&json!({
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "stop_sequences": ["x"],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "d"}]},
            {"role": "user", "content": "e"},
        ],
    }))
    .unwrap();
    let contents: Vec<Value> = said(&request)
        .iter()
        .map(|message| message["content"].clone())
        .collect();
    assert_eq!(contents, ["s", "a\nb\nc", "d", "e"]);
    assert_eq!(request.generation.ending.stops, ["x"]);
}

#[test]
fn thinking_sets_the_templates_variable() {
    let enables = |thinking: Value| {
        let messages = json!([{"role": "user", "content": "a"}]);
        let body = json!({"max_tokens": 9, "messages": messages, "thinking": thinking});
        let request = message(&body).unwrap();
        request.template_variables.get("enable_thinking").cloned()
    };
    assert_eq!(enables(Value::Null), None);
    assert_eq!(enables(json!({"type": "disabled"})), Some(false.into()));
    assert_eq!(enables(json!({"type": "adaptive"})), Some(true.into()));
    let enabled = json!({"type": "enabled", "budget_tokens": 2048});
    assert_eq!(enables(enabled), Some(true.into()));
}

#[test]
fn counting_needs_no_answer_limit() {
    let body = json!({"messages": [{"role": "user", "content": "a"}]});
    let error = message(&body).unwrap_err();
    assert_eq!(error.param(), Some("max_tokens"));
    let counted = messages::parse(body.to_string().as_bytes(), Purpose::Count, &LIMITS);
    assert_eq!(counted.unwrap().messages.len(), 1);
}

#[test]
fn faults_that_chats_reader_finds_are_named_as_they_were_asked() {
    let long: Vec<Value> = (0..9)
        .map(|_| json!({"role": "user", "content": "a"}))
        .collect();
    let cases = [
        (responses(&json!({"input": long})), "input"),
        (
            responses(&json!({"input": "a", "text": {"format": {"type": "json_schema"}}})),
            "text.format",
        ),
        (
            responses(&json!({"input": "a", "logit_bias": {"x": 1}})),
            "logit_bias",
        ),
        (
            message(&json!({"max_tokens": 1, "messages": long, "stop_sequences": [""]})),
            "messages",
        ),
        (
            message(&json!({"max_tokens": 1, "messages": long[..1], "stop_sequences": ["", "a"]})),
            "stop_sequences[0]",
        ),
    ];
    for (read, wanted) in cases {
        let error = read.expect_err(wanted);
        let param = error.param().unwrap_or_else(|| panic!("{error}"));
        assert!(param.starts_with(wanted), "{error}");
    }
}

#[test]
fn chats_own_fields_are_refused_and_nobodys_are_passed_over() {
    for name in ["messages", "max_tokens", "response_format", "prompt"] {
        let error = responses(&json!({"input": "a", name: "x"})).expect_err(name);
        assert_eq!(error.param(), Some(name));
    }
    let request = responses(&json!({"input": "a", "frobnicate": 1})).unwrap();
    assert_eq!(request.unknown, ["frobnicate"]);
}

#[test]
fn null_is_absent_for_every_field_of_every_endpoint() {
    let required = ["input", "messages", "max_tokens"];
    for endpoint in [Endpoint::Responses, Endpoint::Messages] {
        for field in endpoint.fields() {
            if required.contains(&field.name) {
                continue;
            }
            let messages = json!([{"role": "user", "content": "a"}]);
            let (mut body, read): (Value, Read) = match endpoint {
                Endpoint::Responses => (json!({"input": "a"}), responses),
                _ => (json!({"messages": messages, "max_tokens": 1}), message),
            };
            body[field.name] = Value::Null;
            read(&body).unwrap_or_else(|error| panic!("{}: {error}", field.name));
        }
    }
}
