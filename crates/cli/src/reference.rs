//! The flag reference, written from the flags themselves.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory as _};

use crate::args::Cli;

/// Prints `docs/reference/flags.md` to stdout.
pub fn print() -> anyhow::Result<ExitCode> {
    print!("{}", markdown(&Cli::command()));
    Ok(ExitCode::SUCCESS)
}

fn markdown(command: &Command) -> String {
    let mut page = String::from(
        "# Flags\n\nGenerated from the binary by `cargo xtask tidy --bless`; do not edit.\n",
    );
    for subcommand in command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
    {
        section(&mut page, subcommand, "fulcrum");
    }
    page
}

/// A command's table, and those of its own subcommands below it.
fn section(page: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = write!(page, "\n## {name}\n\n{about}\n\n");
    page.push_str("| flag | environment | default | meaning |\n|---|---|---|---|\n");
    for argument in command
        .get_arguments()
        .filter(|argument| argument.get_id() != "help")
    {
        row(page, argument);
    }
    for subcommand in command.get_subcommands() {
        section(page, subcommand, &name);
    }
}

fn row(page: &mut String, argument: &Arg) {
    let takes_value = argument.get_action().takes_values();
    let value = if takes_value {
        argument.get_value_names().unwrap_or_default().join(" ")
    } else {
        String::new()
    };
    let mut flag = match argument.get_long() {
        Some(long) => format!("--{long} {value}"),
        None => format!("[{value}]"),
    };
    if let Some(short) = argument.get_short() {
        flag = format!("-{short}, {flag}");
    }
    let environment = argument
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()))
        .unwrap_or_default();
    let default = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(",");
    let default = if argument.get_action().takes_values() {
        default
    } else {
        String::new()
    };
    let help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let words = argument.get_possible_values();
    let words: Vec<&str> = words
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    let help = match takes_value && !words.is_empty() {
        true => format!("{help}; one of {}", words.join(", ")),
        false => help,
    };
    let help = help.replace('|', "\\|").replace('\n', " ");
    let _ = writeln!(
        page,
        "| `{}` | {environment} | {default} | {help} |",
        flag.trim().replace('|', "\\|")
    );
}
