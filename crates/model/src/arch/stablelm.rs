//! StableLM 2: LayerNorm, and a quarter of each head rotates.
//!
//! Variants with normalised heads or with both halves of a block side by side are refused.
//!
//! Source: <https://arxiv.org/abs/2402.17834>; key names from the GGUF specification.

use super::{Family, Keys, PLAIN, read_plain};
use crate::inventory::{LayerRole, Role};
use crate::spec::{DecoderSpec, NormKind};

const STABLELM: Family = Family {
    norm: NormKind::Layer,
    partial_rotation: 0.25,
    ..PLAIN
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    // Converters say so of every model whose configuration is silent; the second norm, which only blocks with
    // one half after the other have, says how it is.
    if keys.is_config() || !keys.has(Role::Layer(0, LayerRole::FeedForwardNorm)) {
        keys.refuse_if_set(
            "use_parallel_residual",
            "halves of a block one after the other",
        );
    }
    keys.refuse_if_set("qk_layernorm", "queries and keys as projected");
    read_plain(keys, &STABLELM)
}
