//! Facts about the scheduler, through its public interface only.
//!
//! Two harnesses touch that interface, nothing else: `trace` draws what happens to a small
//! workload; `world` runs any workload against a model of the KV bytes and checks every promise.

mod trace; // Workload in, drawing out.
mod world; // A fake KV store that knows what every position should contain.

mod facts; // What a reader may rely on, drawn.
mod groups; // Several answers to one prompt.
mod refusals; // What is never accepted, and the border to what is.
mod workloads; // Thousands of drawn-by-seed workloads.
