//! SmolLM3: Llama in which every fourth layer does not rotate.
//!
//! The converter permutes query and key rows as Llama's. Folders list the layers; GGUF files leave them to the
//! family.
//!
//! Source: <https://huggingface.co/blog/smollm3>; Yang et al. 2025, <https://arxiv.org/abs/2501.18795>.

use serde_json::Value;

use super::{Family, Keys, PLAIN, read_plain};
use crate::spec::{DecoderSpec, HeadWeights, LIMITS, RopePairing};

const SMOLLM3: Family = Family {
    pairing: RopePairing::Adjacent,
    head: HeadWeights::Tied,
    rope_base: 2_000_000.0,
    ..PLAIN
};

/// Every so many layers one does not rotate.
const INTERVAL: usize = 4;

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &SMOLLM3);
    let interval = keys.count_or("no_rope_layer_interval", 1..=LIMITS.layers_max, INTERVAL);
    let listed = listed_layers(keys, spec.num_layers());
    for (layer_idx, layer) in spec.layers.iter_mut().enumerate() {
        let rotates = match &listed {
            Some(listed) => listed[layer_idx],
            None => !(layer_idx + 1).is_multiple_of(interval),
        };
        layer.rope_idx = rotates.then_some(0);
    }
    spec
}

/// Whether each layer rotates, if a folder lists it: 1 if it does, whatever the key's name suggests.
fn listed_layers(keys: &mut Keys<'_>, num_layers: usize) -> Option<Vec<bool>> {
    const KEY: &str = "no_rope_layers";
    keys.value(KEY)?;
    let list = keys.store.config()?.get(KEY)?.as_array();
    let read = |value: &Value| {
        value
            .as_u64()
            .filter(|&number| number <= 1)
            .map(|number| number == 1)
    };
    let rotates = list.and_then(|list| list.iter().map(read).collect::<Option<Vec<bool>>>());
    match rotates.filter(|rotates| rotates.len() == num_layers) {
        Some(rotates) => Some(rotates),
        None => {
            keys.refuse_value(
                KEY,
                format!("{num_layers} zeros and ones"),
                "something else".to_owned(),
            );
            None
        }
    }
}
