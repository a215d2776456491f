//! Two ways to one number: a served prompt's scores are `fulcrum logits`, normalised.

use formats::safetensors::Safetensors;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::support::{Tiny, stderr};

/// Sum of the log-probabilities of the tokens of `ids` behind the first, by `fulcrum logits`.
fn by_logits(tiny: &Tiny, ids: &[u64]) -> f64 {
    let (ids_path, out) = (tiny.path("ids.json"), tiny.path("out.safetensors"));
    std::fs::write(&ids_path, json!(ids).to_string()).expect("the folder is writable");
    let model = tiny.model();
    let output = tiny.run(&[
        "logits", "--model", model, "--ids", &ids_path, "--out", &out,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let file = Safetensors::open(out.as_ref()).expect("the file is sound");
    let tensor = file.tensor("logits").expect("the tensor is called logits");
    let values = tensor.bytes.as_chunks().0.iter();
    let values: Vec<f64> = values
        .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
        .collect();
    let rows = values.chunks(tensor.shape[1]);
    let score = |(row, &next): (&[f64], &u64)| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row[next as usize] - sum.ln()
    };
    rows.zip(&ids[1..]).map(score).sum()
}

fn sum(token_logprobs: &Value) -> f64 {
    let told = token_logprobs.as_array().expect("a list");
    assert_eq!(told[0], Value::Null, "nothing precedes the first token");
    told[1..]
        .iter()
        .map(|each| each.as_f64().expect("a number"))
        .sum()
}

#[test]
fn scores_of_a_list_of_strings_are_those_of_the_logits() {
    let tiny = Tiny::new();
    let serving = Serving::start(&tiny, &["--max-num-batched-tokens", "16"]);
    let prompts = [
        "the end of the story",
        "a",
        "the end of the world, and more than a step holds",
    ];
    let ask = |max_tokens: u32| {
        serving.post(
            "/v1/completions",
            &json!({
                "prompt": prompts, "echo": true, "logprobs": 1, "max_tokens": max_tokens,
                "temperature": 0, "seed": 1234, "return_token_ids": true,
            }),
        )
    };
    let (scored, answered) = (ask(0), ask(1));
    for idx in 0..prompts.len() {
        let choice = &scored["choices"][idx];
        let ids = choice["prompt_token_ids"].as_array().expect("asked for");
        let ids: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
        let told = &choice["logprobs"]["token_logprobs"];
        let expected = by_logits(&tiny, &ids);
        let difference = (sum(told) - expected).abs();
        assert!(
            difference < 1e-4 * ids.len() as f64,
            "{told} adds up to {expected}"
        );
        let longer = answered["choices"][idx]["logprobs"]["token_logprobs"]
            .as_array()
            .expect("a list");
        assert_eq!(
            Value::from(&longer[..longer.len() - 1]),
            *told,
            "an answer behind it changes nothing"
        );
    }
}
