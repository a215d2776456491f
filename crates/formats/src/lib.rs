//! Bytes on disk to named tensors and metadata: GGUF, safetensors.
#![deny(missing_docs)]
pub mod gguf;
