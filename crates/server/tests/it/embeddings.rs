//! `/v1/embeddings`: inputs to vectors, in order, of length 1.

use std::io::Write;

use engine::Pooling;
use serde_json::{Value, json};

use crate::harness::{CONTEXT, Running, Setup, refusal};
use crate::http;
use crate::script::{HIDDEN, state_of};

fn start(pooling: Pooling) -> Running {
    let mut setup = Setup::new();
    setup.config.pooling = pooling;
    setup.start()
}

/// The vectors of an answer whose shape is checked.
fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    assert_eq!(answer["object"], "list");
    let data = answer["data"].as_array().unwrap();
    let vector = |(index, entry): (usize, &Value)| {
        assert_eq!(entry["index"], index);
        assert_eq!(entry["object"], "embedding");
        let values = entry["embedding"].as_array().unwrap();
        values.iter().map(|it| it.as_f64().unwrap()).collect()
    };
    data.iter().enumerate().map(vector).collect()
}

fn embed(running: &Running, body: &Value) -> Vec<Vec<f64>> {
    let reply = running.post("/v1/embeddings", body);
    assert_eq!(reply.status, 200, "{body}");
    vectors(&reply.json())
}

/// What the script's states make of `ids`.
fn expected(ids: &[u32], pooling: Pooling, num_kept: usize) -> Vec<f64> {
    let used = match pooling {
        Pooling::Mean => ids,
        Pooling::Last => &ids[ids.len() - 1..],
    };
    let sum = |at: usize| {
        used.iter()
            .map(|&id| f64::from(state_of(id)[at]))
            .sum::<f64>()
    };
    let sums: Vec<f64> = (0..num_kept).map(sum).collect();
    let length = sums.iter().map(|it| it * it).sum::<f64>().sqrt();
    sums.iter().map(|it| it / length).collect()
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
    assert!(
        actual.iter().zip(expected).all(is_close),
        "{actual:?} {expected:?}"
    );
}

#[test]
fn every_form_of_input_gives_its_vectors_in_order() {
    for pooling in [Pooling::Mean, Pooling::Last] {
        let running = start(pooling);
        let [one, two] = [[5, 6, 7], [9, 8, 40]];
        let told = embed(
            &running,
            &json!({"input": one, "model": "tiny", "user": "me"}),
        );
        assert_close(&told[0], &expected(&one, pooling, HIDDEN));
        let told = embed(&running, &json!({"input": [one, two, one]}));
        assert_close(&told[1], &expected(&two, pooling, HIDDEN));
        assert_eq!(told[0], told[2]);
        let text = embed(&running, &json!({"input": "hello"}));
        let texts = embed(&running, &json!({"input": ["bye", "hello"]}));
        assert_eq!(text[0], texts[1]);
        let ids = running
            .post("/tokenize", &json!({"prompt": "hello"}))
            .json();
        let ids: Vec<u32> = serde_json::from_value(ids["tokens"].clone()).unwrap();
        assert_close(&text[0], &expected(&ids, pooling, HIDDEN));
    }
}

#[test]
fn more_inputs_than_the_server_has_places_for_are_computed_all_the_same() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 2;
    setup.model.limits.num_waiting_max = 1;
    let running = setup.start();
    let inputs: Vec<[u32; 2]> = (0..300).map(|idx| [3, 4 + idx % 50]).collect();
    let reply = running
        .post("/v1/embeddings", &json!({"input": inputs}))
        .json();
    assert_eq!(
        reply["usage"],
        json!({"prompt_tokens": 600, "total_tokens": 600})
    );
    for (told, ids) in vectors(&reply).iter().zip(&inputs) {
        assert_close(told, &expected(ids, Pooling::Last, HIDDEN));
    }
    assert_eq!(reply["data"].as_array().unwrap().len(), 300);
}

#[test]
fn dimensions_cut_and_make_the_length_one_again() {
    let running = start(Pooling::Last);
    let told = embed(&running, &json!({"input": [5, 6], "dimensions": 2}));
    assert_close(&told[0], &expected(&[5, 6], Pooling::Last, 2));
    for dimensions in [json!(0), json!(HIDDEN + 1), json!(1.5)] {
        let body = json!({"input": [5, 6], "dimensions": dimensions});
        let (status, param, _) = refusal(running.post("/v1/embeddings", &body));
        assert_eq!((status, param.as_deref()), (400, Some("dimensions")));
    }
}

#[test]
fn base64_holds_the_same_floats() {
    let running = start(Pooling::Last);
    let plain = embed(&running, &json!({"input": [5, 6]}));
    let body = json!({"input": [5, 6], "encoding_format": "base64"});
    let answer = running.post("/v1/embeddings", &body).json();
    let text = answer["data"][0]["embedding"].as_str().unwrap();
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sextets = text.chars().filter_map(|letter| LETTERS.find(letter));
    let bits: Vec<u8> = sextets
        .flat_map(|sextet| (0..6).rev().map(move |place| (sextet >> place & 1) as u8))
        .collect();
    let bytes: Vec<u8> = bits
        .chunks_exact(8)
        .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit))
        .collect();
    let floats = bytes.chunks_exact(4);
    let floats: Vec<f64> = floats
        .map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap())))
        .collect();
    assert_close(&floats, &plain[0]);
}

#[test]
fn what_cannot_be_embedded_is_refused_by_name() {
    let running = start(Pooling::Mean);
    for (body, status, param, code) in [
        (json!({}), 400, "input", "missing_required_parameter"),
        (json!({"input": ""}), 400, "input", "invalid_value"),
        (json!({"input": []}), 400, "input", "invalid_value"),
        (
            json!({"input": ["a", ""]}),
            400,
            "input[1]",
            "invalid_value",
        ),
        (json!({"input": [1, -1]}), 400, "input[1]", "invalid_value"),
        (
            json!({"input": [4_294_967_295_u32]}),
            400,
            "input",
            "invalid_value",
        ),
        (
            json!({"input": vec![5; CONTEXT + 1]}),
            400,
            "input",
            "context_length_exceeded",
        ),
        (
            json!({"input": "a ".repeat(9000)}),
            400,
            "input",
            "context_length_exceeded",
        ),
        (
            json!({"input": vec!["a"; 2049]}),
            400,
            "input",
            "invalid_value",
        ),
        (
            json!({"input": vec![vec![5; 500]; 601]}),
            400,
            "input",
            "invalid_value",
        ),
        (
            json!({"input": "a", "encoding_format": "int8"}),
            400,
            "encoding_format",
            "invalid_value",
        ),
        (
            json!({"input": "a", "model": "other"}),
            404,
            "model",
            "model_not_found",
        ),
    ] {
        let told = refusal(running.post("/v1/embeddings", &body));
        assert_eq!(told, (status, Some(param.to_owned()), code.to_owned()));
    }
    // The context may be filled to its end.
    embed(&running, &json!({"input": vec![5; CONTEXT]}));
    running.canary();
}

#[test]
fn a_client_that_goes_away_ends_all_of_its_inputs() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 2;
    setup.model.gate.allow(Some(0));
    let running = setup.start();
    let body = json!({"input": vec![vec![5; 200]; 50]}).to_string();
    let mut socket = http::connect(running.address);
    let head = format!(
        "POST /v1/embeddings HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    running.until("vllm:num_requests_running", 2.0);
    drop(socket);
    running.until("fulcrum_http_connections", 1.0);
    running.gate.allow(Some(2));
    running.until("vllm:num_requests_running", 0.0);
    running.until("vllm:kv_cache_usage_perc", 0.0);
    running.gate.allow(None);
    running.canary();
}

#[test]
fn an_engine_that_fails_is_an_error_without_its_words() {
    let running = start(Pooling::Mean);
    running.gate.fail();
    let reply = running.post("/v1/embeddings", &json!({"input": "a"}));
    assert_eq!(reply.status, 500);
    assert!(!reply.text().contains("SECRET"));
    running.canary();
}
