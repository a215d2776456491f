//! Raw prompts: the four forms, several at once, ids as they are.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, refusal, tiny};
use crate::http::Frame;

fn texts(answer: &Value) -> Vec<(u64, String)> {
    let choices = answer["choices"].as_array().unwrap();
    choices
        .iter()
        .map(|choice| {
            (
                choice["index"].as_u64().unwrap(),
                choice["text"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn ids(text: &str) -> Vec<u32> {
    let tokens = tiny().0.encode(text, text::SpecialText::AsText);
    tokens.into_iter().map(|token| token.0).collect()
}

fn answer(running: &Running, prompt: Value) -> Value {
    let reply = running.post(
        "/v1/completions",
        &json!({"prompt": prompt, "temperature": 0}),
    );
    assert_eq!(reply.status, 200, "{prompt}");
    reply.json()
}

/// Case S2.
#[test]
fn the_ids_of_a_text_give_the_answer_of_the_text() {
    let running = Setup::new().start();
    let by_text = answer(&running, json!("x5"));
    let by_ids = answer(&running, json!(ids("x5")));
    assert_eq!(texts(&by_text), [(0, "4321".to_owned())]);
    assert_eq!(texts(&by_ids), texts(&by_text));
    assert_eq!(
        by_ids["usage"]["prompt_tokens"],
        ids("x5").len(),
        "no BOS is added to ids"
    );
    assert_eq!(by_text["object"], "text_completion");
    assert!(by_text["id"].as_str().unwrap().starts_with("cmpl-"));
}

/// Case S2.
#[test]
fn several_prompts_give_several_choices_by_index_and_one_usage() {
    let running = Setup::new().start();
    let expected = [
        (0, "4321".to_owned()),
        (1, "21".to_owned()),
        (2, String::new()),
    ];
    for prompt in [
        json!(["5", "3", "1"]),
        json!([ids("5"), ids("3"), ids("1")]),
    ] {
        let whole = answer(&running, prompt.clone());
        assert_eq!(texts(&whole), expected);
        let usage = &whole["usage"];
        // 4 + 2 + 0 digits, and three ends.
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(3), &json!(9))
        );
        let body =
            json!({"prompt": prompt, "temperature": 0, "stream_options": {"include_usage": true}});
        let streamed = collect(&running, &body);
        assert_eq!(streamed.texts, ["4321", "21", ""]);
        assert_eq!(streamed.num_terminals, [1, 1, 1]);
        assert_eq!(streamed.usage["completion_tokens"], 9);
    }
}

struct Collected {
    texts: [String; 3],
    num_terminals: [usize; 3],
    usage: Value,
}

fn collect(running: &Running, body: &Value) -> Collected {
    let mut collected = Collected {
        texts: Default::default(),
        num_terminals: [0; 3],
        usage: Value::Null,
    };
    for frame in running.stream("/v1/completions", body).all() {
        let Frame::Json(chunk) = frame else { continue };
        let Some(choice) = chunk["choices"].get(0) else {
            collected.usage = chunk["usage"].clone();
            continue;
        };
        let idx = choice["index"].as_u64().unwrap() as usize;
        collected.texts[idx] += choice["text"].as_str().unwrap();
        collected.num_terminals[idx] += usize::from(!choice["finish_reason"].is_null());
    }
    collected
}

/// Cases A8 and S2.
#[test]
fn empty_and_hostile_prompts_are_refused_and_harm_nobody() {
    let running = Setup::new().start();
    let vocab = tiny().0.vocab();
    for prompt in [
        json!(""),
        json!([""]),
        json!([]),
        json!([[]]),
        json!(["a", ""]),
        json!([1, "a"]),
        json!([-1]),
        json!([vocab]),
        json!([[1, vocab]]),
        json!([4_294_967_296_u64]),
        json!([4_294_967_301_u64]),
        json!([1.0]),
        json!(7),
        json!({"a": 1}),
        json!([null]),
    ] {
        let body = json!({"prompt": prompt, "max_tokens": 4});
        let (status, param, _) = refusal(running.post("/v1/completions", &body));
        assert_eq!(status, 400, "{prompt}");
        assert!(param.unwrap().starts_with("prompt"), "{prompt}");
        running.canary();
    }
    let body = json!({"prompt": "a", "max_tokens": 0});
    let (status, param, _) = refusal(running.post("/v1/completions", &body));
    assert_eq!((status, param.as_deref()), (400, Some("max_tokens")));
    running.canary();
}

/// Case A8: while other streams run, they must not be interrupted.
#[test]
fn a_refused_request_does_not_disturb_a_running_stream() {
    let running = Setup::new().start();
    running.gate.allow(Some(2));
    let mut events = running.stream("/v1/completions", &json!({"prompt": "-", "temperature": 0}));
    events.next_json().unwrap();
    for prompt in [json!(""), json!([]), json!([[]]), json!([-1])] {
        assert_eq!(
            running
                .post("/v1/completions", &json!({"prompt": prompt}))
                .status,
            400
        );
    }
    running.gate.allow(None);
    let frames = events.all();
    assert_eq!(frames.last(), Some(&Frame::Done));
}
