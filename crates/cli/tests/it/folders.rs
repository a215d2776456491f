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
