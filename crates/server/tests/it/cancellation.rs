//! A client that goes away stops its work within two steps, whatever its request was
//! doing. Case C1.

use std::io::Write;

use serde_json::{Value, json};

use crate::harness::{Running, Setup};
use crate::http;

const ABORTED: &str =
    "vllm:request_success_total{model_name=\"tiny\",engine=\"0\",finished_reason=\"abort\"}";

fn one_at_a_time() -> Running {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.step_tokens_max = 16;
    setup.model.gate.allow(Some(0));
    setup.start()
}

/// Sends a request and returns the open connection.
fn send(running: &Running, body: &Value) -> std::net::TcpStream {
    let mut socket = http::connect(running.address);
    let body = body.to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    socket
}

fn long(stream: bool) -> Value {
    json!({"prompt": "E", "temperature": 0, "max_tokens": 400, "stream": stream})
}

/// After the client left, two steps are enough to notice, and everything is given back.
fn gone_within_two_steps(running: &Running, num_aborted: f64) {
    // Only the connection that asks is open.
    running.until("fulcrum_http_connections", 1.0);
    running.gate.allow(Some(2));
    running.until(ABORTED, num_aborted);
    running.until("vllm:num_requests_running", 0.0);
    running.until("vllm:kv_cache_usage_perc", 0.0);
    assert_eq!(running.metric("fulcrum_leaked_blocks"), 0.0);
    running.gate.allow(None);
    running.canary();
    running.gate.allow(Some(0));
}

#[test]
fn a_client_that_closes_only_its_sending_side_counts_as_gone() {
    let running = one_at_a_time();
    let socket = send(&running, &long(false));
    running.until("vllm:num_requests_running", 1.0);
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    gone_within_two_steps(&running, 1.0);
    drop(socket);
}

#[test]
fn a_stream_whose_client_leaves_is_stopped() {
    let running = one_at_a_time();
    running.gate.allow(Some(8));
    let mut events = running.stream("/v1/completions", &long(true));
    events.next_json().expect("it is being answered");
    drop(events);
    gone_within_two_steps(&running, 1.0);
}

#[test]
fn an_unstreamed_answer_whose_client_leaves_is_stopped() {
    let running = one_at_a_time();
    running.gate.allow(Some(3));
    let socket = send(&running, &long(false));
    running.until("vllm:num_requests_running", 1.0);
    drop(socket);
    gone_within_two_steps(&running, 1.0);
    running.until(
        "fulcrum_http_requests_total{route=\"/v1/completions\",status=\"499\"}",
        1.0,
    );
}

#[test]
fn a_prompt_half_computed_is_dropped_with_its_client() {
    for stream in [false, true] {
        let running = one_at_a_time();
        // 300 tokens in chunks of 16: one step is not enough.
        running.gate.allow(Some(1));
        let body = json!({"prompt": "5".repeat(300), "max_tokens": 100, "stream": stream});
        let socket = send(&running, &body);
        running.until("vllm:num_requests_running", 1.0);
        drop(socket);
        gone_within_two_steps(&running, 1.0);
    }
}

#[test]
fn a_queued_request_leaves_the_queue_with_its_client_and_disturbs_nobody() {
    for stream in [false, true] {
        let running = one_at_a_time();
        running.gate.allow(Some(1));
        let mut first =
            running.stream("/v1/completions", &json!({"prompt": "-", "temperature": 0}));
        running.until("vllm:num_requests_running", 1.0);
        let socket = send(&running, &long(stream));
        running.until("vllm:num_requests_waiting{", 1.0);
        drop(socket);
        // The first stream's connection, and the one that asks.
        running.until("fulcrum_http_connections", 2.0);
        running.gate.allow(Some(2));
        running.until("vllm:num_requests_waiting{", 0.0);
        running.until(ABORTED, 1.0);
        running.gate.allow(None);
        let mut text = String::new();
        while let Some(chunk) = first.next_json() {
            text += chunk["choices"][0]["text"].as_str().unwrap();
        }
        assert_eq!(text, "abcdefghijklmnopqrstuvwxyz");
    }
}

#[test]
fn many_abandoned_requests_leave_nothing_behind() {
    let mut setup = Setup::new();
    setup.config.limits.answer_tokens_default = 400;
    let running = setup.start();
    for idx in 0..200 {
        drop(send(&running, &long(idx % 2 == 0)));
    }
    running.until("fulcrum_http_connections", 1.0);
    running.until("vllm:num_requests_running", 0.0);
    running.until("vllm:num_requests_waiting{", 0.0);
    assert_eq!(running.metric("fulcrum_leaked_blocks"), 0.0);
    running.canary();
}
