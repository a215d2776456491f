//! Tokens to logits: architectures, weights, KV bytes, the forward pass.
//!
//! The one idea: an architecture is data ([`spec`]), read from a file's metadata (`arch`),
//! and one decoder computes them all. A [`Runner`] is what the engine sees of it.
//!
//! ```text
//! source ─ arch ─> DecoderSpec ─ inventory, naming ─> places ─ weights ─> packed matrices
//!                     └───────────────── decoder: Batch ─> Logits ─────────────┘
//! ```
//!
//! Not here: files (`formats`), arithmetic (`tensor`), requests, sampling.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// The seam: what the engine hands in and gets back.
pub mod runner;

// A decoder as data.
pub mod spec;

// A GGUF file or a folder, opened.
pub mod source;

// What tensors are called.
mod naming;

// From a description to a spec, an architecture a file.
mod arch;

// The tensors that a spec calls for.
mod inventory;

// Reasons against a file.
mod refusal;

// In which type they are held.
mod quantise;

// Tensors to packed matrices.
mod weights;

// The forward pass. Read this first.
mod decoder;

// Its mixtures of experts.
mod experts;

// What a forward pass computes in.
mod workspace;

// A batch, checked and laid out for it.
mod layout;

// Bytes of the KV cache.
mod kv_store;

// All of that together, as a `Runner`.
mod cpu_runner;

// How much work that is for a machine.
mod work;

// A file to a runner.
mod load;

// A file described, and what speaks against it.
mod inspect;

// Logits of chosen positions of one text.
mod score;

pub use cpu_runner::CpuRunner;
pub use inspect::{Inspection, TypeShare, inspect};
pub use kv_store::KvBudget;
pub use load::{Fault, LoadError, LoadOptions, Precision, load, open, plan};
pub use quantise::{PlannedShare, WeightPlan, WeightType};
pub use refusal::{Dims, Refusal, Refusals};
pub use runner::Runner;
pub use score::score;
pub use source::{Folder, Source, SourceRef};
pub use tensor::kv::KvType;
pub use work::{MultiplyAdds, Work};
