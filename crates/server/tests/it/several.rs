//! Several answers to one prompt, and the ids and timings an answer can tell.

use serde_json::{Value, json};
use text::SpecialText;

use crate::harness::{Running, Setup, chat, refusal, tiny};
use crate::http::Frame;

/// Sampled, so that answers differ; seeded, so that they come again.
fn sampled(more: Value) -> Value {
    let mut body =
        json!({"prompt": "`", "temperature": 2, "top_p": 1, "max_tokens": 12, "seed": 7});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

fn post(running: &Running, body: &Value) -> Value {
    let reply = running.post("/v1/completions", body);
    assert_eq!(reply.status, 200, "{body}");
    reply.json()
}

fn texts(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().unwrap();
    for (idx, choice) in choices.iter().enumerate() {
        assert_eq!(
            choice["index"], idx,
            "choices come in the order of their index"
        );
    }
    let text = |choice: &Value| choice["text"].as_str().unwrap().to_owned();
    choices.iter().map(text).collect()
}

/// Case D2.
#[test]
fn answers_to_one_prompt_differ_and_with_a_seed_they_come_again() {
    let running = Setup::new().start();
    let first = post(&running, &sampled(json!({"n": 4})));
    let mut distinct = texts(&first);
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 4);
    assert_eq!(
        texts(&post(&running, &sampled(json!({"n": 4})))),
        texts(&first)
    );
    let one = post(&running, &sampled(json!({})));
    assert_eq!(
        texts(&one)[0],
        texts(&first)[0],
        "the first is what one alone would be"
    );
}

/// Case A5: the prompt counts once, the answers all.
#[test]
fn usage_counts_a_prompt_once_and_all_its_answers() {
    let running = Setup::new().start();
    let one = post(&running, &json!({"prompt": "x5", "temperature": 0}));
    let three = post(&running, &json!({"prompt": "x5", "temperature": 0, "n": 3}));
    assert_eq!(texts(&three), ["4321"; 3]);
    let count = |answer: &Value, key: &str| answer["usage"][key].as_u64().unwrap();
    assert_eq!(count(&three, "prompt_tokens"), count(&one, "prompt_tokens"));
    assert_eq!(
        count(&three, "completion_tokens"),
        3 * count(&one, "completion_tokens")
    );
    let cached = &three["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64() <= Some(count(&one, "prompt_tokens")));
}

#[test]
fn answers_to_several_prompts_stand_together_by_prompt() {
    let running = Setup::new().start();
    let body = json!({"prompt": ["5", "3"], "temperature": 0, "n": 2});
    assert_eq!(texts(&post(&running, &body)), ["4321", "4321", "21", "21"]);
}

/// Cases A1 and A5.
#[test]
fn a_stream_of_several_answers_ends_each_once_and_says_what_the_document_says() {
    let running = Setup::new().start();
    let whole = post(&running, &sampled(json!({"n": 3})));
    let asked = sampled(json!({"n": 3, "stream_options": {"include_usage": true}}));
    let (mut streamed, mut num_ends) = (vec![String::new(); 3], [0; 3]);
    let mut usage = Value::Null;
    for frame in running.stream("/v1/completions", &asked).all() {
        let Frame::Json(chunk) = frame else { continue };
        let Some(choice) = chunk["choices"].get(0) else {
            usage = chunk["usage"].clone();
            continue;
        };
        let idx = choice["index"].as_u64().unwrap() as usize;
        assert_eq!(num_ends[idx], 0, "nothing follows a terminal chunk");
        streamed[idx] += choice["text"].as_str().unwrap();
        num_ends[idx] += usize::from(!choice["finish_reason"].is_null());
    }
    assert_eq!((streamed, num_ends), (texts(&whole), [1; 3]));
    for key in ["prompt_tokens", "completion_tokens"] {
        assert_eq!(usage[key], whole["usage"][key]);
    }
}

#[test]
fn each_of_several_chat_answers_opens_with_its_role() {
    let running = Setup::new().start();
    let mut body = chat();
    body["n"] = json!(2);
    let chunks = running.stream("/v1/chat/completions", &body).all();
    let roles = chunks.iter().filter_map(|frame| match frame {
        Frame::Json(chunk) if chunk["choices"][0]["delta"]["role"] == "assistant" => {
            chunk["choices"][0]["index"].as_u64()
        }
        _ => None,
    });
    assert_eq!(roles.collect::<Vec<_>>(), [0, 1]);
    let choices = &running.post("/v1/chat/completions", &body).json()["choices"];
    assert_eq!(choices.as_array().unwrap().len(), 2);
    assert_eq!(choices[0]["message"], choices[1]["message"]);
}

fn mean_logprob(choice: &Value) -> f64 {
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    let sum: f64 = logprobs.iter().map(|each| each.as_f64().unwrap()).sum();
    sum / logprobs.len() as f64
}

#[test]
fn the_best_of_several_answers_are_those_with_the_likeliest_tokens() {
    let running = Setup::new().start();
    let all = post(&running, &sampled(json!({"n": 6, "logprobs": 0})));
    let mut ranked = all["choices"].as_array().unwrap().clone();
    ranked.sort_by(|one, other| mean_logprob(other).total_cmp(&mean_logprob(one)));
    let best = post(&running, &sampled(json!({"n": 2, "best_of": 6})));
    let expected: Vec<&str> = ranked[..2]
        .iter()
        .map(|choice| choice["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts(&best), expected);
    assert_eq!(best["choices"][0]["logprobs"], Value::Null, "not asked for");
    assert_eq!(
        best["usage"]["completion_tokens"], all["usage"]["completion_tokens"],
        "what was made is counted, shown or not"
    );
}

/// Case F7.
#[test]
fn more_answers_than_there_can_be_are_refused_by_name() {
    let running = Setup::new().start();
    for (more, param) in [
        (json!({"n": 0}), "n"),
        (json!({"n": -1}), "n"),
        (json!({"n": 1.5}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"n": 1_000_000}), "n"),
        // Within the bound, but beyond all places of this server.
        (json!({"n": 128}), "n"),
        (json!({"n": 2, "prompt": vec!["a"; 20]}), "n"),
        (json!({"best_of": 128}), "best_of"),
        (json!({"best_of": 129}), "best_of"),
        (json!({"n": 3, "best_of": 2}), "best_of"),
        (json!({"n": 1, "best_of": 2, "stream": true}), "best_of"),
        (json!({"suffix": "x"}), "suffix"),
    ] {
        let (status, told, _) = refusal(running.post("/v1/completions", &sampled(more.clone())));
        assert_eq!((status, told.as_deref()), (400, Some(param)), "{more}");
    }
    let mut body = chat();
    body["best_of"] = json!(2);
    let (status, told, _) = refusal(running.post("/v1/chat/completions", &body));
    assert_eq!((status, told.as_deref()), (400, Some("best_of")));
    running.canary();
}

fn ids(text: &str) -> Vec<u32> {
    let tokens = tiny().0.encode_with_bos(text, SpecialText::Parse);
    tokens.iter().map(|token| token.0).collect()
}

#[test]
fn token_ids_and_the_prompts_text_are_told_if_asked_for() {
    let running = Setup::new().start();
    let ask = json!({"prompt": ["x5", "3"], "temperature": 0, "return_token_ids": true,
                     "return_prompt_text": true});
    let answer = post(&running, &ask);
    for (choice, (prompt, text)) in answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .zip([("x5", "4321"), ("3", "21")])
    {
        assert_eq!(choice["prompt_token_ids"], json!(ids(prompt)));
        assert_eq!(choice["prompt_text"], prompt);
        let mut expected = tiny().0.encode(text, SpecialText::Parse);
        expected.push(tiny().0.eos().unwrap());
        let told: Vec<u32> = expected.iter().map(|token| token.0).collect();
        assert_eq!(choice["token_ids"], json!(told));
    }
    let plain = post(&running, &json!({"prompt": "x5", "temperature": 0}));
    for key in [
        "token_ids",
        "prompt_token_ids",
        "prompt_text",
        "prompt_logprobs",
    ] {
        assert!(plain["choices"][0].get(key).is_none(), "{key}");
        assert!(plain.get(key).is_none(), "{key}");
    }
}

#[test]
fn a_stream_tells_the_same_token_ids_in_parts() {
    let running = Setup::new().start();
    for (path, body) in [
        (
            "/v1/completions",
            json!({"prompt": "E", "temperature": 0, "max_tokens": 11, "return_token_ids": true}),
        ),
        ("/v1/chat/completions", {
            let mut body = chat();
            body["return_token_ids"] = json!(true);
            body["stop"] = json!("defg");
            body
        }),
    ] {
        let whole = running.post(path, &body).json();
        let (mut told, mut num_prompts) = (Vec::new(), 0);
        for frame in running.stream(path, &body).all() {
            let Frame::Json(chunk) = frame else { continue };
            let choice = &chunk["choices"][0];
            told.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
            let prompt = chunk
                .get("prompt_token_ids")
                .or(choice.get("prompt_token_ids"));
            num_prompts += usize::from(prompt.is_some_and(Value::is_array));
        }
        assert_eq!(
            Value::from(told),
            whole["choices"][0]["token_ids"],
            "{path}"
        );
        assert_eq!(num_prompts, 1, "{path}");
        assert_eq!(
            whole["usage"]["completion_tokens"],
            whole["choices"][0]["token_ids"].as_array().unwrap().len()
        );
    }
}

#[test]
fn timings_are_in_whole_answers_and_in_the_last_chunk_only() {
    let running = Setup::new().start();
    let whole = post(&running, &json!({"prompt": "x5", "temperature": 0}));
    let timings = &whole["timings"];
    assert_eq!(timings["predicted_n"], whole["usage"]["completion_tokens"]);
    let counted = timings["cache_n"].as_u64().unwrap() + timings["prompt_n"].as_u64().unwrap();
    assert_eq!(whole["usage"]["prompt_tokens"], counted);
    for key in [
        "prompt_ms",
        "prompt_per_second",
        "predicted_ms",
        "predicted_per_second",
    ] {
        assert!(
            timings[key].as_f64().is_some_and(|value| value >= 0.0),
            "{key}"
        );
    }
    for more in [
        json!({}),
        json!({"stream_options": {"include_usage": true}}),
        json!({"n": 2}),
    ] {
        let mut body = json!({"prompt": "x5", "temperature": 0});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let chunks = chunks(&running, &body);
        let (last, earlier) = chunks.split_last().unwrap();
        assert!(last["timings"]["predicted_n"].as_u64() >= Some(5), "{last}");
        assert!(
            earlier.iter().all(|chunk| chunk.get("timings").is_none()),
            "{more}"
        );
        body["timings_per_token"] = json!(true);
        let chunks = self::chunks(&running, &body);
        assert!(
            chunks.iter().all(|chunk| chunk.get("timings").is_some()),
            "{more}"
        );
    }
}

fn chunks(running: &Running, body: &Value) -> Vec<Value> {
    let frames = running.stream("/v1/completions", body).all();
    let json = frames.into_iter().filter_map(|frame| match frame {
        Frame::Json(chunk) => Some(chunk),
        _ => None,
    });
    json.collect()
}

#[test]
fn a_caller_may_choose_the_end_of_the_id() {
    let running = Setup::new().start();
    let answer = post(&running, &json!({"prompt": "5", "request_id": "my-7"}));
    assert_eq!(answer["id"], "cmpl-my-7");
    for id in ["", "a b", "é", "a\nb", &"x".repeat(129)] {
        let body = json!({"prompt": "5", "request_id": id});
        let (status, param, _) = refusal(running.post("/v1/completions", &body));
        assert_eq!(
            (status, param.as_deref()),
            (400, Some("request_id")),
            "{id:?}"
        );
    }
}
