//! Tokens to logits: architectures, weights, KV bytes, the forward pass.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
pub mod runner;
