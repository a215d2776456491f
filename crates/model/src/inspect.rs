//! What a model file is, and everything that speaks against serving it.
//!
//! The one idea: an inspection never fails on a file that could be opened; what would be an
//! error when loading is a list here. Reads the header only.

use std::collections::BTreeMap;

use formats::gguf::{Gguf, Value};
use tensor::kv::KvType;

use crate::arch;
use crate::kv_store;
use crate::load::refusals_of_tensors;
use crate::refusal::Refusal;
use crate::source::SourceRef;
use crate::spec::DecoderSpec;

/// What a model says about itself.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// `general.architecture`, if it is there.
    pub architecture: Option<String>,
    /// `general.name`, if it is there.
    pub name: Option<String>,
    /// Values in all tensors; a tied head counts once, as in the file.
    pub num_parameters: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Tensors, values and bytes by element type, as `Q4_1`; types that cannot be read as `16 (IQ2_XXS)`.
    pub types: BTreeMap<String, TypeShare>,
    /// The decoder, if the metadata describes one that can be computed.
    pub spec: Option<DecoderSpec>,
    /// Keys of the architecture that had no say in the decoder.
    pub unread_keys: Vec<String>,
    /// Everything that would be refused, and why; empty if the file can be served.
    pub refusals: Vec<Refusal>,
}

impl Inspection {
    /// Bytes of one KV block over all layers with elements of `kv_type`, if there is a decoder.
    pub fn kv_block_bytes(&self, kv_type: KvType) -> Option<usize> {
        let spec = self.spec.as_ref()?;
        Some(kv_store::block_bytes(spec, kv_type))
    }
}

/// How much of a model is stored in one element type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeShare {
    /// Tensors of the type.
    pub num_tensors: usize,
    /// Values in them.
    pub num_values: u64,
    /// Bytes in the file; 0 for types that cannot be read, whose size nobody knows.
    pub num_bytes: u64,
}

/// Describes an opened source: a [`Source`](crate::Source), a `Gguf`, a `Folder`.
pub fn inspect<'a>(source: impl Into<SourceRef<'a>>) -> Inspection {
    let source = source.into();
    let mut types: BTreeMap<String, TypeShare> = BTreeMap::new();
    for tensor in source.table() {
        let name = match tensor.ty {
            Ok(ty) => ty.to_string(),
            Err(other) => other,
        };
        let share = types.entry(name).or_default();
        share.num_tensors += 1;
        // The size of a tensor of unknown type is not bounded by the file.
        let num_values = tensor
            .dims
            .iter()
            .fold(1u64, |product, &dim| product.saturating_mul(dim as u64));
        share.num_values = share.num_values.saturating_add(num_values);
        share.num_bytes += tensor.num_bytes as u64;
    }
    let (spec, unread_keys, refusals) = match arch::describe(source) {
        Ok(described) => {
            let refusals = refusals_of_tensors(&described, source);
            (Some(described.spec), described.unread_keys, refusals)
        }
        Err(refusals) => (None, Vec::new(), refusals),
    };
    let (architecture, name) = match source {
        SourceRef::Gguf(file) => (
            text(file, "general.architecture"),
            text(file, "general.name"),
        ),
        SourceRef::Folder(folder) => {
            let word = |key: &str| folder.config().get(key)?.as_str().map(str::to_owned);
            let path = folder.path().file_name();
            let name = word("_name_or_path").filter(|name| !name.is_empty());
            let named = name.or_else(|| path.map(|name| name.to_string_lossy().into_owned()));
            (word("model_type"), named)
        }
    };
    Inspection {
        architecture,
        name,
        num_parameters: types
            .values()
            .fold(0, |sum, share| sum.saturating_add(share.num_values)),
        tensor_bytes: types.values().map(|share| share.num_bytes).sum(),
        types,
        spec,
        unread_keys,
        refusals,
    }
}

/// Lossy, because it is only shown.
fn text(file: &Gguf, key: &str) -> Option<String> {
    match file.get(key)? {
        Value::String(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}
