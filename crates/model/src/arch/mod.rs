//! From a model's description to a [`DecoderSpec`]: one short file per family.
//!
//! The one idea: a family is what its keys mean, and nothing else. Each file says in a [`Family`] how it
//! differs from the plain decoder, and what else its keys change; GGUF metadata and `config.json` are read by the same
//! lines (`store.rs`). All of them are computed by the same decoder. Tensor names and shapes follow from
//! the spec (`inventory.rs`, `naming.rs`).

mod gemma;
mod gpt2;
mod granite;
mod keys;
mod llama;
mod olmo2;
mod phi3;
mod qwen;
mod rope;
mod smollm3;
mod stablelm;
mod starcoder2;
mod store;

use self::keys::Keys;
use self::store::{Fact, Store};
use crate::inventory::{LayerRole, Role};
use crate::naming::Naming;
use crate::refusal::Refusal;
use crate::source::SourceRef;
use crate::spec::{
    Activation, AttentionBiases, AttentionSpec, Bias, DecoderSpec, ExpertShares, ExpertsSpec,
    FeedForwardShape, FeedForwardSpec, HeadWeights, LIMITS, LayerFeedForward, LayerSpec,
    LearnedPositions, NormKind, NormPlacement, NormSpec, QkNorm, RopeDivisors, RopePairing,
    RopeRounding, RopeSpec,
};

/// How one architecture is read.
struct Architecture {
    /// `general.architecture`, and the prefix of its keys.
    gguf: &'static str,
    /// `model_type` of `config.json`.
    config: &'static [&'static str],
    read: fn(&mut Keys<'_>) -> DecoderSpec,
}

const ARCHITECTURES: &[Architecture] = &[
    known("gemma2", &["gemma2"], gemma::read_2),
    known("gemma3", &["gemma3_text"], gemma::read_3),
    known("gpt2", &["gpt2"], gpt2::read),
    known("granite", &["granite"], granite::read),
    known("llama", &["llama", "mistral", "mixtral"], llama::read),
    known("olmo2", &["olmo2"], olmo2::read),
    known("phi3", &["phi3"], phi3::read),
    known("qwen2", &["qwen2"], qwen::read_2),
    known("qwen3", &["qwen3"], qwen::read_3),
    known("qwen3moe", &["qwen3_moe"], qwen::read_3),
    known("smollm3", &["smollm3"], smollm3::read),
    known("stablelm", &["stablelm"], stablelm::read),
    known("starcoder2", &["starcoder2"], starcoder2::read),
];

const fn known(
    gguf: &'static str,
    config: &'static [&'static str],
    read: fn(&mut Keys<'_>) -> DecoderSpec,
) -> Architecture {
    Architecture { gguf, config, read }
}

/// A spec, and what else a loader has to know of the source.
#[derive(Debug)]
pub(crate) struct Described {
    pub spec: DecoderSpec,
    /// What its tensors are called.
    pub naming: Naming,
    /// Added to the weights of all norms: folders keep `weight` where the definition says `1 + weight`.
    pub norm_offset: f32,
    /// Tensors that say nothing the description does not say, or were read with it.
    spare: Vec<&'static str>,
    /// Keys of the architecture that nothing read: reported by `inspect`, not refused,
    /// because the ones known to matter are (`Keys::refuse_if_set`).
    pub unread_keys: Vec<String>,
}

/// Reads the description of the decoder in `source`.
///
/// # Errors
///
/// Every reason why it cannot be served that the description alone shows.
pub(crate) fn describe(source: SourceRef<'_>) -> Result<Described, Vec<Refusal>> {
    let name = store::architecture(source).map_err(|refusal| vec![refusal])?;
    let is_named = |known: &&Architecture| match source {
        SourceRef::Gguf(_) => known.gguf == name,
        SourceRef::Folder(_) => known.config.contains(&name.as_str()),
    };
    let Some(architecture) = ARCHITECTURES.iter().find(is_named) else {
        return Err(vec![Refusal::Architecture {
            name,
            supported: supported(source),
        }]);
    };
    let store = match source {
        SourceRef::Gguf(file) => Store::Gguf {
            file,
            prefix: architecture.gguf,
        },
        SourceRef::Folder(folder) => Store::Config(folder),
    };
    let mut keys = Keys::new(store, architecture.gguf);
    for key in [
        "quantization_config",
        "is_encoder_decoder",
        "add_cross_attention",
        "use_bidirectional_attention",
    ] {
        if keys.is_config() && keys.value(key) != Some(Fact::Odd("an object".to_owned())) {
            keys.refuse_if_set(key, "plain decoders with weights in F32, F16 or BF16");
        } else if keys.is_config() {
            keys.refuse_feature(key, "an object".to_owned(), "weights in F32, F16 or BF16");
        }
    }
    let spec = (architecture.read)(&mut keys);
    refuse_unread(&mut keys);
    let unread_keys = keys.unread();
    let naming = keys.naming.clone();
    let is_gemma = matches!(architecture.gguf, "gemma2" | "gemma3");
    let norm_offset = if keys.is_config() && is_gemma {
        1.0
    } else {
        0.0
    };
    match keys.into_refusals() {
        refusals if refusals.is_empty() => Ok(Described {
            spare: spare_tensors(source, &spec),
            spec,
            naming,
            norm_offset,
            unread_keys,
        }),
        refusals => Err(refusals),
    }
}

/// GGUF keys that change what a decoder computes, whatever its family. One that the family did not read asks for
/// what it does not have.
const KEYS_THAT_MATTER: &[&str] = &[
    "attention.clamp_kqv",
    "attention.group_norm_groups",
    "attention.kv_lora_rank",
    "attention.max_alibi_bias",
    "attention.q_lora_rank",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window_pattern",
    "attention.temperature_length",
    "attention.temperature_scale",
    "embedding_scale",
    "expert_count",
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "interleave_moe_layer_step",
    "leading_dense_block_count",
    "logit_scale",
    "moe_every_n_layers",
    "nextn_predict_layers",
    "residual_scale",
    "rope.dimension_sections",
    "rope.scaling.yarn_log_multiplier",
];

/// Refuses what the family has no place for.
fn refuse_unread(keys: &mut Keys<'_>) {
    if keys.is_config() {
        return;
    }
    for key in KEYS_THAT_MATTER {
        if !keys.was_read(key) {
            keys.refuse_if_set(key, "not part of this family");
        }
    }
    if !keys.flag_or("attention.causal", true) {
        keys.refuse_feature("attention.causal", "false".to_owned(), "decoders");
    }
    // 1 is the softmax; scales of 0 and 1 change nothing.
    for (key, neutral) in [("expert_gating_func", 1), ("expert_weights_scale", 1)] {
        match keys.value(key) {
            Some(Fact::Integer(number)) if number == neutral => (),
            Some(Fact::Number(number)) if number == neutral as f64 => (),
            _ => keys.refuse_if_set(key, "a softmax over experts, unscaled"),
        }
    }
}

fn supported(source: SourceRef<'_>) -> String {
    let names: Vec<&str> = match source {
        SourceRef::Gguf(_) => ARCHITECTURES.iter().map(|known| known.gguf).collect(),
        SourceRef::Folder(_) => ARCHITECTURES
            .iter()
            .flat_map(|known| known.config)
            .copied()
            .collect(),
    };
    names.join(", ")
}

/// Endings of tensors that need no place: tables of frequencies and masks that old converters stored although the
/// description implies them, and divisors that were read with it.
fn spare_tensors(source: SourceRef<'_>, spec: &DecoderSpec) -> Vec<&'static str> {
    let mut spare = vec![".attn_rot_embd.weight", ".rotary_emb.inv_freq"];
    if spec
        .ropes
        .iter()
        .any(|rope| matches!(rope.divisors, RopeDivisors::ByContext { .. }))
    {
        spare.extend(["rope_factors_long.weight", "rope_factors_short.weight"]);
    }
    if let SourceRef::Folder(_) = source {
        spare.extend([".attn.bias", ".attn.masked_bias"]);
    }
    spare
}

impl Described {
    /// Whether a tensor without a role may be there.
    pub(crate) fn is_spare(&self, name: &str) -> bool {
        self.spare.iter().any(|ending| name.ends_with(ending))
    }
}

/// How a family differs from the plain decoder, as far as its keys do not say.
struct Family {
    norm: NormKind,
    placement: NormPlacement,
    qk_norm: QkNorm,
    /// Of GGUF files: the converter permutes some families. Folders have halves.
    pairing: RopePairing,
    shape: FeedForwardShape,
    activation: Activation,
    rope_base: f32,
    /// Share of a head that rotates, if the file does not say.
    partial_rotation: f32,
    /// Whether the embedding is the head, if `config.json` does not say.
    head: HeadWeights,
    window: Windows,
    /// Width of the feed-forward layers, if `config.json` does not say, from that of the stream.
    default_width: Option<fn(usize) -> usize>,
}

/// Which layers look back over a window only, if the description has one and no list of layers.
enum Windows {
    All,
    /// By the index of a layer.
    Some(fn(usize) -> bool),
}

/// The plain decoder: Llama's.
const PLAIN: Family = Family {
    norm: NormKind::Rms,
    placement: NormPlacement::Before,
    qk_norm: QkNorm::None,
    pairing: RopePairing::Halves,
    shape: FeedForwardShape::Gated,
    activation: Activation::Silu,
    rope_base: 10_000.0,
    partial_rotation: 1.0,
    head: HeadWeights::Separate,
    window: Windows::All,
    default_width: None,
};

/// Reads what all families state alike. What a family states besides changes the result.
fn read_plain(keys: &mut Keys<'_>, family: &Family) -> DecoderSpec {
    let hidden = keys.count("embedding_length", 1..=LIMITS.width_max);
    let context_max = keys.count("context_length", 1..=LIMITS.context_max);
    let num_layers = keys.count("block_count", 1..=LIMITS.layers_max);
    let eps_key = match family.norm {
        NormKind::Rms => "attention.layer_norm_rms_epsilon",
        NormKind::Layer => "attention.layer_norm_epsilon",
    };
    let attention = read_attention(keys, hidden, family);
    let rope = read_rope(keys, family, attention.head_dim, context_max);
    let window = read_windows(keys, family, num_layers);
    let layer = |layer_idx: usize| LayerSpec {
        rope_idx: Some(0),
        window: window[layer_idx],
        feed_forward: LayerFeedForward::Dense,
    };
    DecoderSpec {
        architecture: keys.architecture(),
        vocab: keys.vocab(),
        hidden,
        context_max,
        embedding_scale: 1.0,
        learned_positions: LearnedPositions::Absent,
        residual_scale: 1.0,
        norm: NormSpec {
            kind: family.norm,
            eps: keys.number(eps_key, LIMITS.norm_eps),
            placement: family.placement,
        },
        attention,
        feed_forward: FeedForwardSpec {
            width: match family.default_width {
                Some(default) if keys.is_config() => {
                    keys.count_or("feed_forward_length", 1..=LIMITS.width_max, default(hidden))
                }
                _ => keys.count("feed_forward_length", 1..=LIMITS.width_max),
            },
            shape: family.shape,
            activation: read_activation(keys, family),
            bias: bias_if_present(keys, LayerRole::UpBias),
        },
        experts: None,
        ropes: vec![rope],
        layers: (0..num_layers).map(layer).collect(),
        head: read_head(keys, family),
        logit_scale: 1.0,
        logit_softcap: keys.optional_number("final_logit_softcapping", LIMITS.multiplier),
    }
}

/// Heads and their width; the scale is the usual `1 / sqrt(head_dim)`.
fn read_attention(keys: &mut Keys<'_>, hidden: usize, family: &Family) -> AttentionSpec {
    let num_heads = keys.count("attention.head_count", 1..=LIMITS.heads_max);
    let num_kv_heads = keys.count_or("attention.head_count_kv", 1..=LIMITS.heads_max, num_heads);
    if !num_heads.is_multiple_of(num_kv_heads) {
        let expected = format!("a divisor of attention.head_count = {num_heads}");
        keys.refuse_contradiction("attention.head_count_kv", expected, num_kv_heads);
    }
    let head_dim = match keys.optional_count("attention.key_length", 1..=LIMITS.head_dim_max) {
        Some(head_dim) => head_dim,
        None => hidden_per_head(keys, hidden, num_heads),
    };
    if head_dim % 2 != 0 {
        let expected = "an even head width, because rotations turn pairs".to_owned();
        keys.refuse_contradiction("attention.key_length", expected, head_dim);
    }
    let value_dim = keys.count_or("attention.value_length", 1..=LIMITS.head_dim_max, head_dim);
    if value_dim != head_dim {
        let expected = format!("attention.key_length = {head_dim}");
        keys.refuse_contradiction("attention.value_length", expected, value_dim);
    }
    AttentionSpec {
        num_heads,
        num_kv_heads,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
        softcap: keys.optional_number("attn_logit_softcapping", LIMITS.multiplier),
        qk_norm: family.qk_norm,
        biases: AttentionBiases {
            qkv: bias_if_present(keys, LayerRole::QueryBias),
            output: bias_if_present(keys, LayerRole::AttentionOutputBias),
        },
    }
}

fn hidden_per_head(keys: &mut Keys<'_>, hidden: usize, num_heads: usize) -> usize {
    if !hidden.is_multiple_of(num_heads) || hidden / num_heads > LIMITS.head_dim_max {
        let expected =
            format!("a divisor of embedding_length = {hidden} (no attention.key_length)");
        keys.refuse_contradiction("attention.head_count", expected, num_heads);
        return 2;
    }
    hidden / num_heads
}

/// The one rotation of most families.
fn read_rope(
    keys: &mut Keys<'_>,
    family: &Family,
    head_dim: usize,
    context_max: usize,
) -> RopeSpec {
    if keys.is_config() {
        let defaults = rope::RopeDefaults {
            base: family.rope_base,
            partial: family.partial_rotation,
            head_dim,
            context_max,
        };
        return rope::read(keys, "full_attention", &defaults);
    }
    RopeSpec {
        pairing: family.pairing,
        num_dims: keys.rope_dims(head_dim),
        base: keys.rope_base("rope.freq_base", family.rope_base),
        scaling: keys.rope_scaling(),
        divisors: keys.rope_divisors(),
        magnitude: 1.0,
        rounding: RopeRounding::None,
    }
}

/// How far each layer looks back: `[num_layers]`.
fn read_windows(keys: &mut Keys<'_>, family: &Family, num_layers: usize) -> Vec<Option<usize>> {
    if !keys.is_config() {
        // Converters write 0 where there is none (Phi 4).
        let window = keys
            .optional_count("attention.sliding_window", 0..=LIMITS.context_max)
            .filter(|&window| window > 0);
        let is_local = |layer_idx: usize| match family.window {
            Windows::All => true,
            Windows::Some(is_local) => is_local(layer_idx),
        };
        return (0..num_layers)
            .map(|layer_idx| window.filter(|_| is_local(layer_idx)))
            .collect();
    }
    let window = keys.optional_count("attention.sliding_window", 1..=LIMITS.context_max);
    // Families that do not have this switch have it on.
    let is_used = keys.flag_or("use_sliding_window", true);
    let first_local = keys
        .optional_count("max_window_layers", 0..=LIMITS.layers_max)
        .unwrap_or(0);
    let listed = layer_types(keys, num_layers);
    let is_local = |layer_idx: usize| match (&listed, &family.window) {
        (Some(listed), _) => listed[layer_idx] == "sliding_attention",
        (None, Windows::All) => layer_idx >= first_local,
        (None, Windows::Some(is_local)) => is_local(layer_idx),
    };
    let window = window.filter(|_| is_used);
    (0..num_layers)
        .map(|layer_idx| window.filter(|_| is_local(layer_idx)))
        .collect()
}

/// The kinds of all layers, if `config.json` lists them.
fn layer_types(keys: &mut Keys<'_>, num_layers: usize) -> Option<Vec<String>> {
    const KEY: &str = "layer_types";
    keys.value(KEY)?;
    let list = keys.store.config()?.get(KEY)?.as_array();
    let words: Vec<String> = list
        .into_iter()
        .flatten()
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect();
    if words.len() != num_layers {
        keys.refuse_value(
            KEY,
            format!("{num_layers} words"),
            format!("{} of them", words.len()),
        );
        return None;
    }
    let is_known = |word: &&String| matches!(word.as_str(), "full_attention" | "sliding_attention");
    if let Some(other) = words.iter().find(|word| !is_known(word)) {
        keys.refuse_feature(
            KEY,
            format!("{other:?}"),
            "full_attention, sliding_attention",
        );
    }
    Some(words)
}

/// GGUF files leave the activation to the family; folders name it.
fn read_activation(keys: &mut Keys<'_>, family: &Family) -> Activation {
    if !keys.is_config() {
        return family.activation;
    }
    let named = ["hidden_activation", "hidden_act", "activation_function"];
    let Some((key, word)) = named.iter().find_map(|key| Some((*key, keys.word(key)?))) else {
        return family.activation;
    };
    match word.as_str() {
        "silu" | "swish" => Activation::Silu,
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Activation::GeluTanh,
        "gelu" => Activation::GeluErf,
        "relu" => Activation::Relu,
        _ => {
            keys.refuse_feature(
                key,
                format!("{word:?}"),
                "silu, gelu, gelu_pytorch_tanh, gelu_new, relu",
            );
            family.activation
        }
    }
}

/// Biases are told by their tensors alone. Layer 0 speaks for all: `inventory.rs` then
/// demands them in every layer, and refuses them where layer 0 has none.
fn bias_if_present(keys: &Keys<'_>, role: LayerRole) -> Bias {
    if keys.has(Role::Layer(0, role)) {
        Bias::Present
    } else {
        Bias::Absent
    }
}

/// A model with an output matrix uses it, whatever its description says; one without reuses the embedding (case
/// B6), unless `config.json` says that they are two: then it is missing.
fn read_head(keys: &mut Keys<'_>, family: &Family) -> HeadWeights {
    let may_be_tied =
        !keys.is_config() || keys.flag_or("tie_word_embeddings", family.head == HeadWeights::Tied);
    let is_tied = may_be_tied && !keys.has(Role::Head);
    if is_tied {
        HeadWeights::Tied
    } else {
        HeadWeights::Separate
    }
}

/// The experts of a family that has some; which layers have them is another matter.
fn read_experts(
    keys: &mut Keys<'_>,
    spec: &DecoderSpec,
    shares: ExpertShares,
) -> Option<ExpertsSpec> {
    let num_experts = keys
        .optional_count("expert_count", 0..=LIMITS.experts_max)
        .filter(|&num| num > 0)?;
    let num_used = keys.count("expert_used_count", 1..=LIMITS.experts_max);
    if num_used > num_experts {
        let expected = format!("at most expert_count = {num_experts}");
        keys.refuse_contradiction("expert_used_count", expected, num_used);
    }
    let width = spec.feed_forward.width;
    Some(ExpertsSpec {
        num_experts,
        num_used,
        width: keys.count_or("expert_feed_forward_length", 1..=LIMITS.width_max, width),
        activation: spec.feed_forward.activation,
        shares,
    })
}
