//! OLMo 2: norms on results only, and on all heads of queries and keys as one vector.
//!
//! Source: <https://arxiv.org/abs/2501.00656>; key names from the GGUF specification.

use super::{Family, Keys, PLAIN, read_plain};
use crate::spec::{DecoderSpec, NormPlacement, QkNorm};

const OLMO2: Family = Family {
    placement: NormPlacement::After,
    qk_norm: QkNorm::Whole,
    rope_base: 500_000.0,
    ..PLAIN
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    // OLMo 3 comes under the same name, with windows in three of four layers and two rotations.
    if !keys.is_config() {
        keys.refuse_if_set("attention.sliding_window", "OLMo 2, without windows");
    }
    read_plain(keys, &OLMO2)
}
