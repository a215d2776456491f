//! StarCoder2: LayerNorm, biases everywhere, and a feed-forward layer without a gate.
//!
//! Source: <https://arxiv.org/abs/2402.19173>; key names from the GGUF specification.

use super::{Family, Keys, PLAIN, read_plain};
use crate::spec::{Activation, DecoderSpec, FeedForwardShape, HeadWeights, NormKind};

const STARCODER2: Family = Family {
    norm: NormKind::Layer,
    shape: FeedForwardShape::Plain,
    activation: Activation::GeluTanh,
    head: HeadWeights::Tied,
    ..PLAIN
};

pub(super) fn read(keys: &mut Keys<'_>) -> DecoderSpec {
    read_plain(keys, &STARCODER2)
}
