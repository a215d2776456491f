//! The llama family: Llama 1 to 3, SmolLM2, Mistral 7B, Mixtral, TinyLlama and what else converts
//! to `general.architecture = llama`.
//!
//! Pre-norm, rotary attention, SwiGLU, by experts in Mixtral. The converter permutes query and key rows so that a
//! rotating pair is adjacent. Llama 3 stretches its context by divisors in a tensor.
//!
//! Source: Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>; Jiang et al. 2024,
//! <https://arxiv.org/abs/2401.04088>; key names from the GGUF specification.

use super::{Family, Keys, PLAIN, read_experts, read_plain};
use crate::spec::{DecoderSpec, ExpertShares, LayerFeedForward, RopePairing};

const LLAMA: Family = Family {
    pairing: RopePairing::Adjacent,
    ..PLAIN
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &LLAMA);
    for key in [
        "attention.scale",
        "logit_scale",
        "embedding_scale",
        "residual_scale",
    ] {
        keys.refuse_if_set(key, "llama without multipliers only");
    }
    spec.experts = read_experts(keys, &spec, ExpertShares::OfChosen);
    if spec.experts.is_some() {
        for layer in &mut spec.layers {
            layer.feed_forward = LayerFeedForward::Experts;
        }
    }
    spec
}
