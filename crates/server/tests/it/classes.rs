//! Classes and tenants as clients see them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{MODEL, Running, Setup, chat, refusal};
use crate::http::{self, Frame, Reply};

const CONFIG: &str = r#"
[class.batch]
keys = ["night"]
max_output_tokens = 8
max_context_tokens = 32
[class.standard]
routes = ["/v1/embeddings"]
[tenant.acme]
weight = 4
keys = ["day"]
[key.night]
env = "night"
[key.day]
env = "day"
"#;

const DAY: &str = "authorization: Bearer sk-day";
const NIGHT: &str = "authorization: Bearer sk-night";

fn completion(more: Value) -> Value {
    let mut body = json!({"model": MODEL, "prompt": "abc", "max_tokens": 4, "temperature": 0});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Posts with further header lines.
fn post(running: &Running, path: &str, headers: &[&str], body: &Value) -> Reply {
    let mut head = format!("POST {path} HTTP/1.1\r\ncontent-type: application/json");
    for line in headers {
        head = format!("{head}\r\n{line}");
    }
    http::send(running.address, &head, body.to_string().as_bytes())
}

fn class(reply: &Reply) -> Option<&str> {
    reply.header("x-fulcrum-class")
}

#[test]
fn every_answer_says_its_class_and_what_decided() {
    let running = Setup::new().with_traffic(CONFIG).start();
    let objective = "x-gateway-inference-objective: batch";
    for (path, headers, more, told) in [
        (
            "/v1/completions",
            &[DAY][..],
            json!({}),
            "standard; reason=\"default\"",
        ),
        (
            "/v1/completions",
            &[DAY],
            json!({"stream": true}),
            "interactive; reason=\"streams\"",
        ),
        (
            "/v1/completions",
            &[DAY],
            json!({"service_tier": "flex", "stream": true}),
            "standard; reason=\"service_tier\"",
        ),
        (
            "/v1/completions",
            &[DAY, objective],
            json!({}),
            "batch; reason=\"objective\"",
        ),
        (
            "/v1/completions",
            &[DAY, objective],
            json!({"service_tier": "priority"}),
            "interactive; reason=\"service_tier\"",
        ),
        (
            "/v1/completions",
            &[NIGHT],
            json!({"stream": true}),
            "batch; reason=\"key\"",
        ),
        (
            "/v1/completions",
            &[NIGHT],
            json!({"service_tier": "priority"}),
            "batch; reason=\"key_limit\"",
        ),
        // Refused for its class: with the class.
        (
            "/v1/completions",
            &[NIGHT],
            json!({"max_tokens": 9}),
            "batch; reason=\"key\"",
        ),
    ] {
        let reply = post(&running, path, headers, &completion(more.clone()));
        assert_eq!(class(&reply), Some(told), "{more}");
    }
    let inputs = json!({"input": "abc"});
    let reply = post(&running, "/v1/embeddings", &[DAY], &inputs);
    assert_eq!(class(&reply), Some("standard; reason=\"route\""));
    let message = json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "a"}], "stream": true});
    let reply = post(&running, "/v1/messages", &[DAY], &message);
    assert_eq!(class(&reply), Some("interactive; reason=\"streams\""));
    let input =
        json!({"input": "a", "max_output_tokens": 4, "service_tier": "batch", "background": true});
    let reply = post(&running, "/v1/responses", &[DAY], &input);
    assert_eq!(class(&reply), Some("batch; reason=\"service_tier\""));
    // Nothing was decided: nothing is told.
    let reply = post(&running, "/v1/completions", &[], &completion(json!({})));
    assert_eq!((reply.status, class(&reply)), (401, None));
    let reply = post(&running, "/tokenize", &[DAY], &json!({"prompt": "a"}));
    assert_eq!((reply.status, class(&reply)), (200, None));
}

#[test]
fn the_tier_that_was_had_is_told_in_documents_and_chunks() {
    let running = Setup::new().with_traffic(CONFIG).start();
    let tier = |key: &str, more: Value| {
        let reply = post(&running, "/v1/completions", &[key], &completion(more));
        reply.json()["service_tier"].clone()
    };
    assert_eq!(tier(DAY, json!({})), Value::Null);
    assert_eq!(tier(DAY, json!({"service_tier": "auto"})), "default");
    assert_eq!(tier(DAY, json!({"service_tier": "priority"})), "priority");
    assert_eq!(tier(DAY, json!({"service_tier": "flex"})), "flex");
    assert_eq!(tier(NIGHT, json!({"service_tier": "priority"})), "batch");
    let mut body = chat();
    body["service_tier"] = "priority".into();
    body["stream"] = true.into();
    let mut events = post(&running, "/v1/chat/completions", &[DAY], &body).events();
    while let Some(chunk) = events.next_json() {
        assert_eq!(chunk["service_tier"], "priority");
    }
    let input = json!({"input": "a", "max_output_tokens": 4, "service_tier": "flex"});
    let response = post(&running, "/v1/responses", &[DAY], &input).json();
    assert_eq!(response["service_tier"], "flex");
}

#[test]
fn what_means_nothing_is_refused_by_name() {
    let running = Setup::new().with_traffic(CONFIG).start();
    for (header, more, param) in [
        ("x-slo-ttft-ms: soon", json!({}), "x-slo-ttft-ms"),
        ("x-slo-tpot-ms: -1", json!({}), "x-slo-tpot-ms"),
        (
            "x-gateway-inference-objective: premium",
            json!({}),
            "x-gateway-inference-objective",
        ),
        // Only its keys speak for it.
        (
            "x-gateway-inference-fairness-id: acme",
            json!({}),
            "x-gateway-inference-fairness-id",
        ),
        ("x-a: b", json!({"service_tier": "scale"}), "service_tier"),
        ("x-a: b", json!({"priority": 1.5}), "priority"),
        ("x-a: b", json!({"priority": 9_999_999_999_i64}), "priority"),
        ("x-a: b", json!({"timeout": 0}), "timeout"),
        ("x-a: b", json!({"timeout": "5s"}), "timeout"),
    ] {
        let reply = post(
            &running,
            "/v1/completions",
            &[NIGHT, header],
            &completion(more),
        );
        let (status, told, code) = refusal(reply);
        assert_eq!(
            (status, told.as_deref(), &*code),
            (400, Some(param), "invalid_value")
        );
    }
}

#[test]
fn a_class_bounds_its_answers_and_contexts_and_no_others() {
    let running = Setup::new().with_traffic(CONFIG).start();
    let long = "5".repeat(40);
    let send =
        |key: &str, more: Value| post(&running, "/v1/completions", &[key], &completion(more));
    let (status, param, code) = refusal(send(NIGHT, json!({"max_tokens": 9})));
    assert_eq!(
        (status, param.as_deref(), &*code),
        (400, Some("max_tokens"), "invalid_value")
    );
    let (status, _, code) = refusal(send(NIGHT, json!({"prompt": long})));
    assert_eq!((status, &*code), (400, "context_length_exceeded"));
    assert_eq!(
        send(DAY, json!({"max_tokens": 9, "prompt": long})).status,
        200
    );
    // Left open, it is what the class allows.
    let open = json!({"prompt": "E", "max_tokens": null});
    let usage = send(NIGHT, open).json()["usage"]["completion_tokens"].clone();
    assert_eq!(usage, 8);
}

#[test]
fn a_tenant_over_its_share_hears_when_it_has_some_again() {
    let config = format!("[tenant.default]\ntokens_per_minute = 6\n{CONFIG}");
    let running = Setup::new().with_traffic(&config).start();
    let send = |fairness: &str| {
        let header = format!("x-gateway-inference-fairness-id: {fairness}");
        post(
            &running,
            "/v1/completions",
            &[NIGHT, &header],
            &completion(json!({})),
        )
    };
    // Three prompt tokens and four of the answer: let in, and one owed.
    assert_eq!(send("one").status, 200);
    let reply = send("one");
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((10..=20).contains(&wait), "2 tokens at 6 a minute: {wait}");
    let (status, _, code) = refusal(reply);
    assert_eq!((status, &*code), (429, "tenant_over_share"));
    assert_eq!(send("two").status, 200, "another tenant has its own");
    let acme = post(&running, "/v1/completions", &[DAY], &completion(json!({})));
    assert_eq!(acme.status, 200, "and one without a bound has none");
    assert_eq!(
        running_metric(
            &running,
            "fulcrum_requests_rejected_total{reason=\"tenant_over_share\"}"
        ),
        1.0
    );
}

/// With keys, metrics need one.
fn running_metric(running: &Running, series: &str) -> f64 {
    let head = format!("GET /metrics HTTP/1.1\r\n{DAY}");
    let text = http::send(running.address, &head, b"").text();
    let line = text.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_request_whose_time_is_over_ends_and_says_so() {
    let running = Setup::new().start();
    running.gate.allow(Some(1));
    let reply = running.post("/v1/completions", &completion(json!({"timeout": 0.01})));
    let (status, _, code) = refusal(reply);
    assert_eq!((status, &*code), (504, "timeout"));
    let mut body = chat();
    body["timeout"] = json!(0.01);
    let frames = running.stream("/v1/chat/completions", &body).all();
    let [.., Frame::Json(ending), Frame::Json(error), Frame::Done] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(ending["choices"][0]["finish_reason"], "abort");
    assert_eq!(error["error"]["code"], "timeout");
    let reply = running.post("/v1/embeddings", &json!({"input": "abc", "timeout": 0.01}));
    assert_eq!(refusal(reply).2, "timeout");
    running.gate.allow(None);
    running.canary();
}

#[test]
fn a_class_may_have_a_shorter_time_than_the_request_asks_for() {
    let running = Setup::new()
        .with_traffic("[class.standard]\ntimeout = \"10ms\"")
        .start();
    running.gate.allow(Some(1));
    let reply = running.post("/v1/completions", &completion(json!({"timeout": 60})));
    assert_eq!(refusal(reply).0, 504);
}

#[test]
fn the_wait_in_the_queue_is_told_among_the_timings() {
    let running = Setup::new().start();
    let answer = running
        .post("/v1/completions", &completion(json!({})))
        .json();
    assert!(
        answer["timings"]["queue_ms"].as_f64().unwrap() >= 0.0,
        "{answer}"
    );
}

#[test]
fn what_waits_in_batch_is_no_reason_for_more_machines() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let ask = |tier: &str| {
        let mut body = chat();
        body["service_tier"] = tier.into();
        running.stream("/v1/chat/completions", &body)
    };
    let mut taken = vec![ask("priority")];
    running.until("vllm:num_requests_running", 1.0);
    taken.extend([ask("batch"), ask("batch"), ask("priority")]);
    let labels = "{model_name=\"tiny\",engine=\"0\",class=";
    running.until(&format!("fulcrum_class_waiting{labels}\"batch\""), 2.0);
    running.until(
        &format!("fulcrum_class_waiting{labels}\"interactive\""),
        1.0,
    );
    running.until("vllm:num_requests_waiting{", 1.0);
    running.gate.allow(None);
    for events in taken {
        assert_eq!(events.all().last(), Some(&Frame::Done));
    }
    let completed = |class: &str| {
        running.metric(&format!(
            "fulcrum_class_requests_total{labels}\"{class}\",outcome=\"completed\""
        ))
    };
    assert_eq!((completed("interactive"), completed("batch")), (2.0, 2.0));
    let firsts = format!("fulcrum_class_ttft_seconds_count{labels}\"batch\"");
    assert_eq!(running.metric(&firsts), 2.0);
    let gaps = running.metric(&format!("fulcrum_class_itl_seconds_count{labels}\"batch\""));
    assert_eq!(gaps, 2.0 * 26.0, "27 tokens each, the end among them");
}

#[test]
fn a_class_whose_queue_is_full_refuses_and_the_others_do_not() {
    let mut setup = Setup::new().with_traffic("[class.batch]\nqueue_max = 2");
    setup.model.limits.num_sequences_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let mut body = chat();
    let _first = running.stream("/v1/chat/completions", &body);
    running.until("vllm:num_requests_running", 1.0);
    body["service_tier"] = "batch".into();
    let _waiting: Vec<_> = (0..2)
        .map(|_| running.stream("/v1/chat/completions", &body))
        .collect();
    let reply = running.post("/v1/chat/completions", &body);
    assert_eq!(class(&reply), Some("batch; reason=\"service_tier\""));
    assert!(reply.header("retry-after").is_some());
    let (status, _, code) = refusal(reply);
    assert_eq!((status, &*code), (429, "class_queue_full"));
    body["service_tier"] = "flex".into();
    let _other = running.stream("/v1/chat/completions", &body);
    running.gate.allow(None);
}

/// The phases of a timeline add up to its whole.
fn expect_whole(phases: &Value) {
    let of = |name: &str| {
        phases[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {phases}"))
    };
    let parts = [
        "prepare_ms",
        "queue_ms",
        "prefill_ms",
        "decode_ms",
        "preempted_ms",
        "deliver_ms",
    ];
    let sum: f64 = parts.into_iter().map(of).sum();
    assert!((sum - of("e2e_ms")).abs() < 1.0, "{phases}");
    assert!(parts.into_iter().all(|part| of(part) >= 0.0), "{phases}");
}

const TIMELINE: &str = "x-fulcrum-timeline: 1";

#[test]
fn an_answer_tells_where_its_time_went_if_it_is_asked() {
    let running = Setup::new().start();
    let plain = running
        .post("/v1/completions", &completion(json!({})))
        .json();
    assert_eq!(plain["timeline"], Value::Null);
    // 150 tokens in steps of 64, then an answer of four.
    let asked = completion(json!({"prompt": "5".repeat(150)}));
    let answer = post(&running, "/v1/completions", &[TIMELINE], &asked).json();
    let [timeline] = answer["timeline"].as_array().unwrap().as_slice() else {
        panic!("{answer}")
    };
    expect_whole(timeline);
    assert_eq!(timeline["index"], 0);
    assert_eq!(
        (&timeline["prefill_steps"], &timeline["decode_steps"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(timeline["cached_tokens"], 0);
    let again = post(&running, "/v1/completions", &[TIMELINE], &asked).json();
    assert_eq!(
        again["timeline"][0]["cached_tokens"], 144,
        "nine whole blocks"
    );
    let several = completion(json!({"n": 3}));
    let answer = post(&running, "/v1/completions", &[TIMELINE], &several).json();
    let timelines = answer["timeline"].as_array().unwrap();
    assert_eq!(timelines.len(), 3);
    timelines.iter().for_each(expect_whole);
}

#[test]
fn a_stream_tells_it_in_its_last_chunk_and_in_no_other() {
    let running = Setup::new().start();
    for (path, mut body) in [
        ("/v1/chat/completions", chat()),
        ("/v1/completions", completion(json!({}))),
    ] {
        body["stream"] = true.into();
        for options in [Value::Null, json!({"include_usage": true})] {
            body["stream_options"] = options;
            let mut frames = post(&running, path, &[TIMELINE], &body).events().all();
            assert_eq!(frames.pop(), Some(Frame::Done));
            let Some(Frame::Json(last)) = frames.pop() else {
                panic!("a last chunk")
            };
            expect_whole(&last["timeline"][0]);
            for frame in frames {
                let Frame::Json(chunk) = frame else { continue };
                assert_eq!(chunk["timeline"], Value::Null, "{chunk}");
            }
        }
    }
}

#[test]
fn a_wait_for_a_place_is_told_as_one() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let _first = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_running", 1.0);
    let mut body = completion(json!({}));
    body["stream"] = true.into();
    let waiting = post(&running, "/v1/completions", &[TIMELINE], &body).events();
    running.until("vllm:num_requests_waiting{", 1.0);
    // A known wait: until the clock has moved so far, whatever the machine does.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(30) {
        std::thread::yield_now();
    }
    running.gate.allow(None);
    let frames = waiting.all();
    let [.., Frame::Json(last), Frame::Done] = frames.as_slice() else {
        panic!("{frames:?}")
    };
    assert!(
        last["timeline"][0]["queue_ms"].as_f64().unwrap() >= 30.0,
        "{last}"
    );
    assert!(
        last["timings"]["queue_ms"].as_f64().unwrap() >= 30.0,
        "{last}"
    );
}

#[test]
fn what_cannot_tell_where_its_time_went_refuses_to_be_asked() {
    let running = Setup::new().start();
    let refused = |path: &str, header: &str, body: Value| {
        let (status, param, _) = refusal(post(&running, path, &[header], &body));
        (status, param)
    };
    let expected = (400, Some("x-fulcrum-timeline".to_owned()));
    assert_eq!(
        refused(
            "/v1/completions",
            "x-fulcrum-timeline: yes",
            completion(json!({}))
        ),
        expected
    );
    assert_eq!(
        refused("/v1/embeddings", TIMELINE, json!({"input": "a"})),
        expected
    );
    assert_eq!(
        refused("/v1/responses", TIMELINE, json!({"input": "a"})),
        expected
    );
}

#[test]
fn the_slowest_requests_are_shown_to_an_operator_who_wants_it() {
    let running = Setup::new().start();
    assert_eq!(running.get("/debug/requests").status, 404);
    let mut setup = Setup::new().with_keys(&["sk-one"]);
    setup.config.debug_endpoints = true;
    let running = setup.start();
    assert_eq!(
        running.get("/debug/requests").status,
        401,
        "not for everybody"
    );
    let key = "authorization: Bearer sk-one";
    let named = [key, "x-request-id: mine"];
    post(
        &running,
        "/v1/completions",
        &named,
        &completion(json!({"prompt": "secretive"})),
    );
    post(
        &running,
        "/v1/embeddings",
        &[key],
        &json!({"input": "secretive"}),
    );
    let head = format!("GET /debug/requests HTTP/1.1\r\n{key}");
    let text = http::send(running.address, &head, b"").text();
    assert!(!text.contains("secretive"), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let requests = shown["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 2);
    let mine = requests
        .iter()
        .find(|request| request["id"] == "mine")
        .unwrap();
    assert_eq!(
        (&mine["route"], &mine["class"]),
        (&json!("/v1/completions"), &json!("standard"))
    );
    assert_eq!(
        (&mine["outcome"], &mine["completion_tokens"]),
        (&json!("completed"), &json!(4))
    );
    requests
        .iter()
        .for_each(|request| expect_whole(&request["phases"]));
    let slowest_first = |pair: &[Value]| {
        pair[0]["phases"]["e2e_ms"].as_f64() >= pair[1]["phases"]["e2e_ms"].as_f64()
    };
    assert!(requests.windows(2).all(slowest_first));
}
