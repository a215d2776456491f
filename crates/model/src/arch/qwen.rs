//! Qwen 2, Qwen 3 and its mixtures of experts.
//!
//! Llama with biases on query, key and value (2), or with normalised query and key heads (3). Experts take shares of
//! those chosen, unless a folder says of all; some layers may do without.
//!
//! Sources: <https://arxiv.org/abs/2407.10671>, <https://arxiv.org/abs/2505.09388>; key names from the
//! GGUF specification.

use serde_json::Value;

use super::{Family, Keys, PLAIN, read_experts, read_plain};
use crate::spec::{DecoderSpec, ExpertShares, LIMITS, LayerFeedForward, QkNorm};

const QWEN_3: Family = Family {
    qk_norm: QkNorm::PerHead,
    ..PLAIN
};

pub(super) fn read_2(keys: &mut Keys<'_>) -> DecoderSpec {
    read_plain(keys, &PLAIN)
}

pub(super) fn read_3(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &QWEN_3);
    let is_of_chosen = match keys.is_config() {
        true => keys.flag_or("norm_topk_prob", false),
        false => keys.flag_or("expert_weights_norm", true),
    };
    let shares = match is_of_chosen {
        true => ExpertShares::OfChosen,
        false => ExpertShares::OfAll,
    };
    spec.experts = read_experts(keys, &spec, shares);
    if spec.experts.is_none() {
        return spec;
    }
    let step = keys.count_or("decoder_sparse_step", 1..=LIMITS.layers_max, 1);
    let dense = dense_layers(keys);
    for (layer_idx, layer) in spec.layers.iter_mut().enumerate() {
        if (layer_idx + 1).is_multiple_of(step) && !dense.contains(&layer_idx) {
            layer.feed_forward = LayerFeedForward::Experts;
        }
    }
    spec
}

/// Layers that a folder lists as having no experts.
fn dense_layers(keys: &mut Keys<'_>) -> Vec<usize> {
    const KEY: &str = "mlp_only_layers";
    if keys.value(KEY).is_none() {
        return Vec::new();
    }
    let list = keys
        .store
        .config()
        .and_then(|config| config.get(KEY)?.as_array());
    let read = |value: &Value| value.as_u64().and_then(|idx| usize::try_from(idx).ok());
    match list.and_then(|list| list.iter().map(read).collect::<Option<Vec<usize>>>()) {
        Some(layers) => layers,
        None => {
            keys.refuse_value(
                KEY,
                "a list of layers".to_owned(),
                "something else".to_owned(),
            );
            Vec::new()
        }
    }
}
