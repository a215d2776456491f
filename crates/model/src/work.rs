//! How much work a step is: multiply-adds by weights, and bytes that must be read.
//!
//! The one idea: both follow from the packed matrices and the spec, so a measured speed can be told as a share of what
//! a machine's rates allow (`tensor::limits`). Only what cannot be avoided counts: each weight is multiplied once for
//! every token and read once for every step, each key and value is read once for every sequence.
//!
//! Not here: rates, time; nor norms, rotations and the arithmetic of attention, which come on top.

use tensor::matrix::Matrix;
use tensor::rows::Forms;

use crate::kv_store::{self, KvStore};
use crate::spec::DecoderSpec;
use crate::weights::{FeedForwardWeights, LayerWeights, Projection, Weights};

/// What a loaded model asks of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Of the layers, for each token.
    pub layers: MultiplyAdds,
    /// Of the output head, for each row of logits.
    pub head: MultiplyAdds,
    /// Bytes of weights that a step reads at least: of experts, those that one token uses; of an embedding that is not
    /// the head as well, nothing, because only single rows are read.
    pub weight_bytes: u64,
    /// Bytes of a position's keys and values in one layer.
    pub kv_layer_bytes: u64,
    /// By layer: positions that a token sees at most, itself included; `None` is all.
    pub windows: Vec<Option<usize>>,
}

/// Multiplications of a weight by an activation, each followed by an addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MultiplyAdds {
    /// Of integer codes.
    pub int8: u64,
    /// Of bfloat16 by instructions that take it as it is.
    pub bf16: u64,
    /// Of single precision, and of what is widened to it.
    pub f32: u64,
}

impl MultiplyAdds {
    /// Of all types.
    pub fn total(self) -> u64 {
        self.int8 + self.bf16 + self.f32
    }

    fn add(&mut self, matrix: &Matrix) {
        let num = (matrix.rows() * matrix.cols()) as u64;
        match matrix.form() {
            Forms::I8 => self.int8 += num,
            Forms::BF16 => self.bf16 += num,
            _ => self.f32 += num,
        }
    }
}

impl Work {
    pub(crate) fn of(spec: &DecoderSpec, weights: &Weights, kv_store: &KvStore) -> Work {
        let mut tally = Tally::default();
        let num_used = spec.experts.map_or(0, |experts| experts.num_used);
        for layer in &weights.layers {
            tally.add_layer(layer, num_used);
        }
        let layers = tally.multiply_adds;
        let mut head = MultiplyAdds::default();
        head.add(weights.head());
        Work {
            layers,
            head,
            weight_bytes: tally.num_bytes + weights.head().bytes() as u64,
            kv_layer_bytes: kv_store::layer_position_bytes(spec, kv_store.element),
            windows: spec.layers.iter().map(|layer| layer.window).collect(),
        }
    }

    /// Bytes of keys and values that one token reads at least with `num_past` positions before it.
    pub fn kv_bytes(&self, num_past: usize) -> u64 {
        let seen = |window: &Option<usize>| {
            let num_seen = window.map_or(num_past, |window| num_past.min(window.saturating_sub(1)));
            num_seen as u64 * self.kv_layer_bytes
        };
        self.windows.iter().map(seen).sum()
    }
}

/// What matrices add up to.
#[derive(Default)]
struct Tally {
    multiply_adds: MultiplyAdds,
    num_bytes: u64,
}

impl Tally {
    fn add_layer(&mut self, layer: &LayerWeights, num_used: usize) {
        let attention = [
            &layer.query,
            &layer.key,
            &layer.value,
            &layer.attention_output,
        ];
        attention.into_iter().for_each(|it| self.add_projection(it));
        match &layer.feed_forward {
            FeedForwardWeights::Dense(dense) => {
                let all = dense.gate.iter().chain([&dense.up, &dense.down]);
                all.for_each(|it| self.add_projection(it));
            }
            FeedForwardWeights::Experts { router, experts } => {
                self.add_matrix(router);
                // All have the same shape, and most often the same type.
                for expert in experts.iter().take(num_used) {
                    [&expert.gate, &expert.up, &expert.down]
                        .into_iter()
                        .for_each(|it| self.add_matrix(it));
                }
            }
        }
    }

    fn add_projection(&mut self, projection: &Projection) {
        self.add_matrix(&projection.matrix);
    }

    fn add_matrix(&mut self, matrix: &Matrix) {
        self.multiply_adds.add(matrix);
        self.num_bytes += matrix.bytes() as u64;
    }
}
