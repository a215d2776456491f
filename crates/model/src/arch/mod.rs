//! From a file's metadata to a [`DecoderSpec`]: one short file per architecture.
//!
//! The one idea: an architecture is what its metadata keys mean, and nothing else. Each
//! file reads its keys through [`Keys`], which bounds every number and gathers everything
//! wrong with the file, and returns a spec; all of them are computed by the same decoder.
//! Tensor names and shapes follow from the spec (`inventory.rs`).

mod gemma3;
mod keys;
mod llama;

use formats::gguf::Gguf;

use self::keys::Keys;
pub(crate) use self::keys::{EMBEDDING, ROPE_DIVISORS};
use crate::refusal::Refusal;
use crate::spec::{AttentionBiases, AttentionSpec, Bias, DecoderSpec, HeadWeights, LIMITS, QkNorm};

/// How one architecture is read.
struct Architecture {
    /// `general.architecture`, and the prefix of its keys.
    name: &'static str,
    read: fn(&mut Keys<'_>) -> DecoderSpec,
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture {
        name: "gemma3",
        read: gemma3::read,
    },
    Architecture {
        name: "llama",
        read: llama::read,
    },
];

/// A spec, and what in the metadata had no say in it.
#[derive(Debug)]
pub(crate) struct Described {
    pub spec: DecoderSpec,
    /// Keys of the architecture that nothing read: reported by `inspect`, not refused,
    /// because the ones known to matter are (`Keys::refuse_if_set`).
    pub unread_keys: Vec<String>,
}

/// Reads the description of the decoder in `file`.
///
/// # Errors
///
/// Every reason why it cannot be served that metadata alone shows.
pub(crate) fn describe(file: &Gguf) -> Result<Described, Vec<Refusal>> {
    let name = keys::architecture(file).map_err(|refusal| vec![refusal])?;
    let Some(architecture) = ARCHITECTURES.iter().find(|known| known.name == name) else {
        let supported = ARCHITECTURES.map(|known| known.name).join(", ");
        return Err(vec![Refusal::Architecture {
            name: name.to_owned(),
            supported,
        }]);
    };
    let mut keys = Keys::new(file, architecture.name);
    let spec = (architecture.read)(&mut keys);
    let unread_keys = keys.unread();
    match keys.into_refusals() {
        refusals if refusals.is_empty() => Ok(Described { spec, unread_keys }),
        refusals => Err(refusals),
    }
}

/// The sizes that every architecture states under the same keys.
struct Sizes {
    vocab: usize,
    hidden: usize,
    context_max: usize,
    num_layers: usize,
    feed_forward: usize,
    norm_eps: f32,
}

impl Sizes {
    fn read(keys: &mut Keys<'_>) -> Sizes {
        Sizes {
            vocab: keys.vocab(),
            hidden: keys.count("embedding_length", 1..=LIMITS.width_max),
            context_max: keys.count("context_length", 1..=LIMITS.context_max),
            num_layers: keys.count("block_count", 1..=LIMITS.layers_max),
            feed_forward: keys.count("feed_forward_length", 1..=LIMITS.width_max),
            norm_eps: keys.number("attention.layer_norm_rms_epsilon", LIMITS.norm_eps),
        }
    }
}

/// Heads and their width; the scale is the usual `1 / sqrt(head_dim)`.
fn read_attention(keys: &mut Keys<'_>, hidden: usize, qk_norm: QkNorm) -> AttentionSpec {
    let num_heads = keys.count("attention.head_count", 1..=LIMITS.heads_max);
    let num_kv_heads = keys.count_or("attention.head_count_kv", 1..=LIMITS.heads_max, num_heads);
    if !num_heads.is_multiple_of(num_kv_heads) {
        let expected = format!("a divisor of attention.head_count = {num_heads}");
        keys.refuse_contradiction("attention.head_count_kv", expected, num_kv_heads);
    }
    let head_dim = match keys.optional_count("attention.key_length", 1..=LIMITS.head_dim_max) {
        Some(head_dim) => head_dim,
        None => hidden_per_head(keys, hidden, num_heads),
    };
    if head_dim % 2 != 0 {
        let expected = "an even head width, because rotations turn pairs".to_owned();
        keys.refuse_contradiction("attention.key_length", expected, head_dim);
    }
    let value_dim = keys.count_or("attention.value_length", 1..=LIMITS.head_dim_max, head_dim);
    if value_dim != head_dim {
        let expected = format!("attention.key_length = {head_dim}");
        keys.refuse_contradiction("attention.value_length", expected, value_dim);
    }
    AttentionSpec {
        num_heads,
        num_kv_heads,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
        softcap: keys.optional_number("attn_logit_softcapping", LIMITS.multiplier),
        qk_norm,
        biases: AttentionBiases {
            qkv: bias_if_present(keys, "blk.0.attn_q.bias"),
            output: bias_if_present(keys, "blk.0.attn_output.bias"),
        },
    }
}

fn hidden_per_head(keys: &mut Keys<'_>, hidden: usize, num_heads: usize) -> usize {
    if !hidden.is_multiple_of(num_heads) || hidden / num_heads > LIMITS.head_dim_max {
        let expected =
            format!("a divisor of embedding_length = {hidden} (no attention.key_length)");
        keys.refuse_contradiction("attention.head_count", expected, num_heads);
        return 2;
    }
    hidden / num_heads
}

/// Biases are told by their tensors alone. Layer 0 speaks for all: `inventory.rs` then
/// demands them in every layer, and refuses them where layer 0 has none.
fn bias_if_present(keys: &Keys<'_>, tensor: &str) -> Bias {
    if keys.has_tensor(tensor) {
        Bias::Present
    } else {
        Bias::Absent
    }
}

/// A file with an output matrix uses it; one without reuses the embedding (case B6).
fn read_head(keys: &Keys<'_>) -> HeadWeights {
    if keys.has_tensor("output.weight") {
        HeadWeights::Separate
    } else {
        HeadWeights::Tied
    }
}
