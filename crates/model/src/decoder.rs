//! The forward pass of a decoder-only transformer, as in the papers:
//!
//! ```text
//! x = embed(tokens)
//! for each layer:
//!     x += attention(norm(x))
//!     x += feed_forward(norm(x))          or a mixture of experts (`experts.rs`)
//! logits = head(norm(x))
//! ```
//!
//! The one idea: what differs between families is in the [`DecoderSpec`], and each
//! difference is one `if` in the place where the papers have it. Each line is an operation
//! of `tensor::ops` over all rows of the step; all of them keep to batch invariance (a
//! row's result depends on its own sequence alone), so the whole pass does.
//!
//! Not here: checking a batch (`layout.rs`), reading weights (`weights.rs`), arithmetic.
//!
//! Sources: Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>; Touvron et al. 2023,
//! <https://arxiv.org/abs/2302.13971>.

use tensor::kv::KvPages;
use tensor::matrix::Matrix;
use tensor::ops::attention::{AttendInput, AttendSequence, AttendSpec, attend};
use tensor::ops::elementwise::{add, scale, softcap};
use tensor::ops::glu::{Gate, activate, glu};
use tensor::ops::matmul::{Job, Store, matmul};
use tensor::ops::norm::{Centre, Norm, norm_add, norm_in_place, norm_rows};
use tensor::ops::rope::{RopeFrequencies, RopeStyle, rotate};
use tensor::pool::Pool;
use tensor::rows::{Forms, Rows};

use crate::layout::Layout;
use crate::runner::Token;
use crate::spec::{Activation, DecoderSpec, LayerSpec, QkNorm, RopePairing};
use crate::weights::{
    DenseWeights, FeedForwardWeights, LayerWeights, NormWeights, Projection, Weights,
};
use crate::workspace::Workspace;

/// A model without state: what it is and its weights.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub spec: DecoderSpec,
    pub weights: Weights,
    /// As [`DecoderSpec::ropes`].
    pub frequencies: Vec<RopeFrequencies>,
}

/// What one step computes, checked.
pub(crate) struct Step<'a> {
    /// `[num_rows]`.
    pub tokens: &'a [Token],
    /// Positions, cache slots and wanted rows.
    pub layout: &'a Layout,
    /// Which rows belong together, and where their past is.
    pub sequences: &'a [AttendSequence<'a>],
}

impl Decoder {
    /// `context` is the longest sequence that will be served, in tokens.
    pub(crate) fn new(spec: DecoderSpec, weights: Weights, context: usize) -> Decoder {
        let frequencies = spec
            .ropes
            .iter()
            .map(|rope| {
                let frequencies = rope.frequencies(weights.rope_divisors.as_deref(), context);
                RopeFrequencies::new(&frequencies, None).with_magnitude(rope.magnitude())
            })
            .collect();
        Decoder {
            spec,
            weights,
            frequencies,
        }
    }

    /// Computes a step, storing its keys and values in `kv` (by layer). Leaves the logits of
    /// the wanted rows, `[head_rows, vocab]`, in `work.logits`, and the wanted states,
    /// `[state_rows, hidden]`, in `work.states`.
    pub(crate) fn forward(
        &self,
        pool: &Pool,
        step: &Step<'_>,
        kv: &mut [KvPages],
        work: &mut Workspace,
    ) {
        work.resize(&self.spec, step.tokens.len(), step.layout.head_rows.len());
        self.embed(pool, step, work);
        for (rotations, frequencies) in work.rotations.iter_mut().zip(&self.frequencies) {
            rotations.set(pool, frequencies, &step.layout.positions);
        }
        for (layer_idx, pages) in kv.iter_mut().enumerate() {
            let layer = Layer {
                pool,
                spec: &self.spec,
                own: self.spec.layers[layer_idx],
                weights: &self.weights.layers[layer_idx],
            };
            layer.attention(step, pages, work);
            layer.feed_forward(work);
        }
        self.states(pool, &step.layout.state_rows, work);
        self.head(pool, &step.layout.head_rows, work);
    }

    fn embed(&self, pool: &Pool, step: &Step<'_>, work: &mut Workspace) {
        let (hidden, scale) = (self.spec.hidden, self.spec.embedding_scale);
        pool.for_each_row(&mut work.stream, hidden, |row_idx, row| {
            self.weights
                .embedding
                .decode_row(step.tokens[row_idx] as usize, row);
            if scale != 1.0 {
                row.iter_mut().for_each(|value| *value *= scale);
            }
            if let Some(positions) = &self.weights.positions {
                let position = step.layout.positions[row_idx] as usize;
                let learned = &positions[position * hidden..][..hidden];
                row.iter_mut()
                    .zip(learned)
                    .for_each(|(value, learned)| *value += learned);
            }
        });
    }

    /// The stream as the head would read it, for who wants no logits.
    fn states(&self, pool: &Pool, state_rows: &[usize], work: &mut Workspace) {
        let hidden = self.spec.hidden;
        work.states.reset(state_rows.len(), hidden, Forms::NONE);
        if state_rows.is_empty() {
            return;
        }
        let norm = norm_of(&self.spec, &self.weights.final_norm);
        let stream = &work.stream;
        work.wanted.resize(state_rows.len() * hidden, 0.0);
        for (wanted, &row_idx) in work.wanted.chunks_exact_mut(hidden).zip(state_rows) {
            wanted.copy_from_slice(&stream[row_idx * hidden..][..hidden]);
        }
        norm_rows(pool, norm, &work.wanted, &mut work.states);
    }

    /// Only wanted rows: in a prompt the head would cost more than many layers.
    fn head(&self, pool: &Pool, head_rows: &[usize], work: &mut Workspace) {
        let hidden = self.spec.hidden;
        work.wanted.resize(head_rows.len() * hidden, 0.0);
        for (wanted, &row_idx) in work.wanted.chunks_exact_mut(hidden).zip(head_rows) {
            wanted.copy_from_slice(&work.stream[row_idx * hidden..][..hidden]);
        }
        let head = self.weights.head();
        let norm = norm_of(&self.spec, &self.weights.final_norm);
        work.normed.reset(head_rows.len(), hidden, head.form());
        norm_rows(pool, norm, &work.wanted, &mut work.normed);
        matmul(pool, &work.normed, &mut [product(head, &mut work.logits)]);
        if self.spec.logit_scale != 1.0 {
            scale(pool, self.spec.logit_scale, &mut work.logits);
        }
        if let Some(cap) = self.spec.logit_softcap {
            softcap(pool, cap, &mut work.logits);
        }
    }
}

/// One block of the decoder.
pub(crate) struct Layer<'a> {
    pub pool: &'a Pool,
    pub spec: &'a DecoderSpec,
    own: LayerSpec,
    weights: &'a LayerWeights,
}

impl Layer<'_> {
    /// `x += post?(output(attend(rope(norm?(q)), rope(norm?(k)), v)))` with `q, k, v` of `norm?(x)`.
    fn attention(&self, step: &Step<'_>, pages: &mut KvPages, work: &mut Workspace) {
        let weights = self.weights;
        let readers = [
            &weights.query.matrix,
            &weights.key.matrix,
            &weights.value.matrix,
        ];
        self.read_stream(weights.attention_norm.as_ref(), forms_of(&readers), work);
        self.project(work);
        self.rotate(work);
        pages.write(self.pool, &step.layout.slots, &work.keys, &work.values);
        self.attend(step, pages, work);
        let post_norm = weights.attention_post_norm.as_deref();
        let Workspace {
            attended,
            branch,
            stream,
            ..
        } = work;
        self.add_branch(
            &weights.attention_output,
            post_norm,
            attended,
            (branch, stream),
        );
    }

    /// `x += post?(down(activation(gate(n)) * up(n)))` with `n = norm?(x)`, or that of chosen experts.
    fn feed_forward(&self, work: &mut Workspace) {
        let norm = self.weights.feed_forward_norm.as_ref();
        let post_norm = self.weights.feed_forward_post_norm.as_deref();
        match &self.weights.feed_forward {
            FeedForwardWeights::Dense(dense) => {
                let readers: Vec<&Matrix> = dense
                    .gate
                    .iter()
                    .chain([&dense.up])
                    .map(|each| &each.matrix)
                    .collect();
                self.read_stream(norm, forms_of(&readers), work);
                self.bend(dense, work);
                let Workspace {
                    gated,
                    branch,
                    stream,
                    ..
                } = work;
                self.add_branch(&dense.down, post_norm, gated, (branch, stream));
            }
            FeedForwardWeights::Experts { router, experts } => {
                let read = experts.iter().flat_map(|expert| [&expert.gate, &expert.up]);
                let readers: Vec<&Matrix> = read.chain([router]).collect();
                self.read_stream(norm, forms_of(&readers), work);
                self.mix_experts(router, experts, work);
                let Workspace { branch, stream, .. } = work;
                self.add_result(post_norm, branch, stream);
            }
        }
    }

    /// `gated = activation(gate(n)) * up(n)`, or `activation(up(n))` without a gate.
    fn bend(&self, dense: &DenseWeights, work: &mut Workspace) {
        let activation = gate_of(self.spec.feed_forward.activation);
        let num_rows = work.normed.num_rows();
        let mut jobs = vec![product(&dense.up.matrix, &mut work.ups)];
        jobs.extend(
            dense
                .gate
                .as_ref()
                .map(|gate| product(&gate.matrix, &mut work.gates)),
        );
        matmul(self.pool, &work.normed, &mut jobs);
        add_bias(dense.up.bias.as_deref(), &mut work.ups);
        let width = self.spec.feed_forward.width;
        work.gated.reset(num_rows, width, dense.down.matrix.form());
        match &dense.gate {
            Some(gate) => {
                add_bias(gate.bias.as_deref(), &mut work.gates);
                glu(
                    self.pool,
                    activation,
                    &work.gates,
                    &work.ups,
                    &mut work.gated,
                );
            }
            None => activate(self.pool, activation, &work.ups, &mut work.gated),
        }
    }

    /// `normed = norm?(x)`, in every form that one of its readers multiplies with.
    fn read_stream(&self, norm: Option<&NormWeights>, forms: Forms, work: &mut Workspace) {
        let hidden = self.spec.hidden;
        work.normed.reset(work.stream.len() / hidden, hidden, forms);
        match norm {
            Some(norm) => {
                norm_rows(
                    self.pool,
                    norm_of(self.spec, norm),
                    &work.stream,
                    &mut work.normed,
                );
            }
            None => work.normed.fill(self.pool, |row_idx, row| {
                row.copy_from_slice(&work.stream[row_idx * hidden..][..hidden]);
            }),
        }
    }

    /// `q, k, v` of `normed`, with biases and norms where the family has them.
    fn project(&self, work: &mut Workspace) {
        let (pool, weights) = (self.pool, self.weights);
        let mut jobs = [
            product(&weights.query.matrix, &mut work.queries),
            product(&weights.key.matrix, &mut work.keys),
            product(&weights.value.matrix, &mut work.values),
        ];
        matmul(pool, &work.normed, &mut jobs);
        add_bias(weights.query.bias.as_deref(), &mut work.queries);
        add_bias(weights.key.bias.as_deref(), &mut work.keys);
        add_bias(weights.value.bias.as_deref(), &mut work.values);
        // The weights' length says whether heads are normalised one by one or as a whole.
        debug_assert!(self.spec.attention.qk_norm != QkNorm::None || weights.query_norm.is_none());
        if let Some(norm) = &weights.query_norm {
            norm_in_place(pool, self.rms(norm), &mut work.queries);
        }
        if let Some(norm) = &weights.key_norm {
            norm_in_place(pool, self.rms(norm), &mut work.keys);
        }
    }

    /// Turns queries and keys by their positions.
    fn rotate(&self, work: &mut Workspace) {
        let Some(rope_idx) = self.own.rope_idx else {
            return;
        };
        let style = match self.spec.ropes[rope_idx].pairing {
            RopePairing::Adjacent => RopeStyle::Interleaved,
            RopePairing::Halves => RopeStyle::Halves,
        };
        let head_dim = self.spec.attention.head_dim;
        let rotations = &work.rotations[rope_idx];
        rotate(self.pool, style, rotations, head_dim, &mut work.queries);
        rotate(self.pool, style, rotations, head_dim, &mut work.keys);
    }

    /// `attended = softmax(q · k) v` over each row's own past.
    fn attend(&self, step: &Step<'_>, pages: &KvPages, work: &mut Workspace) {
        let spec = &self.spec.attention;
        let attend_spec = AttendSpec {
            num_heads: spec.num_heads,
            scale: spec.scale,
            window: self.own.window,
            softcap: spec.softcap,
        };
        let input = AttendInput {
            query: &work.queries,
            pages,
            sequences: step.sequences,
        };
        let form = self.weights.attention_output.matrix.form();
        work.attended
            .reset(step.tokens.len(), spec.query_width(), form);
        attend(self.pool, &attend_spec, input, work.attended.values_mut());
        work.attended.derive(self.pool);
    }

    /// Adds a half block's result to the residual stream: straight from the matmul, or
    /// through `branch` where something happens to it first.
    fn add_branch(
        &self,
        projection: &Projection,
        post_norm: Option<&[f32]>,
        rows: &Rows,
        (branch, stream): (&mut [f32], &mut [f32]),
    ) {
        let weights = &projection.matrix;
        if post_norm.is_none() && self.spec.residual_scale == 1.0 {
            let job = Job {
                weights,
                out: &mut *stream,
                store: Store::Add,
            };
            matmul(self.pool, rows, &mut [job]);
            add_bias(projection.bias.as_deref(), stream);
            return;
        }
        matmul(self.pool, rows, &mut [product(weights, branch)]);
        add_bias(projection.bias.as_deref(), branch);
        self.add_result(post_norm, branch, stream);
    }

    /// `x += post?(branch) * residual_scale`.
    fn add_result(&self, post_norm: Option<&[f32]>, branch: &mut [f32], stream: &mut [f32]) {
        let residual_scale = self.spec.residual_scale;
        if residual_scale != 1.0 {
            // No family has both; a norm would undo a scale before it.
            if let Some(norm) = post_norm {
                norm_in_place(self.pool, self.rms(norm), branch);
            }
            scale(self.pool, residual_scale, branch);
            add(self.pool, branch, stream);
            return;
        }
        match post_norm {
            Some(norm) => norm_add(self.pool, self.rms(norm), branch, stream),
            None => add(self.pool, branch, stream),
        }
    }

    /// Norms of heads and of results have no bias in any family.
    fn rms<'a>(&self, weight: &'a [f32]) -> Norm<'a> {
        Norm {
            weight,
            centre: Centre::Kept,
            epsilon: self.spec.norm.eps,
        }
    }
}

/// A norm of the stream.
fn norm_of<'a>(spec: &DecoderSpec, norm: &'a NormWeights) -> Norm<'a> {
    Norm {
        weight: &norm.weight,
        centre: norm.bias.as_deref().map_or(Centre::Kept, Centre::Bias),
        epsilon: spec.norm.eps,
    }
}

/// Every form that one of `readers` multiplies with.
fn forms_of(readers: &[&Matrix]) -> Forms {
    readers
        .iter()
        .fold(Forms::NONE, |forms, matrix| forms.and(matrix.form()))
}

/// The tensor library's word.
pub(crate) fn gate_of(activation: Activation) -> Gate {
    match activation {
        Activation::Relu => Gate::Relu,
        Activation::Silu => Gate::Silu,
        Activation::GeluTanh => Gate::GeluTanh,
        Activation::GeluErf => Gate::GeluErf,
    }
}

pub(crate) fn product<'a>(weights: &'a Matrix, out: &'a mut [f32]) -> Job<'a> {
    Job {
        weights,
        out,
        store: Store::Overwrite,
    }
}

/// Few models have biases, so this is a plain loop.
fn add_bias(bias: Option<&[f32]>, rows: &mut [f32]) {
    let Some(bias) = bias else { return };
    for row in rows.chunks_exact_mut(bias.len()) {
        row.iter_mut()
            .zip(bias)
            .for_each(|(value, bias)| *value += bias);
    }
}
