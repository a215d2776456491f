//! The binary `fulcrum`: flags, subcommands, wording.
//!
//! What was typed (`args`) and what it means (`server::ServerConfig`, `model::LoadOptions`, …)
//! are two types; each subcommand is one file that turns the first into the second and runs it.
//! Data goes to stdout, words go to stderr, and an error ends with a hint where one helps.
#![forbid(unsafe_code)]

mod args;
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
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::serve(args),
        Command::Run(args) => run::run(args),
        Command::Pull(args) => pull::pull(args),
        Command::Logits(args) => logits::logits(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Doctor(args) => doctor::doctor(args),
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
