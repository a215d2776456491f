//! What is wrong is said in OpenAI's words, before any work, and harms nobody.

use serde_json::json;

use crate::harness::{ALIAS, CONTEXT, MODEL, Setup, chat, refusal};
use crate::http;

/// Case A10.
#[test]
fn malformed_bodies_are_400_and_the_next_request_is_served() {
    let running = Setup::new().start();
    let deep = format!("{{\"messages\":{}", "[".repeat(10_000));
    let bodies: &[&[u8]] = &[
        b"{:",
        b" ",
        b"null",
        b"[]",
        b"{\"messages\":",
        b"{\"messages\":\"hi\"}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":\"ten\"}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":-1}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":1e99}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"messages\":[]}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\xc3\"}]}",
        b"\xff\xfe\x00\x01",
        deep.as_bytes(),
    ];
    for body in bodies {
        for path in [
            "/v1/chat/completions",
            "/v1/completions",
            "/tokenize",
            "/detokenize",
        ] {
            // The tokenizer's endpoints know no `max_tokens`.
            if path.ends_with("tokenize") && body.windows(10).any(|part| part == b"max_tokens") {
                continue;
            }
            let (status, _, _) = refusal(running.post_bytes(path, body));
            assert_eq!(status, 400, "{path} {}", String::from_utf8_lossy(body));
        }
        running.canary();
    }
    // No body at all.
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 0";
    assert_eq!(refusal(http::send(running.address, head, b"")).0, 400);
    running.canary();
}

/// Case A10.
#[test]
fn a_body_declared_as_something_else_is_415() {
    let running = Setup::new().start();
    let body = chat().to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-type: {kind}");
        let (status, _, code) = refusal(http::send(running.address, &head, body.as_bytes()));
        assert_eq!((status, code.as_str()), (415, "unsupported_media_type"));
    }
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\ncontent-type: application/json; charset=latin1";
    let (status, _, code) = refusal(http::send(running.address, head, body.as_bytes()));
    assert_eq!((status, code.as_str()), (415, "unsupported_charset"));
    running.canary();
}

/// Case A7.
#[test]
fn a_prompt_beyond_the_context_is_400_with_both_numbers_before_any_stream() {
    let running = Setup::new().start();
    for stream in [false, true] {
        // A token per digit, so the length in tokens is the length in digits.
        let post = |num_tokens: usize, max_tokens: Option<u64>| {
            let body = json!({
                "prompt": "5".repeat(num_tokens), "max_tokens": max_tokens, "stream": stream, "temperature": 0,
            });
            running.post("/v1/completions", &body)
        };
        for (num_tokens, max_tokens) in [
            (CONTEXT, None),
            (CONTEXT, Some(1)),
            (CONTEXT + 1, None),
            (CONTEXT + 100, Some(1)),
            (CONTEXT - 1, Some(2)),
            (CONTEXT - 1, Some(u64::from(u32::MAX))),
            (1, Some(CONTEXT as u64)),
        ] {
            let reply = post(num_tokens, max_tokens);
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.status, 400, "{num_tokens} {max_tokens:?}");
            let error = reply.json()["error"].clone();
            assert_eq!(error["code"], "context_length_exceeded");
            assert_eq!(error["type"], "invalid_request_error");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&CONTEXT.to_string()), "{message}");
            assert!(message.contains(&num_tokens.to_string()), "{message}");
            running.canary();
        }
        let reply = post(CONTEXT - 1, Some(1));
        assert_eq!(reply.status, 200, "what just fits is answered");
        reply.text();
        assert_eq!(
            post(CONTEXT - 1, None).status,
            200,
            "and so is what leaves the limit open"
        );
        let (_, param, _) = refusal(post(1, Some(CONTEXT as u64)));
        assert_eq!(param.as_deref(), Some("max_tokens"), "the field to change");
    }
}

/// Cases A7 and F10: what cannot fit whatever its tokens are is refused unread.
#[test]
fn a_text_far_beyond_the_context_is_refused_without_being_encoded() {
    let running = Setup::new().start();
    let mut body = chat();
    body["messages"][0]["content"] = json!("A".repeat(1_000_000));
    let (status, param, code) = refusal(running.post("/v1/chat/completions", &body));
    assert_eq!((status, code.as_str()), (400, "context_length_exceeded"));
    assert_eq!(param.as_deref(), Some("messages"));
    running.canary();
}

/// Case F10.
#[test]
fn unbroken_text_that_fits_is_counted_in_a_message_and_in_a_tools_result() {
    let running = Setup::new().with_endless_context().start();
    for unit in ["A", " ", "\n", ".", "5", "\u{4e2d}", "e\u{301}", "QUJD"] {
        let text = unit.repeat(50_000 / unit.chars().count());
        let result = json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "read"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": text},
        ]);
        for messages in [json!([{"role": "user", "content": text}]), result] {
            let reply = running.post("/tokenize", &json!({"messages": messages}));
            assert_eq!(reply.status, 200, "{unit:?}");
            assert!(
                reply.json()["count"]
                    .as_u64()
                    .is_some_and(|count| count > 0),
                "{unit:?}"
            );
        }
    }
    running.canary();
}

#[test]
fn a_compressed_body_is_415_and_the_answer_names_the_encoding() {
    let running = Setup::new().start();
    let post = "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json";
    let ask = |encoding: &str| {
        let head = format!("{post}\r\n{encoding}");
        http::send(running.address, &head, b"{\"prompt\": \"5\"}")
    };
    for (encoding, named) in [
        ("content-encoding: gzip", "gzip"),
        ("content-encoding: GZip", "gzip"),
        ("content-encoding: identity, br", "br"),
        (
            "content-encoding: identity\r\ncontent-encoding: zstd",
            "zstd",
        ),
        ("content-encoding: rot13", "an unknown one"),
    ] {
        let reply = ask(encoding);
        assert_eq!(reply.status, 415, "{encoding}");
        assert_eq!(reply.header("accept-encoding"), Some("identity"));
        let error = reply.json()["error"].clone();
        assert_eq!(error["code"], "unsupported_content_encoding");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("Content-Encoding is {named};")),
            "{message}"
        );
    }
    assert_eq!(ask("content-encoding: Identity").status, 200);
}

#[test]
fn a_model_name_that_is_not_utf8_is_unknown_like_any_other() {
    let running = Setup::new().with_keys(&["sk-one"]).start();
    let head = "GET /v1/models/%ff HTTP/1.1\r\nauthorization: Bearer sk-one";
    let (status, param, code) = refusal(http::send(running.address, head, b""));
    assert_eq!((status, code.as_str()), (404, "model_not_found"));
    assert_eq!(param.as_deref(), Some("model"));
}

#[test]
fn an_unknown_model_is_404_and_its_name_is_not_repeated() {
    let running = Setup::new().start();
    let mut body = chat();
    body["model"] = json!("gpt-secret");
    let reply = running.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 404);
    let text = reply.text();
    assert!(
        text.contains("model_not_found") && !text.contains("gpt-secret"),
        "{text}"
    );
    assert_eq!(refusal(running.get("/v1/models/nope")).0, 404);
}

#[test]
fn every_served_name_is_listed_and_answers_under_its_own_name() {
    let running = Setup::new().start();
    let list = running.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| card["id"].clone())
        .collect();
    assert_eq!(ids, [MODEL, ALIAS]);
    assert_eq!(list["data"][0]["max_model_len"], CONTEXT);
    let card = running.get(&format!("/v1/models/{ALIAS}")).json();
    assert_eq!(
        (&card["id"], &card["object"]),
        (&json!(ALIAS), &json!("model"))
    );
    let mut body = chat();
    body["model"] = json!(ALIAS);
    assert_eq!(
        running.post("/v1/chat/completions", &body).json()["model"],
        ALIAS
    );
    // Without a name the one model is meant.
    body.as_object_mut().unwrap().remove("model");
    assert_eq!(
        running.post("/v1/chat/completions", &body).json()["model"],
        MODEL
    );
}

#[test]
fn a_whole_chat_answer_has_every_key_of_the_schema() {
    let running = Setup::new().start();
    let answer = running.post("/v1/chat/completions", &chat()).json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["system_fingerprint"], "fp_script");
    assert!(answer["created"].as_u64().is_some());
    let choice = &answer["choices"][0];
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": "abcdefghijklmnopqrstuvwxyz", "refusal": null})
    );
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice.get("logprobs"), Some(&json!(null)));
    let usage = &answer["usage"];
    let tokens = |key: &str| usage[key].as_u64().unwrap();
    assert_eq!(tokens("completion_tokens"), 27, "26 letters and the end");
    assert_eq!(tokens("total_tokens"), tokens("prompt_tokens") + 27);
}

#[test]
fn unknown_routes_and_methods_are_told_apart() {
    let running = Setup::new().start();
    assert_eq!(refusal(running.get("/v1/nothing")).0, 404);
    assert_eq!(refusal(running.get("/v1/chat/completions")).0, 405);
    assert_eq!(
        running.get("/version").json()["version"],
        env!("CARGO_PKG_VERSION")
    );
}

#[test]
fn a_request_id_comes_back_and_a_strange_one_is_replaced() {
    let running = Setup::new().start();
    let id = |sent: &str| {
        let reply = http::send(
            running.address,
            &format!("GET /livez HTTP/1.1\r\nx-request-id: {sent}"),
            b"",
        );
        reply.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("abc-123"), "abc-123");
    for strange in ["a b", "\u{e9}", "", &"x".repeat(200)] {
        let replaced = id(strange);
        assert!(replaced != strange && replaced.len() == 36, "{replaced}");
    }
}

#[test]
fn cors_headers_appear_only_for_origins_that_are_allowed() {
    let ask = |running: &crate::harness::Running| {
        let head = "GET /livez HTTP/1.1\r\norigin: https://a.example";
        http::send(running.address, head, b"")
            .header("access-control-allow-origin")
            .map(str::to_owned)
    };
    assert_eq!(ask(&Setup::new().start()), None);
    let mut setup = Setup::new();
    setup.config.allowed_origins = vec!["https://a.example".to_owned()];
    assert_eq!(ask(&setup.start()).as_deref(), Some("https://a.example"));
    let mut setup = Setup::new();
    setup.config.allowed_origins = vec!["https://b.example".to_owned()];
    assert_eq!(ask(&setup.start()), None);
}
