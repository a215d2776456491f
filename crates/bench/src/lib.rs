//! The outside observer: what users of an OpenAI-compatible endpoint feel, measured at its socket.
//!
//! Links neither server nor engine: it must measure any endpoint the same way.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// A run from beginning to end.
pub mod run;
// Who asks when.
pub mod load;
// What is asked.
pub mod workload;
// When it is asked.
pub mod arrival;
// How things are asked.
pub mod client;
// What one answer's stream tells.
pub mod observe;
// One request as the run saw it.
pub mod sample;
// What users were promised.
pub mod slo;
// The books of a run.
pub mod ledger;
// What numbers support.
pub mod stats;
// Where to run the server.
pub mod operating_point;
// Whether one run is faster than another.
pub mod diff;
// What the client itself can do.
pub mod calibrate;
// The server's own metrics.
pub mod scrape;
// The result of a run.
pub mod summary;
// What a run leaves behind, and how it is found again.
pub mod directory;
// How a result is shown.
pub mod report;
