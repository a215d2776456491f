//! The outside observer: what users of an OpenAI-compatible endpoint feel, measured at its socket.
//!
//! Links neither server nor engine: it must measure any endpoint the same way.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// How things are asked.
pub mod client;
// The books of a run.
pub mod ledger;
// What one answer's stream tells.
pub mod observe;
// Where to run the server.
pub mod operating_point;
// One request as the run saw it.
pub mod sample;
// What users were promised.
pub mod slo;
// What numbers support.
pub mod stats;
// The result of a run.
pub mod summary;
// What a run leaves behind, and how it is found again.
pub mod directory;
// How a result is shown.
pub mod report;
// When it is asked.
pub mod arrival;
// What is asked.
pub mod workload;
