//! A file's tensors as packed matrices and vectors of floats.
//!
//! The one idea: each tensor is repacked once, straight from the mapped file, and its pages
//! are given back as soon as that is done; so loading never holds the model twice.
//! Quantised weights keep their codes: 4-bit stays 4-bit.
//!
//! Not here: the panel layout (`tensor::matrix`), block formats (`formats::quant`).

use std::sync::atomic::{AtomicUsize, Ordering};

use formats::GgmlType;
use formats::quant::{self, CodeLayout, CodesMut};
use tensor::matrix::{CodeBits, CodeRow, FloatKind, GroupLen, Matrix, Offset, QuantSpec};
use tensor::pool::Pool;
use xxhash_rust::xxh3::Xxh3;

use crate::arch::Described;
use crate::inventory::{LayerRole, Part, Role};
use crate::load::{LoadError, Precision};
use crate::naming::{Orientation, Place};
use crate::refusal::Refusal;
use crate::source::{RawTensor, SourceRef};
use crate::spec::{
    Bias, FeedForwardShape, HeadWeights, LayerFeedForward, LearnedPositions, NormKind, QkNorm,
    RopeDivisors,
};

/// All weights of a decoder. What a spec has no place for is `None`.
#[derive(Debug)]
pub(crate) struct Weights {
    /// `[vocab, hidden]`; the head as well, if that is tied.
    pub embedding: Matrix,
    /// `[context, hidden]`.
    pub positions: Option<Vec<f32>>,
    pub layers: Vec<LayerWeights>,
    pub final_norm: NormWeights,
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
    pub attention_norm: Option<NormWeights>,
    pub query: Projection,
    pub key: Projection,
    pub value: Projection,
    pub query_norm: Option<Vec<f32>>,
    pub key_norm: Option<Vec<f32>>,
    pub attention_output: Projection,
    pub attention_post_norm: Option<Vec<f32>>,
    pub feed_forward_norm: Option<NormWeights>,
    pub feed_forward: FeedForwardWeights,
    pub feed_forward_post_norm: Option<Vec<f32>>,
}

/// A matrix and what is added to its product.
#[derive(Debug)]
pub(crate) struct Projection {
    pub matrix: Matrix,
    /// `[outputs]`.
    pub bias: Option<Vec<f32>>,
}

/// Constants of a norm of the stream, `[hidden]` each.
#[derive(Debug)]
pub(crate) struct NormWeights {
    pub weight: Vec<f32>,
    /// Of norms around the mean.
    pub bias: Option<Vec<f32>>,
}

/// The second half of a layer.
#[derive(Debug)]
pub(crate) enum FeedForwardWeights {
    Dense(Box<DenseWeights>),
    Experts {
        /// `[experts, hidden]`.
        router: Matrix,
        experts: Vec<ExpertWeights>,
    },
}

/// A feed-forward layer without experts.
#[derive(Debug)]
pub(crate) struct DenseWeights {
    /// None in a layer without a gate.
    pub gate: Option<Projection>,
    pub up: Projection,
    pub down: Projection,
}

/// One expert.
#[derive(Debug)]
pub(crate) struct ExpertWeights {
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
}

impl Weights {
    /// Reads and packs every tensor that the description calls for.
    ///
    /// `source` was compared with it before: so an optional tensor is there if and only
    /// if the spec has a place for it.
    ///
    /// # Errors
    ///
    /// [`LoadError::File`] or [`LoadError::Weights`] if a tensor is not there or of a refused type after all,
    /// [`LoadError::Refused`] if a weight is infinite or not a number.
    pub(crate) fn read(
        described: &Described,
        source: SourceRef<'_>,
        precision: Precision,
        pool: &Pool,
    ) -> Result<Weights, LoadError> {
        let mut reader = Reader {
            described,
            source,
            precision,
            pool,
            hasher: Xxh3::new(),
        };
        let spec = &described.spec;
        let has_divisors = spec
            .ropes
            .iter()
            .any(|rope| rope.divisors == RopeDivisors::FromFile);
        Ok(Weights {
            embedding: reader.matrix(Role::Embedding)?,
            positions: match spec.learned_positions {
                LearnedPositions::Absent => None,
                LearnedPositions::Present => Some(reader.vector(Role::Positions)?),
            },
            layers: (0..spec.num_layers())
                .map(|layer_idx| reader.layer(layer_idx))
                .collect::<Result<_, _>>()?,
            final_norm: reader.norm(Role::FinalNorm, Role::FinalNormBias)?,
            head: match spec.head {
                HeadWeights::Tied => None,
                HeadWeights::Separate => Some(reader.matrix(Role::Head)?),
            },
            rope_divisors: match has_divisors {
                true => Some(reader.vector(Role::RopeDivisors)?),
                false => None,
            },
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
        let attention = [&self.query, &self.key, &self.value, &self.attention_output];
        let attention: usize = attention
            .iter()
            .map(|projection| projection.matrix.bytes())
            .sum();
        attention
            + match &self.feed_forward {
                FeedForwardWeights::Dense(dense) => {
                    let all = dense.gate.iter().chain([&dense.up, &dense.down]);
                    all.map(|projection| projection.matrix.bytes())
                        .sum::<usize>()
                }
                FeedForwardWeights::Experts { router, experts } => {
                    let of = |expert: &ExpertWeights| {
                        expert.gate.bytes() + expert.up.bytes() + expert.down.bytes()
                    };
                    router.bytes() + experts.iter().map(of).sum::<usize>()
                }
            }
    }
}

/// Reads roles in the order they are asked for, which is also the order of the hash.
struct Reader<'a> {
    described: &'a Described,
    source: SourceRef<'a>,
    precision: Precision,
    pool: &'a Pool,
    hasher: Xxh3,
}

impl<'a> Reader<'a> {
    fn layer(&mut self, layer_idx: usize) -> Result<LayerWeights, LoadError> {
        let of = |role| Role::Layer(layer_idx, role);
        let spec = &self.described.spec;
        let (placement, biases) = (spec.norm.placement, spec.attention.biases);
        let is_normed = spec.attention.qk_norm != QkNorm::None;
        let before = |reader: &mut Self, weight, bias| match placement.is_before() {
            true => reader.norm(of(weight), of(bias)).map(Some),
            false => Ok(None),
        };
        let after = |reader: &mut Self, role| match placement.is_after() {
            true => reader.vector(of(role)).map(Some),
            false => Ok(None),
        };
        let normed = |reader: &mut Self, role| match is_normed {
            true => reader.vector(of(role)).map(Some),
            false => Ok(None),
        };
        Ok(LayerWeights {
            attention_norm: before(self, LayerRole::AttentionNorm, LayerRole::AttentionNormBias)?,
            query: self.projection(of(LayerRole::Query), of(LayerRole::QueryBias), biases.qkv)?,
            key: self.projection(of(LayerRole::Key), of(LayerRole::KeyBias), biases.qkv)?,
            value: self.projection(of(LayerRole::Value), of(LayerRole::ValueBias), biases.qkv)?,
            query_norm: normed(self, LayerRole::QueryNorm)?,
            key_norm: normed(self, LayerRole::KeyNorm)?,
            attention_output: self.projection(
                of(LayerRole::AttentionOutput),
                of(LayerRole::AttentionOutputBias),
                biases.output,
            )?,
            attention_post_norm: after(self, LayerRole::AttentionPostNorm)?,
            feed_forward_norm: before(
                self,
                LayerRole::FeedForwardNorm,
                LayerRole::FeedForwardNormBias,
            )?,
            feed_forward: self.feed_forward(layer_idx)?,
            feed_forward_post_norm: after(self, LayerRole::FeedForwardPostNorm)?,
        })
    }

    fn feed_forward(&mut self, layer_idx: usize) -> Result<FeedForwardWeights, LoadError> {
        let of = |role| Role::Layer(layer_idx, role);
        let spec = &self.described.spec;
        match spec.layers[layer_idx].feed_forward {
            LayerFeedForward::Dense => {
                let bias = spec.feed_forward.bias;
                Ok(FeedForwardWeights::Dense(Box::new(DenseWeights {
                    gate: match spec.feed_forward.shape {
                        FeedForwardShape::Plain => None,
                        FeedForwardShape::Gated => Some(self.projection(
                            of(LayerRole::Gate),
                            of(LayerRole::GateBias),
                            bias,
                        )?),
                    },
                    up: self.projection(of(LayerRole::Up), of(LayerRole::UpBias), bias)?,
                    down: self.projection(of(LayerRole::Down), of(LayerRole::DownBias), bias)?,
                })))
            }
            LayerFeedForward::Experts => {
                let num_experts = spec.experts.map_or(0, |experts| experts.num_experts);
                let router = self.router(of(LayerRole::Router))?;
                let expert = |idx| {
                    Ok(ExpertWeights {
                        gate: self.matrix(of(LayerRole::ExpertGate(idx)))?,
                        up: self.matrix(of(LayerRole::ExpertUp(idx)))?,
                        down: self.matrix(of(LayerRole::ExpertDown(idx)))?,
                    })
                };
                Ok(FeedForwardWeights::Experts {
                    router,
                    experts: (0..num_experts)
                        .map(expert)
                        .collect::<Result<_, LoadError>>()?,
                })
            }
        }
    }

    fn projection(
        &mut self,
        matrix: Role,
        bias: Role,
        presence: Bias,
    ) -> Result<Projection, LoadError> {
        Ok(Projection {
            matrix: self.matrix(matrix)?,
            bias: match presence {
                Bias::Absent => None,
                Bias::Present => Some(self.vector(bias)?),
            },
        })
    }

    /// A norm of the stream.
    fn norm(&mut self, weight: Role, bias: Role) -> Result<NormWeights, LoadError> {
        Ok(NormWeights {
            weight: self.vector(weight)?,
            bias: match self.described.spec.norm.kind {
                NormKind::Rms => None,
                NormKind::Layer => Some(self.vector(bias)?),
            },
        })
    }

    fn matrix(&mut self, role: Role) -> Result<Matrix, LoadError> {
        self.packed(role, self.precision)
    }

    /// A router decides between experts, and is small: always whole.
    fn router(&mut self, role: Role) -> Result<Matrix, LoadError> {
        self.packed(role, Precision::Exact)
    }

    fn packed(&mut self, role: Role, precision: Precision) -> Result<Matrix, LoadError> {
        let part = self.part(role)?;
        let packed = pack(self.pool, &part, precision);
        let packed = packed.map_err(|row_idx| part.refusal(row_idx));
        self.source.forget(&part.place.tensor);
        packed
    }

    /// All values of a role: a vector, or the rows of a small table.
    fn vector(&mut self, role: Role) -> Result<Vec<f32>, LoadError> {
        let part = self.part(role)?;
        let (num_rows, num_columns) = match role.part(&self.described.spec) {
            Part::Matrix { inputs, outputs } => (outputs, inputs),
            Part::Vector { len } => (1, len),
        };
        let mut values = vec![0.0; num_rows * num_columns];
        for (row_idx, row) in values.chunks_exact_mut(num_columns).enumerate() {
            part.decode(row_idx, row);
            if !all_finite(row) {
                return Err(part.not_finite(row_idx));
            }
        }
        if is_norm(role) {
            values
                .iter_mut()
                .for_each(|value| *value += self.described.norm_offset);
        }
        Ok(values)
    }

    fn part(&mut self, role: Role) -> Result<Stored<'a>, LoadError> {
        let spec = &self.described.spec;
        let place = self.described.naming.place(role, spec);
        let raw = self.source.raw(&place.tensor)?;
        self.hasher
            .update(format!("{role:?} {} {:?}", raw.ty, place.dims).as_bytes());
        // A tensor with several roles is hashed at its first.
        if place.first == 0 {
            self.hasher.update(raw.bytes);
        }
        Ok(Stored {
            role,
            raw,
            place,
            shape: role.part(spec),
        })
    }
}

fn is_norm(role: Role) -> bool {
    matches!(
        role,
        Role::FinalNorm
            | Role::Layer(
                _,
                LayerRole::AttentionNorm
                    | LayerRole::QueryNorm
                    | LayerRole::KeyNorm
                    | LayerRole::AttentionPostNorm
                    | LayerRole::FeedForwardNorm
                    | LayerRole::FeedForwardPostNorm
            )
    )
}

/// The part of a tensor that plays a role.
struct Stored<'a> {
    role: Role,
    raw: RawTensor<'a>,
    place: Place,
    shape: Part,
}

impl<'a> Stored<'a> {
    /// Rows and columns of a matrix.
    fn size(&self) -> (usize, usize) {
        match self.shape {
            Part::Matrix { inputs, outputs } => (outputs, inputs),
            Part::Vector { len } => (1, len),
        }
    }

    fn num_bytes(&self, num_values: usize) -> usize {
        let num_bytes = self.raw.ty.bytes_of(num_values);
        num_bytes.expect("the table was checked: rows are whole blocks")
    }

    /// The bytes of a row, if they lie together.
    fn row(&self, row_idx: usize) -> &'a [u8] {
        let (_, num_columns) = self.size();
        let row_bytes = self.num_bytes(num_columns);
        &self.raw.bytes[(self.place.first + row_idx) * row_bytes..][..row_bytes]
    }

    /// The values of a row; of a vector, all of them.
    fn decode(&self, row_idx: usize, values: &mut [f32]) {
        match (self.shape, self.place.orientation) {
            (Part::Vector { len }, _) => {
                // Several vectors may share a tensor, and a block of it.
                let mut all = vec![0.0; self.place.dims.iter().product()];
                quant::dequantize(self.raw.ty, self.raw.bytes, &mut all);
                values.copy_from_slice(&all[self.place.first..][..len]);
            }
            (Part::Matrix { .. }, Orientation::Rows) => {
                quant::dequantize(self.raw.ty, self.row(row_idx), values);
            }
            (Part::Matrix { .. }, Orientation::Columns) => {
                // Only folders have them, whose types are floats.
                let (stride, value_bytes) = (self.place.dims[0], self.num_bytes(1));
                for (column_idx, value) in values.iter_mut().enumerate() {
                    let at = (column_idx * stride + self.place.first + row_idx) * value_bytes;
                    let bytes = &self.raw.bytes[at..at + value_bytes];
                    quant::dequantize(self.raw.ty, bytes, std::slice::from_mut(value));
                }
            }
        }
    }

    /// Why a row of a matrix could not be packed.
    fn refusal(&self, row_idx: usize) -> LoadError {
        let (_, num_columns) = self.size();
        let mut values = vec![0.0; num_columns];
        self.decode(row_idx, &mut values);
        if !all_finite(&values) {
            return self.not_finite(row_idx);
        }
        LoadError::refused(Refusal::TooLarge {
            name: self.place.tensor.clone(),
            row_idx: self.place.first + row_idx,
        })
    }

    fn not_finite(&self, row_idx: usize) -> LoadError {
        LoadError::refused(Refusal::NotFinite {
            name: self.place.tensor.clone(),
            row_idx: self.place.first + row_idx,
        })
    }
}

/// Packs a matrix, or says which row holds a value that is infinite or not a number.
fn pack(pool: &Pool, part: &Stored<'_>, precision: Precision) -> Result<Matrix, usize> {
    let (rows, cols) = part.size();
    let ty = part.raw.ty;
    // The rows are decoded on all threads; the first broken one is told whoever finds it.
    let broken_row = AtomicUsize::new(usize::MAX);
    let check = |row_idx: usize, values: &[f32]| {
        if !all_finite(values) {
            broken_row.fetch_min(row_idx, Ordering::Relaxed);
        }
    };
    let decode = |row_idx: usize, values: &mut [f32]| {
        part.decode(row_idx, values);
        check(row_idx, values);
    };
    let matrix = match (precision, CodeLayout::of(ty)) {
        (Precision::Exact, _) => Matrix::from_floats(pool, FloatKind::F32, rows, cols, decode),
        (Precision::Packed, None) => Matrix::from_floats(pool, float_kind(ty), rows, cols, decode),
        (Precision::Quantised(wanted), None) => {
            let held = wanted.held(part.role, cols);
            match CodeLayout::of(held.stored()) {
                None => Matrix::from_floats(pool, float_kind(held.stored()), rows, cols, decode),
                Some(layout) => {
                    Matrix::from_codes(pool, quant_spec(layout), rows, cols, |row_idx, row| {
                        let mut values = vec![0.0; cols];
                        part.decode(row_idx, &mut values);
                        if quant::encode(held.stored(), &values, codes_mut(row)).is_err() {
                            broken_row.fetch_min(row_idx, Ordering::Relaxed);
                        }
                    })
                }
            }
        }
        (Precision::Packed | Precision::Quantised(_), Some(layout)) => {
            Matrix::from_codes(pool, quant_spec(layout), rows, cols, |row_idx, row| {
                quant::codes(ty, part.row(row_idx), codes_mut(row));
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

fn codes_mut(row: &mut CodeRow) -> CodesMut<'_> {
    CodesMut {
        codes: &mut row.codes,
        scales: &mut row.scales,
        mins: &mut row.mins,
    }
}

fn all_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
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
