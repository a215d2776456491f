//! Parameters that are obeyed change the answer; those that cannot be are refused.

use api::fields::{FIELDS, On, Rule};
use serde_json::{Value, json};
use server::SamplingDefaults;
use text::SpecialText;

use crate::harness::{Running, Setup, chat, refusal, tiny};

fn token(text: &str) -> u32 {
    let ids = tiny().0.encode(text, SpecialText::AsText);
    assert_eq!(ids.len(), 1, "{text}");
    ids[0].0
}

fn greedy(more: Value) -> Value {
    let mut body = json!({"prompt": "-", "temperature": 0, "max_tokens": 5});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    body
}

fn text(running: &Running, more: Value) -> String {
    running.complete(&greedy(more)).0
}

/// The whole table, over the wire.
#[test]
fn what_is_known_but_not_built_is_refused_by_name_on_both_endpoints() {
    let running = Setup::new().start();
    for field in FIELDS
        .iter()
        .filter(|field| matches!(field.rule, Rule::Neutral(_) | Rule::Refused))
    {
        for (path, mut body) in [
            ("/v1/chat/completions", chat()),
            ("/v1/completions", json!({"prompt": "a"})),
        ] {
            let elsewhere = if path == "/v1/completions" {
                On::Chat
            } else {
                On::Completion
            };
            if field.on == elsewhere {
                continue;
            }
            // No row's neutral value.
            body[field.name] = json!({"asks": "for something"});
            let (status, param, code) = refusal(running.post(path, &body));
            assert_eq!((status, param.as_deref()), (400, Some(field.name)));
            assert_eq!(code, "unsupported_parameter");
            body[field.name] = Value::Null;
            assert_eq!(running.post(path, &body).status, 200, "null {}", field.name);
        }
    }
}

#[test]
fn neutral_values_labels_and_unknown_fields_do_not_matter() {
    let running = Setup::new().start();
    let more = json!({
        "n": 1, "best_of": 1, "logprobs": false, "tools": [], "tool_choice": "none",
        "response_format": {"type": "text"}, "store": false, "service_tier": "auto",
        "user": "u", "metadata": {"a": "b"}, "frobnicate": [1, 2, 3],
    });
    assert_eq!(text(&running, more), "abcde");
}

/// Case D5.
#[test]
fn logit_bias_bans_and_forces() {
    let running = Setup::new().start();
    let a = token("a").to_string();
    let forced = token("5").to_string();
    assert_ne!(
        text(&running, json!({"logit_bias": {a.clone(): -100}}))
            .chars()
            .next(),
        Some('a')
    );
    assert_eq!(
        text(&running, json!({"logit_bias": {forced: 100}})),
        "55555"
    );
    let all: serde_json::Map<String, Value> = (0..tiny().0.vocab())
        .map(|id| (id.to_string(), json!(-100)))
        .collect();
    let reply = running.post("/v1/completions", &greedy(json!({"logit_bias": all})));
    assert_eq!(
        reply.status, 200,
        "nothing is left to choose, and still it ends"
    );
    running.canary();
    let vocab = tiny().0.vocab();
    for id in [vocab, vocab * 10] {
        let body = greedy(json!({"logit_bias": {id.to_string(): 1}}));
        assert_eq!(
            refusal(running.post("/v1/completions", &body)).1.as_deref(),
            Some("logit_bias")
        );
    }
    running.canary();
}

#[test]
fn min_tokens_ignore_eos_and_stop_ids_move_the_end() {
    let running = Setup::new().start();
    let complete = |more: Value| {
        let mut body = json!({"prompt": "3", "temperature": 0, "max_tokens": 8});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        running.complete(&body)
    };
    let answer = |text: &str, reason: &str| (text.to_owned(), reason.to_owned());
    assert_eq!(complete(json!({})), answer("21", "stop"));
    assert_eq!(
        complete(json!({"stop_token_ids": [token("1")]}))
            .0
            .chars()
            .next(),
        Some('2')
    );
    assert_eq!(complete(json!({"ignore_eos": true})).1, "length");
    let (longer, _) = complete(json!({"min_tokens": 6}));
    assert!(longer.len() > 2, "{longer}");
    let whole = running
        .post(
            "/v1/completions",
            &greedy(json!({"stop_token_ids": [token("c")]})),
        )
        .json();
    assert_eq!(whole["choices"][0]["stop_reason"], token("c"));
    let (_, param, _) = refusal(running.post("/v1/completions", &greedy(json!({"min_tokens": 6}))));
    assert_eq!(param.as_deref(), Some("min_tokens"));
}

/// Case D4.
#[test]
fn a_temperature_near_zero_is_greedy_and_edges_of_the_others_are_harmless() {
    let running = Setup::new().start();
    for temperature in [1e-3, 1e-6, 1e-30, 1e-45, 1e-300, 0.0] {
        assert_eq!(
            text(&running, json!({"temperature": temperature})),
            "abcde",
            "{temperature}"
        );
    }
    for more in [
        json!({"temperature": 2, "top_p": 1e-9}),
        json!({"temperature": 2, "top_p": 1e-300}),
        json!({"temperature": 2, "top_k": 1}),
        json!({"temperature": 2, "min_p": 1}),
    ] {
        assert_eq!(text(&running, more.clone()), "abcde", "{more}");
    }
    for more in [
        json!({"temperature": 2, "top_k": 0}),
        json!({"temperature": 2, "top_k": -1}),
        json!({"temperature": 2, "top_k": 2_000_000_000}),
        json!({"temperature": 2, "top_p": 1}),
    ] {
        text(&running, more);
    }
}

/// Case D2.
#[test]
fn a_seed_gives_the_same_text_in_any_company_and_none_gives_another_each_time() {
    let running = Setup::new().start();
    // Each letter is likely, and none of them certain.
    let sampled = |seed: Option<i64>| {
        let body = json!({"prompt": "-", "temperature": 2, "max_tokens": 12, "ignore_eos": true, "seed": seed});
        running.complete(&body).0
    };
    for seed in [42, 0, -1, i64::MIN, i64::MAX] {
        let alone = sampled(Some(seed));
        let company = running.stream(
            "/v1/completions",
            &json!({"prompt": "E", "temperature": 2, "max_tokens": 200}),
        );
        assert_eq!(sampled(Some(seed)), alone, "{seed}");
        drop(company);
    }
    let unseeded: std::collections::BTreeSet<String> = (0..10).map(|_| sampled(None)).collect();
    assert!(unseeded.len() > 1, "{unseeded:?}");
}

#[test]
fn what_a_request_leaves_open_comes_from_the_model_file() {
    let mut setup = Setup::new();
    setup.model.defaults = SamplingDefaults {
        top_k: Some(1),
        ..SamplingDefaults::default()
    };
    let running = setup.start();
    // Top-k 1 is greedy at any temperature; a request may still say otherwise.
    let body =
        |more: &str| format!("{{\"prompt\":\"-\",\"max_tokens\":26,\"temperature\":2{more}}}");
    let complete = |more: &str| {
        running
            .complete(&serde_json::from_str(&body(more)).unwrap())
            .0
    };
    for _ in 0..5 {
        assert_eq!(complete(""), "abcdefghijklmnopqrstuvwxyz");
    }
    let own: Vec<String> = (0..5).map(|_| complete(",\"top_k\":0")).collect();
    assert!(
        own.iter().any(|text| text != "abcdefghijklmnopqrstuvwxyz"),
        "{own:?}"
    );
}

#[test]
fn without_a_limit_the_answer_ends_at_the_servers() {
    let mut setup = Setup::new();
    setup.config.limits.answer_tokens_default = 7;
    let running = setup.start();
    let body = json!({"prompt": "-", "temperature": 0});
    assert_eq!(
        running.complete(&body),
        ("abcdefg".to_owned(), "length".to_owned())
    );
    // One that the request names may go beyond, as far as the context allows.
    let body = json!({"prompt": "-", "temperature": 0, "max_tokens": 20});
    assert_eq!(running.complete(&body).0.len(), 20);
}

#[test]
fn a_developer_message_and_content_parts_are_rendered() {
    let running = Setup::new().start();
    let count = |messages: Value| {
        let answer = running
            .post("/tokenize", &json!({"messages": messages}))
            .json();
        answer["tokens"].clone()
    };
    assert_eq!(
        count(
            json!([{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])
        ),
        count(json!([{"role": "system", "content": "a\nb"}])),
    );
}
