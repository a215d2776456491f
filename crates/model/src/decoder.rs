//! The forward pass of a decoder-only transformer, as in the papers:
//!
//! ```text
//! x = embed(tokens)
//! for each layer:
//!     x += attention(norm(x))
//!     x += feed_forward(norm(x))
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
use tensor::ops::elementwise::softcap;
use tensor::ops::glu::{Gate, glu};
use tensor::ops::matmul::{Job, Store, matmul};
use tensor::ops::norm::{Centre, Norm, norm_add, norm_in_place, norm_rows};
use tensor::ops::rope::{RopeFrequencies, RopeStyle, rotate};
use tensor::pool::Pool;
use tensor::rows::{Forms, Rows};

use crate::layout::Layout;
use crate::runner::Token;
use crate::spec::{Activation, DecoderSpec, LayerSpec, RopePairing};
use crate::weights::{LayerWeights, Weights};
use crate::workspace::Workspace;

/// A model without state: what it is and its weights.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub spec: DecoderSpec,
    pub weights: Weights,
    /// As [`DecoderSpec::ropes`].
    frequencies: Vec<RopeFrequencies>,
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
    pub(crate) fn new(spec: DecoderSpec, weights: Weights) -> Decoder {
        let frequencies = spec
            .ropes
            .iter()
            .map(|rope| {
                let frequencies = rope.frequencies(weights.rope_divisors.as_deref());
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
    /// the wanted rows, `[head_rows, vocab]`, in `work.logits`.
    pub(crate) fn forward(
        &self,
        pool: &Pool,
        step: &Step<'_>,
        kv: &mut [KvPages],
        work: &mut Workspace,
    ) {
        work.resize(&self.spec, step.tokens.len(), step.layout.head_rows.len());
        self.embed(pool, step.tokens, work);
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
        self.head(pool, &step.layout.head_rows, work);
    }

    fn embed(&self, pool: &Pool, tokens: &[Token], work: &mut Workspace) {
        let scale = self.spec.embedding_scale;
        pool.for_each_row(&mut work.stream, self.spec.hidden, |row_idx, row| {
            self.weights
                .embedding
                .decode_row(tokens[row_idx] as usize, row);
            if scale != 1.0 {
                row.iter_mut().for_each(|value| *value *= scale);
            }
        });
    }

    /// Only wanted rows: in a prompt the head would cost more than many layers.
    fn head(&self, pool: &Pool, head_rows: &[usize], work: &mut Workspace) {
        let hidden = self.spec.hidden;
        for (wanted, &row_idx) in work.wanted.chunks_exact_mut(hidden).zip(head_rows) {
            wanted.copy_from_slice(&work.stream[row_idx * hidden..][..hidden]);
        }
        let head = self.weights.head();
        let norm = Norm {
            weight: &self.weights.final_norm,
            centre: Centre::Kept,
            epsilon: self.spec.norm.eps,
        };
        work.normed.reset(head_rows.len(), hidden, head.form());
        norm_rows(pool, norm, &work.wanted, &mut work.normed);
        matmul(pool, &work.normed, &mut [product(head, &mut work.logits)]);
        if let Some(cap) = self.spec.logit_softcap {
            softcap(pool, cap, &mut work.logits);
        }
    }
}

/// One block of the decoder.
struct Layer<'a> {
    pool: &'a Pool,
    spec: &'a DecoderSpec,
    own: LayerSpec,
    weights: &'a LayerWeights,
}

impl Layer<'_> {
    /// `x += post?(output(attend(rope(norm?(q)), rope(norm?(k)), v)))` with `q, k, v` of `norm(x)`.
    fn attention(&self, step: &Step<'_>, pages: &mut KvPages, work: &mut Workspace) {
        let weights = self.weights;
        let readers = [&weights.query, &weights.key, &weights.value];
        self.normalise(&weights.attention_norm, &readers, work);
        self.project(work);
        self.rotate(work);
        pages.write(self.pool, &step.layout.slots, &work.keys, &work.values);
        self.attend(step, pages, work);
        let post = Post {
            weights: &weights.attention_output,
            bias: weights.attention_output_bias.as_deref(),
            norm: weights.attention_post_norm.as_deref(),
        };
        self.add_branch(&post, &work.attended, &mut work.branch, &mut work.stream);
    }

    /// `x += post?(down(activation(gate(n)) * up(n)))` with `n = norm(x)`.
    fn feed_forward(&self, work: &mut Workspace) {
        let (pool, spec, weights) = (self.pool, &self.spec.feed_forward, self.weights);
        let readers = [&weights.gate, &weights.up];
        self.normalise(&weights.feed_forward_norm, &readers, work);
        let mut jobs = [
            product(&weights.gate, &mut work.gates),
            product(&weights.up, &mut work.ups),
        ];
        matmul(pool, &work.normed, &mut jobs);
        let gate = match spec.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        let num_rows = work.normed.num_rows();
        work.gated.reset(num_rows, spec.width, weights.down.form());
        glu(pool, gate, &work.gates, &work.ups, &mut work.gated);
        let post = Post {
            weights: &weights.down,
            bias: None,
            norm: weights.feed_forward_post_norm.as_deref(),
        };
        self.add_branch(&post, &work.gated, &mut work.branch, &mut work.stream);
    }

    /// `normed = norm(x)`, in every form that one of its `readers` multiplies with.
    fn normalise(&self, weight: &[f32], readers: &[&Matrix], work: &mut Workspace) {
        let hidden = self.spec.hidden;
        let forms = readers
            .iter()
            .fold(Forms::NONE, |forms, matrix| forms.and(matrix.form()));
        work.normed.reset(work.stream.len() / hidden, hidden, forms);
        norm_rows(self.pool, self.norm(weight), &work.stream, &mut work.normed);
    }

    /// `q, k, v` of `normed`, with biases and norms where the family has them.
    fn project(&self, work: &mut Workspace) {
        let (pool, weights) = (self.pool, self.weights);
        let mut jobs = [
            product(&weights.query, &mut work.queries),
            product(&weights.key, &mut work.keys),
            product(&weights.value, &mut work.values),
        ];
        matmul(pool, &work.normed, &mut jobs);
        add_bias(weights.query_bias.as_deref(), &mut work.queries);
        add_bias(weights.key_bias.as_deref(), &mut work.keys);
        add_bias(weights.value_bias.as_deref(), &mut work.values);
        if let Some(norm) = &weights.query_norm {
            norm_in_place(pool, self.norm(norm), &mut work.queries);
        }
        if let Some(norm) = &weights.key_norm {
            norm_in_place(pool, self.norm(norm), &mut work.keys);
        }
    }

    /// Turns queries and keys by their positions.
    fn rotate(&self, work: &mut Workspace) {
        let style = match self.spec.ropes[self.own.rope_idx].pairing {
            RopePairing::Adjacent => RopeStyle::Interleaved,
            RopePairing::Halves => RopeStyle::Halves,
        };
        let head_dim = self.spec.attention.head_dim;
        let rotations = &work.rotations[self.own.rope_idx];
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
        let form = self.weights.attention_output.form();
        work.attended
            .reset(step.tokens.len(), spec.query_width(), form);
        attend(self.pool, &attend_spec, input, work.attended.values_mut());
        work.attended.derive(self.pool);
    }

    /// Adds a half block's result to the residual stream: straight from the matmul, or
    /// through `branch` where it is normalised first.
    fn add_branch(&self, post: &Post<'_>, rows: &Rows, branch: &mut [f32], stream: &mut [f32]) {
        let weights = post.weights;
        match post.norm {
            None => {
                let job = Job {
                    weights,
                    out: &mut *stream,
                    store: Store::Add,
                };
                matmul(self.pool, rows, &mut [job]);
                add_bias(post.bias, stream);
            }
            Some(norm) => {
                matmul(self.pool, rows, &mut [product(weights, branch)]);
                add_bias(post.bias, branch);
                norm_add(self.pool, self.norm(norm), branch, stream);
            }
        }
    }

    fn norm<'a>(&self, weight: &'a [f32]) -> Norm<'a> {
        Norm {
            weight,
            centre: Centre::Kept,
            epsilon: self.spec.norm.eps,
        }
    }
}

/// The last matrix of a half block and what follows it.
struct Post<'a> {
    weights: &'a Matrix,
    bias: Option<&'a [f32]>,
    norm: Option<&'a [f32]>,
}

fn product<'a>(weights: &'a Matrix, out: &'a mut [f32]) -> Job<'a> {
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
