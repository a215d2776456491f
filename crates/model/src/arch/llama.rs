//! The llama family: Llama 1 to 3, SmolLM2, Mistral 7B, TinyLlama and what else converts
//! to `general.architecture = llama`.
//!
//! Pre-norm, rotary attention, SwiGLU. The converter permutes query and key rows so that a
//! rotating pair is adjacent. Llama 3 stretches its context by divisors in a tensor.
//!
//! Source: Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>; key names from the
//! GGUF specification.

use super::{Keys, Sizes, read_attention, read_head};
use crate::spec::{
    Activation, DecoderSpec, FeedForwardSpec, LIMITS, LayerSpec, NormPlacement, NormSpec, QkNorm,
    RopePairing, RopeSpec,
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    let sizes = Sizes::read(keys);
    let attention = read_attention(keys, sizes.hidden, QkNorm::None);
    let rope = RopeSpec {
        pairing: RopePairing::Adjacent,
        num_dims: keys.rope_dims(attention.head_dim),
        base: keys.rope_base("rope.freq_base", 10_000.0),
        scaling: keys.rope_scaling(),
        divisors: keys.rope_divisors(),
    };
    let window = keys.optional_count("attention.sliding_window", 1..=LIMITS.context_max);
    for key in ["expert_count", "expert_used_count"] {
        keys.refuse_if_set(key, "dense feed-forward layers only");
    }
    for key in [
        "attention.scale",
        "logit_scale",
        "embedding_scale",
        "residual_scale",
    ] {
        keys.refuse_if_set(key, "llama without multipliers only");
    }
    DecoderSpec {
        architecture: keys.architecture(),
        vocab: sizes.vocab,
        hidden: sizes.hidden,
        context_max: sizes.context_max,
        embedding_scale: 1.0,
        norm: NormSpec {
            eps: sizes.norm_eps,
            placement: NormPlacement::Before,
        },
        attention,
        feed_forward: FeedForwardSpec {
            width: sizes.feed_forward,
            activation: Activation::Silu,
        },
        ropes: vec![rope],
        layers: vec![
            LayerSpec {
                rope_idx: 0,
                window
            };
            sizes.num_layers
        ],
        head: read_head(keys),
        logit_softcap: None,
    }
}
