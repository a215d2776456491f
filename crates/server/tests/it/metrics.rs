//! Metrics agree with what clients saw, and with one another. Case F8.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::{Running, Setup, chat};
use crate::http;

fn finished(running: &Running, reason: &str) -> f64 {
    running.metric(&format!(
        "vllm:request_success_total{{model_name=\"tiny\",engine=\"0\",finished_reason=\"{reason}\"}}"
    ))
}

/// Case F8.
#[test]
fn counts_equal_what_clients_saw_and_add_up() {
    let running = Setup::new().start();
    let mut num_prompt = 0;
    let mut num_completion = 0;
    for idx in 0..10 {
        let max_tokens = if idx < 6 { 64 } else { 3 };
        let body = json!({"prompt": "8", "temperature": 0, "max_tokens": max_tokens,
            "stream_options": {"include_usage": true}});
        let mut events = running.stream("/v1/completions", &body);
        while let Some(chunk) = events.next_json() {
            num_prompt += chunk["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
            num_completion += chunk["usage"]["completion_tokens"].as_u64().unwrap_or(0);
        }
    }
    running.gate.allow(Some(4));
    let mut aborted = running.stream("/v1/completions", &json!({"prompt": "E", "temperature": 0}));
    aborted.next_json().unwrap();
    drop(aborted);
    running.until("fulcrum_http_connections", 1.0);
    running.gate.allow(None);
    running.until("vllm:num_requests_running", 0.0);
    for _ in 0..5 {
        assert_eq!(
            running
                .post("/v1/completions", &json!({"prompt": ""}))
                .status,
            400
        );
    }
    assert_eq!(finished(&running, "stop"), 6.0);
    assert_eq!(finished(&running, "length"), 4.0);
    assert_eq!(finished(&running, "abort"), 1.0);
    let sum =
        finished(&running, "stop") + finished(&running, "length") + finished(&running, "abort");
    assert_eq!(running.metric("fulcrum_requests_arrived_total"), sum);
    assert_eq!(
        running.metric("fulcrum_requests_rejected_total{reason=\"invalid_value\"}"),
        5.0
    );
    // One sample per request that had a token, the aborted one included; latencies of the completed.
    assert_eq!(
        running.metric("vllm:time_to_first_token_seconds_count"),
        11.0
    );
    assert_eq!(
        running.metric("vllm:e2e_request_latency_seconds_count"),
        10.0
    );
    assert_eq!(
        running.metric("vllm:request_prompt_tokens_sum"),
        num_prompt as f64
    );
    assert_eq!(
        running.metric("vllm:request_generation_tokens_sum"),
        num_completion as f64
    );
    assert!(running.metric("vllm:generation_tokens_total") >= num_completion as f64);
    assert!(running.metric("vllm:iteration_tokens_total_count") >= 10.0);
}

/// Every series of an exposition, without its value.
fn series(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').expect("a value").0.to_owned())
        .collect()
}

/// Case F8.
#[test]
fn nothing_a_client_sends_adds_a_time_series() {
    let running = Setup::new().start();
    let hostile = |idx: usize| {
        let mut body = chat();
        body["model"] = json!(format!("model-{idx}"));
        body["user"] = json!(format!("user-{idx}"));
        running.post("/v1/chat/completions", &body);
        running.get(&format!("/nothing-{idx}"));
        running.get(&format!("/v1/models/model-{idx}"));
        http::send(
            running.address,
            &format!("GET /livez HTTP/1.1\r\nx-request-id: id-{idx}"),
            b"",
        );
    };
    running.get("/metrics");
    hostile(0);
    let before = series(&running.get("/metrics").text());
    for idx in 1..40 {
        hostile(idx);
    }
    let after = series(&running.get("/metrics").text());
    assert_eq!(before, after);
}

/// Case F8.
#[test]
fn the_exposition_is_valid_and_counters_never_fall() {
    let running = Setup::new().start();
    let read = || {
        let reply = running.get("/metrics");
        assert_eq!(
            reply.header("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        reply.text()
    };
    let counters = |text: &str| -> Vec<(String, f64)> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .filter(|(series, _)| series.split('{').next().unwrap().ends_with("_total"))
            .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
            .collect()
    };
    let before = counters(&read());
    running.canary();
    let text = read();
    let after: std::collections::BTreeMap<_, _> = counters(&text).into_iter().collect();
    for (series, value) in before {
        assert!(after[&series] >= value, "{series}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("series and value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = series.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let typed = |name: &str| text.contains(&format!("# TYPE {name} "));
        assert!(typed(name) || base.is_some_and(typed), "{line} has a type");
    }
}

#[test]
fn an_endpoint_picker_finds_what_it_reads() {
    let running = Setup::new().start();
    let text = running.get("/metrics").text();
    let model = "{model_name=\"tiny\",engine=\"0\"}";
    for gauge in [
        "vllm:num_requests_waiting",
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
    ] {
        assert!(text.contains(&format!("\n{gauge}{model} 0")), "{gauge}");
    }
    let info = text
        .lines()
        .find(|line| line.starts_with("vllm:cache_config_info{"))
        .unwrap();
    assert!(
        info.contains("block_size=\"16\"") && info.contains("num_gpu_blocks=\"256\""),
        "{info}"
    );
    assert!(info.contains("cache_dtype=\"int8\""), "{info}");
    assert!(!info.contains("model_name"), "{info}");
}

#[test]
fn a_running_answer_shows_in_the_gauges() {
    let running = Setup::new().start();
    running.gate.allow(Some(2));
    let mut events = running.stream("/v1/completions", &json!({"prompt": "-", "temperature": 0}));
    events.next_json().unwrap();
    running.until("vllm:num_requests_running", 1.0);
    assert!(running.metric("vllm:kv_cache_usage_perc") > 0.0);
    assert_eq!(
        running.metric("fulcrum_kv_blocks"),
        256.0,
        "the states add up to the pool"
    );
    running.gate.allow(None);
    drop(events);
    running.until("vllm:kv_cache_usage_perc", 0.0);
}
