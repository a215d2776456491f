//! The bytes of the KV cache: one set of pages per layer, block ids shared by all.
//!
//! The one idea: a block id means the same 16 positions in every layer, so accounting
//! (`sched`) needs one number per block. Not here: who holds a block, or when it is free.
//!
//! Source: paged attention, Kwon et al. 2023, <https://arxiv.org/abs/2309.06180>.

use tensor::kv::{BLOCK_TOKENS, KvPages, KvShape, KvType};

use crate::load::LoadError;
use crate::spec::DecoderSpec;

/// How large the KV cache becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBudget {
    /// As many blocks as fit this many bytes.
    Bytes(u64),
    /// Exactly this many blocks of [`crate::runner::BLOCK_TOKENS`] positions.
    Blocks(usize),
}

/// Keys and values of all layers.
#[derive(Debug)]
pub(crate) struct KvStore {
    /// By layer.
    pub layers: Vec<KvPages>,
    /// How keys and values are stored.
    pub element: KvType,
    pub num_blocks: usize,
    /// Bytes of one block over all layers.
    pub block_bytes: usize,
}

impl KvStore {
    /// Makes room for as many blocks as `budget` allows. Memory is taken from the system as blocks are used.
    ///
    /// # Errors
    ///
    /// [`LoadError::KvBudget`] if not one block fits, [`LoadError::KvMemory`] if the
    /// system refuses.
    pub(crate) fn new(
        spec: &DecoderSpec,
        element: KvType,
        budget: KvBudget,
    ) -> Result<KvStore, LoadError> {
        let shape = layer_shape(spec, element);
        let block_bytes = block_bytes(spec, element);
        let num_blocks = match budget {
            KvBudget::Bytes(bytes) => bytes / block_bytes as u64,
            KvBudget::Blocks(num_blocks) => num_blocks as u64,
        };
        // Block ids are u32, the largest of which accounting keeps for itself.
        let num_blocks = num_blocks.min(u64::from(u32::MAX - 1)) as usize;
        if num_blocks == 0 {
            return Err(LoadError::KvBudget {
                budget,
                block_bytes,
            });
        }
        let layers = (0..spec.num_layers())
            .map(|_| KvPages::new(shape, num_blocks))
            .collect::<Result<_, _>>()
            .map_err(|source| LoadError::KvMemory {
                num_blocks,
                block_bytes,
                source,
            })?;
        Ok(KvStore {
            layers,
            element,
            num_blocks,
            block_bytes,
        })
    }
}

/// Bytes of one block over all layers.
pub(crate) fn block_bytes(spec: &DecoderSpec, element: KvType) -> usize {
    layer_shape(spec, element).block_bytes() * spec.num_layers()
}

/// Bytes of the keys and values of one position in one layer.
pub(crate) fn layer_position_bytes(spec: &DecoderSpec, element: KvType) -> u64 {
    (layer_shape(spec, element).block_bytes() / BLOCK_TOKENS) as u64
}

fn layer_shape(spec: &DecoderSpec, element: KvType) -> KvShape {
    let attention = &spec.attention;
    KvShape {
        num_kv_heads: attention.num_kv_heads,
        head_dim: attention.head_dim,
        element,
    }
}
