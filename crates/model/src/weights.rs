//! A file's tensors as packed matrices and vectors of floats.
//!
//! The one idea: each tensor is repacked once, straight from the mapped file, and its pages
//! are given back as soon as that is done; so loading never holds the model twice.
//! Quantised weights keep their codes: 4-bit stays 4-bit.
//!
//! Not here: the panel layout (`tensor::matrix`), block formats (`formats::quant`).

use std::sync::atomic::{AtomicUsize, Ordering};

use formats::GgmlType;
use formats::gguf::{Gguf, TensorView};
use formats::quant::{self, CodeLayout, CodesMut};
use tensor::matrix::{CodeBits, FloatKind, GroupLen, Matrix, Offset, QuantSpec};
use tensor::pool::Pool;
use xxhash_rust::xxh3::Xxh3;

use crate::inventory::{LayerRole, Role};
use crate::load::{LoadError, Precision};
use crate::refusal::{Refusal, Refusals};
use crate::spec::{DecoderSpec, HeadWeights};

/// All weights of a decoder. What a spec has no place for is `None`.
#[derive(Debug)]
pub(crate) struct Weights {
    /// `[vocab, hidden]`; the head as well, if that is tied.
    pub embedding: Matrix,
    pub layers: Vec<LayerWeights>,
    pub final_norm: Vec<f32>,
    /// `[vocab, hidden]`, unless tied.
    pub head: Option<Matrix>,
    /// `[num_dims / 2]` of the first rope.
    pub rope_divisors: Option<Vec<f32>>,
    /// Hash over name, type, shape and every byte of every tensor above.
    pub hash: u64,
}

/// Weights of one layer, in the order of computation. Matrices are `[outputs, inputs]`.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub attention_norm: Vec<f32>,
    pub query: Matrix,
    pub key: Matrix,
    pub value: Matrix,
    pub query_bias: Option<Vec<f32>>,
    pub key_bias: Option<Vec<f32>>,
    pub value_bias: Option<Vec<f32>>,
    pub query_norm: Option<Vec<f32>>,
    pub key_norm: Option<Vec<f32>>,
    pub attention_output: Matrix,
    pub attention_output_bias: Option<Vec<f32>>,
    pub attention_post_norm: Option<Vec<f32>>,
    pub feed_forward_norm: Vec<f32>,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
    pub feed_forward_post_norm: Option<Vec<f32>>,
}

impl Weights {
    /// Reads and packs every tensor that `spec` calls for.
    ///
    /// `file` was compared with `spec` before: so an optional tensor is there if and only
    /// if the spec has a place for it.
    ///
    /// # Errors
    ///
    /// [`LoadError::File`] if a tensor is not there or of a refused type after all,
    /// [`LoadError::Refused`] if a weight is infinite or not a number.
    pub(crate) fn read(
        spec: &DecoderSpec,
        file: &Gguf,
        precision: Precision,
        pool: &Pool,
    ) -> Result<Weights, LoadError> {
        let mut reader = Reader {
            file,
            precision,
            pool,
            hasher: Xxh3::new(),
        };
        Ok(Weights {
            embedding: reader.matrix(Role::Embedding)?,
            layers: (0..spec.num_layers())
                .map(|layer_idx| reader.layer(layer_idx))
                .collect::<Result<_, _>>()?,
            final_norm: reader.vector(Role::FinalNorm)?,
            head: match spec.head {
                HeadWeights::Tied => None,
                HeadWeights::Separate => Some(reader.matrix(Role::Head)?),
            },
            rope_divisors: reader.optional_vector(Role::RopeDivisors)?,
            hash: reader.hasher.digest(),
        })
    }

    /// The matrix of the output head.
    pub(crate) fn head(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Bytes held by the matrices; vectors are nothing beside them.
    pub(crate) fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(LayerWeights::bytes).sum();
        self.embedding.bytes() + layers + self.head.as_ref().map_or(0, Matrix::bytes)
    }
}

impl LayerWeights {
    fn bytes(&self) -> usize {
        let matrices = [
            &self.query,
            &self.key,
            &self.value,
            &self.attention_output,
            &self.gate,
            &self.up,
            &self.down,
        ];
        matrices.iter().map(|matrix| matrix.bytes()).sum()
    }
}

/// Reads tensors in the order they are asked for, which is also the order of the hash.
struct Reader<'a> {
    file: &'a Gguf,
    precision: Precision,
    pool: &'a Pool,
    hasher: Xxh3,
}

impl<'a> Reader<'a> {
    fn layer(&mut self, layer_idx: usize) -> Result<LayerWeights, LoadError> {
        let of = |role| Role::Layer(layer_idx, role);
        Ok(LayerWeights {
            attention_norm: self.vector(of(LayerRole::AttentionNorm))?,
            query: self.matrix(of(LayerRole::Query))?,
            key: self.matrix(of(LayerRole::Key))?,
            value: self.matrix(of(LayerRole::Value))?,
            query_bias: self.optional_vector(of(LayerRole::QueryBias))?,
            key_bias: self.optional_vector(of(LayerRole::KeyBias))?,
            value_bias: self.optional_vector(of(LayerRole::ValueBias))?,
            query_norm: self.optional_vector(of(LayerRole::QueryNorm))?,
            key_norm: self.optional_vector(of(LayerRole::KeyNorm))?,
            attention_output: self.matrix(of(LayerRole::AttentionOutput))?,
            attention_output_bias: self.optional_vector(of(LayerRole::AttentionOutputBias))?,
            attention_post_norm: self.optional_vector(of(LayerRole::AttentionPostNorm))?,
            feed_forward_norm: self.vector(of(LayerRole::FeedForwardNorm))?,
            gate: self.matrix(of(LayerRole::Gate))?,
            up: self.matrix(of(LayerRole::Up))?,
            down: self.matrix(of(LayerRole::Down))?,
            feed_forward_post_norm: self.optional_vector(of(LayerRole::FeedForwardPostNorm))?,
        })
    }

    fn matrix(&mut self, role: Role) -> Result<Matrix, LoadError> {
        let view = self.view(role)?;
        let packed = pack(self.pool, &view, self.precision);
        self.file.forget(&view);
        packed.map_err(|row_idx| not_finite(&view, row_idx))
    }

    fn vector(&mut self, role: Role) -> Result<Vec<f32>, LoadError> {
        let view = self.view(role)?;
        let mut values = vec![0.0; view.dims.iter().product()];
        quant::dequantize(view.ty, view.bytes, &mut values);
        if all_finite(&values) {
            Ok(values)
        } else {
            Err(not_finite(&view, 0))
        }
    }

    fn optional_vector(&mut self, role: Role) -> Result<Option<Vec<f32>>, LoadError> {
        if self.file.has_tensor(&role.name()) {
            self.vector(role).map(Some)
        } else {
            Ok(None)
        }
    }

    fn view(&mut self, role: Role) -> Result<TensorView<'a>, LoadError> {
        let view = self.file.tensor(&role.name())?;
        self.hasher
            .update(format!("{} {} {:?}", view.name, view.ty, view.dims).as_bytes());
        self.hasher.update(view.bytes);
        Ok(view)
    }
}

/// Packs a matrix, or says which row holds a value that is infinite or not a number.
fn pack(pool: &Pool, view: &TensorView<'_>, precision: Precision) -> Result<Matrix, usize> {
    let (rows, cols) = (view.num_rows(), view.row_len());
    // The rows are decoded on all threads; the first broken one is told whoever finds it.
    let broken_row = AtomicUsize::new(usize::MAX);
    let check = |row_idx: usize, values: &[f32]| {
        if !all_finite(values) {
            broken_row.fetch_min(row_idx, Ordering::Relaxed);
        }
    };
    let decode = |row_idx: usize, values: &mut [f32]| {
        quant::dequantize(view.ty, view.row(row_idx), values);
        check(row_idx, values);
    };
    let matrix = match (precision, CodeLayout::of(view.ty)) {
        (Precision::Exact, _) => Matrix::from_floats(pool, FloatKind::F32, rows, cols, decode),
        (Precision::Packed, None) => {
            Matrix::from_floats(pool, float_kind(view.ty), rows, cols, decode)
        }
        (Precision::Packed, Some(layout)) => {
            Matrix::from_codes(pool, quant_spec(layout), rows, cols, |row_idx, row| {
                let out = CodesMut {
                    codes: &mut row.codes,
                    scales: &mut row.scales,
                    mins: &mut row.mins,
                };
                quant::codes(view.ty, view.row(row_idx), out);
                check(row_idx, &row.scales);
                if layout.offset == quant::Offset::PerGroup {
                    check(row_idx, &row.mins);
                }
            })
        }
    };
    match broken_row.into_inner() {
        usize::MAX => Ok(matrix),
        row_idx => Err(row_idx),
    }
}

fn all_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

fn not_finite(view: &TensorView<'_>, row_idx: usize) -> LoadError {
    let name = view.name.to_owned();
    LoadError::Refused {
        refusals: Refusals(vec![Refusal::NotFinite { name, row_idx }]),
    }
}

/// Types without codes are floats.
fn float_kind(ty: GgmlType) -> FloatKind {
    match ty {
        GgmlType::F16 => FloatKind::F16,
        GgmlType::BF16 => FloatKind::Bf16,
        _ => FloatKind::F32,
    }
}

/// `formats` and `tensor` do not know each other, so each says the same in its own words.
fn quant_spec(layout: CodeLayout) -> QuantSpec {
    QuantSpec {
        bits: match layout.bits {
            quant::CodeBits::Four => CodeBits::Four,
            quant::CodeBits::Eight => CodeBits::Eight,
        },
        group: match layout.group {
            quant::GroupLen::Sixteen => GroupLen::Sixteen,
            quant::GroupLen::ThirtyTwo => GroupLen::ThirtyTwo,
        },
        offset: match layout.offset {
            quant::Offset::Zero(zero) => Offset::Zero(zero),
            quant::Offset::PerGroup => Offset::PerGroup,
        },
        codebook: layout.codebook,
    }
}
