//! Tiny and real models in place of the fake: what the scheduler, the caches, the kernels and the
//! sampler promise together.

use std::num::NonZeroUsize;
use std::sync::Arc;

use engine::constrain::{Compiler, Form, Grammar, Limits, WhiteSpace};
use engine::{EngineLimits, EventStream, FinishReason, Pooling, PrefixCache, Request};
use formats::gguf::Gguf;
use model::{KvBudget, KvType, LoadOptions, Precision};
use testkit::encode::Encoding;
use testkit::gguf::Builder;
use testkit::tiny;
use text::{SpecialText, Tokenizer};

use crate::lab::*;

/// A way of serving that must not show in any answer.
#[derive(Clone, Copy, Debug)]
struct Manner {
    num_threads: usize,
    step_tokens_max: usize,
    prefix_cache: PrefixCache,
    num_blocks: usize,
    kv_type: KvType,
}

const PLAIN: Manner = Manner {
    num_threads: 1,
    step_tokens_max: 512,
    prefix_cache: PrefixCache::Off,
    num_blocks: 512,
    kv_type: KvType::F16,
};

const MANNERS: [Manner; 5] = [
    PLAIN,
    Manner {
        num_threads: 2,
        ..PLAIN
    },
    Manner {
        step_tokens_max: 16,
        ..PLAIN
    },
    Manner {
        prefix_cache: PrefixCache::On,
        ..PLAIN
    },
    Manner {
        num_threads: 2,
        step_tokens_max: 16,
        prefix_cache: PrefixCache::On,
        num_blocks: 24,
        ..PLAIN
    },
];

/// An engine on a model file, and its tokenizer.
fn serve(file: &Gguf, manner: Manner) -> (Bench, Arc<Tokenizer>) {
    let options = LoadOptions {
        precision: Precision::Packed,
        threads: NonZeroUsize::new(manner.num_threads).expect("at least one"),
        kv_budget: KvBudget::Blocks(manner.num_blocks),
        context: None,
        kv_type: Some(manner.kv_type),
    };
    let runner = model::load(file, &options).expect("a sound model");
    let tokenizer = Arc::new(Tokenizer::from_gguf(file).expect("a sound vocabulary"));
    let limits = EngineLimits {
        prompt_rows_max: 64,
        step_tokens_max: manner.step_tokens_max,
        num_sequences_max: 32,
        context_max: 2048,
        num_waiting_max: 64,
        num_waiting_tokens_max: 100_000,
        prefix_cache: manner.prefix_cache,
    };
    let log = Log::default();
    let observer = Box::new(log.clone());
    let started = engine::start(Box::new(runner), Arc::clone(&tokenizer), limits, observer);
    (Bench::new(started, Gate::default(), log), tokenizer)
}

/// A prompt's request, greedy or drawing.
fn ask_for(tokenizer: &Tokenizer, text: &str, max_tokens: u32, seed: Option<u64>) -> Request {
    let tokens = tokenizer.encode_with_bos(text, SpecialText::AsText);
    let prompt: Vec<u32> = tokens.iter().map(|token| token.0).collect();
    let mut asked = match seed {
        None => request(&prompt, max_tokens),
        Some(seed) => seeded(&prompt, max_tokens, seed),
    };
    // Random weights end an answer at any time: longer ones test more.
    asked.stop.ignore_eos = true;
    asked
}

const BEGINNING: &str = "Batch invariance means that neighbours, chunks and caches never show. ";

/// Requests whose answers are compared: short and long, greedy and seeded, alike and not.
fn compared(tokenizer: &Tokenizer) -> Vec<Request> {
    let long = BEGINNING.repeat(3);
    vec![
        ask_for(tokenizer, "a", 70, None),
        ask_for(tokenizer, &long, 70, None),
        ask_for(tokenizer, &format!("{long}So what?"), 90, None),
        ask_for(tokenizer, &format!("{long}So what?"), 70, Some(7)),
        ask_for(tokenizer, "Hello there", 90, Some(8)),
    ]
}

fn neighbours(tokenizer: &Tokenizer, num: usize) -> Vec<Request> {
    let text = |idx: usize| format!("{}{idx}", &BEGINNING.repeat(2)[..7 * (idx % 18)]);
    let seed = |idx: usize| idx.is_multiple_of(3).then_some(idx as u64);
    (0..num)
        .map(|idx| ask_for(tokenizer, &text(idx), 50 + idx as u32, seed(idx)))
        .collect()
}

/// Alone, alone again, and among 31 others: the compared answers, and preemptions on the way.
fn served(file: &Gguf, manner: Manner) -> (Vec<Vec<Told>>, u32) {
    let (bench, tokenizer) = serve(file, manner);
    let mut rounds: Vec<Vec<Told>> = Vec::new();
    for _ in 0..2 {
        rounds.push(
            compared(&tokenizer)
                .into_iter()
                .map(|request| bench.ask(request))
                .collect(),
        );
    }
    let mut crowd = neighbours(&tokenizer, 31 - 4);
    let begins_at = 13;
    let num_compared = compared(&tokenizer).len();
    crowd.splice(begins_at..begins_at, compared(&tokenizer));
    let told = bench.ask_all(crowd);
    rounds.push(told[begins_at..][..num_compared].to_vec());
    let num_preemptions = bench
        .log
        .read(|happened| happened.steps.iter().map(|step| step.num_preemptions).sum());
    (rounds, num_preemptions)
}

fn check_invariance(builder: &Builder, kv_type: KvType) {
    let file = Gguf::parse(builder.build().bytes).expect("a sound file");
    let plain = Manner { kv_type, ..PLAIN };
    let expected = served(&file, plain).0.swap_remove(0);
    assert_ne!(expected[2].text, expected[3].text, "the seeded one draws");
    let mut num_preemptions = 0;
    for manner in MANNERS {
        let manner = Manner { kv_type, ..manner };
        let (rounds, num) = served(&file, manner);
        num_preemptions += num;
        for (round, answers) in rounds.iter().enumerate() {
            for (answer, expected) in answers.iter().zip(&expected) {
                assert_eq!(answer.tokens, expected.tokens, "{manner:?}, round {round}");
                assert_eq!(answer.text, expected.text);
                assert_eq!(answer.finished.reason, FinishReason::Length);
            }
        }
    }
    assert!(num_preemptions > 0, "the small pool was to preempt");
}

/// Cases C8, D1 and D2.
#[test]
fn a_tiny_llama_answers_the_same_in_every_manner_of_serving() {
    check_invariance(&tiny::llama(Encoding::Q4_0), KvType::F16);
}

/// Cases C8, D1 and D2, with windows and another tokenizer.
#[test]
fn a_tiny_gemma_answers_the_same_in_every_manner_of_serving() {
    check_invariance(&tiny::gemma3(Encoding::Q8_0), KvType::F16);
}

/// Cases C8, D1 and D2, with 8-bit keys and values and windows.
#[test]
fn a_tiny_gemma_with_an_int8_cache_answers_the_same_in_every_manner_of_serving() {
    check_invariance(&tiny::gemma3(Encoding::Q4_0), KvType::Int8);
}

/// Case C7.
#[test]
fn a_tiny_model_answers_a_wholly_cached_prompt_as_the_first_time() {
    let file = Gguf::parse(tiny::llama(Encoding::Q8_0).build().bytes).expect("a sound file");
    let (bench, _) = serve(
        &file,
        Manner {
            prefix_cache: PrefixCache::On,
            ..PLAIN
        },
    );
    for num_prompt in [1, 15, 16, 17, 32, 256] {
        let mut asked = request(&prompt(num_prompt, num_prompt as u64), 16);
        asked.stop.ignore_eos = true;
        let first = bench.ask(asked.clone());
        for _ in 0..4 {
            let again = bench.ask(asked.clone());
            assert_eq!(again.tokens, first.tokens, "{num_prompt} tokens");
            assert_eq!(again.num_cached, Some((num_prompt as u32 - 1) / 16 * 16));
        }
    }
}

/// What a real model says, alone and then with others around it.
#[test]
fn a_real_model_answers_sensibly_and_the_same_in_company() {
    let Some(path) = testkit::real_model("smollm2-135m") else {
        return;
    };
    let file = Gguf::open(&path).expect("a sound file");
    let (bench, tokenizer) = serve(
        &file,
        Manner {
            num_threads: 2,
            prefix_cache: PrefixCache::On,
            ..PLAIN
        },
    );
    let chat = |question: &str| {
        let text = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
        let tokens = tokenizer.encode_with_bos(&text, SpecialText::Parse);
        request(
            &tokens.iter().map(|token| token.0).collect::<Vec<u32>>(),
            24,
        )
    };
    let question = "What is the capital of France?";
    let alone = bench.ask(chat(question));
    assert!(alone.text.contains("Paris"), "{:?}", alone.text);
    let others = [
        "Count to five.",
        "What is the capital of Italy?",
        "Hi",
        "Write a haiku.",
    ];
    let mut streams: Vec<EventStream> = others.map(|other| bench.submit(chat(other))).into();
    streams.insert(2, bench.submit(chat(question)));
    let told: Vec<Told> = streams.into_iter().map(read).collect();
    assert_eq!(told[2].text, alone.text);
    assert_eq!(told[2].tokens, alone.tokens);
}

/// The bits of the vectors of `prompts`, alone and among texts that are written at the same time.
fn embedded(builder: &Builder, manner: Manner, pooling: Pooling) -> (Vec<Vec<u32>>, u32) {
    let file = Gguf::parse(builder.build().bytes).expect("a sound file");
    let (bench, tokenizer) = serve(&file, manner);
    let prompts = [
        prompt(1, 1),
        prompt(16, 2),
        prompt(33, 3),
        prompt(200, 4),
        prompt(200, 4),
    ];
    let bits = |told: Told| {
        let vector = told.vector.expect("a vector");
        vector.iter().map(|value| value.to_bits()).collect()
    };
    let alone = prompts
        .iter()
        .map(|it| bits(read(bench.embed(it, pooling))));
    let mut vectors: Vec<Vec<u32>> = alone.collect();
    let written = neighbours(&tokenizer, 12).into_iter();
    let written: Vec<EventStream> = written.map(|request| bench.submit(request)).collect();
    let streams: Vec<EventStream> = prompts.iter().map(|it| bench.embed(it, pooling)).collect();
    vectors.extend(streams.into_iter().map(|stream| bits(read(stream))));
    written.into_iter().for_each(|stream| drop(read(stream)));
    let num_preemptions = bench
        .log
        .read(|happened| happened.steps.iter().map(|step| step.num_preemptions).sum());
    (vectors, num_preemptions)
}

#[test]
fn a_tiny_model_gives_the_same_vectors_in_every_manner_of_serving() {
    for builder in [tiny::llama(Encoding::Q4_1), tiny::gemma3(Encoding::Q8_0)] {
        for pooling in [Pooling::Mean, Pooling::Last] {
            let (expected, _) = embedded(&builder, PLAIN, pooling);
            assert_eq!(expected[..5], expected[5..], "alone and in company");
            assert_ne!(expected[2], expected[3]);
            for manner in MANNERS {
                let (vectors, num_preemptions) = embedded(&builder, manner, pooling);
                assert!(vectors == expected, "{manner:?} {pooling:?}");
                assert!(
                    manner.num_blocks > 24 || num_preemptions > 0,
                    "the small pool was to preempt"
                );
            }
        }
    }
}

/// A real vocabulary, whose tokens span the borders of a document's parts.
#[test]
fn a_real_model_keeps_to_a_schema_alone_and_in_company() {
    let Some(path) = testkit::real_model("smollm2-135m") else {
        return;
    };
    let file = Gguf::open(&path).expect("a sound file");
    let (bench, tokenizer) = serve(
        &file,
        Manner {
            num_threads: 2,
            prefix_cache: PrefixCache::On,
            ..PLAIN
        },
    );
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 30},
            "population": {"type": "integer", "minimum": 1, "maximum": 100_000_000},
            "kind": {"enum": ["capital", "town"]}
        },
        "required": ["city", "population", "kind"],
        "additionalProperties": false
    });
    let compiler = Compiler::new(Arc::clone(&tokenizer) as _, Limits::STANDARD);
    let form = Form {
        grammar: Grammar::JsonSchema(schema),
        white_space: WhiteSpace::Short,
        lead: engine::constrain::Lead::Nothing,
    };
    let constraint = compiler.compile(&form).expect("a schema that is followed");
    let asked = |temperature: f32, seed: u64| {
        let text = "<|im_start|>user\nDescribe Paris in JSON.<|im_end|>\n<|im_start|>assistant\n";
        let tokens = tokenizer.encode_with_bos(text, SpecialText::Parse);
        let mut request = request(&tokens.iter().map(|token| token.0).collect::<Vec<_>>(), 150);
        request.sampling.temperature = temperature;
        request.sampling.seed = Some(seed);
        request.constraint = Some(constraint.fork());
        request
    };
    let alone = bench.ask(asked(0.0, 0)).text;
    let mut requests: Vec<_> = (0..6).map(|seed| asked(1.5, seed)).collect();
    requests.push(asked(0.0, 0));
    let told = bench.ask_all(requests);
    assert_eq!(told[6].text, alone);
    for Told { text, finished, .. } in told {
        assert!(
            matches!(finished.reason, FinishReason::Stop(_)),
            "{text}: {:?}",
            finished.reason
        );
        let document: serde_json::Value = serde_json::from_str(&text).expect("a JSON document");
        assert!(
            document["city"]
                .as_str()
                .is_some_and(|city| city.chars().count() <= 30),
            "{text}"
        );
        let population = document["population"].as_u64();
        assert!(
            population.is_some_and(|num| (1..=100_000_000).contains(&num)),
            "{text}"
        );
        assert!(
            ["capital", "town"]
                .map(Into::into)
                .contains(&document["kind"]),
            "{text}"
        );
        assert_eq!(
            document.as_object().map(serde_json::Map::len),
            Some(3),
            "{text}"
        );
    }
}
