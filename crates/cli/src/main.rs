//! The binary `fulcrum`: flags, subcommands, wording.
//!
//! What was typed (`args`) and what it means (`server::ServerConfig`, `model::LoadOptions`, …)
//! are two types; each subcommand is one file that turns the first into the second and runs it.
//! Data goes to stdout, words go to stderr, and an error ends with a hint where one helps.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cache;
mod catalogue;
mod describe;
mod doctor;
mod generation;
mod hub;
mod inspect;
mod logits;
mod open;
mod pull;
mod reference;
mod run;
mod serve;
mod syntax;
mod weights;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let outcome = match cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Run(args) => run::run(args),
        Command::Pull(args) => pull::pull(args),
        Command::Logits(args) => logits::logits(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Bench(args) => bench::bench(*args),
        Command::FlagReference => reference::print(),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            words::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Tells what is wrong with the flags. Scripts of `bench` expect 1 for that: there, 2 says that nobody answered.
fn usage(error: &clap::Error) -> ExitCode {
    // A reader that has gone away has seen enough.
    let _ = error.print();
    let is_bench = std::env::args().nth(1).is_some_and(|word| word == "bench");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_bench => ExitCode::FAILURE,
        code => ExitCode::from(u8::try_from(code).unwrap_or(1)),
    }
}
