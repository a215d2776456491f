//! A decoder described as data: everything in which one transformer differs from the next.
//!
//! The one idea: architectures are values of [`DecoderSpec`], and one forward
//! (`decoder.rs`) computes them all. `arch/*.rs` makes a spec from a file's
//! metadata; nothing after that asks for the architecture's name. A family that does not
//! fit gets its own decoder, not another flag here.
//!
//! A spec is plain numbers from a hostile file, so it is only made through
//! `arch`, which bounds each number by [`Limits`]. Not here: weights, bytes.

use std::ops::RangeInclusive;

/// Bounds on what a model file may ask for. Generous against models that exist, small
/// enough that no product of two of them overflows, no table is absurd, and no sound
/// weight becomes infinite.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Layers; the largest models have under 200.
    pub layers_max: usize,
    /// Width of the residual stream, and of a feed-forward layer, in values.
    pub width_max: usize,
    /// Query heads per layer.
    pub heads_max: usize,
    /// Values per head.
    pub head_dim_max: usize,
    /// Tokens in the vocabulary.
    pub vocab_max: usize,
    /// Tokens of context, and positions in a sliding window.
    pub context_max: usize,
    /// Experts of a layer.
    pub experts_max: usize,
    /// What is added under the root of a norm.
    pub norm_eps: RangeInclusive<f32>,
    /// Base of a rotation's frequencies.
    pub rope_base: RangeInclusive<f32>,
    /// How many times longer a context became.
    pub rope_factor: RangeInclusive<f32>,
    /// Divisors of single frequencies.
    pub rope_divisor: RangeInclusive<f32>,
    /// Everything else that multiplies or caps values.
    pub multiplier: RangeInclusive<f32>,
}

/// The bounds in force.
pub const LIMITS: Limits = Limits {
    layers_max: 1024,
    width_max: 1 << 18,
    heads_max: 1024,
    head_dim_max: 1024,
    vocab_max: 1 << 22,
    context_max: 1 << 24,
    experts_max: 1024,
    norm_eps: 1e-20..=1.0,
    rope_base: 2.0..=1e12,
    rope_factor: 1.0..=1e6,
    rope_divisor: 1e-3..=1e6,
    multiplier: 1e-6..=1e6,
};

/// A decoder-only transformer: shapes and the choices made in each place.
///
/// ```text
/// x = embedding[token] * embedding_scale + learned?[position]
/// for each layer:
///     x += post?( attention( norm?(x) ) ) * residual_scale          window and rope by layer
///     x += post?( down( act(gate(n)) * up(n) ) ) * residual_scale    n = norm?(x); by experts, some
/// logits = softcap?( head( norm(x) ) * logit_scale )
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// The file's name for the architecture: for messages only.
    pub architecture: &'static str,
    /// Tokens the model knows: rows of the embedding and of the head.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Longest sequence the model was made for, in tokens.
    pub context_max: usize,
    /// Multiplies each embedding row on its way in; 1 for most.
    pub embedding_scale: f32,
    /// Whether each position has a vector of its own, added to the embedding (GPT-2).
    pub learned_positions: LearnedPositions,
    /// Multiplies what each half of a block adds to the stream; 1 for most.
    pub residual_scale: f32,
    /// All normalisations of the model.
    pub norm: NormSpec,
    /// Attention, as far as all layers share it.
    pub attention: AttentionSpec,
    /// The feed-forward layers that have no experts.
    pub feed_forward: FeedForwardSpec,
    /// The experts of layers that have some.
    pub experts: Option<ExpertsSpec>,
    /// The rotations that layers choose from by [`LayerSpec::rope_idx`].
    pub ropes: Vec<RopeSpec>,
    /// What differs from layer to layer; its length is the number of layers.
    pub layers: Vec<LayerSpec>,
    /// Where the output head's matrix comes from.
    pub head: HeadWeights,
    /// Multiplies logits; 1 for most.
    pub logit_scale: f32,
    /// Squashes logits to `cap * tanh(logit / cap)`.
    pub logit_softcap: Option<f32>,
}

/// Whether positions have learned vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnedPositions {
    /// No: rotations tell positions.
    Absent,
    /// Yes, one for each position of the context.
    Present,
}

/// How vectors are normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// By what.
    pub kind: NormKind,
    /// Added under the root; positive and finite.
    pub eps: f32,
    /// Where in a block it stands.
    pub placement: NormPlacement,
}

/// By what a vector is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Its root mean square: `x / sqrt(mean(x²) + eps) * weight`.
    Rms,
    /// Its deviation from its mean: `(x - mean) / sqrt(variance + eps) * weight + bias` (LayerNorm).
    Layer,
}

/// Which norms a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// Before attention and before the feed-forward layer (Llama).
    Before,
    /// Before, and again on each one's result before it is added (Gemma).
    BeforeAndAfter,
    /// Only on each one's result before it is added (OLMo 2).
    After,
}

impl NormPlacement {
    /// Whether what a half block reads is normalised.
    pub fn is_before(self) -> bool {
        self != NormPlacement::After
    }

    /// Whether what a half block adds is normalised.
    pub fn is_after(self) -> bool {
        self != NormPlacement::Before
    }
}

/// Grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads; a multiple of `num_kv_heads`.
    pub num_heads: usize,
    /// Key and value heads; query head `h` reads `h / (num_heads / num_kv_heads)`.
    pub num_kv_heads: usize,
    /// Values per head, of queries, keys and values alike; even.
    pub head_dim: usize,
    /// Multiplies `query · key`, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Squashes scores to `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Whether each query and key head is normalised before its rotation.
    pub qk_norm: QkNorm,
    /// Which projections have a bias.
    pub biases: AttentionBiases,
}

impl AttentionSpec {
    /// Values of all query heads side by side.
    pub fn query_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Values of all key heads side by side; the same for values.
    pub fn kv_width(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}

/// Normalisation of query and key heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None (Llama).
    None,
    /// Each head by itself, all heads with the same weight `[head_dim]` (Gemma 3, Qwen 3).
    PerHead,
    /// All heads of a row as one vector (OLMo 2).
    Whole,
}

/// Which attention projections add a bias. Files do not say so in metadata; the
/// tensors' presence does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionBiases {
    /// On query, key and value.
    pub qkv: Bias,
    /// On the output projection.
    pub output: Bias,
}

/// Whether a projection adds a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does not.
    Absent,
    /// It does.
    Present,
}

/// A feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedForwardSpec {
    /// Width between the matrices.
    pub width: usize,
    /// Which matrices there are.
    pub shape: FeedForwardShape,
    /// What bends the values between them.
    pub activation: Activation,
    /// Whether all of them have biases.
    pub bias: Bias,
}

/// Which matrices a feed-forward layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForwardShape {
    /// `down(act(gate(x)) * up(x))`.
    Gated,
    /// `down(act(up(x)))`.
    Plain,
}

/// A mixture of experts: a router gives each row some of many gated feed-forward layers.
///
/// `sum over the chosen of weight * expert(x)`, with `weight` from the softmax of the router's values.
/// Source: Jiang et al. 2024, <https://arxiv.org/abs/2401.04088>.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsSpec {
    /// Experts of a layer.
    pub num_experts: usize,
    /// Experts that compute a row; at most `num_experts`.
    pub num_used: usize,
    /// Width of each.
    pub width: usize,
    /// What bends the gate of each.
    pub activation: Activation,
    /// What the weights are shares of.
    pub shares: ExpertShares,
}

/// What the weights of the chosen experts are shares of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertShares {
    /// Of the chosen ones: they add up to 1 (Mixtral, Qwen 3).
    OfChosen,
    /// Of all: they add up to less.
    OfAll,
}

/// What bends the values of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    GeluErf,
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// Index into [`DecoderSpec::ropes`]; `None` does not rotate.
    pub rope_idx: Option<usize>,
    /// Positions a token sees, itself included; `None` is all.
    pub window: Option<usize>,
    /// What stands in the second half.
    pub feed_forward: LayerFeedForward,
}

/// What stands in the second half of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerFeedForward {
    /// One feed-forward layer, [`DecoderSpec::feed_forward`].
    Dense,
    /// Experts, [`DecoderSpec::experts`].
    Experts,
}

/// Where the output head's matrix comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadWeights {
    /// The embedding matrix, used again.
    Tied,
    /// A matrix of its own.
    Separate,
}

/// Rotary position embedding of queries and keys.
///
/// Pair `i` of a head turns by `position * frequency[i]`, and grows by `magnitude`;
/// see [`RopeSpec::frequencies`]. Source: Su et al. 2021, <https://arxiv.org/abs/2104.09864>.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Which two values of a head are a pair.
    pub pairing: RopePairing,
    /// Leading values of a head that rotate; even, at most the head's. The rest pass.
    pub num_dims: usize,
    /// Base of the geometric row of frequencies.
    pub base: f32,
    /// How the context was stretched after training.
    pub scaling: RopeScaling,
    /// Whether each frequency has a divisor of its own (Llama 3, LongRoPE).
    pub divisors: RopeDivisors,
    /// Factor on every rotated value, besides that of YaRN.
    pub magnitude: f32,
    /// How finely frequencies are held.
    pub rounding: RopeRounding,
}

/// How finely frequencies are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeRounding {
    /// As computed.
    None,
    /// To bfloat16, as the reference implementation holds them once a whole model was cast. Only for
    /// comparing with it: far positions turn by other angles than the model was trained on.
    Bf16,
}

/// Which two values of a head form a rotating pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairing {
    /// `(2i, 2i + 1)`: how GGUF stores the llama family.
    Adjacent,
    /// `(i, i + num_dims / 2)`: everyone else.
    Halves,
}

/// Divisors of single frequencies.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeDivisors {
    /// None.
    None,
    /// Tensor `rope_freqs.weight`, `[num_dims / 2]`.
    FromFile,
    /// `[num_dims / 2]`, from the model's description.
    Given(Vec<f32>),
    /// One of two sets, by the longest sequence that is served (LongRoPE, Ding et al. 2024,
    /// <https://arxiv.org/abs/2402.13753>). The reference chooses anew for every text; here the choice is made once, when the model
    /// is loaded, because cached keys were turned by it.
    ByContext {
        /// Up to this many tokens the first set counts.
        original_context: usize,
        /// `[num_dims / 2]`.
        short: Vec<f32>,
        /// `[num_dims / 2]`.
        long: Vec<f32>,
    },
}

/// How frequencies were changed to reach a longer context than the one trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// How many times longer the context became.
        factor: f32,
    },
    /// Low frequencies divided by `factor`, high ones kept, a ramp between, and a larger
    /// magnitude. Source: Peng et al. 2023, <https://arxiv.org/abs/2309.00071>.
    Yarn(Yarn),
}

/// Parameters of YaRN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How many times longer the context became.
    pub factor: f32,
    /// Tokens of context before.
    pub original_context: usize,
    /// Pairs that turn at least this often over the original context keep their frequency.
    pub beta_fast: f32,
    /// Pairs that turn at most this often are divided by `factor`.
    pub beta_slow: f32,
    /// Multiplies the magnitude `1 + 0.1 ln(factor)`.
    pub magnitude: f32,
}

impl RopeSpec {
    /// Radians per position of each pair: `[num_dims / 2]`.
    ///
    /// `from_file` are the values of `rope_freqs.weight`, `[num_dims / 2]`, if the spec
    /// says [`RopeDivisors::FromFile`]; `context` is the longest sequence that is served.
    ///
    /// # Panics
    ///
    /// If there are fewer divisors than that.
    pub fn frequencies(&self, from_file: Option<&[f32]>, context: usize) -> Vec<f32> {
        let divisors = match &self.divisors {
            RopeDivisors::None => None,
            RopeDivisors::FromFile => from_file,
            RopeDivisors::Given(divisors) => Some(divisors.as_slice()),
            RopeDivisors::ByContext {
                original_context,
                short,
                long,
            } => {
                let set = if context > *original_context {
                    long
                } else {
                    short
                };
                Some(set.as_slice())
            }
        };
        let frequency = |pair_idx: usize| {
            let exponent = (2 * pair_idx) as f64 / self.num_dims as f64;
            let trained = f64::from(self.base).powf(-exponent)
                / divisors.map_or(1.0, |divisors| f64::from(divisors[pair_idx]));
            let stretched = match self.scaling {
                RopeScaling::None => trained,
                RopeScaling::Linear { factor } => trained / f64::from(factor),
                RopeScaling::Yarn(yarn) => {
                    let kept = yarn.kept(pair_idx, self.num_dims, self.base);
                    trained * kept + trained / f64::from(yarn.factor) * (1.0 - kept)
                }
            };
            match self.rounding {
                RopeRounding::None => stretched as f32,
                RopeRounding::Bf16 => half::bf16::from_f64(stretched).to_f32(),
            }
        };
        (0..self.num_dims / 2).map(frequency).collect()
    }

    /// Factor on every rotated value.
    pub fn magnitude(&self) -> f32 {
        let of_scaling = match self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
            RopeScaling::Yarn(yarn) => yarn.magnitude * (1.0 + 0.1 * yarn.factor.ln()),
        };
        self.magnitude * of_scaling
    }
}

impl Yarn {
    /// How much of pair `pair_idx`'s frequency is kept: 1 for fast pairs, 0 for slow ones.
    fn kept(&self, pair_idx: usize, num_dims: usize, base: f32) -> f64 {
        // The (fractional) pair that turns `num_turns` times over the original context.
        let pair_turning = |num_turns: f32| {
            let wavelengths =
                self.original_context as f64 / (f64::from(num_turns) * std::f64::consts::TAU);
            num_dims as f64 * wavelengths.ln() / (2.0 * f64::from(base).ln())
        };
        let first = pair_turning(self.beta_fast).floor().max(0.0);
        let last = pair_turning(self.beta_slow)
            .ceil()
            .min(num_dims as f64 - 1.0);
        let ramp = (pair_idx as f64 - first) / (last - first).max(0.001);
        1.0 - ramp.clamp(0.0, 1.0)
    }
}

impl DecoderSpec {
    /// Layers of the model.
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: RopeScaling) -> RopeSpec {
        RopeSpec {
            pairing: RopePairing::Halves,
            num_dims: 8,
            base: 10_000.0,
            scaling,
            divisors: RopeDivisors::None,
            magnitude: 1.0,
            rounding: RopeRounding::None,
        }
    }

    #[test]
    fn the_longest_sequence_that_is_served_chooses_between_two_sets_of_divisors() {
        let mut rope = rope(RopeScaling::None);
        rope.divisors = RopeDivisors::ByContext {
            original_context: 100,
            short: vec![1.0; 4],
            long: vec![2.0; 4],
        };
        assert_eq!(rope.frequencies(None, 100), [1.0, 0.1, 0.01, 0.001]);
        assert_eq!(rope.frequencies(None, 101), [0.5, 0.05, 0.005, 0.0005]);
    }

    #[test]
    fn rounded_frequencies_have_eight_bits() {
        let mut rope = rope(RopeScaling::None);
        rope.rounding = RopeRounding::Bf16;
        assert_eq!(
            rope.frequencies(None, 1),
            [1.0, 0.100_097_656, 0.010_009_766, 0.000_999_450_7]
        );
    }

    #[test]
    fn frequencies_fall_geometrically_from_one() {
        let frequencies = rope(RopeScaling::None).frequencies(None, 4096);
        assert_eq!(frequencies, [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let frequencies = rope(RopeScaling::Linear { factor: 4.0 }).frequencies(None, 4096);
        assert_eq!(frequencies, [0.25, 0.025, 0.0025, 0.00025]);
    }

    #[test]
    fn divisors_from_the_file_apply_to_their_own_pair() {
        let without = rope(RopeScaling::None);
        let with = RopeSpec {
            divisors: RopeDivisors::FromFile,
            ..without.clone()
        };
        let from_file = Some(&[1.0, 1.0, 2.0, 8.0][..]);
        let frequencies = with.frequencies(from_file, 4096);
        assert_eq!(frequencies, [1.0, 0.1, 0.005, 0.000125]);
        // A rotation of the same model that was not stretched.
        let frequencies = without.frequencies(from_file, 4096);
        assert_eq!(frequencies, [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let yarn = Yarn {
            factor: 4.0,
            original_context: 1024,
            beta_fast: 32.0,
            beta_slow: 1.0,
            magnitude: 1.0,
        };
        // 1024 / (32 * tau) = 5.09 radians: pair 0.7, floor 0; 1024 / tau = 163: pair 2.2, ceil 3.
        let frequencies = rope(RopeScaling::Yarn(yarn)).frequencies(None, 4096);
        let expected = [
            1.0,
            0.1 * (2.0 / 3.0 + 0.25 / 3.0),
            0.01 * (1.0 / 3.0 + 0.5 / 3.0),
            0.001 * 0.25,
        ];
        for (actual, expected) in frequencies.iter().zip(expected) {
            assert!(
                (actual - expected as f32).abs() < 1e-6 * expected as f32,
                "{frequencies:?}"
            );
        }
        assert!((rope(RopeScaling::Yarn(yarn)).magnitude() - 1.138_629_4).abs() < 1e-6);
    }
}
