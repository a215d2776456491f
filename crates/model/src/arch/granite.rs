//! Granite: Llama with multipliers in four places.
//!
//! Embeddings, what each half of a block adds, scores and logits are scaled by numbers of the model's own. The
//! converter permutes query and key rows as Llama's.
//!
//! Source: Granite 3.0 report, <https://github.com/ibm-granite/granite-3.0-language-models>; key names from the
//! GGUF specification.

use super::{Family, Keys, PLAIN, read_plain};
use crate::spec::{DecoderSpec, LIMITS, RopePairing};

const GRANITE: Family = Family {
    pairing: RopePairing::Adjacent,
    ..PLAIN
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &GRANITE);
    let mut multiplier = |key: &str| keys.optional_number(key, LIMITS.multiplier);
    spec.embedding_scale = multiplier("embedding_scale").unwrap_or(1.0);
    spec.residual_scale = multiplier("residual_scale").unwrap_or(1.0);
    // Files state what logits are divided by.
    spec.logit_scale = 1.0 / multiplier("logit_scale").unwrap_or(1.0);
    if let Some(scale) = multiplier("attention.scale") {
        spec.attention.scale = scale;
    }
    keys.refuse_if_set("expert_count", "granite without experts");
    spec
}
