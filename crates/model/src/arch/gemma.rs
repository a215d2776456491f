//! Gemma 2 and Gemma 3, text part.
//!
//! Norms before and after each half of a block, GeGLU, embeddings scaled by `sqrt(hidden)`. Gemma 2 caps scores and
//! logits, and every other layer looks back over a window. Gemma 3 normalises query and key heads; five layers
//! look back over a short window and turn with base 10 000, every sixth sees everything and turns with base
//! 1 000 000, stretched if the file says so. Norms are defined with `1 + weight`: GGUF's converter adds the 1, folders leave it out.
//!
//! Sources: <https://arxiv.org/abs/2408.00118>, <https://arxiv.org/abs/2503.19786>; key names from the GGUF
//! specification.

use super::rope::{self, RopeDefaults};
use super::{Family, Keys, PLAIN, Windows, read_plain};
use crate::spec::{
    Activation, DecoderSpec, HeadWeights, LIMITS, NormPlacement, QkNorm, RopeDivisors, RopeScaling,
    RopeSpec,
};

const GEMMA_2: Family = Family {
    placement: NormPlacement::BeforeAndAfter,
    activation: Activation::GeluTanh,
    head: HeadWeights::Tied,
    window: Windows::Some(|layer_idx| layer_idx % 2 == 0),
    ..PLAIN
};

const GEMMA_3: Family = Family {
    qk_norm: QkNorm::PerHead,
    rope_base: 1_000_000.0,
    ..GEMMA_2
};

/// Layers of the 27B models, the only ones whose scale is not `1 / sqrt(head_dim)`. Files do
/// not carry its `query_pre_attn_scalar`, so the layer count has to tell.
const NUM_LAYERS_27B_2: usize = 46;
const NUM_LAYERS_27B_3: usize = 62;

/// Of Gemma 2.
const SCORE_CAP: f32 = 50.0;
const LOGIT_CAP: f32 = 30.0;

/// Local layers before each global one, plus that one.
const PATTERN_LEN: usize = 6;

const GLOBAL: usize = 0;
const LOCAL: usize = 1;

pub(super) fn read_2(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &GEMMA_2);
    // Early files leave the caps to the family; folders say `null` where there is none.
    if !keys.is_config() {
        spec.attention.softcap = spec.attention.softcap.or(Some(SCORE_CAP));
        spec.logit_softcap = spec.logit_softcap.or(Some(LOGIT_CAP));
    }
    finish(keys, &mut spec, NUM_LAYERS_27B_2);
    spec
}

pub(super) fn read_3(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &GEMMA_3);
    finish(keys, &mut spec, NUM_LAYERS_27B_3);
    let window = keys.count("attention.sliding_window", 1..=LIMITS.context_max);
    let pattern_len = keys.count_or(
        "attention.sliding_window_pattern",
        1..=LIMITS.layers_max,
        PATTERN_LEN,
    );
    // A list of layers, if there is one, was read before.
    let is_listed = keys.is_config() && keys.value("layer_types").is_some();
    for (layer_idx, layer) in spec.layers.iter_mut().enumerate() {
        let is_local = match is_listed {
            true => layer.window.is_some(),
            false => !(layer_idx + 1).is_multiple_of(pattern_len),
        };
        layer.window = is_local.then_some(window);
        layer.rope_idx = Some(if is_local { LOCAL } else { GLOBAL });
    }
    // In the order of GLOBAL and LOCAL.
    let local = read_local_rope(keys, &spec);
    spec.ropes.push(local);
    spec
}

/// What both have in common.
fn finish(keys: &mut Keys<'_>, spec: &mut DecoderSpec, num_layers_27b: usize) {
    spec.embedding_scale = (spec.hidden as f32).sqrt();
    let of_27b = spec.hidden as f32 / spec.attention.num_heads as f32;
    let scalar = match keys.is_config() {
        true => keys.optional_number("query_pre_attn_scalar", LIMITS.multiplier),
        false => (spec.num_layers() == num_layers_27b).then_some(of_27b),
    };
    if let Some(scalar) = scalar {
        spec.attention.scale = 1.0 / scalar.sqrt();
    }
}

/// Only global layers were stretched.
fn read_local_rope(keys: &mut Keys<'_>, spec: &DecoderSpec) -> RopeSpec {
    const BASE: f32 = 10_000.0;
    if keys.is_config() {
        let defaults = RopeDefaults {
            base: BASE,
            partial: 1.0,
            head_dim: spec.attention.head_dim,
            context_max: spec.context_max,
        };
        return rope::read(keys, "sliding_attention", &defaults);
    }
    RopeSpec {
        base: keys.rope_base("rope.freq_base_swa", BASE),
        scaling: RopeScaling::None,
        divisors: RopeDivisors::None,
        ..spec.ropes[GLOBAL].clone()
    }
}
