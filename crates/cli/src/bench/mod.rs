//! `fulcrum bench`: measure any endpoint, compare runs, show them again.
//!
//! Exit codes: 0 measured, 1 usage, 2 the endpoint cannot be reached or no request succeeded, 3 an SLO or `--fail-on`
//! was missed.

pub mod args;

// From flags to what is measured.
mod order;
// One endpoint.
mod measure;
// Files, terminal and signals during a run.
mod watch;
// Two endpoints in turn.
mod abba;
// Two runs.
mod diff;
// A run again.
mod report;
// The engine of one model, without HTTP.
mod raw;

use std::process::ExitCode;

use args::{BenchArgs, BenchCommand};

/// The endpoint cannot be reached, or no request succeeded.
const EXIT_UNREACHABLE: u8 = 2;
/// An SLO or a rule was missed.
const EXIT_MISSED: u8 = 3;

/// Measures, compares or shows.
pub fn bench(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(BenchCommand::Diff(args)) => diff::diff(args),
        Some(BenchCommand::Abba(args)) => abba::abba(*args),
        Some(BenchCommand::Report(args)) => report::report(args),
        Some(BenchCommand::Raw(args)) => raw::raw(args),
        None => {
            let Some(url) = args.url else {
                anyhow::bail!(
                    "which server? give its address, for example fulcrum bench http://127.0.0.1:8080"
                );
            };
            measure::measure(&url, &args.load, &args.output)
        }
    }
}
