//! The exposition: valid, complete, and what the observer was told.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::{FinishReason, Observer, RequestFacts, StepFacts, StopCause, Times, Usage};

use super::*;

/// The value of the one series that starts with `series` and a blank.
fn value(text: &str, series: &str) -> f64 {
    let found: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .collect();
    assert_eq!(found.len(), 1, "{series}\n{text}");
    found[0].parse().unwrap()
}

fn metrics(model_name: &str) -> Metrics {
    Metrics::new(model_name, &Traffic::standard(), &Arc::default())
}

const MODEL: &str = "{model_name=\"m\",engine=\"0\"}";

fn finished(reason: FinishReason) -> RequestFacts {
    RequestFacts {
        reason,
        usage: Usage {
            num_prompt: 10,
            num_cached: 4,
            num_completion: 3,
        },
        times: Times {
            queued: Duration::from_millis(100),
            prefill: Duration::from_millis(200),
            decode: Duration::from_millis(400),
            num_preemptions: 0,
        },
        e2e: Duration::from_millis(700),
        max_tokens: 16,
    }
}

#[test]
fn every_family_is_typed_once_and_no_name_ends_in_total_twice() {
    let text = metrics("m").render(0);
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(names.insert(name), "{name} twice");
        assert!(!name.contains("_total_total"), "{name}");
    }
    assert!(names.len() > 40, "{names:?}");
}

#[test]
fn what_the_engine_tells_is_what_is_exported() {
    let metrics = metrics("m");
    let mut observer = EngineObserver::new(metrics.engine.clone());
    observer.step(&StepFacts {
        duration: Duration::from_millis(3),
        num_prefill_tokens: 6,
        num_decode_tokens: 2,
        num_preemptions: 1,
        num_recomputed_tokens: 5,
        num_prefix_queried: 10,
        num_prefix_hit: 4,
        num_evicted: 1,
    });
    observer.first_token(Duration::from_millis(300));
    observer.next_token(Duration::from_millis(20));
    observer.finished(&finished(FinishReason::Stop(StopCause::EndToken)));
    observer.finished(&finished(FinishReason::Cancelled));
    let text = metrics.render(0);
    let of = |name: &str| value(&text, &format!("{name}{MODEL}"));
    assert_eq!(of("vllm:generation_tokens_total"), 2.0);
    assert_eq!(of("vllm:prompt_tokens_total"), 20.0);
    assert_eq!(of("vllm:prefix_cache_queries_total"), 10.0);
    assert_eq!(of("vllm:gpu_prefix_cache_hits_total"), 4.0);
    assert_eq!(of("vllm:num_preemptions_total"), 1.0);
    assert_eq!(of("fulcrum_recomputed_tokens_total"), 5.0);
    assert_eq!(of("vllm:iteration_tokens_total_count"), 1.0);
    assert_eq!(of("vllm:iteration_tokens_total_sum"), 8.0);
    assert_eq!(of("vllm:time_to_first_token_seconds_sum"), 0.3);
    assert_eq!(of("vllm:time_per_output_token_seconds_count"), 1.0);
    // Two gaps in 0.4 s.
    assert_eq!(of("vllm:request_time_per_output_token_seconds_sum"), 0.2);
    // The cancelled one ended, but did not complete.
    assert_eq!(of("vllm:e2e_request_latency_seconds_count"), 1.0);
    assert_eq!(of("vllm:request_prefill_kv_computed_tokens_sum"), 6.0);
    let ended = |reason: &str| {
        let labels = format!("{{model_name=\"m\",engine=\"0\",finished_reason=\"{reason}\"}}");
        value(&text, &format!("vllm:request_success_total{labels}"))
    };
    assert_eq!(
        (
            ended("stop"),
            ended("abort"),
            ended("length"),
            ended("error")
        ),
        (1.0, 1.0, 0.0, 0.0)
    );
}

#[test]
fn gauges_are_zero_before_there_is_an_engine() {
    let text = metrics("m").render(0);
    for name in [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "fulcrum_leaked_blocks",
    ] {
        assert_eq!(value(&text, &format!("{name}{MODEL}")), 0.0);
    }
}

#[test]
fn an_operators_model_name_cannot_break_the_exposition() {
    let text = metrics("a\"b\\c\nd").render(0);
    assert!(
        text.contains(r#"{model_name="a\"b\\c\nd",engine="0"}"#),
        "{text}"
    );
}

#[test]
fn the_reference_page_lists_every_family_and_no_other() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let metrics = metrics("m");
    // The families whose series come with the first request of their kind.
    metrics.http_request("/livez", StatusCode::OK, Duration::ZERO);
    let (second, late) = (Duration::from_secs(1), Some(Duration::ZERO));
    metrics.classes[0].judge(Target::Ttft, second, late, Cause::Queue);
    let text = metrics.render(0);
    let exported: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert_eq!(documented, exported);
}
