//! Who computes what next: a pure state machine over requests and KV blocks.
//!
//! The one idea: **there are no phases, only debts.** A sequence *owes* the tokens it knows but has
//! not computed: the whole prompt at the start, one while answering, its whole text after a
//! preemption. A step pays off debts within one budget; a sequence whose debt is paid chooses its
//! next token and so owes again.
//!
//! ```text
//!            add                    admit                       commit, ends
//!  request ──────▶ waiting ────────────────────────▶ running ───────────────▶ gone
//!                     ▲                                 │                       ▲
//!                     └────────── preempt (youngest) ───┘        cancel ────────┘ (from anywhere)
//! ```
//!
//! What it is not: it knows no tensors, text, clocks, threads or I/O. Same calls, same plans, so it
//! is simulated and property-tested without a model; the bytes of the cache live in crate `model`.
//!
//! Read [`Scheduler::plan`] first, then `kv/prefix.rs`.
//!
//! Sources: iteration-level scheduling, Yu et al. 2022 (Orca); paged KV blocks and recomputation,
//! Kwon et al. 2023, <https://arxiv.org/abs/2309.06180>; chunked prefill beside decodes, Agrawal et
//! al. 2024, <https://arxiv.org/abs/2403.02310>.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// The state machine: plan, commit, add, cancel.
mod scheduler;

// How much one step may compute, and how that is shared out.
mod budget;

// One request's tokens, debt and block table.
mod sequence;

// Block accounting: the pool and the prefix cache.
mod kv;

// What goes to the engine and what comes back.
mod plan;

// Bounds, and refusals that follow from them.
mod limits;

pub use kv::hash::{BlockHash, hash_block};
pub use limits::{AddError, Limits};
pub use plan::{Chosen, Counts, Group, PlanFacts, PlanItem, PromptRows, StepPlan};
pub use scheduler::Scheduler;

/// A token id.
pub type Token = u32;

/// Names a sequence; given out by [`Scheduler::add`], never reused, rising with age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// A KV block's index, `0..num_blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

impl BlockId {
    /// Where this block's entry lies in a table over the pool.
    pub(crate) fn idx(self) -> usize {
        self.0 as usize
    }
}
