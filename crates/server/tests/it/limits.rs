//! Everything has a bound, and what exceeds it hears so at once. Cases F6 and F7.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::json;
use server::Phase;

use crate::harness::{Running, Setup, chat, refusal};
use crate::http::{self, Frame};
use crate::lifecycle::held_in_loading;

/// Case F6.
#[test]
fn a_full_queue_refuses_with_a_time_to_come_back_and_keeps_what_it_has() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.num_waiting_max = 2;
    let running = setup.start();
    running.gate.allow(Some(1));
    let mut taken = vec![running.stream("/v1/chat/completions", &chat())];
    running.until("vllm:num_requests_running", 1.0);
    for num_waiting in 1..=2 {
        taken.push(running.stream("/v1/chat/completions", &chat()));
        running.until("vllm:num_requests_waiting{", f64::from(num_waiting));
    }
    for _ in 0..5 {
        let reply = running.post("/v1/chat/completions", &chat());
        assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        let (status, _, code) = refusal(reply);
        assert_eq!((status, code.as_str()), (503, "queue_full"));
        assert_eq!(
            running.metric("vllm:num_requests_waiting{"),
            2.0,
            "never above its bound"
        );
    }
    let rejected = "vllm:admission_rejections_total{reason=\"max_num_queued_reqs\"}";
    assert_eq!(running.metric(rejected), 5.0);
    running.gate.allow(None);
    for events in taken {
        assert_eq!(events.all().last(), Some(&Frame::Done));
    }
    running.canary();
}

/// Case F6: one request a second started at most, so half of sixteen take eight seconds.
#[test]
fn the_time_to_come_back_is_that_of_the_queue_and_not_a_constant() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let mut taken = vec![running.stream("/v1/chat/completions", &chat())];
    running.until("vllm:num_requests_running", 1.0);
    taken.extend((0..16).map(|_| running.stream("/v1/chat/completions", &chat())));
    let reply = running.post("/v1/chat/completions", &chat());
    let retry_after: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((7..=60).contains(&retry_after), "{retry_after}");
    assert_eq!(refusal(reply).2, "queue_full");
    running.gate.allow(None);
}

/// Case F6.
#[test]
fn a_queue_full_of_tokens_refuses_before_it_is_full_of_requests() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.num_waiting_tokens_max = 300;
    let running = setup.start();
    running.gate.allow(Some(1));
    let _running_one = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_running", 1.0);
    let prompt = json!({"prompt": "5".repeat(200), "max_tokens": 5, "temperature": 0});
    let _waiting = running.stream("/v1/completions", &prompt);
    running.until("fulcrum_waiting_tokens", 200.0);
    assert_eq!(
        refusal(running.post("/v1/completions", &prompt)).2,
        "queue_full"
    );
    let rejected = "vllm:admission_rejections_total{reason=\"max_num_queued_tokens\"}";
    assert_eq!(running.metric(rejected), 1.0);
    running.gate.allow(None);
}

/// Case F6: of several prompts either all are taken or none.
#[test]
fn a_request_that_fits_only_in_part_leaves_nothing_behind() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.num_waiting_max = 2;
    let running = setup.start();
    running.gate.allow(Some(1));
    let events = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_running", 1.0);
    let three = json!({"prompt": ["5", "5", "5"], "temperature": 0});
    assert_eq!(
        refusal(running.post("/v1/completions", &three)).2,
        "queue_full"
    );
    running.gate.allow(None);
    assert_eq!(events.all().last(), Some(&Frame::Done));
    running.until("vllm:num_requests_waiting{", 0.0);
    running.until("vllm:num_requests_running", 0.0);
    running.canary();
}

/// Case F6: "try again" would never come true.
#[test]
fn more_prompts_than_an_idle_server_has_places_for_are_the_callers_fault() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 2;
    setup.model.limits.num_waiting_max = 5;
    let running = setup.start();
    let prompts = |num: usize| json!({"prompt": vec!["5"; num], "temperature": 0});
    let reply = running.post("/v1/completions", &prompts(8));
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("retry-after"), None);
    let error = reply.json()["error"].clone();
    assert_eq!(error["param"], "prompt");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("8 sequences") && message.contains("places for 7"),
        "{message}"
    );
    let all = running.post("/v1/completions", &prompts(7));
    assert_eq!(all.status, 200);
    assert_eq!(all.json()["choices"].as_array().unwrap().len(), 7);
}

/// Case F6.
#[test]
fn prompts_with_more_tokens_than_the_queue_can_ever_hold_are_the_callers_fault() {
    let mut setup = Setup::new();
    setup.model.limits.num_waiting_tokens_max = 300;
    let running = setup.start();
    let prompt = "5".repeat(200);
    let two = json!({"prompt": [prompt, prompt], "max_tokens": 5, "temperature": 0});
    let reply = running.post("/v1/completions", &two);
    assert_eq!(reply.status, 400);
    let error = reply.json()["error"].clone();
    assert_eq!(error["param"], "prompt");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("400 tokens") && message.contains("holds 300"),
        "{message}"
    );
    let one = json!({"prompt": "5".repeat(400), "max_tokens": 5, "temperature": 0});
    assert_eq!(running.post("/v1/completions", &one).status, 200);
}

/// Case F7.
#[test]
fn a_body_too_large_is_413_even_for_a_client_that_writes_it_all_first() {
    let mut setup = Setup::new();
    setup.config.limits.body_bytes_max = 64 * 1024;
    let running = setup.start();
    let large = json!({"prompt": "x".repeat(20 * 1024 * 1024)});
    let (status, _, code) = refusal(running.post("/v1/completions", &large));
    assert_eq!((status, code.as_str()), (413, "body_too_large"));
    running.canary();
    // The same in chunks, so that its length is not known beforehand.
    let mut socket = http::connect(running.address);
    socket
        .write_all(
            b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 65536, "x".repeat(65536));
    for _ in 0..8 {
        socket.write_all(chunk.as_bytes()).unwrap();
    }
    socket.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(refusal(http::read_head(socket).unwrap()).0, 413);
    running.canary();
}

/// Case F7: the body of a refusal that was made without it is read all the same.
#[test]
fn a_refusal_made_before_the_body_came_reaches_a_client_that_writes_it_all_first() {
    let body = json!({"prompt": "x".repeat(20 * 1024 * 1024)});
    let body = body.to_string();
    let ask = |running: &Running, head: &str| {
        let (status, _, code) = refusal(http::send(running.address, head, body.as_bytes()));
        (status, code)
    };
    let post = "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json";

    let running = Setup::new().with_keys(&["sk-one"]).start();
    assert_eq!(ask(&running, post), (401, "invalid_api_key".to_owned()));
    let key = "authorization: Bearer sk-one";
    let head = format!("POST /nowhere HTTP/1.1\r\n{key}");
    assert_eq!(ask(&running, &head), (404, "unknown_url".to_owned()));
    let head = format!("PUT /v1/completions HTTP/1.1\r\n{key}");
    assert_eq!(ask(&running, &head), (405, "method_not_allowed".to_owned()));
    let head = format!("POST /v1/completions HTTP/1.1\r\n{key}\r\ncontent-type: text/plain");
    let refused = (415, "unsupported_media_type".to_owned());
    assert_eq!(ask(&running, &head), refused);
    let padding = "x".repeat(64 * 1024);
    let head = format!("{post}\r\n{key}\r\nx-padding: {padding}");
    assert_eq!(ask(&running, &head), (431, "headers_too_large".to_owned()));

    let (running, release) = held_in_loading();
    assert_eq!(ask(&running, post), (503, "model_loading".to_owned()));
    drop(release);

    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.num_waiting_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let _first = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_running", 1.0);
    let _second = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_waiting{", 1.0);
    assert_eq!(ask(&running, post), (503, "queue_full".to_owned()));
    running.shutdown.signal();
    running.wait_for(Phase::Draining);
    assert_eq!(ask(&running, post), (503, "shutting_down".to_owned()));
}

#[test]
fn a_client_that_asks_first_need_not_send_what_is_too_large() {
    let mut setup = Setup::new();
    setup.config.limits.body_bytes_max = 64 * 1024;
    let running = setup.start();
    let head = "POST /v1/completions HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1000000";
    assert_eq!(refusal(http::send(running.address, head, b"")).0, 413);
    let running = Setup::new().with_keys(&["sk-one"]).start();
    assert_eq!(refusal(http::send(running.address, head, b"")).0, 401);
}

/// Case F7.
#[test]
fn a_head_too_large_is_431() {
    let running = Setup::new().start();
    let head = format!(
        "GET /livez HTTP/1.1\r\nx-padding: {}",
        "x".repeat(64 * 1024)
    );
    let (status, _, code) = refusal(http::send(running.address, &head, b""));
    assert_eq!((status, code.as_str()), (431, "headers_too_large"));
    let head = format!("GET /livez?{} HTTP/1.1", "x".repeat(40 * 1024));
    assert_eq!(refusal(http::send(running.address, &head, b"")).0, 431);
    // Far beyond, the HTTP library answers before us, without a body.
    let head = format!(
        "GET /livez HTTP/1.1\r\nx-padding: {}",
        "x".repeat(1024 * 1024)
    );
    if let Ok(reply) = http::try_send(running.address, &head, b"") {
        assert_eq!(reply.status, 431);
    }
    running.canary();
}

#[test]
fn a_hundred_headers_are_taken_and_more_are_431() {
    let running = Setup::new().start();
    // The client adds two of its own.
    let head = |num: usize| "GET /livez HTTP/1.1".to_owned() + &"\r\nx-a: b".repeat(num - 2);
    assert_eq!(http::send(running.address, &head(100), b"").status, 200);
    assert_eq!(http::send(running.address, &head(101), b"").status, 431);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let mut setup = Setup::new();
    setup.config.limits.num_connections_max = 3;
    let running = setup.start();
    // Connections are accepted in the order in which they were opened.
    let idle: Vec<_> = (0..3).map(|_| http::connect(running.address)).collect();
    let refused = http::read_head(http::connect(running.address)).expect("it is told why");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["code"], "too_many_connections");
    drop(idle);
}

#[test]
fn a_client_that_says_nothing_or_half_a_head_is_closed() {
    let mut setup = Setup::new();
    setup.config.limits.header_read = Duration::from_millis(100);
    let running = setup.start();
    // Nothing; what could still become HTTP/2; half a head.
    for beginning in ["", "P", "PRI * HTTP/2.0\r\n", "GET /livez HTTP/1.1\r\nx-a"] {
        let mut socket = http::connect(running.address);
        socket.write_all(beginning.as_bytes()).unwrap();
        let mut rest = Vec::new();
        // Closed (perhaps with an answer, perhaps with a reset), and not left open.
        let closed = socket.read_to_end(&mut rest);
        assert!(
            closed.is_ok()
                || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset),
            "{beginning:?}"
        );
    }
    running.canary();
}

#[test]
fn a_body_that_stops_coming_is_408() {
    let mut setup = Setup::new();
    setup.config.limits.body_read = Duration::from_millis(100);
    let running = setup.start();
    let mut socket = http::connect(running.address);
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    socket.write_all(head.as_bytes()).unwrap();
    let (status, _, code) = refusal(http::read_head(socket).unwrap());
    assert_eq!((status, code.as_str()), (408, "body_incomplete"));
    running.canary();
}

/// Not 408, which clients take for a reason to send the same again.
#[test]
fn a_body_with_broken_framing_or_a_false_length_is_400_at_once() {
    let running = Setup::new().start();
    let post = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json";
    for rest in [
        "transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}",
        "content-length: 100\r\n\r\n{",
    ] {
        let mut socket = http::connect(running.address);
        socket
            .write_all(format!("{post}\r\n{rest}").as_bytes())
            .unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let (status, _, code) = refusal(http::read_head(socket).unwrap());
        assert_eq!((status, code.as_str()), (400, "body_broken"), "{rest:?}");
    }
    running.canary();
}

/// Case F6.
#[test]
fn bodies_together_may_take_only_so_much_memory() {
    let mut setup = Setup::new();
    setup.config.limits.bodies_bytes_max = 100_000;
    let running = setup.start();
    // Half a body that keeps its share while it is awaited.
    let mut half = http::connect(running.address);
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 90001\r\n\r\n";
    half.write_all(head.as_bytes()).unwrap();
    half.write_all(&[b' '; 90_000]).unwrap();
    running.until("fulcrum_body_bytes", 90_000.0);
    let large = json!({"prompt": "5".repeat(20_000), "max_tokens": 1});
    let reply = running.post("/v1/completions", &large);
    assert!(reply.header("retry-after").is_some());
    let (status, _, code) = refusal(reply);
    assert_eq!((status, code.as_str()), (503, "bodies_full"));
    running.canary();
    drop(half);
    running.until("fulcrum_body_bytes", 0.0);
}

/// Case F7: numbers are bounded before they mean work.
#[test]
fn extreme_numbers_are_refused_by_name() {
    let running = Setup::new().start();
    let large = "\"x\"".to_owned() + &",\"x\"".repeat(99_999);
    for (field, value) in [
        ("n", "0"),
        ("n", "-1"),
        ("n", "1000000"),
        ("best_of", "1000000"),
        ("max_tokens", "2147483648"),
        ("max_tokens", "9223372036854775808"),
        ("max_tokens", "1e30"),
        ("max_tokens", "1.5"),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("top_logprobs", "1000000"),
        ("logprobs", "7"),
        ("seed", "18446744073709551616"),
        ("temperature", "999999"),
        ("temperature", "-0.1"),
        ("temperature", "\"NaN\""),
        ("top_p", "-1"),
        ("top_p", "0"),
        ("top_p", "1.1"),
        ("top_k", "-2"),
        ("min_p", "2"),
        ("repetition_penalty", "0"),
        ("presence_penalty", "3"),
        ("frequency_penalty", "-3"),
        ("stop", &format!("[{large}]")),
        ("stop", &format!("\"{}\"", "x".repeat(1_000_000))),
        ("stop_token_ids", "[1000000]"),
        ("logit_bias", "{\"1000000\":1}"),
        ("logit_bias", "{\"-1\":1}"),
    ] {
        let body = format!(
            "{{\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}],\"{field}\":{value}}}"
        );
        let (status, param, _) =
            refusal(running.post_bytes("/v1/chat/completions", body.as_bytes()));
        assert_eq!((status, param.as_deref()), (400, Some(field)), "{field}");
        running.canary();
    }
    let message = json!({"role": "user", "content": "x"});
    let many = json!({"messages": vec![message; 100_000]});
    let (status, param, _) = refusal(running.post("/v1/chat/completions", &many));
    assert_eq!((status, param.as_deref()), (400, Some("messages")));
    running.canary();
}
