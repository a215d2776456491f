//! From an opened file to a runner: check everything, then read the weights.
//!
//! The one idea: all that can be refused is refused before the first weight is read, and
//! all reasons at once. Not here: parsing the file (`formats`).

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use formats::gguf::GgufError;
use formats::safetensors::SafetensorsError;
use tensor::isa::{Isa, IsaError};
use tensor::kv::{KvError, KvType};
use tensor::pool::Pool;

use crate::arch::{self, Described};
use crate::cpu_runner::CpuRunner;
use crate::decoder::Decoder;
use crate::inventory;
use crate::kv_store::{KvBudget, KvStore};
use crate::quantise::{self, WeightPlan, WeightType};
use crate::refusal::{Refusal, Refusals};
use crate::source::{Source, SourceRef};
use crate::spec::RopeRounding;
use crate::weights::Weights;

/// What the caller decides about a loaded model.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How exactly to compute.
    pub precision: Precision,
    /// Compute threads, the calling one included.
    pub threads: NonZeroUsize,
    /// How large the KV cache becomes.
    pub kv_budget: KvBudget,
    /// The longest sequence that will be served, in tokens; `None` is what the model was made for.
    pub context: Option<usize>,
    /// How keys and values are stored; `None` is what fits the precision: half floats, or
    /// 32 bits with [`Precision::Exact`].
    pub kv_type: Option<KvType>,
}

/// How exactly to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As the file stores it: quantised weights stay so, activations are quantised for the
    /// integer kernels.
    Packed,
    /// Weights that the file has as floats are quantised; the rest is as with [`Precision::Packed`]. Embedding and
    /// head get at least 8 bits; rows that are not a multiple of 32 values stay bf16.
    Quantised(WeightType),
    /// All weights dequantised, everything in 32-bit floats: slow, for comparing with other
    /// engines.
    Exact,
}

impl Precision {
    /// A word for it, part of a model's fingerprint.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::Packed => "packed",
            Precision::Quantised(wanted) => wanted.name(),
            Precision::Exact => "exact",
        }
    }

    fn kv_type(self) -> KvType {
        match self {
            Precision::Packed | Precision::Quantised(_) => KvType::F16,
            Precision::Exact => KvType::F32,
        }
    }
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be opened, or is not a sound GGUF file.
    #[error(transparent)]
    File {
        /// What is wrong with it.
        #[from]
        source: GgufError,
    },

    /// A folder's weights cannot be opened, or are no sound safetensors.
    #[error(transparent)]
    Weights {
        /// What is wrong with them.
        #[from]
        source: SafetensorsError,
    },

    /// A folder's description cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The file is sound, but this decoder does not compute what it describes.
    #[error("{refusals}")]
    Refused {
        /// Every reason.
        refusals: Refusals,
    },

    /// Quantised weights were to be quantised: what the file lost, nobody can bring back, and twice
    /// rounded is worse than either.
    #[error(
        "tensor `{tensor}` is {stored} already; only weights in F32, F16 or BF16 can be quantised while loading"
    )]
    AlreadyQuantised {
        /// Its name.
        tensor: String,
        /// Its type.
        stored: &'static str,
    },

    /// The KV cache would have no block at all.
    #[error("KV budget {budget:?} holds no block: one takes {block_bytes} bytes")]
    KvBudget {
        /// What was allowed.
        budget: KvBudget,
        /// Bytes of one block over all layers.
        block_bytes: usize,
    },

    /// The environment asks for an instruction set that this machine lacks.
    #[error(transparent)]
    Isa {
        /// Which, and what there is.
        #[from]
        source: IsaError,
    },

    /// The system has no memory for the KV cache.
    #[error("no KV cache of {num_blocks} blocks of {block_bytes} bytes")]
    KvMemory {
        /// Blocks asked for.
        num_blocks: usize,
        /// Bytes of one block over all layers.
        block_bytes: usize,
        /// What the system said.
        source: KvError,
    },
}

/// Whose fault a failed load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller named a file or a setting that cannot be served.
    Caller,
    /// This machine cannot do it now.
    Server,
}

impl LoadError {
    pub(crate) fn refused(refusal: Refusal) -> LoadError {
        LoadError::Refused {
            refusals: Refusals(vec![refusal]),
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            LoadError::File {
                source: GgufError::Open { .. },
            }
            | LoadError::Weights {
                source: SafetensorsError::Open { .. },
            }
            | LoadError::KvMemory { .. } => Fault::Server,
            LoadError::File { .. }
            | LoadError::Weights { .. }
            | LoadError::Config { .. }
            | LoadError::Refused { .. }
            | LoadError::AlreadyQuantised { .. }
            | LoadError::KvBudget { .. }
            | LoadError::Isa { .. } => Fault::Caller,
        }
    }
}

/// Opens a GGUF file or a folder and loads the model in it.
///
/// # Errors
///
/// [`LoadError`].
pub fn open(path: &Path, options: &LoadOptions) -> Result<CpuRunner, LoadError> {
    load(&Source::open(path)?, options)
}

/// Loads the model in an opened source (a [`Source`], a `Gguf`, a `Folder`). Pages of the file are given back to the system as
/// their weights are packed; the file is not needed afterwards.
///
/// # Errors
///
/// [`LoadError`].
///
/// # Cost
///
/// Reads and repacks every weight once, on all threads.
pub fn load<'a>(
    source: impl Into<SourceRef<'a>>,
    options: &LoadOptions,
) -> Result<CpuRunner, LoadError> {
    let source = source.into();
    Isa::init()?;
    let mut described = checked(source)?;
    let spec = &mut described.spec;
    if options.precision != Precision::Exact {
        spec.ropes
            .iter_mut()
            .for_each(|rope| rope.rounding = RopeRounding::None);
    }
    let context = options
        .context
        .map_or(spec.context_max, |context| context.min(spec.context_max));
    let kv_type = options.kv_type.unwrap_or(options.precision.kv_type());
    quantise::plan(&described, source, options.precision)?;
    let spec = &described.spec;
    // Before the weights, because it fails in no time.
    let kv_store = KvStore::new(spec, kv_type, options.kv_budget)?;
    let pool = Pool::new(options.threads);
    let weights = Weights::read(&described, source, options.precision, &pool)?;
    Ok(CpuRunner::new(
        Decoder::new(described.spec, weights, context),
        kv_store,
        pool,
        options.precision,
    ))
}

/// What the matrices of a source will be held in, as [`load`] would hold them.
///
/// # Errors
///
/// As [`load`], before it reads weights.
pub fn plan<'a>(
    source: impl Into<SourceRef<'a>>,
    precision: Precision,
) -> Result<WeightPlan, LoadError> {
    let source = source.into();
    quantise::plan(&checked(source)?, source, precision)
}

fn checked(source: SourceRef<'_>) -> Result<Described, LoadError> {
    let refused = |refusals| LoadError::Refused {
        refusals: Refusals(refusals),
    };
    let described = arch::describe(source).map_err(refused)?;
    match refusals_of_tensors(&described, source) {
        refusals if refusals.is_empty() => Ok(described),
        refusals => Err(refused(refusals)),
    }
}

/// Everything that speaks against the source's tensors.
pub(crate) fn refusals_of_tensors(described: &Described, source: SourceRef<'_>) -> Vec<Refusal> {
    let mut refusals = source.unreadable();
    refusals.extend(inventory::compare(described, source));
    refusals
}
