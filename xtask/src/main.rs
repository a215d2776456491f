//! Project automation: `cargo xtask ci` is what CI runs, `cargo xtask tidy` its house rules.
//!
//! Plain `std::process` and file reading; the only things parsed are `cargo metadata`
//! and Rust sources.
#![forbid(unsafe_code)]

mod ci;
mod tidy;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  ci                  everything that CI checks: tools, format, clippy, tidy, licences, tests, docs
  tidy                the house rules that a machine can check
  tidy --bless        rewrite the generated documents that tidy compares
  bench limits        what this machine can do at most: multiply-adds and bytes a second
  bench limits --json the same for programs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["ci"] => ci::run_all(),
        ["tidy"] => tidy::run(tidy::Generated::Compare),
        ["tidy", "--bless"] => tidy::run(tidy::Generated::Rewrite),
        ["bench", "limits"] => limits(&[]),
        ["bench", "limits", "--json"] => limits(&["--json"]),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds and runs the measurement, which lives beside the kernels: `crates/tensor/examples/limits.rs`.
fn limits(arguments: &[&str]) -> anyhow::Result<()> {
    let build = [
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "fulcrum-tensor",
        "--example",
        "limits",
        "--",
    ];
    workspace::run(workspace::cargo().args(build).args(arguments))
}
