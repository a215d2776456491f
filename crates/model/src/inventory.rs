//! Which tensors a spec calls for: their names in GGUF files and their shapes.
//!
//! The one idea: names and shapes follow from the spec alone, so a file is compared with
//! the whole list before any weight is read. Not here: reading them (`weights.rs`).

use std::collections::HashMap;

use formats::gguf::{Gguf, TensorEntry};
use formats::quant;

use crate::arch::{EMBEDDING, ROPE_DIVISORS};
use crate::refusal::{Dims, Refusal};
use crate::spec::{Bias, DecoderSpec, HeadWeights, LIMITS, NormPlacement, QkNorm, RopeDivisors};

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Embedding,
    FinalNorm,
    Head,
    RopeDivisors,
    Layer(usize, LayerRole),
}

/// What a tensor of one layer is for, in the order of computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LayerRole {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    AttentionOutputBias,
    AttentionPostNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
    FeedForwardPostNorm,
}

impl Role {
    /// The tensor's name in a GGUF file.
    pub(crate) fn name(self) -> String {
        match self {
            Role::Embedding => EMBEDDING.to_owned(),
            Role::FinalNorm => "output_norm.weight".to_owned(),
            Role::Head => "output.weight".to_owned(),
            Role::RopeDivisors => ROPE_DIVISORS.to_owned(),
            Role::Layer(layer_idx, role) => format!("blk.{layer_idx}.{}", role.suffix()),
        }
    }

    /// Its shape, fastest axis first: inputs, then outputs.
    pub(crate) fn dims(self, spec: &DecoderSpec) -> Vec<usize> {
        match self {
            Role::Embedding | Role::Head => vec![spec.hidden, spec.vocab],
            Role::FinalNorm => vec![spec.hidden],
            // Divisors belong to the rope of every layer; families that have them have one rope.
            Role::RopeDivisors => vec![spec.ropes[0].num_dims / 2],
            Role::Layer(_, role) => role.dims(spec),
        }
    }
}

impl LayerRole {
    fn suffix(self) -> &'static str {
        match self {
            LayerRole::AttentionNorm => "attn_norm.weight",
            LayerRole::Query => "attn_q.weight",
            LayerRole::Key => "attn_k.weight",
            LayerRole::Value => "attn_v.weight",
            LayerRole::QueryBias => "attn_q.bias",
            LayerRole::KeyBias => "attn_k.bias",
            LayerRole::ValueBias => "attn_v.bias",
            LayerRole::QueryNorm => "attn_q_norm.weight",
            LayerRole::KeyNorm => "attn_k_norm.weight",
            LayerRole::AttentionOutput => "attn_output.weight",
            LayerRole::AttentionOutputBias => "attn_output.bias",
            LayerRole::AttentionPostNorm => "post_attention_norm.weight",
            LayerRole::FeedForwardNorm => "ffn_norm.weight",
            LayerRole::Gate => "ffn_gate.weight",
            LayerRole::Up => "ffn_up.weight",
            LayerRole::Down => "ffn_down.weight",
            LayerRole::FeedForwardPostNorm => "post_ffw_norm.weight",
        }
    }

    fn dims(self, spec: &DecoderSpec) -> Vec<usize> {
        let (hidden, width) = (spec.hidden, spec.feed_forward.width);
        let (queries, keys) = (spec.attention.query_width(), spec.attention.kv_width());
        match self {
            LayerRole::AttentionNorm
            | LayerRole::AttentionOutputBias
            | LayerRole::AttentionPostNorm
            | LayerRole::FeedForwardNorm
            | LayerRole::FeedForwardPostNorm => vec![hidden],
            LayerRole::QueryNorm | LayerRole::KeyNorm => vec![spec.attention.head_dim],
            LayerRole::Query => vec![hidden, queries],
            LayerRole::Key | LayerRole::Value => vec![hidden, keys],
            LayerRole::QueryBias => vec![queries],
            LayerRole::KeyBias | LayerRole::ValueBias => vec![keys],
            LayerRole::AttentionOutput => vec![queries, hidden],
            LayerRole::Gate | LayerRole::Up => vec![hidden, width],
            LayerRole::Down => vec![width, hidden],
        }
    }
}

/// Every tensor that `spec` calls for.
pub(crate) fn roles(spec: &DecoderSpec) -> Vec<Role> {
    let mut roles = vec![Role::Embedding];
    if spec
        .ropes
        .iter()
        .any(|rope| rope.divisors == RopeDivisors::FromFile)
    {
        roles.push(Role::RopeDivisors);
    }
    let in_layer = layer_roles(spec);
    for layer_idx in 0..spec.num_layers() {
        roles.extend(in_layer.iter().map(|&role| Role::Layer(layer_idx, role)));
    }
    roles.push(Role::FinalNorm);
    if spec.head == HeadWeights::Separate {
        roles.push(Role::Head);
    }
    roles
}

fn layer_roles(spec: &DecoderSpec) -> Vec<LayerRole> {
    let mut roles = vec![
        LayerRole::AttentionNorm,
        LayerRole::Query,
        LayerRole::Key,
        LayerRole::Value,
        LayerRole::AttentionOutput,
        LayerRole::FeedForwardNorm,
        LayerRole::Gate,
        LayerRole::Up,
        LayerRole::Down,
    ];
    if spec.attention.biases.qkv == Bias::Present {
        roles.extend([
            LayerRole::QueryBias,
            LayerRole::KeyBias,
            LayerRole::ValueBias,
        ]);
    }
    if spec.attention.biases.output == Bias::Present {
        roles.push(LayerRole::AttentionOutputBias);
    }
    if spec.attention.qk_norm == QkNorm::PerHead {
        roles.extend([LayerRole::QueryNorm, LayerRole::KeyNorm]);
    }
    if spec.norm.placement == NormPlacement::BeforeAndAfter {
        roles.extend([LayerRole::AttentionPostNorm, LayerRole::FeedForwardPostNorm]);
    }
    roles
}

/// Compares a file's tensor table with what `spec` calls for.
///
/// Returns everything missing, misshapen or without a place. Types that we do not read
/// are [`Gguf::refused`]'s matter.
pub(crate) fn compare(spec: &DecoderSpec, file: &Gguf) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut left: HashMap<&str, &TensorEntry> = file
        .tensors()
        .iter()
        .map(|tensor| (tensor.name.as_str(), tensor))
        .collect();
    for role in roles(spec) {
        let (name, dims) = (role.name(), Dims(role.dims(spec)));
        match left.remove(name.as_str()) {
            None => refusals.push(Refusal::MissingTensor { name, dims }),
            Some(tensor) if without_ones(&tensor.dims) != without_ones(&dims.0) => {
                let actual = Dims(tensor.dims.clone());
                refusals.push(Refusal::TensorShape {
                    name,
                    expected: dims,
                    actual,
                });
            }
            Some(_) => (),
        }
    }
    // In file order, not in that of a hash map.
    for tensor in file
        .tensors()
        .iter()
        .filter(|tensor| left.contains_key(tensor.name.as_str()))
    {
        if !is_derivable(&tensor.name) {
            refusals.push(Refusal::UnexpectedTensor {
                name: tensor.name.clone(),
                dims: Dims(tensor.dims.clone()),
                architecture: spec.architecture,
            });
        }
    }
    refusals.extend(refusal_of_divisors(spec, file));
    refusals
}

/// Divisors are the one tensor whose values can be wrong: zero would turn every rotation
/// into not-a-number.
fn refusal_of_divisors(spec: &DecoderSpec, file: &Gguf) -> Option<Refusal> {
    let name = Role::RopeDivisors.name();
    let view = file.find_tensor(&name).ok()??;
    if view.dims != Role::RopeDivisors.dims(spec) {
        return None;
    }
    let mut values = vec![0.0f32; view.dims.iter().product()];
    quant::dequantize(view.ty, view.bytes, &mut values);
    let bounds = LIMITS.rope_divisor;
    let idx = values.iter().position(|value| !bounds.contains(value))?;
    let expected = format!("a number in {:?}..={:?}", bounds.start(), bounds.end());
    Some(Refusal::TensorValue {
        name,
        idx,
        value: values[idx].to_string(),
        expected,
    })
}

/// `[576, 1]` and `[576]` are the same tensor.
fn without_ones(dims: &[usize]) -> &[usize] {
    let len = dims
        .iter()
        .rposition(|&dim| dim != 1)
        .map_or(0, |idx| idx + 1);
    &dims[..len]
}

/// Tables of frequencies that old converters stored although the metadata implies them.
fn is_derivable(name: &str) -> bool {
    name.ends_with(".attn_rot_embd.weight") || name.ends_with(".rotary_emb.inv_freq")
}
