//! Streams: their shape, their text, and that they say what one document would.

use std::time::Duration;

use api::answer::FinishReason;
use serde_json::{Value, json};

use crate::harness::{MODEL, Running, Setup, chat};
use crate::http::Frame;

const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz";

/// A stream's frames, checked for what holds in every one of them.
struct Streamed {
    text: String,
    finish_reason: String,
    usage: Option<Value>,
}

fn stream(running: &Running, path: &str, body: &Value) -> Streamed {
    let mut frames = running.stream(path, body).all();
    assert_eq!(
        frames.pop(),
        Some(Frame::Done),
        "the stream ends with [DONE]"
    );
    assert!(!frames.contains(&Frame::Done), "and only there");
    let chunks: Vec<Value> = frames
        .into_iter()
        .filter_map(|frame| match frame {
            Frame::Json(chunk) => Some(chunk),
            _ => None,
        })
        .collect();
    check_chunks(&chunks, body)
}

fn check_chunks(chunks: &[Value], body: &Value) -> Streamed {
    let asked = body["stream_options"]["include_usage"] == json!(true);
    let mut streamed = Streamed {
        text: String::new(),
        finish_reason: String::new(),
        usage: None,
    };
    for (idx, chunk) in chunks.iter().enumerate() {
        for key in ["id", "created", "model", "object", "system_fingerprint"] {
            assert_eq!(chunk[key], chunks[0][key], "{key} stays the same");
        }
        let choices = chunk["choices"]
            .as_array()
            .expect("choices are always there");
        if choices.is_empty() {
            assert!(
                asked && idx + 1 == chunks.len(),
                "usage comes last, and only if asked for: {chunk}"
            );
            streamed.usage = Some(chunk["usage"].clone());
            continue;
        }
        assert_eq!(chunk.get("usage"), asked.then_some(&Value::Null), "{chunk}");
        assert_eq!(choices.len(), 1);
        assert!(
            streamed.finish_reason.is_empty(),
            "nothing follows the terminal chunk: {chunk}"
        );
        take_choice(&mut streamed, &choices[0]);
    }
    assert!(
        !streamed.finish_reason.is_empty(),
        "there is a terminal chunk"
    );
    assert_eq!(streamed.usage.is_some(), asked);
    streamed
}

fn take_choice(streamed: &mut Streamed, choice: &Value) {
    assert_eq!(choice["index"], 0);
    assert_eq!(choice.get("logprobs"), Some(&Value::Null));
    let text = choice["delta"]["content"]
        .as_str()
        .or(choice["text"].as_str());
    match choice
        .get("finish_reason")
        .expect("the key is always there")
    {
        Value::Null => streamed.text += text.expect("text until the end"),
        reason => {
            assert_eq!(text.unwrap_or(""), "", "the terminal chunk is empty");
            assert!(choice.get("delta").is_none_or(|delta| delta == &json!({})));
            streamed.finish_reason = reason.as_str().unwrap().to_owned();
        }
    }
}

/// Streams a completion, asks for the same in one document, and compares all they say.
fn same_as_whole(running: &Running, body: &Value) -> Streamed {
    let mut body = body.clone();
    let whole = running.post("/v1/completions", &body).json();
    body["stream_options"] = json!({"include_usage": true});
    let streamed = stream(running, "/v1/completions", &body);
    let choice = &whole["choices"][0];
    assert_eq!(choice["text"], streamed.text, "{body}");
    assert_eq!(choice["finish_reason"], streamed.finish_reason, "{body}");
    let (whole, streamed_usage) = (&whole["usage"], streamed.usage.as_ref().unwrap());
    for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(whole[key], streamed_usage[key], "{body}");
    }
    streamed
}

/// Case A1.
#[test]
fn a_chat_stream_opens_with_the_role_and_ends_with_one_terminal_chunk() {
    let running = Setup::new().start();
    let mut events = running.stream("/v1/chat/completions", &chat());
    let first = events.next_json().unwrap();
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["model"], MODEL);
    assert!(first["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(
        first["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(first["choices"][0].get("finish_reason"), Some(&Value::Null));
    drop(events);
    let streamed = stream(&running, "/v1/chat/completions", &chat());
    assert_eq!(
        (streamed.text.as_str(), streamed.finish_reason.as_str()),
        (ALPHABET, "stop")
    );
}

/// Case A1.
#[test]
fn an_end_token_says_stop_and_a_used_up_limit_says_length() {
    let running = Setup::new().start();
    let body = |max_tokens: u32| json!({"prompt": "5", "temperature": 0, "max_tokens": max_tokens});
    let ended = same_as_whole(&running, &body(16));
    assert_eq!(
        (ended.text.as_str(), ended.finish_reason.as_str()),
        ("4321", "stop")
    );
    let cut = same_as_whole(&running, &body(2));
    assert_eq!(
        (cut.text.as_str(), cut.finish_reason.as_str()),
        ("43", "length")
    );
}

#[test]
fn the_words_of_finish_reason_are_openais_and_one_of_vllms() {
    let words = [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::Abort,
    ];
    assert_eq!(json!(words), json!(["stop", "length", "abort"]));
}

/// Case A2.
#[test]
fn a_stop_string_over_several_tokens_never_shows() {
    let running = Setup::new().start();
    let run = |stop: Value| {
        let body = json!({"prompt": "-", "temperature": 0, "stop": stop});
        same_as_whole(&running, &body)
    };
    for from in 0..20 {
        let stopped = run(json!(&ALPHABET[from..from + 7]));
        assert_eq!(
            (stopped.text.as_str(), stopped.finish_reason.as_str()),
            (&ALPHABET[..from], "stop")
        );
        let near_miss = format!("{}!", &ALPHABET[from..from + 6]);
        assert_eq!(
            run(json!(near_miss)).text,
            ALPHABET,
            "what was held back is released"
        );
    }
    assert_eq!(run(json!(["cd", "cde"])).text, "ab");
    assert_eq!(run(json!(["cde", "cd"])).text, "ab");
    assert_eq!(run(json!(["xyz!", "pq"])).text, "abcdefghijklmno");
}

/// Cases A2 and A3.
#[test]
fn a_stop_string_that_begins_inside_no_character_ends_between_characters() {
    let running = Setup::new().start();
    let body =
        |stop: &str| json!({"prompt": "E", "temperature": 0, "max_tokens": 40, "stop": stop});
    assert_eq!(same_as_whole(&running, &body("E😀E")).text, "😀");
    assert_eq!(
        same_as_whole(&running, &body("😀E😀!")).finish_reason,
        "length"
    );
}

/// Case A2: the limit ends the answer inside a character, whose replacement is the stop string.
#[test]
fn an_unfinished_character_can_complete_a_stop_string() {
    let running = Setup::new().start();
    let body = json!({"prompt": "E", "temperature": 0, "max_tokens": 2, "stop": "\u{fffd}"});
    let streamed = same_as_whole(&running, &body);
    assert_eq!((&*streamed.text, &*streamed.finish_reason), ("", "stop"));
    let body = json!({"prompt": "E", "temperature": 0, "max_tokens": 2});
    let streamed = same_as_whole(&running, &body);
    let told = (&*streamed.text, &*streamed.finish_reason);
    assert_eq!(told, ("\u{fffd}", "length"));
}

#[test]
fn a_matched_stop_string_is_kept_when_asked_for_and_named() {
    let running = Setup::new().start();
    let body = json!({
        "prompt": "-", "temperature": 0, "stop": "def", "include_stop_str_in_output": true,
    });
    assert_eq!(same_as_whole(&running, &body).text, "abcdef");
    let whole = running.post("/v1/completions", &body).json();
    assert_eq!(whole["choices"][0]["stop_reason"], "def");
}

/// Case A3.
#[test]
fn characters_over_several_tokens_arrive_whole() {
    let running = Setup::new().start();
    for max_tokens in 1..12 {
        let body = json!({"prompt": "E", "temperature": 0, "max_tokens": max_tokens});
        let text = same_as_whole(&running, &body).text;
        let complete = "😀E😀E😀"
            .chars()
            .take(max_tokens / 5 * 2 + usize::from(max_tokens % 5 == 4));
        let complete: String = complete.collect();
        let rest = text
            .strip_prefix(&complete)
            .unwrap_or_else(|| panic!("{text:?} {complete:?}"));
        // A limit inside a character leaves one mark of it, and only then.
        assert_eq!(
            rest,
            if matches!(max_tokens % 5, 0 | 4) {
                ""
            } else {
                "\u{fffd}"
            }
        );
    }
}

/// Case A5.
#[test]
fn usage_is_told_in_one_last_chunk_if_asked_for_and_equals_the_documents() {
    let running = Setup::new().start();
    let body = json!({"prompt": "9", "temperature": 0, "max_tokens": 4});
    assert!(stream(&running, "/v1/completions", &body).usage.is_none());
    let mut unasked = body.clone();
    unasked["stream_options"] = json!({"include_usage": false});
    assert!(
        stream(&running, "/v1/completions", &unasked)
            .usage
            .is_none()
    );
    let usage = same_as_whole(&running, &body).usage.unwrap();
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(1), &json!(4))
    );
}

#[test]
fn usage_in_every_chunk_counts_up_to_the_whole() {
    let running = Setup::new().start();
    let body = json!({
        "prompt": "9", "temperature": 0,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
    });
    let mut events = running.stream("/v1/completions", &body);
    let mut counts = Vec::new();
    while let Some(chunk) = events.next_json() {
        counts.push(chunk["usage"]["completion_tokens"].as_u64().unwrap());
    }
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.last(), Some(&9), "eight digits and the end");
}

#[test]
fn cached_prompt_tokens_are_told_and_part_of_the_prompt() {
    let running = Setup::new().start();
    let body = json!({"prompt": "the ".repeat(60) + "3", "temperature": 0});
    let cached = || {
        let usage = running.post("/v1/completions", &body).json()["usage"].clone();
        let tokens = |value: &Value| value.as_u64().unwrap();
        let cached = tokens(&usage["prompt_tokens_details"]["cached_tokens"]);
        assert!(cached < tokens(&usage["prompt_tokens"]), "{usage}");
        cached
    };
    assert_eq!(cached(), 0);
    assert!(cached() >= 16, "the second time, whole blocks are found");
}

/// Needed because a long prompt on a CPU takes longer than proxies wait.
#[test]
fn a_waiting_stream_shows_life_and_has_its_head_at_once() {
    let mut setup = Setup::new();
    setup.config.limits.keep_alive = Duration::from_millis(20);
    setup.model.gate.allow(Some(0));
    let running = setup.start();
    let mut events = running.stream("/v1/chat/completions", &chat());
    // The role is here although no step has run; then comments.
    assert!(matches!(events.next_frame(), Some(Frame::Json(_))));
    for _ in 0..3 {
        assert_eq!(events.next_frame(), Some(Frame::Comment("ping".to_owned())));
    }
    running.gate.allow(None);
    let rest = events.all();
    assert_eq!(rest.last(), Some(&Frame::Done));
}

#[test]
fn a_stream_is_not_cached_and_not_held_back_by_proxies() {
    let running = Setup::new().start();
    let mut body = chat();
    body["stream"] = json!(true);
    let reply = running.post("/v1/chat/completions", &body);
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    assert!(reply.header("x-request-id").is_some());
    reply.events().all();
}

/// The engine fails in the middle: the status is long gone, so the stream says it.
#[test]
fn a_failing_engine_ends_a_stream_with_an_error_and_the_next_request_is_served() {
    let running = Setup::new().start();
    running.gate.allow(Some(3));
    let mut events = running.stream("/v1/completions", &json!({"prompt": "-", "temperature": 0}));
    events.next_json().expect("some text");
    running.gate.fail();
    running.gate.allow(None);
    let frames = events.all();
    let [.., Frame::Json(terminal), Frame::Json(error), Frame::Done] = frames.as_slice() else {
        panic!("{frames:?}");
    };
    assert_eq!(terminal["choices"][0]["finish_reason"], "abort");
    assert_eq!(error["error"]["type"], "server_error");
    assert!(
        !error.to_string().contains("SECRET"),
        "the reason is for the log: {error}"
    );
    running.until(
        "fulcrum_broken_answers_total{reason=\"engine_failed\"}",
        1.0,
    );
    running.canary();
    running.gate.fail();
    let reply = running.post("/v1/completions", &json!({"prompt": "-"}));
    assert_eq!(reply.status, 500);
    assert!(!reply.text().contains("SECRET"));
    running.canary();
}
