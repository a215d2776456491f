//! Tiny checkpoints of several families against transformers, converted to GGUF here.
//!
//! `shared/fixtures/arch` holds random-weight checkpoints with logits that transformers
//! computed in 32-bit floats. They reach what the two real models do not: a window shorter
//! than the text, stretched rotations, one key head for all queries. The conversion is
//! that of the format's converters: query and key rows of llama permuted so that a
//! rotating pair is adjacent, the 1 of gemma's `1 + weight` added to norms.
//!
//! The reference was computed with the frequencies of the rotations rounded to bf16, as
//! transformers holds them after casting a model. Llama files can say so, by divisors;
//! gemma files cannot, so there the bound is that of the rounding.

use std::f32::consts::TAU;

use half::bf16;
use model::runner::Runner;
use model::{Precision, inspect};
use safetensors::SafeTensors;
use serde_json::Value;
use testkit::gguf::Builder;

use crate::support::{all_rows, argmax, fixture, parse, tiny};

const F32: u32 = 0;
const BF16: u32 = 30;

/// A checkpoint on its way to GGUF.
struct Checkpoint<'a> {
    config: Value,
    tensors: SafeTensors<'a>,
    architecture: &'static str,
    builder: Builder,
    /// Of the frequencies of the rotation.
    divisors: Vec<f32>,
}

impl Checkpoint<'_> {
    fn number(&self, key: &str) -> u32 {
        self.config[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} is a number")) as u32
    }

    fn set(&mut self, key: &str, value: impl Into<testkit::gguf::Value>) {
        let builder = std::mem::take(&mut self.builder);
        self.builder = builder.with(&format!("{}.{key}", self.architecture), value);
    }

    fn values(&self, name: &str) -> Vec<f32> {
        let tensor = self.tensors.tensor(name).unwrap();
        tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| bf16::from_le_bytes(bytes).to_f32())
            .collect()
    }

    fn add_matrix(&mut self, from: &str, to: &str) {
        let tensor = self.tensors.tensor(from).unwrap();
        self.add(to, tensor.shape().to_vec(), BF16, tensor.data().to_vec());
    }

    fn add_norm(&mut self, from: &str, to: &str, change: impl Fn(f32) -> f32) {
        let values: Vec<u8> = self
            .values(from)
            .into_iter()
            .flat_map(|value| change(value).to_le_bytes())
            .collect();
        self.add(to, vec![values.len() / 4], F32, values);
    }

    /// Rows of each head from `first half, second half` to pairs.
    fn add_paired(&mut self, from: &str, to: &str) {
        let tensor = self.tensors.tensor(from).unwrap();
        let (head_dim, shape) = (self.number("head_dim") as usize, tensor.shape().to_vec());
        let rows: Vec<&[u8]> = tensor.data().chunks_exact(2 * shape[1]).collect();
        let permuted = (0..shape[0]).flat_map(|row_idx| {
            let (head, within) = (row_idx / head_dim, row_idx % head_dim);
            rows[head * head_dim + within / 2 + within % 2 * head_dim / 2]
                .iter()
                .copied()
        });
        let bytes = permuted.collect();
        self.add(to, shape, BF16, bytes);
    }

    /// `shape` is that of the checkpoint, slowest axis first.
    fn add(&mut self, name: &str, shape: Vec<usize>, type_id: u32, bytes: Vec<u8>) {
        let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
        self.builder = std::mem::take(&mut self.builder).tensor(name, &dims, type_id, bytes);
    }

    fn convert_sizes(&mut self) {
        for (from, to) in [
            ("vocab_size", "vocab_size"),
            ("hidden_size", "embedding_length"),
            ("num_hidden_layers", "block_count"),
            ("intermediate_size", "feed_forward_length"),
            ("max_position_embeddings", "context_length"),
            ("num_attention_heads", "attention.head_count"),
            ("num_key_value_heads", "attention.head_count_kv"),
            ("head_dim", "attention.key_length"),
            ("head_dim", "attention.value_length"),
        ] {
            self.set(to, self.number(from));
        }
        self.set(
            "attention.layer_norm_rms_epsilon",
            self.config["rms_norm_eps"].as_f64().unwrap() as f32,
        );
        if let Some(window) = self.config["sliding_window"].as_u64() {
            self.set("attention.sliding_window", window as u32);
        }
    }

    fn convert_llama(&mut self) {
        self.convert_sizes();
        self.convert_rope();
        self.convert_common(|value| value);
        for layer in 0..self.number("num_hidden_layers") {
            let (from, to) = (format!("model.layers.{layer}"), format!("blk.{layer}"));
            for (from_name, to_name) in [("q_proj", "attn_q"), ("k_proj", "attn_k")] {
                self.add_paired(
                    &format!("{from}.self_attn.{from_name}.weight"),
                    &format!("{to}.{to_name}.weight"),
                );
            }
            self.add_norm(
                &format!("{from}.post_attention_layernorm.weight"),
                &format!("{to}.ffn_norm.weight"),
                |value| value,
            );
        }
    }

    fn convert_gemma3(&mut self) {
        self.convert_sizes();
        self.set("rope.freq_base", 1_000_000.0f32);
        self.convert_common(|value| 1.0 + value);
        // The format has no key for it: the real models' scale is `1 / sqrt(head_dim)`.
        let scalar = self.config["query_pre_attn_scalar"].as_f64().unwrap() as f32;
        let query_scale = (self.number("head_dim") as f32 / scalar).sqrt();
        for layer in 0..self.number("num_hidden_layers") {
            let (from, to) = (format!("model.layers.{layer}"), format!("blk.{layer}"));
            for (from_name, to_name, scale) in [
                ("self_attn.q_norm", "attn_q_norm", query_scale),
                ("self_attn.k_norm", "attn_k_norm", 1.0),
                ("post_attention_layernorm", "post_attention_norm", 1.0),
                ("pre_feedforward_layernorm", "ffn_norm", 1.0),
                ("post_feedforward_layernorm", "post_ffw_norm", 1.0),
            ] {
                self.add_norm(
                    &format!("{from}.{from_name}.weight"),
                    &format!("{to}.{to_name}.weight"),
                    |value| (1.0 + value) * scale,
                );
            }
            for (from_name, to_name) in [("q_proj", "attn_q"), ("k_proj", "attn_k")] {
                self.add_matrix(
                    &format!("{from}.self_attn.{from_name}.weight"),
                    &format!("{to}.{to_name}.weight"),
                );
            }
        }
    }

    /// What llama and gemma name alike.
    fn convert_common(&mut self, norm: impl Fn(f32) -> f32) {
        self.add_matrix("model.embed_tokens.weight", "token_embd.weight");
        self.add_norm("model.norm.weight", "output_norm.weight", &norm);
        if self.tensors.tensor("lm_head.weight").is_ok() {
            self.add_matrix("lm_head.weight", "output.weight");
        }
        for layer in 0..self.number("num_hidden_layers") {
            let (from, to) = (format!("model.layers.{layer}"), format!("blk.{layer}"));
            for (from_name, to_name) in [
                ("self_attn.v_proj", "attn_v"),
                ("self_attn.o_proj", "attn_output"),
                ("mlp.gate_proj", "ffn_gate"),
                ("mlp.up_proj", "ffn_up"),
                ("mlp.down_proj", "ffn_down"),
            ] {
                self.add_matrix(
                    &format!("{from}.{from_name}.weight"),
                    &format!("{to}.{to_name}.weight"),
                );
            }
            self.add_norm(
                &format!("{from}.input_layernorm.weight"),
                &format!("{to}.attn_norm.weight"),
                &norm,
            );
        }
    }

    fn convert_rope(&mut self) {
        self.divisors = vec![1.0; self.number("head_dim") as usize / 2];
        let rope = self.config["rope_parameters"].clone();
        let number = |key: &str| rope[key].as_f64().unwrap() as f32;
        self.set("rope.freq_base", number("rope_theta"));
        let kind = rope["rope_type"].as_str().unwrap();
        match kind {
            "default" => (),
            "linear" | "yarn" => {
                self.set("rope.scaling.type", kind);
                self.set("rope.scaling.factor", number("factor"));
                if kind == "yarn" {
                    let original = number("original_max_position_embeddings") as u32;
                    self.set("rope.scaling.original_context_length", original);
                }
            }
            "llama3" => {
                self.divisors = llama3_divisors(self.number("head_dim") as usize, &number);
            }
            other => panic!("rope {other}"),
        }
    }

    /// Adds divisors that turn the file's frequencies into their bf16 neighbours.
    fn round_frequencies(&mut self) {
        let spec = inspect(&parse(&self.builder))
            .spec
            .expect("the metadata is sound");
        let frequencies = spec.ropes[0].frequencies(Some(&self.divisors), 4096);
        let divisors: Vec<u8> = frequencies
            .iter()
            .zip(&self.divisors)
            .flat_map(|(&frequency, divisor)| {
                (divisor * frequency / bf16::from_f32(frequency).to_f32()).to_le_bytes()
            })
            .collect();
        self.add("rope_freqs.weight", vec![divisors.len() / 4], F32, divisors);
    }
}

/// As converters compute them: long waves are divided by `factor`, short ones kept.
fn llama3_divisors(head_dim: usize, number: &dyn Fn(&str) -> f32) -> Vec<f32> {
    let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
    let (factor, original) = (number("factor"), number("original_max_position_embeddings"));
    let divisor = |pair_idx: usize| {
        let exponent = (2 * pair_idx) as f32 / head_dim as f32;
        let turns = original / (TAU * number("rope_theta").powf(exponent));
        match turns {
            turns if turns > high => 1.0,
            turns if turns < low => factor,
            turns => {
                let kept = (turns - low) / (high - low);
                1.0 / ((1.0 - kept) / factor + kept)
            }
        }
    };
    (0..head_dim / 2).map(divisor).collect()
}

/// `apart_max` is relative to the largest logit.
fn check(family: &str, architecture: &'static str, apart_max: f32) {
    let Some(folder) = fixture(&format!("arch/{family}")) else {
        return;
    };
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let (weights, reference) = (read("model.safetensors"), read("reference.safetensors"));
    let mut checkpoint = Checkpoint {
        config: serde_json::from_slice(&read("config.json")).unwrap(),
        tensors: SafeTensors::deserialize(&weights).unwrap(),
        architecture,
        builder: Builder::new().with("general.architecture", architecture),
        divisors: Vec::new(),
    };
    match architecture {
        "gemma3" => checkpoint.convert_gemma3(),
        _ => {
            checkpoint.convert_llama();
            checkpoint.round_frequencies();
        }
    }
    let mut runner = tiny(&checkpoint.builder, Precision::Exact);

    let reference = SafeTensors::deserialize(&reference).unwrap();
    let tokens = |name: &str| -> Vec<u32> {
        let tensor = reference.tensor(name).unwrap();
        tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| i64::from_le_bytes(bytes) as u32)
            .collect()
    };
    let mut text = tokens("input_ids");
    let expected = reference.tensor("logits").unwrap();
    let expected: Vec<f32> = expected
        .data()
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    let logits = all_rows(&mut runner, &text);
    let apart = logits
        .iter()
        .flatten()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs());
    let largest = expected
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    let apart = apart.fold(0.0, f32::max);
    println!(
        "{family}: {} rows, {apart:.1e} apart, largest logit {largest:.1}",
        logits.len()
    );
    assert_eq!(logits.len() * runner.shape().vocab, expected.len());
    assert!(apart < apart_max * largest, "{family}: {apart} apart");

    for next in tokens("greedy") {
        let logits = all_rows(&mut runner, &text);
        assert_eq!(
            argmax(&logits[logits.len() - 1]),
            next as usize,
            "after {} tokens",
            text.len()
        );
        text.push(next);
    }
}

#[test]
fn gemma3_with_a_window_shorter_than_the_text_matches_transformers() {
    check("gemma3", "gemma3", 5e-3);
}

#[test]
fn llama_with_and_without_tied_embeddings_matches_transformers() {
    check("llama", "llama", 1e-5);
    check("llama-tied", "llama", 1e-5);
}

#[test]
fn llama_with_one_key_head_and_wide_heads_matches_transformers() {
    check("llama-mqa-headdim", "llama", 1e-5);
}

#[test]
fn llama_with_stretched_rotations_matches_transformers() {
    check("llama-linear-rope", "llama", 1e-5);
    check("llama-yarn", "llama", 1e-5);
    check("llama3-rope", "llama", 1e-5);
}

#[test]
fn llama_with_a_sliding_window_matches_transformers() {
    check("mistral-window", "llama", 1e-5);
}
