//! The two real models against logits that transformers computed in 32-bit floats.
//!
//! `shared/fixtures/real` holds, for one text, the log-probability of every true next
//! token, the best token everywhere, and whole rows of logits as f16; and greedy answers
//! with the margin of each token over the runner-up.

use std::collections::BTreeSet;
use std::path::PathBuf;

use half::f16;
use model::{KvType, LoadOptions, Precision, open, score};
use safetensors::{Dtype, SafeTensors};

use crate::support::{argmax, fixture, log_softmax, options, real};

/// What the fixture says of one text.
struct Reference {
    tokens: Vec<u32>,
    /// `[T - 1]`.
    next_logprob: Vec<f32>,
    /// Positions that `logits` has.
    rows: Vec<usize>,
    /// `[rows, vocab]`.
    logits: Vec<f16>,
}

impl Reference {
    fn read(name: &str) -> Option<Reference> {
        let bytes = std::fs::read(fixture(&format!("real/{name}.safetensors"))?).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let whole = |name: &str| -> Vec<i64> {
            let tensor = file.tensor(name).unwrap();
            assert_eq!(tensor.dtype(), Dtype::I64);
            let (numbers, _) = tensor.data().as_chunks();
            numbers
                .iter()
                .map(|&bytes| i64::from_le_bytes(bytes))
                .collect()
        };
        let (logprobs, logits) = (
            file.tensor("next_logprob").unwrap(),
            file.tensor("logits").unwrap(),
        );
        assert_eq!((logprobs.dtype(), logits.dtype()), (Dtype::F32, Dtype::F16));
        Some(Reference {
            tokens: whole("ids").into_iter().map(|id| id as u32).collect(),
            next_logprob: logprobs
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect(),
            rows: whole("rows").into_iter().map(|row| row as usize).collect(),
            logits: logits
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| f16::from_le_bytes(bytes))
                .collect(),
        })
    }
}

/// How far a model's logits are from the reference.
struct Distance {
    /// Largest difference of a next token's log-probability.
    logprob_max: f64,
    /// Mean over the stored rows of the divergence KL(reference || ours), in nats.
    kl_mean: f64,
    /// Our perplexity over the reference's, minus 1.
    perplexity_excess: f64,
}

fn distance(path: PathBuf, reference: &Reference, options: &LoadOptions) -> Distance {
    let num_next = reference.next_logprob.len();
    let (mut logprob_max, mut sum_ours, mut kl_sum) = (0.0f64, 0.0, 0.0);
    let rows: BTreeSet<usize> = (0..num_next)
        .chain(reference.rows.iter().copied())
        .collect();
    let mut runner = open(&path, options).unwrap();
    score(&mut runner, &reference.tokens, &rows, |position, logits| {
        let ours = log_softmax(logits.iter().map(|&logit| f64::from(logit)));
        if position < num_next {
            let logprob = ours[reference.tokens[position + 1] as usize];
            let expected = f64::from(reference.next_logprob[position]);
            logprob_max = logprob_max.max((logprob - expected).abs());
            sum_ours += logprob;
        }
        if let Ok(idx) = reference.rows.binary_search(&position) {
            let row = &reference.logits[idx * logits.len()..][..logits.len()];
            let theirs = log_softmax(row.iter().map(|logit| f64::from(logit.to_f32())));
            kl_sum += theirs
                .iter()
                .zip(&ours)
                .map(|(p, q)| p.exp() * (p - q))
                .sum::<f64>();
        }
    })
    .unwrap();
    let sum_theirs: f64 = reference
        .next_logprob
        .iter()
        .map(|&logprob| f64::from(logprob))
        .sum();
    Distance {
        logprob_max,
        kl_mean: kl_sum / reference.rows.len() as f64,
        perplexity_excess: ((sum_theirs - sum_ours) / num_next as f64).exp() - 1.0,
    }
}

fn measured(model: &str, name: &str, options: &LoadOptions) -> Option<Distance> {
    let distance = distance(real(model)?, &Reference::read(name)?, options);
    let (precision, kv_type) = (options.precision, options.kv_type);
    println!(
        "{name} {precision:?}, cache {kv_type:?}: log-probabilities within {:.2e}, KL {:.2e}, perplexity {:+.3} %",
        distance.logprob_max,
        distance.kl_mean,
        100.0 * distance.perplexity_excess
    );
    Some(distance)
}

fn check_exact(model: &str, name: &str) {
    let Some(distance) = measured(model, name, &options(Precision::Exact)) else {
        return;
    };
    assert!(distance.logprob_max < 2e-3);
    assert!(distance.kl_mean < 1e-4);
}

fn check_packed(model: &str, name: &str) {
    let Some(distance) = measured(model, name, &options(Precision::Packed)) else {
        return;
    };
    assert!(distance.kl_mean < 3e-3);
    assert!(distance.perplexity_excess.abs() < 5e-3);
}

/// As a model is served, but with 8-bit keys and values: at most `kl_max` nats apart.
fn check_int8_cache(model: &str, name: &str, kl_max: f64) {
    let options = LoadOptions {
        kv_type: Some(KvType::Int8),
        ..options(Precision::Packed)
    };
    let Some(distance) = measured(model, name, &options) else {
        return;
    };
    assert!(distance.kl_mean < kl_max);
    assert!(distance.perplexity_excess.abs() < 1e-2);
}

/// Every greedy token whose margin exceeds 0.05: below that, float rounding may decide.
fn check_greedy(model: &str, name: &str) {
    let (Some(path), Some(fixture)) = (real(model), fixture(&format!("real/{name}.greedy.json")))
    else {
        return;
    };
    let answers: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    let mut runner = open(&path, &options(Precision::Exact)).unwrap();
    let mut num_compared = 0;
    for answer in &answers {
        let ids = |key: &str| -> Vec<u32> {
            answer[key]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_u64().unwrap() as u32)
                .collect()
        };
        let (prompt, greedy) = (ids("prompt_ids"), ids("greedy"));
        let first_row = prompt.len() - 1;
        // The last greedy token is only an output.
        let text = [&prompt[..], &greedy[..greedy.len() - 1]].concat();
        let rows = (first_row..text.len()).collect();
        score(&mut runner, &text, &rows, |position, logits| {
            let idx = position - first_row;
            if answer["margin"][idx].as_f64().unwrap() > 0.05 {
                assert_eq!(
                    argmax(logits),
                    greedy[idx] as usize,
                    "after {:?}",
                    &text[..=position]
                );
                num_compared += 1;
            }
        })
        .unwrap();
    }
    assert!(num_compared > 100, "only {num_compared} tokens compared");
}

#[test]
fn smollm2_computed_exactly_matches_transformers() {
    check_exact("smollm2-135m", "smollm2");
}

#[test]
fn gemma3_computed_exactly_matches_transformers() {
    check_exact("gemma3-270m", "gemma3");
}

#[test]
fn smollm2_with_fast_kernels_stays_close_to_transformers() {
    check_packed("smollm2-135m", "smollm2");
}

#[test]
fn gemma3_with_fast_kernels_stays_close_to_transformers() {
    check_packed("gemma3-270m", "gemma3");
}

#[test]
fn smollm2_with_an_int8_cache_stays_close_to_transformers() {
    check_int8_cache("smollm2-135m", "smollm2", 4e-3);
}

#[test]
fn gemma3_with_an_int8_cache_stays_close_to_transformers() {
    // Heads of 256 values with a few large ones among them: one scale serves them less well.
    check_int8_cache("gemma3-270m", "gemma3", 9e-3);
}

#[test]
fn smollm2_answers_greedily_with_the_tokens_of_transformers() {
    check_greedy("smollm2-135m", "smollm2");
}

#[test]
fn gemma3_answers_greedily_with_the_tokens_of_transformers() {
    check_greedy("gemma3-270m", "gemma3");
}
