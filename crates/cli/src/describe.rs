//! A decoder's choices in words, and as JSON: what `fulcrum inspect` says beyond the plain sizes.
//!
//! The one idea: text names only what is not the usual choice, JSON names everything.

use model::spec::{
    Activation, Bias, DecoderSpec, ExpertShares, FeedForwardShape, LayerFeedForward, LayerSpec,
    LearnedPositions, NormKind, NormPlacement, QkNorm, RopeDivisors, RopeScaling, RopeSpec,
};
use serde_json::{Value, json};

/// One row for each part of a decoder: its name and what it is.
pub fn rows(spec: &DecoderSpec) -> Vec<(&'static str, String)> {
    let mut rows = vec![("norms", norms(spec)), ("attention", attention(spec))];
    if layers_where(spec, |layer| layer.feed_forward == LayerFeedForward::Dense).is_some() {
        rows.push(("feed-forward", feed_forward(spec)));
    }
    if let Some(experts) = experts(spec) {
        rows.push(("experts", experts));
    }
    rows.push(("positions", positions(spec)));
    let multipliers = multipliers(spec);
    if !multipliers.is_empty() {
        rows.push(("multipliers", multipliers));
    }
    rows
}

fn norms(spec: &DecoderSpec) -> String {
    let kind = match spec.norm.kind {
        NormKind::Rms => "RMSNorm",
        NormKind::Layer => "LayerNorm",
    };
    let placement = match spec.norm.placement {
        NormPlacement::Before => "before each half of a block",
        NormPlacement::BeforeAndAfter => "before and after each half of a block",
        NormPlacement::After => "after each half of a block",
    };
    let of_heads = match spec.attention.qk_norm {
        QkNorm::None => "",
        QkNorm::PerHead => "; of each query and key head",
        QkNorm::Whole => "; of all query and all key heads at once",
    };
    format!("{kind} {placement}{of_heads}")
}

fn attention(spec: &DecoderSpec) -> String {
    let mut parts = Vec::new();
    let mut widths: Vec<usize> = spec
        .layers
        .iter()
        .filter_map(|layer| layer.window)
        .collect();
    widths.sort_unstable();
    widths.dedup();
    for width in widths {
        let layers = layers_where(spec, |layer| layer.window == Some(width)).unwrap_or_default();
        parts.push(format!("window of {width} tokens in {layers}"));
    }
    if let Some(layers) = layers_where(spec, |layer| layer.window.is_none()) {
        parts.push(format!("all tokens in {layers}"));
    }
    let biases = spec.attention.biases;
    let biased = match (biases.qkv, biases.output) {
        (Bias::Absent, Bias::Absent) => None,
        (Bias::Present, Bias::Absent) => Some("biases on query, key and value"),
        (Bias::Absent, Bias::Present) => Some("bias on the output"),
        (Bias::Present, Bias::Present) => Some("biases on query, key, value and output"),
    };
    parts.extend(biased.map(str::to_owned));
    let softcap = spec.attention.softcap;
    parts.extend(softcap.map(|cap| format!("scores capped at {cap}")));
    parts.join("; ")
}

fn feed_forward(spec: &DecoderSpec) -> String {
    let feed_forward = &spec.feed_forward;
    let shape = match feed_forward.shape {
        FeedForwardShape::Gated => "gated",
        FeedForwardShape::Plain => "plain",
    };
    let biases = match feed_forward.bias {
        Bias::Absent => "",
        Bias::Present => ", with biases",
    };
    let activation = activation(feed_forward.activation);
    format!("{shape} {activation}, width {}{biases}", feed_forward.width)
}

fn experts(spec: &DecoderSpec) -> Option<String> {
    let experts = spec.experts.as_ref()?;
    let layers = layers_where(spec, |layer| {
        layer.feed_forward == LayerFeedForward::Experts
    })?;
    let shares = match experts.shares {
        ExpertShares::OfChosen => "among the chosen",
        ExpertShares::OfAll => "among all",
    };
    Some(format!(
        "{} of {} for each token, gated {}, width {}, weighed {shares}, in {layers}",
        experts.num_used,
        experts.num_experts,
        activation(experts.activation),
        experts.width,
    ))
}

fn positions(spec: &DecoderSpec) -> String {
    let mut parts = Vec::new();
    for (rope_idx, rope) in spec.ropes.iter().enumerate() {
        if let Some(layers) = layers_where(spec, |layer| layer.rope_idx == Some(rope_idx)) {
            let head_dim = spec.attention.head_dim;
            let dims = match rope.num_dims == head_dim {
                true => String::new(),
                false => format!(" of {} of {head_dim} values", rope.num_dims),
            };
            let (base, scaling) = (rope.base, scaling(rope));
            parts.push(format!("rotation{dims}, base {base}{scaling}, in {layers}"));
        }
    }
    if spec.learned_positions == LearnedPositions::Present {
        parts.push("learned vectors".to_owned());
    } else if let Some(layers) = layers_where(spec, |layer| layer.rope_idx.is_none()) {
        parts.push(format!("no rotation in {layers}"));
    }
    parts.join("; ")
}

/// How a context was stretched, as words that follow the base.
fn scaling(rope: &RopeSpec) -> String {
    let by_factor = match rope.scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", stretched {factor} times (linear)"),
        RopeScaling::Yarn(yarn) => format!(
            ", stretched {} times from {} tokens (YaRN)",
            yarn.factor, yarn.original_context
        ),
    };
    let by_divisors = match &rope.divisors {
        RopeDivisors::None => String::new(),
        RopeDivisors::FromFile | RopeDivisors::Given(_) => {
            ", stretched frequency by frequency".to_owned()
        }
        RopeDivisors::ByContext {
            original_context, ..
        } => format!(", stretched from {original_context} tokens (LongRoPE)"),
    };
    by_factor + &by_divisors
}

/// Whatever is not 1, and the cap of the logits.
fn multipliers(spec: &DecoderSpec) -> String {
    let usual_scale = (spec.attention.head_dim as f32).sqrt().recip();
    let is_usual = (spec.attention.scale / usual_scale - 1.0).abs() < 1e-5;
    let scale = (!is_usual).then_some(spec.attention.scale);
    let unless_one = |value: f32| (value != 1.0).then_some(value);
    let named = [
        ("embedding", unless_one(spec.embedding_scale)),
        ("attention", scale),
        ("residual", unless_one(spec.residual_scale)),
        ("logits", unless_one(spec.logit_scale)),
        ("logits capped at", spec.logit_softcap),
    ];
    let parts = named.into_iter();
    let parts = parts.filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    parts.collect::<Vec<_>>().join(", ")
}

fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "ReLU",
        Activation::Silu => "SiLU",
        Activation::GeluTanh => "GELU (tanh)",
        Activation::GeluErf => "GELU",
    }
}

/// The layers of which `holds`, in short; `None` if there are none.
fn layers_where(spec: &DecoderSpec, holds: impl Fn(&LayerSpec) -> bool) -> Option<String> {
    let layers = indices_where(spec, holds);
    match layers.len() {
        0 => None,
        num if num == spec.layers.len() => Some("all layers".to_owned()),
        1 => Some(format!("layer {}", layers[0])),
        num => Some(format!("{num} layers ({})", runs(&layers))),
    }
}

fn indices_where(spec: &DecoderSpec, holds: impl Fn(&LayerSpec) -> bool) -> Vec<usize> {
    let layers = spec.layers.iter().enumerate();
    let layers = layers.filter(|(_, layer)| holds(layer));
    layers.map(|(layer_idx, _)| layer_idx).collect()
}

/// Ascending numbers with their runs joined: `0-4, 6, 8-9`.
fn runs(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let words = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(ToString::to_string).collect(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The whole of a decoder.
pub fn json(spec: &DecoderSpec) -> Value {
    let attention = &spec.attention;
    let is_biased = |bias: Bias| bias == Bias::Present;
    let windows: Vec<Option<usize>> = spec.layers.iter().map(|layer| layer.window).collect();
    json!({
        "norm": {
            "kind": match spec.norm.kind {
                NormKind::Rms => "rms",
                NormKind::Layer => "layer",
            },
            "placement": match spec.norm.placement {
                NormPlacement::Before => "before",
                NormPlacement::BeforeAndAfter => "before_and_after",
                NormPlacement::After => "after",
            },
            "eps": number(spec.norm.eps),
        },
        "attention": {
            "heads": attention.num_heads,
            "kv_heads": attention.num_kv_heads,
            "head_dim": attention.head_dim,
            "scale": number(attention.scale),
            "softcap": attention.softcap.map(number),
            "qk_norm": match attention.qk_norm {
                QkNorm::None => Value::Null,
                QkNorm::PerHead => json!("per_head"),
                QkNorm::Whole => json!("whole"),
            },
            "qkv_bias": is_biased(attention.biases.qkv),
            "output_bias": is_biased(attention.biases.output),
            "windows": windows,
        },
        "feed_forward": json!({
            "shape": match spec.feed_forward.shape {
                FeedForwardShape::Gated => "gated",
                FeedForwardShape::Plain => "plain",
            },
            "activation": activation(spec.feed_forward.activation),
            "width": spec.feed_forward.width,
            "bias": is_biased(spec.feed_forward.bias),
            "layers": indices_where(spec, |layer| layer.feed_forward == LayerFeedForward::Dense),
        }),
        "experts": spec.experts.map(|experts| json!({
            "count": experts.num_experts,
            "used": experts.num_used,
            "width": experts.width,
            "activation": activation(experts.activation),
            "weights_add_to_one": experts.shares == ExpertShares::OfChosen,
            "layers": indices_where(spec, |layer| layer.feed_forward == LayerFeedForward::Experts),
        })),
        "learned_positions": spec.learned_positions == LearnedPositions::Present,
        "rotations": spec.ropes.iter().enumerate().map(|(rope_idx, rope)| json!({
            "dims": rope.num_dims,
            "base": number(rope.base),
            "scaling": scaling_json(rope),
            "layers": indices_where(spec, |layer| layer.rope_idx == Some(rope_idx)),
        })).collect::<Vec<_>>(),
        "layers_without_rotation": indices_where(spec, |layer| layer.rope_idx.is_none()),
        "multipliers": {
            "embedding": number(spec.embedding_scale),
            "residual": number(spec.residual_scale),
            "logits": number(spec.logit_scale),
        },
        "logit_softcap": spec.logit_softcap.map(number),
    })
}

fn scaling_json(rope: &RopeSpec) -> Value {
    match (rope.scaling, &rope.divisors) {
        (RopeScaling::Linear { factor }, _) => json!({"kind": "linear", "factor": number(factor)}),
        (RopeScaling::Yarn(yarn), _) => json!({
            "kind": "yarn", "factor": number(yarn.factor), "original_context": yarn.original_context,
        }),
        (
            RopeScaling::None,
            RopeDivisors::ByContext {
                original_context, ..
            },
        ) => json!({"kind": "longrope", "original_context": original_context}),
        (RopeScaling::None, RopeDivisors::FromFile | RopeDivisors::Given(_)) => {
            json!({"kind": "by_frequency"})
        }
        (RopeScaling::None, RopeDivisors::None) => Value::Null,
    }
}

/// A number as short as its 32 bits allow: 1e-5, not 9.999999747378752e-6.
fn number(value: f32) -> Value {
    // The digits of a finite float are a number, so this never falls back.
    json!(
        value
            .to_string()
            .parse::<f64>()
            .unwrap_or_else(|_| f64::from(value))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_layers_are_joined() {
        assert_eq!(runs(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6-7");
        assert_eq!(runs(&[12]), "12");
    }

    #[test]
    fn numbers_keep_the_digits_they_were_written_with() {
        assert_eq!(number(1e-5), json!(1e-5));
        assert_eq!(number(0.1), json!(0.1));
    }
}
