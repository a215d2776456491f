//! Log-probabilities on the wire, in both shapes, whole and streamed.
//!
//! The scripted model gives the next token a logit of 9 and token `id` one of
//! `-id / vocab`, so every probability is known exactly.

use serde_json::{Value, json};
use text::TokenId;

use crate::harness::{Running, Setup, chat, refusal, tiny};
use crate::http::Frame;

/// What the scripted model's logits make of `token` where `next` follows.
pub fn logprob(token: u32, next: u32) -> f64 {
    let vocab = tiny().0.vocab() as u32;
    let logit = |id: u32| match id == next {
        true => 9.0,
        false => -f64::from(id as f32 / vocab as f32),
    };
    let sum: f64 = (0..vocab).map(|id| logit(id).exp()).sum();
    logit(token) - sum.ln()
}

/// The token of a single byte.
pub fn byte(byte: u8) -> u32 {
    let tokenizer = tiny().0;
    let is = |id: &u32| tokenizer.token_bytes(TokenId(*id)) == Some(&[byte][..]);
    (0..tokenizer.vocab() as u32).find(is).unwrap()
}

pub fn close(told: &Value, expected: f64) {
    let told = told.as_f64().unwrap_or_else(|| panic!("{told}"));
    assert!((told - expected).abs() < 1e-4, "{told} is not {expected}");
}

fn with(mut body: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

fn choice(running: &Running, path: &str, body: &Value) -> Value {
    let reply = running.post(path, body);
    assert_eq!(reply.status, 200, "{body}");
    reply.json()["choices"][0].clone()
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[test]
fn chat_tells_each_token_with_its_bytes_and_the_likeliest_beside_it() {
    let running = Setup::new().start();
    let body = with(
        chat(),
        json!({"max_tokens": 3, "logprobs": true, "top_logprobs": 2}),
    );
    let logprobs = &choice(&running, CHAT, &body)["logprobs"];
    assert_eq!(logprobs["refusal"], Value::Null);
    let content = logprobs["content"].as_array().unwrap();
    let names: Vec<&Value> = content.iter().map(|token| &token["token"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    for (token, letter) in content.iter().zip(b"abc") {
        assert_eq!(token["bytes"], json!([letter]));
        let chosen = byte(*letter);
        close(&token["logprob"], logprob(chosen, chosen));
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        assert_eq!(top[0]["token"], token["token"], "the likeliest comes first");
        close(&top[1]["logprob"], logprob(0, chosen));
    }
}

#[test]
fn chat_without_top_logprobs_has_empty_lists_of_them() {
    let running = Setup::new().start();
    let body = with(chat(), json!({"max_tokens": 1, "logprobs": true}));
    let content = &choice(&running, CHAT, &body)["logprobs"]["content"];
    assert_eq!(content[0]["top_logprobs"], json!([]));
}

#[test]
fn completions_tell_four_lists_of_one_length() {
    let running = Setup::new().start();
    let body = json!({"prompt": "5", "temperature": 0, "logprobs": 1});
    let choice = choice(&running, COMPLETIONS, &body);
    let logprobs = &choice["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(tokens[..4], ["4", "3", "2", "1"].map(|digit| json!(digit)));
    assert_eq!(
        tokens.len(),
        5,
        "the end token is one of them: it is counted"
    );
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4]));
    let chosen = byte(b'4');
    close(&logprobs["token_logprobs"][0], logprob(chosen, chosen));
    let top = logprobs["top_logprobs"].as_array().unwrap();
    assert_eq!((top.len(), top[0].as_object().unwrap().len()), (5, 1));
    close(&top[0]["4"], logprob(chosen, chosen));
}

#[test]
fn a_token_that_was_not_the_likeliest_is_among_the_likeliest_all_the_same() {
    let running = Setup::new().start();
    let forced = byte(b'x');
    let body = json!({
        "prompt": "5", "max_tokens": 1, "logprobs": 1, "logit_bias": {forced.to_string(): 100},
    });
    let logprobs = &choice(&running, COMPLETIONS, &body)["logprobs"];
    let next = byte(b'4');
    close(&logprobs["token_logprobs"][0], logprob(forced, next));
    close(&logprobs["top_logprobs"][0]["4"], logprob(next, next));
    close(&logprobs["top_logprobs"][0]["x"], logprob(forced, next));
}

/// Case A3: the text waits for the whole character, the tokens do not.
#[test]
fn tokens_of_partial_characters_are_told_with_their_exact_bytes() {
    let running = Setup::new().start();
    let body = json!({"prompt": "E", "temperature": 0, "max_tokens": 5, "logprobs": 0});
    let choice = choice(&running, COMPLETIONS, &body);
    assert_eq!(choice["text"], "😀E");
    let logprobs = &choice["logprobs"];
    let names = [
        "bytes:\\xf0",
        "bytes:\\x9f",
        "bytes:\\x98",
        "bytes:\\x80",
        "E",
    ];
    assert_eq!(logprobs["tokens"], json!(names));
    assert_eq!(logprobs["text_offset"], json!([0, 0, 0, 0, 1]));
    let body = with(
        chat(),
        json!({"max_tokens": 1, "logprobs": true, "logit_bias": {byte(0xf0).to_string(): 100}}),
    );
    let token = &self::choice(&running, CHAT, &body)["logprobs"]["content"][0];
    assert_eq!(
        (&token["token"], &token["bytes"]),
        (&json!("\\xf0"), &json!([0xf0]))
    );
}

/// The entries of a stream, joined; the finish reason; and how many completion tokens.
fn streamed(running: &Running, path: &str, body: &Value) -> (Vec<Value>, String) {
    let (mut entries, mut text) = (Vec::new(), String::new());
    for frame in running.stream(path, body).all() {
        let Frame::Json(chunk) = frame else { continue };
        let Some(choice) = chunk["choices"].get(0) else {
            continue;
        };
        let delta = choice["delta"]["content"].as_str();
        text += delta.or(choice["text"].as_str()).unwrap_or("");
        let logprobs = &choice["logprobs"];
        match path {
            CHAT => entries.extend(logprobs["content"].as_array().cloned().unwrap_or_default()),
            _ => entries.extend(rows(logprobs)),
        }
    }
    (entries, text)
}

/// Completions' four lists as one list of rows.
pub fn rows(logprobs: &Value) -> Vec<Value> {
    let tokens = logprobs["tokens"].as_array().map_or(0, Vec::len);
    let row = |idx: usize| {
        json!([
            logprobs["tokens"][idx],
            logprobs["token_logprobs"][idx],
            logprobs["top_logprobs"][idx],
            logprobs["text_offset"][idx]
        ])
    };
    (0..tokens).map(row).collect()
}

/// Case A2: also where text is held back for a stop string or a character.
#[test]
fn a_stream_tells_each_token_once_and_as_the_document_does() {
    let running = Setup::new().start();
    let asks = [
        json!({}),
        json!({"max_tokens": 7}),
        json!({"stop": "defgh"}),
        json!({"stop": ["defgX", "yz"]}),
        json!({"stop": "cde", "include_stop_str_in_output": true}),
    ];
    for ask in asks {
        let asked = with(chat(), ask.clone());
        let asked = with(asked, json!({"logprobs": true, "top_logprobs": 1}));
        let whole = running.post(CHAT, &asked).json();
        let content = &whole["choices"][0]["logprobs"]["content"];
        let (entries, text) = streamed(&running, CHAT, &asked);
        assert_eq!(Value::from(entries.clone()), *content, "{ask}");
        assert_eq!(text, whole["choices"][0]["message"]["content"], "{ask}");
        assert_eq!(whole["usage"]["completion_tokens"], entries.len(), "{ask}");

        for prompt in ["`", "E"] {
            let asked =
                json!({"prompt": prompt, "temperature": 0, "logprobs": 2, "max_tokens": 30});
            let asked = with(asked, ask.clone());
            let whole = choice(&running, COMPLETIONS, &asked);
            let (entries, text) = streamed(&running, COMPLETIONS, &asked);
            assert_eq!(entries, rows(&whole["logprobs"]), "{ask}");
            assert_eq!(text, whole["text"], "{ask}");
        }
    }
}

#[test]
fn tokens_can_be_named_by_their_ids() {
    let running = Setup::new().start();
    let more = json!({"max_tokens": 1, "return_tokens_as_token_ids": true});
    let name = format!("token_id:{}", byte(b'a'));
    let body = with(with(chat(), more.clone()), json!({"logprobs": true}));
    let content = &choice(&running, CHAT, &body)["logprobs"]["content"];
    assert_eq!(content[0]["token"], name);
    assert_eq!(content[0]["bytes"], json!([97]));
    let body = with(
        json!({"prompt": "`", "temperature": 0, "logprobs": 1}),
        more,
    );
    let logprobs = &choice(&running, COMPLETIONS, &body)["logprobs"];
    assert_eq!(logprobs["tokens"], json!([name]));
    assert!(logprobs["top_logprobs"][0].get(&name).is_some());
}

/// Case F7.
#[test]
fn what_cannot_be_told_is_refused_by_name() {
    let running = Setup::new().start();
    for (path, more, param) in [
        (CHAT, json!({"top_logprobs": 1}), "top_logprobs"),
        (
            CHAT,
            json!({"logprobs": false, "top_logprobs": 1}),
            "top_logprobs",
        ),
        (
            CHAT,
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs",
        ),
        (
            CHAT,
            json!({"logprobs": true, "top_logprobs": -1}),
            "top_logprobs",
        ),
        (CHAT, json!({"logprobs": 5}), "logprobs"),
        (COMPLETIONS, json!({"logprobs": 21}), "logprobs"),
        (COMPLETIONS, json!({"logprobs": -1}), "logprobs"),
        (COMPLETIONS, json!({"logprobs": true}), "logprobs"),
        (COMPLETIONS, json!({"logprobs": 1.5}), "logprobs"),
        (COMPLETIONS, json!({"top_logprobs": 1}), "top_logprobs"),
        (
            COMPLETIONS,
            json!({"prompt_logprobs": 1_000_000}),
            "prompt_logprobs",
        ),
        (
            COMPLETIONS,
            json!({"prompt_logprobs": 1, "stream": true}),
            "prompt_logprobs",
        ),
        (CHAT, json!({"echo": true}), "echo"),
    ] {
        let body = match path {
            CHAT => chat(),
            _ => json!({"prompt": "a"}),
        };
        let (status, told, _) = refusal(running.post(path, &with(body, more.clone())));
        assert_eq!((status, told.as_deref()), (400, Some(param)), "{more}");
    }
    running.canary();
}

#[test]
fn without_logprobs_the_key_is_null() {
    let running = Setup::new().start();
    assert_eq!(
        choice(&running, CHAT, &chat()).get("logprobs"),
        Some(&Value::Null)
    );
    let body = json!({"prompt": "5", "logprobs": null});
    assert_eq!(
        choice(&running, COMPLETIONS, &body).get("logprobs"),
        Some(&Value::Null)
    );
}
