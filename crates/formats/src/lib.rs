//! Bytes on disk to named tensors and metadata: GGUF, safetensors.
//!
//! The one idea: a model file is untrusted input. Opening one walks its header once with checked arithmetic and
//! caps before allocation ([`Limits`]); what comes out is borrowed from the map and cannot be out of range. Errors
//! name the key or tensor at fault.
//!
//! Not here: what a tensor or key is for, and any arithmetic beyond decoding stored values.

#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod gguf;
pub mod quant;
pub mod safetensors;

mod ggml;
mod limits;
mod mapped;

pub use ggml::{GgmlType, UnsupportedType};
pub use limits::Limits;
