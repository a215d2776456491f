//! GPT-2: learned positions instead of rotations, LayerNorm, biases everywhere, no gate.
//!
//! Folders keep projections transposed, and query, key and value in one (`naming.rs`).
//!
//! Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; key names from the GGUF
//! specification.

use super::{Family, Keys, PLAIN, read_plain};
use crate::spec::{
    Activation, DecoderSpec, FeedForwardShape, HeadWeights, LIMITS, LearnedPositions, NormKind,
};

const GPT2: Family = Family {
    norm: NormKind::Layer,
    shape: FeedForwardShape::Plain,
    activation: Activation::GeluTanh,
    head: HeadWeights::Tied,
    default_width: Some(|hidden| (4 * hidden).min(LIMITS.width_max)),
    ..PLAIN
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    keys.refuse_if_set(
        "scale_attn_by_inverse_layer_idx",
        "one scale for all layers",
    );
    if !keys.flag_or("scale_attn_weights", true) {
        keys.refuse_feature(
            "scale_attn_weights",
            "false".to_owned(),
            "scores scaled by 1 / sqrt(head width)",
        );
    }
    let mut spec = read_plain(keys, &GPT2);
    spec.learned_positions = LearnedPositions::Present;
    spec.ropes.clear();
    for layer in &mut spec.layers {
        layer.rope_idx = None;
    }
    spec
}
