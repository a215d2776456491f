//! Gemma 3, text part.
//!
//! Norms before and after each half of a block, normalised query and key heads, GeGLU,
//! embeddings scaled by `sqrt(hidden)`. Five layers look back over a short window and turn
//! with base 10 000; every sixth sees everything and turns with base 1 000 000, stretched
//! if the file says so. The converter adds the 1 of `1 + weight` to the norms.
//!
//! Source: Gemma 3 report, <https://arxiv.org/abs/2503.19786>; key names from the GGUF
//! specification.

use super::{Keys, Sizes, read_attention, read_head};
use crate::spec::{
    Activation, AttentionSpec, DecoderSpec, FeedForwardSpec, LIMITS, LayerSpec, NormPlacement,
    NormSpec, QkNorm, RopeDivisors, RopePairing, RopeScaling, RopeSpec,
};

/// Layers of the 27B model, the only one whose scale is not `1 / sqrt(head_dim)`. Files do
/// not carry its `query_pre_attn_scalar`, so the layer count has to tell.
const NUM_LAYERS_27B: usize = 62;

/// Local layers before each global one, plus that one.
const PATTERN_LEN: usize = 6;

const GLOBAL: usize = 0;
const LOCAL: usize = 1;

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    let sizes = Sizes::read(keys);
    let mut attention = read_attention(keys, sizes.hidden, QkNorm::PerHead);
    if sizes.num_layers == NUM_LAYERS_27B {
        attention.scale = (attention.num_heads as f32 / sizes.hidden as f32).sqrt();
    }
    let window = keys.count("attention.sliding_window", 1..=LIMITS.context_max);
    let pattern_len = keys.count_or(
        "attention.sliding_window_pattern",
        1..=LIMITS.layers_max,
        PATTERN_LEN,
    );
    let layer = |layer_idx: usize| match (layer_idx + 1).is_multiple_of(pattern_len) {
        true => LayerSpec {
            rope_idx: GLOBAL,
            window: None,
        },
        false => LayerSpec {
            rope_idx: LOCAL,
            window: Some(window),
        },
    };
    DecoderSpec {
        architecture: keys.architecture(),
        vocab: sizes.vocab,
        hidden: sizes.hidden,
        context_max: sizes.context_max,
        embedding_scale: (sizes.hidden as f32).sqrt(),
        norm: NormSpec {
            eps: sizes.norm_eps,
            placement: NormPlacement::BeforeAndAfter,
        },
        attention,
        feed_forward: FeedForwardSpec {
            width: sizes.feed_forward,
            activation: Activation::GeluTanh,
        },
        ropes: read_ropes(keys, &attention),
        layers: (0..sizes.num_layers).map(layer).collect(),
        head: read_head(keys),
        logit_softcap: keys.optional_number("final_logit_softcapping", LIMITS.multiplier),
    }
}

/// In the order of [`GLOBAL`] and [`LOCAL`]. Only global layers were stretched.
fn read_ropes(keys: &mut Keys<'_>, attention: &AttentionSpec) -> Vec<RopeSpec> {
    let global = RopeSpec {
        pairing: RopePairing::Halves,
        num_dims: keys.rope_dims(attention.head_dim),
        base: keys.rope_base("rope.freq_base", 1_000_000.0),
        scaling: keys.rope_scaling(),
        divisors: RopeDivisors::None,
    };
    let local = RopeSpec {
        base: keys.rope_base("rope.freq_base_swa", 10_000.0),
        scaling: RopeScaling::None,
        ..global.clone()
    };
    vec![global, local]
}
