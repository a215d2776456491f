//! Prompts repeated and scored, as evaluation harnesses ask for it.

use serde_json::{Value, json};
use text::{SpecialText, TokenId};

use crate::harness::{Running, Setup, refusal, tiny};
use crate::http::Frame;
use crate::logprobs::{byte, close, logprob, rows};

fn choices(running: &Running, body: &Value) -> Vec<Value> {
    let reply = running.post("/v1/completions", body);
    assert_eq!(reply.status, 200, "{body}");
    reply.json()["choices"].as_array().unwrap().clone()
}

fn ids(text: &str) -> Vec<u32> {
    let tokens = tiny().0.encode_with_bos(text, SpecialText::Parse);
    tokens.iter().map(|token| token.0).collect()
}

/// What follows a token in the script, for prompts of single letters and digits.
fn follower(token: u32) -> u32 {
    match tiny().0.token_bytes(TokenId(token)).unwrap_or(&[]) {
        [.., last @ b'a'..=b'y'] => byte(last + 1),
        [.., last @ b'2'..=b'9'] => byte(last - 1),
        [.., b'z' | b'1'] => tiny().0.eos().unwrap().0,
        _ => byte(b'a'),
    }
}

#[test]
fn the_prompt_comes_first_in_the_text() {
    let running = Setup::new().start();
    let body = json!({"prompt": ["x5", "3"], "echo": true, "temperature": 0});
    let told = choices(&running, &body);
    assert_eq!(
        (&told[0]["text"], &told[1]["text"]),
        (&json!("x54321"), &json!("321"))
    );
    assert_eq!(told[0]["logprobs"], Value::Null);
    let body = json!({"prompt": ids("x5"), "echo": true, "temperature": 0});
    assert_eq!(
        choices(&running, &body)[0]["text"],
        "x54321",
        "ids are repeated as text"
    );
}

/// Case A8: a prompt is scored without an answer.
#[test]
fn an_answer_of_no_tokens_scores_the_prompt() {
    let running = Setup::new().start();
    let prompts = ["qrz5", "a", "54"];
    let body =
        json!({"prompt": prompts, "echo": true, "max_tokens": 0, "logprobs": 2, "temperature": 0});
    for (choice, prompt) in choices(&running, &body).iter().zip(prompts) {
        assert_eq!(choice["text"], prompt);
        assert_eq!(choice["finish_reason"], "length");
        let (logprobs, ids) = (&choice["logprobs"], ids(prompt));
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            assert_eq!(
                logprobs[list].as_array().unwrap().len(),
                ids.len(),
                "{list}"
            );
        }
        assert_eq!(logprobs["token_logprobs"][0], Value::Null);
        assert_eq!(logprobs["top_logprobs"][0], Value::Null);
        for (idx, pair) in ids.windows(2).enumerate() {
            let expected = logprob(pair[1], follower(pair[0]));
            close(&logprobs["token_logprobs"][idx + 1], expected);
        }
    }
    let usage = &running.post("/v1/completions", &body).json()["usage"];
    assert_eq!(usage["completion_tokens"], 0);
    running.canary();
}

/// As lm-evaluation-harness reads it: the context's tokens are skipped, and the one that had
/// to be generated is left out.
#[test]
fn harnesses_find_the_scores_between_the_context_and_the_last_token() {
    let running = Setup::new().start();
    let prompts = ["xyz1", "abcd"].map(ids);
    let body = json!({
        "prompt": prompts, "echo": true, "max_tokens": 1, "logprobs": 1, "temperature": 0, "seed": 1234,
    });
    let told = choices(&running, &body);
    for (idx, (choice, ids)) in told.iter().zip(&prompts).enumerate() {
        assert_eq!(choice["index"], idx);
        let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        assert_eq!(logprobs.len(), ids.len() + 1, "an end token is one of them");
        let scored = &logprobs[1..logprobs.len() - 1];
        assert_eq!(scored.len(), ids.len() - 1);
        for (pair, told) in ids.windows(2).zip(scored) {
            close(told, logprob(pair[1], follower(pair[0])));
        }
        let top = choice["logprobs"]["top_logprobs"].as_array().unwrap();
        for (entry, (pair, told)) in top[1..].iter().zip(ids.windows(2).zip(scored)) {
            let largest = entry
                .as_object()
                .unwrap()
                .values()
                .map(|each| each.as_f64().unwrap());
            let is_greedy = told.as_f64() == largest.reduce(f64::max);
            assert_eq!(is_greedy, pair[1] == follower(pair[0]));
        }
    }
}

#[test]
fn offsets_count_characters_of_prompt_and_answer() {
    let running = Setup::new().start();
    let body = json!({"prompt": "é5", "echo": true, "logprobs": 0, "temperature": 0});
    let choice = &choices(&running, &body)[0];
    assert_eq!(choice["text"], "é54321");
    let offsets: Vec<u64> = choice["logprobs"]["text_offset"]
        .as_array()
        .unwrap()
        .iter()
        .map(|offset| offset.as_u64().unwrap())
        .collect();
    let num_prompt = ids("é5").len();
    assert_eq!(offsets[0], 0);
    assert!(offsets.is_sorted());
    assert_eq!(offsets[num_prompt - 1..], [1, 2, 3, 4, 5, 6]);
}

/// The same with a warm prefix cache, which has no logits to tell.
#[test]
fn a_cached_prompt_is_scored_as_a_new_one() {
    let running = Setup::new().start();
    let prompt = "abcdefgh".repeat(10);
    let body =
        json!({"prompt": prompt, "echo": true, "max_tokens": 2, "logprobs": 1, "temperature": 0});
    let cold = choices(&running, &body);
    assert_eq!(choices(&running, &body), cold);
    let plain = json!({"prompt": prompt, "max_tokens": 2, "temperature": 0});
    assert_eq!(running.post("/v1/completions", &plain).status, 200);
    assert_eq!(choices(&running, &body), cold);
}

#[test]
fn a_streamed_prompt_has_the_scores_of_the_document_for_each_of_several_answers() {
    let running = Setup::new().start();
    for more in [json!({}), json!({"logprobs": 1})] {
        let mut body = json!({"prompt": ["x5", "ab"], "echo": true, "n": 2, "max_tokens": 3, "temperature": 0});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let whole = choices(&running, &body);
        let mut told = vec![(String::new(), Vec::new()); 4];
        for frame in running.stream("/v1/completions", &body).all() {
            let Frame::Json(chunk) = frame else { continue };
            let choice = &chunk["choices"][0];
            let (text, entries) = &mut told[choice["index"].as_u64().unwrap() as usize];
            *text += choice["text"].as_str().unwrap();
            entries.extend(rows(&choice["logprobs"]));
        }
        for (choice, (text, entries)) in whole.iter().zip(told) {
            assert_eq!(choice["text"], text);
            assert_eq!(rows(&choice["logprobs"]), entries);
        }
    }
}

#[test]
fn prompt_logprobs_tell_ids_ranks_and_texts() {
    let running = Setup::new().start();
    let completion =
        json!({"prompt": "ab9", "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1});
    let choice = &choices(&running, &completion)[0];
    let places = choice["prompt_logprobs"].as_array().unwrap();
    let ids = ids("ab9");
    assert_eq!((places.len(), &places[0]), (ids.len(), &Value::Null));
    for (place, pair) in places[1..].iter().zip(ids.windows(2)) {
        let (next, token) = (follower(pair[0]), &place[pair[1].to_string()]);
        close(&token["logprob"], logprob(pair[1], next));
        assert_eq!(token["rank"] == 1, pair[1] == next);
        assert_eq!(place[next.to_string()]["rank"], 1);
    }
    let last = &places[ids.len() - 1][ids[ids.len() - 1].to_string()];
    assert_eq!(last["decoded_token"], "9");
    let mut chat = crate::harness::chat();
    chat["prompt_logprobs"] = json!(0);
    chat["return_token_ids"] = json!(true);
    let answer = running.post("/v1/chat/completions", &chat).json();
    let num_prompt = answer["prompt_token_ids"].as_array().unwrap().len();
    assert_eq!(
        answer["prompt_logprobs"].as_array().unwrap().len(),
        num_prompt
    );
}

/// Case F7: a small request must not ask for a gigabyte.
#[test]
fn more_scores_than_an_answer_may_tell_are_refused() {
    let mut setup = Setup::new();
    setup.config.limits.num_prompt_logprobs_max = 100;
    let running = setup.start();
    let body = |logprobs: u32, num_answers: u32| json!({"prompt": vec![byte(b'a'); 10], "echo": true, "max_tokens": 1, "logprobs": logprobs, "n": num_answers});
    assert_eq!(running.post("/v1/completions", &body(4, 2)).status, 200);
    let (status, param, _) = refusal(running.post("/v1/completions", &body(4, 3)));
    assert_eq!((status, param.as_deref()), (400, Some("logprobs")));
    let (status, param, _) = refusal(running.post("/v1/completions", &body(10, 1)));
    assert_eq!((status, param.as_deref()), (400, Some("logprobs")));
}
