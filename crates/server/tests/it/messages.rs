//! `/v1/messages`: Anthropic's shapes, events and errors.

use serde_json::{Value, json};

use crate::harness::{MODEL, Running, Setup};
use crate::http::{self, Frame, Reply};

fn alphabet() -> Value {
    let messages = json!([{"role": "user", "content": "say the alphabet"}]);
    json!({"model": MODEL, "max_tokens": 64, "messages": messages, "temperature": 0})
}

fn with(changes: Value) -> Value {
    let mut body = alphabet();
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn create(running: &Running, body: &Value) -> Value {
    let reply = running.post("/v1/messages", body);
    assert_eq!(reply.status, 200, "{body}");
    assert!(reply.header("request-id").is_some());
    reply.json()
}

/// Status and `error.type` of a failure, whose shape is checked.
fn failure(reply: Reply) -> (u16, String, String) {
    let status = reply.status;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let id = reply.header("request-id").map(str::to_owned);
    assert!(id.is_some());
    let body = reply.json();
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(body["request_id"].as_str(), id.as_deref());
    let text = |key: &str| body["error"][key].as_str().expect("text").to_owned();
    (status, text("type"), text("message"))
}

#[test]
fn a_message_has_every_key_and_says_why_it_ended() {
    let running = Setup::new().start();
    let message = create(&running, &alphabet());
    assert_eq!(message["type"], "message");
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["model"], MODEL);
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(message["content"][0]["type"], "text");
    assert_eq!(message["stop_reason"], "end_turn");
    assert_eq!(message["stop_sequence"], Value::Null);
    let short = create(&running, &with(json!({"max_tokens": 3})));
    assert_eq!(short["stop_reason"], "max_tokens");
    assert_eq!(short["usage"]["output_tokens"], 3);
    let stopped = create(&running, &with(json!({"stop_sequences": ["klm"]})));
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert_eq!(stopped["stop_sequence"], "klm");
    let text = stopped["content"][0]["text"].as_str().unwrap();
    assert!(text.ends_with('j'), "{text}");
}

#[test]
fn cached_tokens_are_counted_apart_and_nothing_is_lost() {
    let running = Setup::new().start();
    let long = json!([{"role": "user", "content": "say the alphabet ".repeat(8)}]);
    let body = with(json!({"messages": long}));
    let input = |message: &Value| {
        let count = |key: &str| message["usage"][key].as_u64().unwrap();
        (count("input_tokens"), count("cache_read_input_tokens"))
    };
    let (first, cached) = input(&create(&running, &body));
    assert_eq!(cached, 0);
    let (second, cached) = input(&create(&running, &body));
    assert!(cached > 0);
    assert_eq!(second + cached, first);
    let mut body = body;
    body.as_object_mut().unwrap().remove("max_tokens");
    let count = running.post("/v1/messages/count_tokens", &body);
    assert_eq!(count.json(), json!({"input_tokens": first}));
}

#[test]
fn a_stream_opens_and_closes_its_block_and_says_what_the_document_says() {
    let running = Setup::new().start();
    let frames = running.stream("/v1/messages", &alphabet()).all();
    let events: Vec<(String, Value)> = frames
        .into_iter()
        .map(|frame| match frame {
            Frame::Event(name, value) => (name, value),
            other => panic!("every frame has a name: {other:?}"),
        })
        .collect();
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert!(events.iter().all(|(name, event)| event["type"] == *name));
    let deltas = events
        .iter()
        .filter(|(name, _)| name == "content_block_delta");
    let text: String = deltas
        .map(|(_, event)| {
            assert_eq!(event["delta"]["type"], "text_delta");
            event["delta"]["text"].as_str().unwrap()
        })
        .collect();
    let whole = create(&running, &alphabet());
    assert_eq!(text, whole["content"][0]["text"].as_str().unwrap());
    let start = &events[0].1["message"];
    assert_eq!(start["content"], json!([]));
    assert_eq!(start["stop_reason"], Value::Null);
    let end = &events[events.len() - 2].1;
    assert_eq!(end["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(
        end["usage"]["output_tokens"],
        whole["usage"]["output_tokens"]
    );
}

#[test]
fn a_silent_stream_is_kept_alive_with_pings() {
    let mut setup = Setup::new();
    setup.config.limits.keep_alive = std::time::Duration::from_millis(5);
    let running = setup.start();
    running.gate.allow(Some(0));
    let mut stream = running.stream("/v1/messages", &alphabet());
    assert_eq!(stream.next_json().unwrap()["type"], "message_start");
    assert_eq!(stream.next_json().unwrap(), json!({"type": "ping"}));
    running.gate.allow(None);
    while stream
        .next_json()
        .is_some_and(|event| event["type"] != "message_stop")
    {}
}

#[test]
fn an_engine_that_fails_ends_a_stream_with_an_error_event() {
    let running = Setup::new().start();
    running.gate.allow(Some(4));
    let mut stream = running.stream("/v1/messages", &alphabet());
    while stream.next_json().unwrap()["type"] != "content_block_delta" {}
    running.gate.fail();
    running.gate.allow(None);
    let rest: Vec<Value> = std::iter::from_fn(|| stream.next_json()).collect();
    let last = rest.last().unwrap();
    assert_eq!(last["type"], "error");
    assert_eq!(last["error"]["type"], "api_error");
    assert!(!last.to_string().contains("SECRET"), "{last}");
}

#[test]
fn system_and_blocks_are_the_conversation_that_chat_would_hear() {
    let running = Setup::new().start();
    let body = with(json!({
        "system": [{"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "brief"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "d"},
        ],
    }));
    let chat = json!({"messages": [
        {"role": "system", "content": "be\nbrief"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]});
    let count = running.post("/v1/messages/count_tokens", &body).json();
    let tokens = running.post("/tokenize", &chat).json();
    assert_eq!(count["input_tokens"], tokens["count"]);
}

#[test]
fn what_is_wrong_is_named_in_this_dialect() {
    let running = Setup::new().start();
    let user = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let cases = [
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": 100_000}), "maximum context length"),
        (json!({"messages": []}), "messages"),
        (
            json!({"messages": [{"role": "system", "content": "x"}]}),
            "messages[0].role",
        ),
        (
            user(json!({"type": "image", "source": {}})),
            "messages[0].content[0].type",
        ),
        (user(json!({"type": "text"})), "messages[0].content[0].text"),
        (json!({"system": [{"type": "image"}]}), "system[0].type"),
        (json!({"temperature": 1.5}), "temperature"),
        (json!({"stop_sequences": "x"}), "stop_sequences"),
        (json!({"stop_sequences": [""]}), "stop_sequences[0]"),
        (json!({"top_k": -2}), "top_k"),
        (
            json!({"thinking": {"type": "enabled"}}),
            "thinking.budget_tokens",
        ),
        (
            json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}),
            "tools[0].type",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
        (json!({"tool_choice": {"type": "some"}}), "tool_choice.type"),
        (json!({"container": "c"}), "container"),
        (json!({"n": 2}), "n"),
    ];
    for (changes, wanted) in cases {
        let (status, kind, message) = failure(running.post("/v1/messages", &with(changes)));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(message.contains(wanted), "{message} names {wanted}");
    }
    running.canary();
}

#[test]
fn failures_of_every_kind_are_told_in_anthropics_shape() {
    let mut setup = Setup::new().with_keys(&["sk-one"]);
    setup.config.limits.body_bytes_max = 1000;
    let running = setup.start();
    let ask = |path: &str, head: &str, body: &[u8]| {
        let head = format!("POST {path} HTTP/1.1\r\nx-api-key: sk-one\r\n{head}");
        failure(http::send(running.address, &head, body))
    };
    let json = "content-type: application/json\r\nanthropic-version: 2023-06-01";
    let (status, kind, _) = failure(running.post("/v1/messages", &alphabet()));
    assert_eq!((status, kind.as_str()), (401, "authentication_error"));
    let unknown = with(json!({"model": "nobody"})).to_string();
    let cases: [(&str, &str, &[u8], u16, &str); 6] = [
        ("/v1/messages", json, b"{:", 400, "invalid_request_error"),
        (
            "/v1/messages",
            json,
            unknown.as_bytes(),
            404,
            "not_found_error",
        ),
        (
            "/v1/messages",
            json,
            &[b' '; 2000],
            413,
            "request_too_large",
        ),
        (
            "/v1/messages",
            "content-type: text/plain",
            b"{}",
            415,
            "invalid_request_error",
        ),
        ("/v1/messages/nowhere", json, b"{}", 404, "not_found_error"),
        (
            "/v1/messages/count_tokens",
            json,
            b"[]",
            400,
            "invalid_request_error",
        ),
    ];
    for (path, head, body, wanted_status, wanted_kind) in cases {
        let (status, kind, _) = ask(path, head, body);
        assert_eq!(
            (status, kind.as_str()),
            (wanted_status, wanted_kind),
            "{path}"
        );
    }
}

#[test]
fn a_full_queue_is_overloaded_and_says_when_to_come_back() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.num_waiting_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let first = running.stream("/v1/messages", &alphabet());
    running.until("vllm:num_requests_running", 1.0);
    let second = running.stream("/v1/messages", &alphabet());
    running.until("vllm:num_requests_waiting{", 1.0);
    let reply = running.post("/v1/messages", &alphabet());
    assert!(reply.header("retry-after").is_some());
    let (status, kind, _) = failure(reply);
    assert_eq!((status, kind.as_str()), (503, "overloaded_error"));
    drop((first, second));
}

#[test]
fn a_message_without_blocks_is_refused_unless_an_answer_begins_there() {
    let running = Setup::new().start();
    let user = json!({"role": "user", "content": "say the alphabet"});
    let silent = |role: &str| json!({"role": role, "content": []});
    for (messages, place) in [
        (json!([silent("user")]), "messages[0].content"),
        (json!([silent("assistant")]), "messages[0].content"),
        (
            json!([user, silent("assistant"), user]),
            "messages[1].content",
        ),
        (json!([user, silent("user")]), "messages[1].content"),
    ] {
        let body = with(json!({"messages": messages}));
        let (status, kind, message) = failure(running.post("/v1/messages", &body));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(
            message.contains(place) && message.contains("at least one block"),
            "{message}"
        );
    }
    let begun = with(json!({"messages": [user, silent("assistant")]}));
    assert_eq!(
        create(&running, &begun)["content"],
        create(&running, &alphabet())["content"]
    );
}
