//! The same server over a model that computes: tiny random weights, the real decoder.

use std::num::NonZeroUsize;
use std::sync::Arc;

use engine::{EngineLimits, PrefixCache};
use formats::gguf::Gguf;
use model::{KvBudget, LoadOptions, Precision, Runner};
use serde_json::{Value, json};
use server::{LoadError, LoadedModel, ModelFacts, Phase, SamplingDefaults};
use testkit::encode::Encoding;
use text::Tokenizer;

use crate::harness::{Running, config, template};
use crate::http::Frame;
use crate::script::Gate;

fn load() -> Result<LoadedModel, LoadError> {
    let file = Gguf::parse(testkit::tiny::llama(Encoding::Q8_0).build().bytes)?;
    let tokenizer = Arc::new(Tokenizer::from_gguf(&file)?);
    let options = LoadOptions {
        precision: Precision::Packed,
        threads: NonZeroUsize::MIN,
        kv_budget: KvBudget::Blocks(128),
        context: None,
        kv_type: None,
    };
    let runner = model::load(&file, &options)?;
    let shape = runner.shape().clone();
    let limits = EngineLimits {
        prompt_rows_max: 64,
        step_tokens_max: 64,
        num_sequences_max: 8,
        context_max: shape.context_max,
        num_waiting_max: 64,
        num_waiting_tokens_max: 100_000,
        prefix_cache: PrefixCache::On,
    };
    let facts = ModelFacts {
        fingerprint: shape.fingerprint.clone(),
        context_max: shape.context_max,
        hidden: shape.hidden,
        num_blocks: shape.num_blocks,
        block_tokens: model::runner::BLOCK_TOKENS,
        kv_type: runner.kv_type().name(),
        engine_limits: limits.clone(),
        defaults: SamplingDefaults::default(),
    };
    let for_engine = Arc::clone(&tokenizer);
    Ok(LoadedModel {
        template: Some(template(&tokenizer)),
        tokenizer,
        facts,
        start_engine: Box::new(move |observer| {
            engine::start(Box::new(runner), for_engine, limits, observer)
        }),
    })
}

fn start() -> Running {
    let running = Running::start(config(), Gate::open(), load);
    running.wait_for(Phase::Ready);
    running
}

fn body(content: &str) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 24, "ignore_eos": true})
}

fn whole(running: &Running, body: &Value) -> String {
    let answer = running.post("/v1/chat/completions", body).json();
    answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("some text")
        .to_owned()
}

fn streamed(running: &Running, body: &Value) -> String {
    let frames = running.stream("/v1/chat/completions", body).all();
    assert_eq!(frames.last(), Some(&Frame::Done));
    let content = |frame: Frame| match frame {
        Frame::Json(chunk) => chunk["choices"][0]["delta"]["content"]
            .as_str()
            .map(str::to_owned),
        _ => None,
    };
    frames.into_iter().filter_map(content).collect()
}

/// Cases A3 and D1, through everything: random weights say random bytes.
#[test]
fn a_stream_says_what_a_document_says_alone_and_in_company() {
    let running = start();
    let prompts: Vec<String> = (0..8).map(|idx| "the ".repeat(3 * idx) + "end").collect();
    let alone: Vec<String> = prompts
        .iter()
        .map(|prompt| whole(&running, &body(prompt)))
        .collect();
    assert!(
        alone
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len()
            > 1,
        "{alone:?}"
    );
    let company: Vec<String> = std::thread::scope(|scope| {
        let spawn = |prompt: &String| {
            let running = &running;
            let body = body(prompt);
            scope.spawn(move || streamed(running, &body))
        };
        let threads: Vec<_> = prompts.iter().map(spawn).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(company, alone);
}

#[test]
fn the_fingerprint_names_weights_and_kernels() {
    let running = start();
    let answer = running.post("/v1/chat/completions", &body("x")).json();
    assert!(
        answer["system_fingerprint"]
            .as_str()
            .is_some_and(|print| !print.is_empty()),
        "{answer}"
    );
}

/// Of a model that computes: the mean of the states that the runner gives, made length 1.
#[test]
fn an_embedding_is_the_mean_of_the_models_own_states() {
    let mut config = config();
    config.pooling = engine::Pooling::Mean;
    let running = Running::start(config, Gate::open(), load);
    running.wait_for(Phase::Ready);
    let ids: Vec<u32> = (0..100).map(|idx| 3 + idx * 7 % 200).collect();
    let file = Gguf::parse(testkit::tiny::llama(Encoding::Q8_0).build().bytes).unwrap();
    let options = LoadOptions {
        precision: Precision::Packed,
        threads: NonZeroUsize::MIN,
        kv_budget: KvBudget::Blocks(128),
        context: None,
        kv_type: None,
    };
    let mut runner = model::load(&file, &options).unwrap();
    let batch = model::runner::Batch {
        tokens: ids.clone(),
        sequences: vec![model::runner::BatchSequence {
            num_past: 0,
            num_tokens: ids.len(),
            blocks: (0..7).collect(),
            logits: model::runner::LogitRows::AllStates,
        }],
    };
    let outputs = runner.forward(&batch).unwrap();
    let mut sums = vec![0.0_f64; outputs.hidden];
    for state in outputs.states.chunks_exact(outputs.hidden) {
        sums.iter_mut()
            .zip(state)
            .for_each(|(sum, &value)| *sum += f64::from(value));
    }
    let length = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
    for input in [json!(ids), json!([ids, [5, 6], ids])] {
        let answer = running
            .post("/v1/embeddings", &json!({"input": input}))
            .json();
        let told: Vec<f64> =
            serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap();
        assert_eq!(told.len(), sums.len());
        for (told, sum) in told.iter().zip(&sums) {
            assert!(
                (told - sum / length).abs() < 1e-6,
                "{told} {}",
                sum / length
            );
        }
    }
}
