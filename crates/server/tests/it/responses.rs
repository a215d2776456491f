//! `/v1/responses`: its documents, its events in their order, and what is kept.

use serde_json::{Value, json};

use crate::harness::{MODEL, Running, Setup, refusal};
use crate::http::Frame;

fn alphabet() -> Value {
    json!({"model": MODEL, "input": "say the alphabet", "temperature": 0})
}

fn create(running: &Running, body: &Value) -> Value {
    let reply = running.post("/v1/responses", body);
    assert_eq!(reply.status, 200, "{body}");
    reply.json()
}

fn text(response: &Value) -> &str {
    let text = &response["output"][0]["content"][0]["text"];
    text.as_str().unwrap_or_else(|| panic!("{response}"))
}

fn get(running: &Running, id: &Value, rest: &str) -> (u16, Value) {
    let id = id.as_str().expect("an id");
    let reply = running.get(&format!("/v1/responses/{id}{rest}"));
    (reply.status, reply.json())
}

fn post(running: &Running, id: &Value, rest: &str) -> (u16, Value) {
    let id = id.as_str().expect("an id");
    let reply = running.post(&format!("/v1/responses/{id}{rest}"), &json!({}));
    (reply.status, reply.json())
}

/// The names and the documents of a stream's events.
fn events(running: &Running, body: &Value) -> Vec<(String, Value)> {
    let frames = running.stream("/v1/responses", body).all();
    let event = |frame| match frame {
        Frame::Event(name, value) => (name, value),
        other => panic!("every frame has a name: {other:?}"),
    };
    frames.into_iter().map(event).collect()
}

/// The events of a stream are named, numbered and in OpenAI's order, and what they tell
/// piece by piece is what one document tells.
#[test]
fn a_stream_opens_and_closes_everything_and_says_what_the_document_says() {
    let running = Setup::new().start();
    let events = events(&running, &alphabet());
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let deltas = names.iter().filter(|name| name.ends_with(".delta")).count();
    assert!(deltas > 1, "the alphabet comes in pieces");
    names.dedup();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (number, (name, event)) in events.iter().enumerate() {
        assert_eq!(event["type"], *name);
        assert_eq!(event["sequence_number"], number);
    }
    let named = |wanted: &str| {
        let found = events.iter().find(|(name, _)| name == wanted);
        found.expect("checked above").1.clone()
    };
    let pieces = events.iter().filter(|(name, _)| name.ends_with(".delta"));
    let pieces: String = pieces
        .map(|(_, event)| event["delta"].as_str().expect("text"))
        .collect();
    let whole = create(&running, &alphabet());
    assert_eq!(pieces, text(&whole));
    assert_eq!(named("response.output_text.done")["text"], pieces);
    assert_eq!(named("response.content_part.done")["part"]["text"], pieces);
    let item = &named("response.output_item.done")["item"];
    assert_eq!(item["status"], "completed");
    let last = &named("response.completed")["response"];
    assert_eq!(last["output"][0], *item);
    assert_eq!(
        last["usage"]["output_tokens"],
        whole["usage"]["output_tokens"]
    );
    let mut same = (last.clone(), whole);
    for response in [&mut same.0, &mut same.1] {
        for varying in ["id", "created_at", "completed_at", "usage"] {
            response[varying] = Value::Null;
        }
        response["output"][0]["id"] = Value::Null;
    }
    assert_eq!(same.0, same.1);
}

#[test]
fn an_answer_cut_by_its_limit_is_incomplete_and_says_why() {
    let running = Setup::new().start();
    let mut body = alphabet();
    body["max_output_tokens"] = json!(3);
    let whole = create(&running, &body);
    assert_eq!(whole["status"], "incomplete");
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(whole["output"][0]["status"], "incomplete");
    assert_eq!(whole["usage"]["output_tokens"], 3);
    let events = events(&running, &body);
    let (name, last) = events.last().expect("events");
    assert_eq!(name, "response.incomplete");
    assert_eq!(last["response"]["status"], "incomplete");
}

#[test]
fn an_engine_that_fails_ends_a_stream_with_response_failed() {
    let running = Setup::new().with_endless_context().start();
    running.gate.allow(Some(4));
    let body = json!({"input": "E", "max_output_tokens": 1000, "ignore_eos": true});
    let mut stream = running.stream("/v1/responses", &body);
    while stream.next_json().expect("more")["type"] != "response.output_text.delta" {}
    running.gate.fail();
    running.gate.allow(None);
    let rest: Vec<Value> = std::iter::from_fn(|| stream.next_json()).collect();
    let last = rest.last().expect("an end");
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert!(!last.to_string().contains("SECRET"), "{last}");
    let open = rest
        .iter()
        .any(|event| event["type"] == "response.output_item.done");
    assert!(open, "what was open is closed");
}

#[test]
fn what_was_asked_is_told_back() {
    let running = Setup::new().start();
    let body = json!({
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "5"}]}],
        "instructions": "count down", "temperature": 0.7, "top_p": 0.9, "seed": 1,
        "max_output_tokens": 7, "metadata": {"a": "b"}, "user": "u", "truncation": "disabled",
        "store": false, "parallel_tool_calls": true,
        "text": {"format": {"type": "text"}}, "service_tier": "auto", "tools": [],
        "tool_choice": "none", "include": ["reasoning.encrypted_content"],
    });
    let response = create(&running, &body);
    for same in [
        "instructions",
        "temperature",
        "top_p",
        "max_output_tokens",
        "metadata",
        "user",
        "truncation",
        "store",
        "parallel_tool_calls",
        "tools",
        "tool_choice",
    ] {
        assert_eq!(response[same], body[same], "{same}");
    }
    assert_eq!(response["object"], "response");
    assert_eq!(response["error"], Value::Null);
    assert_eq!(
        response["usage"]["input_tokens_details"],
        json!({"cached_tokens": 0})
    );
    assert_eq!(
        response["usage"]["output_tokens_details"],
        json!({"reasoning_tokens": 0})
    );
}

#[test]
fn a_kept_response_is_told_again_until_it_is_deleted() {
    let running = Setup::new().start();
    let response = create(&running, &alphabet());
    let id = &response["id"];
    assert_eq!(get(&running, id, ""), (200, response.clone()));
    assert_eq!(get(&running, id, "?stream=false").0, 200);
    let (status, error) = get(&running, id, "?stream=true");
    assert_eq!((status, &error["error"]["param"]), (400, &json!("stream")));
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    let deleted = running.delete(&path).json();
    assert_eq!(
        deleted,
        json!({"id": id, "object": "response", "deleted": true})
    );
    assert_eq!(running.delete(&path).status, 404);
    let (status, error) = get(&running, id, "");
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("response_not_found"))
    );
}

#[test]
fn nothing_is_kept_of_a_response_that_is_not_to_be_stored() {
    let running = Setup::new().start();
    let mut body = alphabet();
    body["store"] = json!(false);
    let response = create(&running, &body);
    assert_eq!(response["store"], false);
    assert_eq!(get(&running, &response["id"], "").0, 404);
}

#[test]
fn a_conversation_goes_on_after_a_kept_response() {
    let running = Setup::new().start();
    let first = create(&running, &alphabet());
    let goes_on = json!({
        "input": "5", "temperature": 0, "previous_response_id": first["id"],
    });
    let second = create(&running, &goes_on);
    let spelled_out = json!({"temperature": 0, "input": [
        {"role": "user", "content": "say the alphabet"},
        first["output"][0],
        {"role": "user", "content": "5"},
    ]});
    let other = create(&running, &spelled_out);
    assert_eq!(
        second["usage"]["input_tokens"],
        other["usage"]["input_tokens"]
    );
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    // Only its own input is listed.
    let (_, items) = get(&running, &second["id"], "/input_items");
    assert_eq!(items["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        items["data"][0]["content"],
        json!([{"type": "input_text", "text": "5"}])
    );

    let lost = json!({"input": "5", "previous_response_id": "resp_nobody"});
    let (status, param, code) = refusal(running.post("/v1/responses", &lost));
    assert_eq!(status, 400);
    assert_eq!(param.as_deref(), Some("previous_response_id"));
    assert_eq!(code, "previous_response_not_found");
}

#[test]
fn input_items_are_listed_in_pages() {
    let running = Setup::new().start();
    let input: Vec<Value> = (0..5)
        .map(|number| json!({"role": "user", "content": format!("{number}")}))
        .collect();
    let response = create(&running, &json!({"input": input}));
    let said = |list: &Value| -> Vec<String> {
        let items = list["data"].as_array().unwrap().iter();
        items
            .map(|item| item["content"][0]["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let (_, newest) = get(&running, &response["id"], "/input_items");
    assert_eq!(said(&newest), ["4", "3", "2", "1", "0"]);
    let (_, page) = get(&running, &response["id"], "/input_items?order=asc&limit=2");
    assert_eq!(said(&page), ["0", "1"]);
    assert_eq!(page["has_more"], true);
    let after = page["last_id"].as_str().unwrap();
    let rest = format!("/input_items?order=asc&limit=9&after={after}");
    let (_, page) = get(&running, &response["id"], &rest);
    assert_eq!(said(&page), ["2", "3", "4"]);
    assert_eq!(page["has_more"], false);
    for wrong in ["limit=0", "limit=101", "order=up", "after=nobody"] {
        let (status, error) = get(&running, &response["id"], &format!("/input_items?{wrong}"));
        assert_eq!(status, 400, "{error}");
        assert_eq!(error["error"]["param"], wrong.split('=').next().unwrap());
    }
}

#[test]
fn queries_are_read_as_bodies_are() {
    let running = Setup::new().start();
    let response = create(&running, &alphabet());
    for (query, status) in [
        ("bogus=1", 200),
        ("api-version=2025-04-01", 200),
        ("include[]=reasoning.encrypted_content", 200),
        ("include=message.output_text.logprobs", 400),
        ("include[]=everything", 400),
    ] {
        for path in ["", "/input_items"] {
            let (told, answer) = get(&running, &response["id"], &format!("{path}?{query}"));
            assert_eq!(told, status, "{path}?{query}: {answer}");
            if status == 400 {
                assert_eq!(answer["error"]["param"], "include");
            }
        }
    }
    for path in [
        "/v1/models?bogus=1",
        "/v1/models/tiny?bogus=1",
        "/version?bogus=1",
    ] {
        assert_eq!(running.get(path).status, 200, "{path}");
    }
}

#[test]
fn the_oldest_leave_when_there_are_too_many() {
    let mut setup = Setup::new();
    setup.config.limits.num_kept_responses_max = 2;
    let running = setup.start();
    let responses: Vec<Value> = (0..3).map(|_| create(&running, &alphabet())).collect();
    let found: Vec<u16> = responses
        .iter()
        .map(|response| get(&running, &response["id"], "").0)
        .collect();
    assert_eq!(found, [404, 200, 200]);
}

#[test]
fn the_oldest_leave_when_they_take_too_many_bytes() {
    let mut setup = Setup::new();
    setup.config.limits.kept_responses_bytes_max = 4000;
    let running = setup.start();
    let responses: Vec<Value> = (0..4).map(|_| create(&running, &alphabet())).collect();
    let found: Vec<u16> = responses
        .iter()
        .map(|response| get(&running, &response["id"], "").0)
        .collect();
    assert_eq!(found.first(), Some(&404));
    assert_eq!(found.last(), Some(&200));
}

#[test]
fn a_background_response_is_made_without_a_client() {
    let running = Setup::new().start();
    running.gate.allow(Some(0));
    let mut body = alphabet();
    body["background"] = json!(true);
    let begun = create(&running, &body);
    assert_eq!(begun["status"], "queued");
    assert_eq!(begun["background"], true);
    let id = &begun["id"];
    let status = |running: &Running| get(running, id, "").1["status"].clone();
    while status(&running) != "in_progress" {
        std::thread::yield_now();
    }
    let goes_on = json!({"input": "5", "previous_response_id": id});
    assert_eq!(
        refusal(running.post("/v1/responses", &goes_on)).0,
        400,
        "it still runs"
    );
    running.gate.allow(None);
    while status(&running) != "completed" {
        std::thread::yield_now();
    }
    let (_, response) = get(&running, id, "");
    assert_eq!(text(&response), text(&create(&running, &alphabet())));
    // Too late to cancel: it stays as it is.
    assert_eq!(post(&running, id, "/cancel"), (200, response));
}

#[test]
fn a_cancelled_background_response_stops_its_work() {
    let running = Setup::new().with_endless_context().start();
    let body = json!({
        "input": "E", "max_output_tokens": 1_000_000, "ignore_eos": true, "background": true,
    });
    let begun = create(&running, &body);
    running.until("vllm:num_requests_running", 1.0);
    let (status, cancelled) = post(&running, &begun["id"], "/cancel");
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    running.until("vllm:num_requests_running", 0.0);
    assert_eq!(get(&running, &begun["id"], "").1["status"], "cancelled");
    assert_eq!(post(&running, &begun["id"], "/cancel").0, 200, "again");

    let begun = create(&running, &body);
    running.until("vllm:num_requests_running", 1.0);
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    assert_eq!(running.delete(&path).status, 200);
    running.until("vllm:num_requests_running", 0.0);
    assert_eq!(running.get(&path).status, 404);
}

#[test]
fn a_response_with_a_client_of_its_own_cannot_be_cancelled() {
    let running = Setup::new().start();
    let response = create(&running, &alphabet());
    assert_eq!(post(&running, &response["id"], "/cancel").0, 400);
    assert_eq!(post(&running, &json!("resp_nobody"), "/cancel").0, 404);
}

#[test]
fn only_so_many_background_responses_run_at_once() {
    let mut setup = Setup::new().with_endless_context();
    setup.config.limits.num_background_max = 1;
    let running = setup.start();
    let body = json!({
        "input": "E", "max_output_tokens": 1_000_000, "ignore_eos": true, "background": true,
    });
    let first = create(&running, &body);
    let reply = running.post("/v1/responses", &body);
    assert!(reply.header("retry-after").is_some());
    let (status, _, code) = refusal(reply);
    assert_eq!((status, code.as_str()), (503, "background_full"));
    assert_eq!(post(&running, &first["id"], "/cancel").0, 200);
    running.until("vllm:num_requests_running", 0.0);
    while running.post("/v1/responses", &body).status == 503 {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_wrong_is_named_in_this_dialect() {
    let running = Setup::new().start();
    let message = |content: Value| json!([{"role": "user", "content": content}]);
    let cases = [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 1}), "input"),
        (json!({"input": [1]}), "input[0]"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type",
        ),
        (
            json!({"input": [{"role": "robot", "content": "x"}]}),
            "input[0].role",
        ),
        (
            json!({"input": message(json!([{"type": "input_image", "image_url": "x"}]))}),
            "input[0].content[0].type",
        ),
        (json!({"input": "x", "temperature": 3}), "temperature"),
        (
            json!({"input": "x", "max_output_tokens": 0}),
            "max_output_tokens",
        ),
        (
            json!({"input": "x", "max_output_tokens": 100_000}),
            "max_output_tokens",
        ),
        (json!({"input": "x".repeat(20_000)}), "input"),
        (json!({"input": "x", "truncation": "auto"}), "truncation"),
        (json!({"input": "x", "conversation": "c"}), "conversation"),
        (json!({"input": "x", "messages": []}), "messages"),
        (
            json!({"input": "x", "tools": [{"type": "web_search"}]}),
            "tools[0].type",
        ),
        (
            json!({"input": "x", "text": {"format": {"type": 1}}}),
            "text.format.type",
        ),
        (
            json!({"input": "x", "text": {"verbosity": "low"}}),
            "text.verbosity",
        ),
        (
            json!({"input": "x", "include": ["everything"]}),
            "include[0]",
        ),
        (
            json!({"input": "x", "background": true, "store": false}),
            "background",
        ),
        (
            json!({"input": "x", "background": true, "stream": true}),
            "background",
        ),
        (
            json!({"input": "x", "stream_options": {}}),
            "stream_options",
        ),
        (
            json!({"input": "x", "stop_token_ids": [99_999_999]}),
            "stop_token_ids",
        ),
    ];
    for (body, wanted) in cases {
        let (status, param, _) = refusal(running.post("/v1/responses", &body));
        assert_eq!(status, 400, "{wanted}");
        assert_eq!(param.as_deref(), Some(wanted));
    }
    running.canary();
}
