//! Folders as the Hugging Face hub keeps models, through the binary.
//!
//! The checkpoints of the shared fixtures; what the library makes of every family is tested in the crate `model`.

use std::path::{Path, PathBuf};

use formats::safetensors::Safetensors;
use serde_json::json;

use crate::serve::Serving;
use crate::support::{Tiny, stderr, stdout};

/// A fixture's folder as a model, beside a cache of its own; `None` without the fixtures.
pub fn folder(family: &str) -> Option<Tiny> {
    let arch = testkit::fixtures()?.join("arch").join(family);
    let mut tiny = Tiny::new();
    tiny.model = tiny.folder.path().join(family);
    std::fs::create_dir(&tiny.model).expect("the folder is writable");
    for name in ["config.json", "config.legacy.json", "model.safetensors"] {
        std::fs::copy(arch.join(name), tiny.model.join(name)).expect("the fixture is whole");
    }
    Some(tiny)
}

fn reference(family: &str) -> Safetensors {
    let fixtures = testkit::fixtures().expect("the caller has them");
    let path = fixtures
        .join("arch")
        .join(family)
        .join("reference.safetensors");
    Safetensors::open(&path).expect("the fixture is sound")
}

fn floats(file: &Safetensors, name: &str) -> Vec<f32> {
    let bytes = file.tensor(name).expect("it is there").bytes;
    let chunks = bytes.as_chunks().0.iter();
    chunks.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn ids(file: &Safetensors, name: &str) -> Vec<i64> {
    let bytes = file.tensor(name).expect("it is there").bytes;
    let chunks = bytes.as_chunks().0.iter();
    chunks.map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

/// Logits of the reference's ids, as the binary writes them.
fn logits(tiny: &Tiny, model: &Path, family: &str, flags: &[&str]) -> Vec<f32> {
    let (ids_path, out) = (tiny.path("ids.json"), tiny.path("out.safetensors"));
    let text = serde_json::to_string(&ids(&reference(family), "input_ids")).expect("plain numbers");
    std::fs::write(&ids_path, text).expect("the folder is writable");
    let model = model.to_str().expect("temporary folders are UTF-8");
    let mut all = vec![
        "logits", "--model", model, "--ids", &ids_path, "--out", &out,
    ];
    all.extend(flags);
    let output = tiny.run(&all);
    assert!(output.status.success(), "{family}: {}", stderr(&output));
    floats(
        &Safetensors::open(out.as_ref()).expect("it was written"),
        "logits",
    )
}

/// The largest distance of any logit, in standard deviations of its row.
fn distance(actual: &[f32], family: &str) -> f32 {
    let file = reference(family);
    let vocab = file.tensor("logits").expect("it is there").shape[1];
    let expected = floats(&file, "logits");
    assert_eq!(actual.len(), expected.len());
    let rows = actual.chunks(vocab).zip(expected.chunks(vocab));
    let of_row = |(actual, expected): (&[f32], &[f32])| {
        let mean = expected.iter().sum::<f32>() / vocab as f32;
        let variance = expected.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / vocab as f32;
        let apart = actual.iter().zip(expected).map(|(a, b)| (a - b).abs());
        apart.fold(0.0, f32::max) / variance.sqrt()
    };
    rows.map(of_row).fold(0.0, f32::max)
}

#[test]
fn exact_logits_of_a_folder_are_those_of_the_reference_under_both_styles_of_keys() {
    for family in ["llama", "gemma3", "gpt2", "qwen3-moe"] {
        let Some(tiny) = folder(family) else { return };
        let models: [PathBuf; 2] = [tiny.model.clone(), tiny.model.join("config.legacy.json")];
        for model in models {
            let apart = distance(&logits(&tiny, &model, family, &["--exact"]), family);
            assert!(apart < 2e-3, "{}: {apart}", model.display());
        }
    }
}

#[test]
fn fewer_bits_are_farther_from_the_reference_and_still_near() {
    let Some(tiny) = folder("llama") else { return };
    let apart = |quantize: &str| {
        let values = logits(&tiny, &tiny.model, "llama", &["--quantize", quantize]);
        distance(&values, "llama")
    };
    let (wide, eight, four) = (apart("bf16"), apart("q8_0"), apart("q4_0"));
    println!("bf16 {wide}, q8_0 {eight}, q4_0 {four}");
    assert!(
        wide < 0.1 && eight < 0.2 && four < 2.5,
        "{wide} {eight} {four}"
    );
    assert!(eight < four, "{eight} {four}");
}

#[test]
fn an_inspection_tells_what_weights_will_be_held_in() {
    let Some(tiny) = folder("qwen3-moe") else {
        return;
    };
    let output = tiny.run(&["inspect", tiny.model(), "--quantize", "q4_0", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let types = &report["weights"]["types"];
    // The experts' width is 48: no whole blocks.
    assert_eq!(types["BF16"]["matrices"], json!(24));
    assert_eq!(types["Q8_0"]["matrices"], json!(2));
    assert_eq!(report["tokenizer"], json!(null));
}

/// LongRoPE's set of factors, and with it the fingerprint, depends on the longest sequence that is served.
#[test]
fn the_context_that_is_asked_for_chooses_between_the_two_sets_of_longrope() {
    let Some(tiny) = folder("phi3") else { return };
    let path = tiny.model.join("config.json");
    let config = std::fs::read(&path).expect("it was copied");
    let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    let num_pairs = 8;
    config["original_max_position_embeddings"] = json!(64);
    config["rope_parameters"] = json!({
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
        "short_factor": vec![1.0; num_pairs], "long_factor": vec![4.0; num_pairs],
    });
    std::fs::write(&path, config.to_string()).expect("the folder is writable");
    let fingerprint = |flags: &[&str]| {
        let serving = Serving::start(&tiny, flags);
        let words = serving.words();
        let fingerprint = words
            .split_whitespace()
            .find(|word| word.starts_with("fp-"));
        fingerprint.expect("the start lines show it").to_owned()
    };
    let short = fingerprint(&["--context", "64"]);
    assert_eq!(short, fingerprint(&["--context", "32"]));
    let long = fingerprint(&["--context", "65"]);
    assert_eq!(long, fingerprint(&[]));
    assert_ne!(short, long);
}

#[test]
fn an_inspection_describes_what_sets_each_family_apart() {
    for (family, parts) in [
        (
            "gemma2",
            &[
                "before and after each half",
                "window of",
                "scores capped at",
                "logits capped at",
                "embedding ",
            ][..],
        ),
        (
            "gemma3",
            &[
                "of each query and key head",
                "window of",
                "gated GELU (tanh)",
            ],
        ),
        (
            "gpt2",
            &[
                "LayerNorm before",
                "plain GELU (tanh)",
                "learned vectors",
                "with biases",
            ],
        ),
        ("granite", &["multipliers", "residual "]),
        ("llama3-rope", &["stretched frequency by frequency"]),
        ("llama-yarn", &["(YaRN)"]),
        ("llama-linear-rope", &["(linear)"]),
        ("mistral-window", &["window of"]),
        (
            "mixtral",
            &[
                "for each token, gated SiLU",
                "weighed among the chosen, in all layers",
            ],
        ),
        (
            "olmo2",
            &[
                "RMSNorm after each half",
                "all query and all key heads at once",
            ],
        ),
        ("smollm3", &["no rotation in"]),
        ("stablelm-partial-rope", &["rotation of"]),
        ("qwen2", &["biases on query, key and value"]),
    ] {
        let Some(tiny) = folder(family) else { return };
        let said = stdout(&tiny.run(&["inspect", tiny.model()]));
        for part in parts {
            assert!(said.contains(part), "{family}: no {part:?} in:\n{said}");
        }
    }
}

#[test]
fn an_inspection_in_json_gives_the_numbers_of_a_configuration() {
    let Some(tiny) = folder("qwen3-moe") else {
        return;
    };
    let config = std::fs::read(tiny.model.join("config.json")).expect("it was copied");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    let report = stdout(&tiny.run(&["inspect", tiny.model(), "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let decoder = &report["decoder"];
    let attention = &decoder["attention"];
    assert_eq!(decoder["experts"]["count"], config["num_local_experts"]);
    assert_eq!(decoder["experts"]["used"], config["num_experts_per_tok"]);
    assert_eq!(decoder["experts"]["width"], config["moe_intermediate_size"]);
    assert_eq!(attention["kv_heads"], config["num_key_value_heads"]);
    assert_eq!(attention["qk_norm"], json!("per_head"));
    assert_eq!(decoder["norm"]["eps"], config["rms_norm_eps"]);
    assert_eq!(decoder["layers_without_rotation"], json!([]));
    let num_layers = config["num_hidden_layers"].as_u64().map(|num| num as usize);
    assert_eq!(attention["windows"].as_array().map(Vec::len), num_layers);
}

/// The greedy continuation through the engine, with the prefix cache on, twice.
#[test]
fn a_folder_without_a_tokenizer_serves_token_ids_and_nothing_else() {
    let Some(tiny) = folder("llama") else { return };
    let file = reference("llama");
    let serving = Serving::start(&tiny, &["--served-model-name", "m"]);
    assert!(
        serving.words().contains("no tokenizer.json"),
        "{}",
        serving.words()
    );
    assert!(
        serving.words().contains("weights take"),
        "{}",
        serving.words()
    );
    assert!(
        serving.words().contains("/v1/completions")
            && serving.words().contains("\"prompt\": [1, 2, 3]")
            && !serving.words().contains("/chat/"),
        "{}",
        serving.words()
    );
    let ask = json!({
        "model": "m", "prompt": ids(&file, "input_ids"), "max_tokens": 8, "temperature": 0,
        "ignore_eos": true, "return_token_ids": true,
    });
    for _ in 0..2 {
        let answer = serving.post("/v1/completions", &ask);
        let choice = &answer["choices"][0];
        assert_eq!(choice["text"], json!(""), "{answer}");
        assert_eq!(
            choice["token_ids"].as_array().map(Vec::len),
            Some(8),
            "{answer}"
        );
    }
    for (path, body, param) in [
        (
            "/v1/completions",
            json!({"model": "m", "prompt": "hello"}),
            "prompt",
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]}),
            "messages",
        ),
        (
            "/v1/completions",
            json!({"model": "m", "prompt": [1, 2], "stop": ["x"]}),
            "stop",
        ),
    ] {
        let answer = serving.answer(path, &body, 400);
        let error = &answer["error"];
        assert_eq!(error["param"], json!(param), "{answer}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("tokenizer"), "{answer}");
    }
}
