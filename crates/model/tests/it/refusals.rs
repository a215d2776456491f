//! Files that cannot be served: refused by name, all reasons at once, never a panic.

use model::{LoadError, Precision, inspect, load};
use testkit::encode::Encoding;
use testkit::gguf::{Builder, Value};
use testkit::tiny;

use crate::support::{options, parse};

fn llama() -> Builder {
    tiny::llama(Encoding::Q4_1)
}

/// The reasons against a file, as `inspect` lists them; loading gives the same.
fn reasons(builder: &Builder) -> Vec<String> {
    let file = parse(builder);
    let refusals = inspect(&file).refusals;
    match load(&file, &options(Precision::Packed)) {
        Ok(_) => assert!(refusals.is_empty(), "loaded in spite of {refusals:?}"),
        Err(LoadError::Refused { refusals: same }) => assert_eq!(same.0, refusals),
        Err(other) => panic!("{other}"),
    }
    refusals.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(builder: &Builder, expected: &[&str]) {
    assert_eq!(reasons(builder), expected);
}

#[test]
fn the_tiny_models_are_not_refused() {
    check(&llama(), &[]);
    check(&tiny::gemma3(Encoding::Q8_0), &[]);
    check(&tiny::mixtral(Encoding::Q8_0), &[]);
    check(&tiny::gpt2(Encoding::Q8_0), &[]);
}

#[test]
fn an_unknown_architecture_is_named_with_those_known() {
    check(
        &llama().with("general.architecture", "mamba"),
        &[
            "architecture `mamba` is not supported (supported: gemma2, gemma3, gpt2, granite, llama, olmo2, phi3, qwen2, qwen3, qwen3moe, smollm3, stablelm, starcoder2)",
        ],
    );
    check(
        &llama().without("general.architecture"),
        &["metadata key `general.architecture` is missing"],
    );
    check(
        &llama().with("general.architecture", 7u32),
        &["metadata key `general.architecture` is 7, expected a string"],
    );
}

#[test]
fn a_missing_key_is_named() {
    check(
        &llama().without("llama.attention.head_count"),
        &["metadata key `llama.attention.head_count` is missing"],
    );
}

#[test]
fn head_counts_that_do_not_divide_are_refused() {
    let reasons = reasons(&llama().with("llama.attention.head_count_kv", 3u32));
    assert_eq!(
        reasons[0],
        "metadata key `llama.attention.head_count_kv` is 3, expected a divisor of attention.head_count = 4"
    );
}

#[test]
fn an_epsilon_must_be_a_sensible_number() {
    let key = "llama.attention.layer_norm_rms_epsilon";
    for value in [0.0, -1e-5, f32::NAN, f32::INFINITY, 1e-40] {
        let reasons = reasons(&llama().with(key, value));
        let expected = format!("metadata key `{key}` is {value}, expected a number in 1e-20..=1.0");
        assert_eq!(reasons, [expected]);
    }
}

#[test]
fn an_unknown_rope_scaling_is_named_with_those_known() {
    check(
        &llama().with("llama.rope.scaling.type", "longrope"),
        &[
            "metadata key `llama.rope.scaling.type` = \"longrope\": not supported (none, linear, yarn)",
        ],
    );
}

#[test]
fn experts_are_as_many_as_are_used_at_least_and_zero_experts_are_none() {
    check(&llama().with("llama.expert_count", 0u32), &[]);
    check(
        &llama().with("llama.expert_count", 8u32),
        &["metadata key `llama.expert_used_count` is missing"],
    );
    let few = llama().with("llama.expert_count", 2u32);
    let reasons = reasons(&few.with("llama.expert_used_count", 3u32));
    let expected = "metadata key `llama.expert_used_count` is 3, expected at most expert_count = 2";
    assert_eq!(reasons[0], expected);
}

#[test]
fn more_experts_than_any_model_has_are_refused() {
    check(
        &tiny::mixtral(Encoding::Q8_0).with("llama.expert_count", u32::MAX),
        &["metadata key `llama.expert_count` is 4294967295, expected a whole number in 0..=1024"],
    );
}

/// A key that the family does not read and that would change the result.
#[test]
fn a_key_that_matters_and_has_no_place_is_refused() {
    check(
        &tiny::mixtral(Encoding::Q8_0).with("llama.expert_shared_count", 1u32),
        &["metadata key `llama.expert_shared_count` = 1: not supported (not part of this family)"],
    );
    check(
        &tiny::mixtral(Encoding::Q8_0).with("llama.expert_gating_func", 2u32),
        &[
            "metadata key `llama.expert_gating_func` = 2: not supported (a softmax over experts, unscaled)",
        ],
    );
    check(
        &llama().with("llama.attention.causal", false),
        &["metadata key `llama.attention.causal` = false: not supported (decoders)"],
    );
    check(&llama().with("llama.attention.causal", true), &[]);
    check(&llama().with("llama.attention.sliding_window", 0u32), &[]);
}

#[test]
fn a_missing_gate_is_missing_and_not_looked_for_elsewhere() {
    check(
        &llama().without_tensor("blk.0.ffn_gate.weight"),
        &["tensor `blk.0.ffn_gate.weight` [64, 128] is missing"],
    );
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    check(
        &llama().without_tensor("blk.1.ffn_down.weight"),
        &["tensor `blk.1.ffn_down.weight` [128, 64] is missing"],
    );
}

#[test]
fn a_wrong_shape_is_named_with_the_one_expected() {
    let builder = llama().without_tensor("blk.0.attn_k.weight").tensor(
        "blk.0.attn_k.weight",
        &[64, 48],
        0,
        vec![0; 64 * 48 * 4],
    );
    check(
        &builder,
        &["tensor `blk.0.attn_k.weight` has shape [64, 48], expected [64, 32]"],
    );
}

#[test]
fn a_tensor_without_a_place_is_refused_and_not_left_out() {
    let builder = llama().tensor("blk.0.ffn_sub_norm.weight", &[128], 0, vec![0; 512]);
    check(
        &builder,
        &["tensor `blk.0.ffn_sub_norm.weight` [128] has no place in architecture `llama`"],
    );
}

/// Case B5.
#[test]
fn a_type_that_is_not_read_is_named_with_tensor_and_supported_list() {
    let mut file = llama().build();
    file.set_u32("tensor[blk.0.attn_q.weight].type", 16);
    let file = formats::gguf::Gguf::parse(file.bytes).unwrap();
    let refusals = inspect(&file).refusals;
    assert_eq!(refusals.len(), 1);
    let words = refusals[0].to_string();
    for expected in ["blk.0.attn_q.weight", "16", "IQ2_XXS", "Q4_K"] {
        assert!(words.contains(expected), "{words}");
    }
    assert!(load(&file, &options(Precision::Packed)).is_err());
}

#[test]
fn divisors_of_the_rotation_must_be_usable() {
    let with_divisors = |values: [f32; 8]| {
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        llama().tensor("rope_freqs.weight", &[8], 0, bytes)
    };
    check(&with_divisors([1.0; 8]), &[]);
    let mut values = [1.0; 8];
    values[3] = 0.0;
    check(
        &with_divisors(values),
        &["tensor `rope_freqs.weight` holds 0 at index 3, expected a number in 0.001..=1000000.0"],
    );
}

#[test]
fn everything_wrong_with_a_file_is_said_at_once() {
    let builder = llama()
        .without("llama.context_length")
        .with("llama.rope.freq_base", f32::NAN)
        .with("llama.block_count", "two");
    let expected = [
        "metadata key `llama.context_length` is missing",
        "metadata key `llama.block_count` is \"two\", expected a whole number in 1..=1024",
        "metadata key `llama.rope.freq_base` is NaN, expected a number in 2.0..=1000000000000.0",
    ];
    check(&builder, &expected);
}

/// Whatever stands under a key, opening and inspecting the file ends, without a panic.
#[test]
fn no_value_of_any_key_panics() {
    let extremes = [
        Value::U8(0),
        Value::I8(-1),
        Value::U32(1),
        Value::U32(3),
        Value::U32(u32::MAX),
        Value::U64(u64::MAX),
        Value::U64(1 << 40),
        Value::I64(i64::MIN),
        Value::F32(f32::NAN),
        Value::F32(f32::MIN_POSITIVE / 2.0),
        Value::F32(f32::MAX),
        Value::F64(f64::INFINITY),
        Value::F64(1e300),
        Value::Bool(true),
        Value::String(vec![0xff, 0xfe]),
        Value::from(vec![4u32, 4]),
    ];
    let keys = [
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.causal",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "block_count",
        "context_length",
        "embedding_length",
        "expert_count",
        "expert_feed_forward_length",
        "expert_gating_func",
        "expert_used_count",
        "feed_forward_length",
        "final_logit_softcapping",
        "attn_logit_softcapping",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "vocab_size",
    ];
    for (name, model) in [
        ("llama", tiny::llama(Encoding::F32)),
        ("gemma3", tiny::gemma3(Encoding::F32)),
        ("llama", tiny::mixtral(Encoding::F32)),
        ("gpt2", tiny::gpt2(Encoding::F32)),
    ] {
        for key in keys {
            for value in &extremes {
                let file = parse(&model.clone().with(&format!("{name}.{key}"), value.clone()));
                let refused = !inspect(&file).refusals.is_empty();
                let loaded = load(&file, &options(Precision::Packed));
                assert_eq!(loaded.is_err(), refused, "{name}.{key} = {value:?}");
            }
        }
    }
}

#[test]
fn a_kv_budget_below_one_block_is_refused_with_both_numbers() {
    let options = model::LoadOptions {
        kv_budget: model::KvBudget::Bytes(1000),
        context: None,
        ..options(Precision::Packed)
    };
    let error = load(&parse(&llama()), &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "KV budget Bytes(1000) holds no block: one takes 4096 bytes"
    );
    assert_eq!(error.fault(), model::Fault::Caller);
}
