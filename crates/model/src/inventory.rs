//! Which tensors a spec calls for, and whether a source has them.
//!
//! The one idea: roles and their shapes follow from the spec alone, and their places from
//! the naming; so a source is compared with the whole list before any weight is read. Not
//! here: reading them (`weights.rs`), names (`naming.rs`).

use std::collections::{HashMap, HashSet};

use formats::quant;

use crate::arch::Described;
use crate::naming::Naming;
use crate::refusal::{Dims, Refusal};
use crate::source::SourceRef;
use crate::spec::{
    Bias, DecoderSpec, FeedForwardShape, HeadWeights, LIMITS, LayerFeedForward, LearnedPositions,
    NormKind, QkNorm, RopeDivisors,
};

/// What a tensor, or a part of one, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Embedding,
    Positions,
    FinalNorm,
    FinalNormBias,
    Head,
    RopeDivisors,
    Layer(usize, LayerRole),
}

/// What a tensor of one layer is for, in the order of computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LayerRole {
    AttentionNorm,
    AttentionNormBias,
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
    FeedForwardNormBias,
    Gate,
    Up,
    Down,
    GateBias,
    UpBias,
    DownBias,
    Router,
    ExpertGate(usize),
    ExpertUp(usize),
    ExpertDown(usize),
    FeedForwardPostNorm,
}

/// The shape of what plays a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Matrix { inputs: usize, outputs: usize },
    Vector { len: usize },
}

impl Part {
    /// Fastest axis first.
    pub(crate) fn dims(self) -> Vec<usize> {
        match self {
            Part::Matrix { inputs, outputs } => vec![inputs, outputs],
            Part::Vector { len } => vec![len],
        }
    }

    /// Rows of a matrix, elements of a vector.
    pub(crate) fn outputs(self) -> usize {
        match self {
            Part::Matrix { outputs, .. } => outputs,
            Part::Vector { len } => len,
        }
    }
}

impl Role {
    /// The shape of what plays it.
    pub(crate) fn part(self, spec: &DecoderSpec) -> Part {
        let hidden = spec.hidden;
        match self {
            Role::Embedding | Role::Head => matrix(hidden, spec.vocab),
            Role::Positions => matrix(hidden, spec.context_max),
            Role::FinalNorm | Role::FinalNormBias => Part::Vector { len: hidden },
            // Divisors belong to the rope of every layer; families that have them have one rope.
            Role::RopeDivisors => Part::Vector {
                len: spec.ropes.first().map_or(0, |rope| rope.num_dims / 2),
            },
            Role::Layer(_, role) => role.part(spec),
        }
    }
}

fn matrix(inputs: usize, outputs: usize) -> Part {
    Part::Matrix { inputs, outputs }
}

impl LayerRole {
    fn part(self, spec: &DecoderSpec) -> Part {
        let (hidden, width) = (spec.hidden, spec.feed_forward.width);
        let (queries, keys) = (spec.attention.query_width(), spec.attention.kv_width());
        let num_experts = spec.experts.map_or(0, |experts| experts.num_experts);
        let expert_width = spec.experts.map_or(0, |experts| experts.width);
        let vector = |len| Part::Vector { len };
        match self {
            LayerRole::AttentionNorm
            | LayerRole::AttentionNormBias
            | LayerRole::AttentionOutputBias
            | LayerRole::AttentionPostNorm
            | LayerRole::FeedForwardNorm
            | LayerRole::FeedForwardNormBias
            | LayerRole::DownBias
            | LayerRole::FeedForwardPostNorm => vector(hidden),
            LayerRole::QueryNorm | LayerRole::KeyNorm
                if spec.attention.qk_norm == QkNorm::PerHead =>
            {
                vector(spec.attention.head_dim)
            }
            LayerRole::QueryNorm | LayerRole::QueryBias => vector(queries),
            LayerRole::KeyNorm | LayerRole::KeyBias | LayerRole::ValueBias => vector(keys),
            LayerRole::GateBias | LayerRole::UpBias => vector(width),
            LayerRole::Query => matrix(hidden, queries),
            LayerRole::Key | LayerRole::Value => matrix(hidden, keys),
            LayerRole::AttentionOutput => matrix(queries, hidden),
            LayerRole::Gate | LayerRole::Up => matrix(hidden, width),
            LayerRole::Down => matrix(width, hidden),
            LayerRole::Router => matrix(hidden, num_experts),
            LayerRole::ExpertGate(_) | LayerRole::ExpertUp(_) => matrix(hidden, expert_width),
            LayerRole::ExpertDown(_) => matrix(expert_width, hidden),
        }
    }
}

/// Everything that `spec` calls for.
pub(crate) fn roles(spec: &DecoderSpec) -> Vec<Role> {
    let mut roles = vec![Role::Embedding];
    if spec.learned_positions == LearnedPositions::Present {
        roles.push(Role::Positions);
    }
    if has_divisors_in_file(spec) {
        roles.push(Role::RopeDivisors);
    }
    for layer_idx in 0..spec.num_layers() {
        let in_layer = layer_roles(spec, layer_idx);
        roles.extend(
            in_layer
                .into_iter()
                .map(|role| Role::Layer(layer_idx, role)),
        );
    }
    roles.push(Role::FinalNorm);
    if spec.norm.kind == NormKind::Layer {
        roles.push(Role::FinalNormBias);
    }
    if spec.head == HeadWeights::Separate {
        roles.push(Role::Head);
    }
    roles
}

fn has_divisors_in_file(spec: &DecoderSpec) -> bool {
    spec.ropes
        .iter()
        .any(|rope| rope.divisors == RopeDivisors::FromFile)
}

/// What the layer at `layer_idx` calls for, in the order of computation.
pub(crate) fn layer_roles(spec: &DecoderSpec, layer_idx: usize) -> Vec<LayerRole> {
    let mut roles = Vec::new();
    let placement = spec.norm.placement;
    let norm = |roles: &mut Vec<LayerRole>, weight, bias| {
        roles.push(weight);
        if spec.norm.kind == NormKind::Layer {
            roles.push(bias);
        }
    };
    if placement.is_before() {
        norm(
            &mut roles,
            LayerRole::AttentionNorm,
            LayerRole::AttentionNormBias,
        );
    }
    roles.extend([LayerRole::Query, LayerRole::Key, LayerRole::Value]);
    if spec.attention.biases.qkv == Bias::Present {
        roles.extend([
            LayerRole::QueryBias,
            LayerRole::KeyBias,
            LayerRole::ValueBias,
        ]);
    }
    if spec.attention.qk_norm != QkNorm::None {
        roles.extend([LayerRole::QueryNorm, LayerRole::KeyNorm]);
    }
    roles.push(LayerRole::AttentionOutput);
    if spec.attention.biases.output == Bias::Present {
        roles.push(LayerRole::AttentionOutputBias);
    }
    if placement.is_after() {
        roles.push(LayerRole::AttentionPostNorm);
    }
    if placement.is_before() {
        norm(
            &mut roles,
            LayerRole::FeedForwardNorm,
            LayerRole::FeedForwardNormBias,
        );
    }
    match spec.layers[layer_idx].feed_forward {
        LayerFeedForward::Dense => roles.extend(dense_roles(spec)),
        LayerFeedForward::Experts => {
            roles.push(LayerRole::Router);
            let num_experts = spec.experts.map_or(0, |experts| experts.num_experts);
            for idx in 0..num_experts {
                roles.extend([
                    LayerRole::ExpertGate(idx),
                    LayerRole::ExpertUp(idx),
                    LayerRole::ExpertDown(idx),
                ]);
            }
        }
    }
    if placement.is_after() {
        roles.push(LayerRole::FeedForwardPostNorm);
    }
    roles
}

fn dense_roles(spec: &DecoderSpec) -> Vec<LayerRole> {
    let is_gated = spec.feed_forward.shape == FeedForwardShape::Gated;
    let has_bias = spec.feed_forward.bias == Bias::Present;
    let mut roles = Vec::new();
    if is_gated {
        roles.push(LayerRole::Gate);
    }
    roles.extend([LayerRole::Up, LayerRole::Down]);
    if is_gated && has_bias {
        roles.push(LayerRole::GateBias);
    }
    if has_bias {
        roles.extend([LayerRole::UpBias, LayerRole::DownBias]);
    }
    roles
}

/// Compares a source's tensor table with what the description calls for.
///
/// Returns everything missing, misshapen or without a place. Types that we do not read
/// are [`SourceRef::unreadable`]'s matter.
pub(crate) fn compare(described: &Described, source: SourceRef<'_>) -> Vec<Refusal> {
    let spec = &described.spec;
    let mut refusals = Vec::new();
    let table = source.table();
    let actual: HashMap<&str, &[usize]> = table
        .iter()
        .map(|entry| (entry.name, &entry.dims[..]))
        .collect();
    let mut asked = HashSet::new();
    for role in roles(spec) {
        let place = described.naming.place(role, spec);
        if !asked.insert(place.tensor.clone()) {
            // Another part of a tensor that was compared as a whole.
            continue;
        }
        let (name, expected) = (place.tensor, Dims(place.dims));
        match actual.get(name.as_str()) {
            None => refusals.push(Refusal::MissingTensor {
                name,
                dims: expected,
            }),
            Some(dims) if without_ones(dims) != without_ones(&expected.0) => {
                let actual = Dims(dims.to_vec());
                refusals.push(Refusal::TensorShape {
                    name,
                    expected,
                    actual,
                });
            }
            Some(_) => (),
        }
    }
    for entry in &table {
        if !asked.contains(entry.name) && !described.is_spare(entry.name) {
            refusals.push(Refusal::UnexpectedTensor {
                name: entry.name.to_owned(),
                dims: Dims(entry.dims.clone()),
                architecture: spec.architecture,
            });
        }
    }
    refusals.extend(refusal_of_divisors(&described.naming, spec, source));
    refusals
}

/// Divisors are the one tensor whose values can be wrong: zero would turn every rotation
/// into not-a-number.
fn refusal_of_divisors(
    naming: &Naming,
    spec: &DecoderSpec,
    source: SourceRef<'_>,
) -> Option<Refusal> {
    if !has_divisors_in_file(spec) {
        return None;
    }
    let place = naming.place(Role::RopeDivisors, spec);
    let name = place.tensor;
    if source.dims(&name)? != place.dims {
        return None;
    }
    let raw = source.raw(&name).ok()?;
    let mut values = vec![0.0f32; place.dims.iter().product()];
    quant::dequantize(raw.ty, raw.bytes, &mut values);
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
