//! Phi 3 and 4-mini: Llama with fused projections and LongRoPE.
//!
//! Source: <https://arxiv.org/abs/2404.14219>; Ding et al. 2024, <https://arxiv.org/abs/2402.13753>; key
//! names from the GGUF specification.

use super::rope::longrope_magnitude;
use super::{Keys, PLAIN, read_plain};
use crate::spec::{DecoderSpec, LIMITS, RopeDivisors};

const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    let mut spec = read_plain(keys, &PLAIN);
    let is_stretched = keys.store.source().has_tensor(LONG)
        || keys.store.source().has_tensor(SHORT)
        || keys.word("rope.scaling.type").as_deref() == Some("longrope");
    if keys.is_config() || !is_stretched {
        return spec;
    }
    let original_context = keys.count_or(
        "rope.scaling.original_context_length",
        1..=LIMITS.context_max,
        spec.context_max,
    );
    let stretch = spec.context_max as f32 / original_context as f32;
    let given = keys.optional_number("rope.scaling.attn_factor", LIMITS.multiplier);
    let num_pairs = spec.ropes[0].num_dims / 2;
    spec.ropes[0].divisors = RopeDivisors::ByContext {
        original_context,
        short: keys.divisors(SHORT, num_pairs),
        long: keys.divisors(LONG, num_pairs),
    };
    spec.ropes[0].magnitude =
        given.unwrap_or_else(|| longrope_magnitude(stretch, original_context));
    spec
}
