//! Tokens to logits: architectures, weights, KV bytes, the forward pass.
//!
//! The one idea: an architecture is data ([`spec`]), read from a file's metadata (`arch`),
//! and one decoder computes them all. A [`Runner`] is what the engine sees of it.
//!
//! ```text
//! file ─ arch ─> DecoderSpec ─ inventory ─> names and shapes ─ weights ─> packed matrices
//!                     └───────────────── decoder: Batch ─> Logits ─────────────┘
//! ```
//!
//! Not here: files (`formats`), arithmetic (`tensor`), requests, sampling.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod runner;
pub mod spec;

mod arch;
mod inventory;
mod refusal;

mod weights;

mod cpu_runner;
mod decoder;
mod kv_store;
mod layout;
mod workspace;

mod inspect;
mod load;
mod score;

pub use cpu_runner::CpuRunner;
pub use inspect::{Inspection, TypeShare, inspect};
pub use kv_store::KvBudget;
pub use load::{Fault, LoadError, LoadOptions, Precision, load, open};
pub use refusal::{Dims, Refusal, Refusals};
pub use runner::Runner;
pub use score::score;
pub use tensor::kv::KvType;
