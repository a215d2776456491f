//! GGUF files of every family against transformers, converted here from tiny checkpoints.
//!
//! `shared/fixtures/arch` holds random-weight checkpoints with logits that transformers computed in 32-bit floats; the
//! conversion is that of the format's converters (`convert.rs`).
//!
//! The reference was computed with the frequencies of the rotations rounded to bf16, as transformers holds them after
//! casting a model. A tensor of divisors can say so in a file. Gemma 3's local layers take none; that family is
//! compared with its folder, computed without rounding, which `folders.rs` compares with transformers.

use half::bf16;
use model::{Precision, inspect};

use crate::convert::{Checkpoint, Experts};
use crate::folders::{Reference, distance, in_chunks, load};
use crate::support::{all_rows, argmax, fixture, parse, tiny};

/// In standard deviations of a row of logits.
const APART_MAX: f32 = 2e-3;

/// Adds divisors that turn the file's frequencies into their bf16 neighbours.
fn round_frequencies(checkpoint: &mut Checkpoint) {
    let spec = inspect(&parse(&checkpoint.builder)).spec;
    let spec = spec.expect("the metadata is sound");
    let Some(rope) = spec.ropes.first() else {
        return;
    };
    let frequencies = rope.frequencies(None, spec.context_max);
    let rounded = |(&frequency, divisor): (&f32, &f32)| {
        frequency / bf16::from_f32(frequency / divisor).to_f32()
    };
    let divisors: Vec<f32> = frequencies
        .iter()
        .zip(&checkpoint.divisors)
        .map(rounded)
        .collect();
    checkpoint.add("rope_freqs.weight", &[divisors.len()], &divisors);
}

fn check(family: &str, architecture: &'static str) {
    check_stored(family, architecture, Experts::Stacked);
}

/// The logits of all positions, whole and in chunks, and the greedy continuation.
fn check_stored(family: &str, architecture: &'static str, experts: Experts) {
    let Some(folder) = fixture(&format!("arch/{family}")) else {
        return;
    };
    let mut checkpoint = Checkpoint::convert(&folder, architecture, experts);
    round_frequencies(&mut checkpoint);
    let mut runner = tiny(&checkpoint.builder, Precision::Exact);
    let reference = Reference::read(&folder);
    let whole = in_chunks(&mut runner, &reference.ids, reference.ids.len());
    let apart = distance(&whole, &reference.logits);
    println!("{family}: {apart:.1e} deviations apart");
    assert!(apart < APART_MAX, "{family}: {apart} deviations apart");
    assert_eq!(in_chunks(&mut runner, &reference.ids, 7), whole, "{family}");

    let mut text = reference.ids.clone();
    for next in reference.greedy {
        let logits = all_rows(&mut runner, &text);
        let chosen = argmax(&logits[logits.len() - 1]);
        assert_eq!(chosen, next as usize, "after {} tokens", text.len());
        text.push(next);
    }
}

#[test]
fn gemma2_with_soft_caps_and_alternating_windows_matches_transformers() {
    check("gemma2", "gemma2");
}

#[test]
fn gemma3_with_a_window_shorter_than_the_text_computes_what_its_folder_does() {
    let Some(folder) = fixture("arch/gemma3") else {
        return;
    };
    let checkpoint = Checkpoint::convert(&folder, "gemma3", Experts::Stacked);
    let mut unrounded = checkpoint.config.clone();
    unrounded["dtype"] = "float32".into();
    let copy = tempfile::tempdir().unwrap();
    std::fs::write(copy.path().join("config.json"), unrounded.to_string()).unwrap();
    let weights = "model.safetensors";
    std::fs::copy(folder.join(weights), copy.path().join(weights)).unwrap();

    let ids = Reference::read(&folder).ids;
    let from_folder = all_rows(&mut load(copy.path(), Precision::Exact), &ids);
    let mut runner = tiny(&checkpoint.builder, Precision::Exact);
    let apart = distance(&all_rows(&mut runner, &ids), &from_folder);
    println!("gemma3: {apart:.1e} deviations apart");
    // Only the query's scale is in another place.
    assert!(apart < 1e-4, "{apart} deviations apart");
}

#[test]
fn gpt2_with_learned_positions_and_one_fused_projection_matches_transformers() {
    check("gpt2", "gpt2");
}

#[test]
fn granite_with_its_multipliers_matches_transformers() {
    check("granite", "granite");
}

#[test]
fn llama_with_and_without_tied_embeddings_matches_transformers() {
    check("llama", "llama");
    check("llama-tied", "llama");
}

#[test]
fn llama_with_one_key_head_and_wide_heads_matches_transformers() {
    check("llama-mqa-headdim", "llama");
}

#[test]
fn llama_with_stretched_rotations_matches_transformers() {
    check("llama-linear-rope", "llama");
    check("llama-yarn", "llama");
    check("llama3-rope", "llama");
}

#[test]
fn llama_with_a_sliding_window_matches_transformers() {
    check("mistral-window", "llama");
}

#[test]
fn mixtral_with_stacked_and_with_single_experts_matches_transformers() {
    check_stored("mixtral", "llama", Experts::Stacked);
    check_stored("mixtral", "llama", Experts::Split);
}

#[test]
fn olmo2_with_norms_after_and_over_all_heads_matches_transformers() {
    check("olmo2", "olmo2");
}

#[test]
fn phi3_with_fused_projections_matches_transformers() {
    check("phi3", "phi3");
}

#[test]
fn qwen2_with_biases_matches_transformers() {
    check("qwen2", "qwen2");
}

#[test]
fn qwen3_with_normalised_heads_matches_transformers() {
    check("qwen3", "qwen3");
}

#[test]
fn qwen3moe_with_narrow_experts_matches_transformers() {
    check("qwen3-moe", "qwen3moe");
}

#[test]
fn smollm3_with_a_layer_without_rotation_matches_transformers() {
    check("smollm3", "smollm3");
}

/// Its converter says `use_parallel_residual` of models that are not; the norm that only sequential ones have is there.
#[test]
fn stablelm_with_partial_rotation_matches_transformers() {
    check("stablelm-partial-rope", "stablelm");
}

#[test]
fn starcoder2_with_biases_and_no_gate_matches_transformers() {
    check("starcoder2", "starcoder2");
}
