//! `cargo xtask ci`: everything that must hold, in the order that fails soonest.
//!
//! It installs what the tests need into the project's own folders and the user's cache:
//! a Python environment with the clients of `tests/client`, the two real models, `cargo-deny`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::workspace::{self, cargo, run};

/// A step's name and what it does.
type Step = (&'static str, fn() -> anyhow::Result<()>);

/// Runs every step; stops at the first that fails.
pub fn run_all() -> anyhow::Result<()> {
    let steps: &[Step] = &[
        ("format", format),
        ("clippy", clippy),
        ("tidy", || crate::tidy::run(crate::tidy::Generated::Compare)),
        ("licences", licences),
        ("models", models),
        ("tests", tests),
        ("client", client),
        ("documentation", documentation),
    ];
    let begin = Instant::now();
    for (name, step) in steps {
        println!("== {name}");
        let since = Instant::now();
        step()?;
        println!("== {name}: {:.0} s", since.elapsed().as_secs_f64());
    }
    println!("== all: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

fn format() -> anyhow::Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> anyhow::Result<()> {
    run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Licences, bans and sources need no network; advisories would.
fn licences() -> anyhow::Result<()> {
    let tools = workspace::target_folder()?.join("tools");
    let deny = tools.join("bin/cargo-deny");
    if !deny.exists() {
        run(cargo()
            .args(["install", "--quiet", "--locked", "cargo-deny", "--root"])
            .arg(&tools))?;
    }
    // The licences of every platform's crates count, and only some of them are built here.
    run(cargo().args(["fetch", "--quiet", "--locked"]))?;
    run(Command::new(deny).args(["--offline", "check", "licenses", "bans", "sources"]))
}

/// The real models that fidelity and speed are checked with.
fn models() -> anyhow::Result<()> {
    for name in ["smollm2-135m", "gemma3-270m"] {
        run(cargo().args([
            "run",
            "--quiet",
            "--locked",
            "--package",
            "fulcrum",
            "--",
            "pull",
            name,
        ]))?;
    }
    Ok(())
}

fn tests() -> anyhow::Result<()> {
    run(cargo()
        .args(["test", "--workspace", "--locked"])
        .env("FULCRUM_REQUIRE_MODELS", "1"))
}

/// The Python packages `openai`, `anthropic` and `schemathesis` against the real binary and model, and a browser
/// against the report of a load test.
fn client() -> anyhow::Result<()> {
    let python = python_environment()?;
    browser()?;
    let shown = workspace::target_folder()?.join("report");
    std::fs::create_dir_all(&shown)?;
    let report = shown.join("report.html");
    run(cargo()
        .args(["test", "--quiet", "--locked", "--package", "fulcrum-bench"])
        .args(["--lib", "the_page_is_well_formed_and_has_every_chart"])
        .env("FULCRUM_REPORT", &report))?;
    run(cargo().args(["build", "--quiet", "--locked", "--package", "fulcrum"]))?;
    let binary = workspace::target_folder()?.join("debug/fulcrum");
    let discover = [
        "-m",
        "unittest",
        "discover",
        "--verbose",
        "--start-directory",
        "tests/client",
    ];
    run(Command::new(python)
        .args(discover)
        .env("FULCRUM_BIN", binary)
        .env("FULCRUM_REPORT", report)
        .env("FULCRUM_SCREENSHOTS", shown))
}

/// Debian's Chromium on a CI machine that has none. Elsewhere nothing is installed: without a browser the test of the
/// report says that it is skipped.
fn browser() -> anyhow::Result<()> {
    let is_there = Command::new("chromium").arg("--version").output().is_ok();
    if is_there || std::env::var_os("CI").is_none() {
        return Ok(());
    }
    run(Command::new("apt-get").args(["update", "--quiet"]))?;
    run(Command::new("apt-get")
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(["chromium", "fonts-dejavu-core"])
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Creates the environment once and returns its interpreter.
fn python_environment() -> anyhow::Result<PathBuf> {
    let folder = workspace::target_folder()?.join("venv");
    let python = folder.join("bin/python");
    let requirements = workspace::root().join("tests/client/requirements.txt");
    let stamp = folder.join("requirements.txt");
    if std::fs::read(&requirements).ok() != std::fs::read(&stamp).ok() || !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(&requirements))?;
        std::fs::copy(&requirements, &stamp)?;
    }
    Ok(python)
}

fn documentation() -> anyhow::Result<()> {
    run(cargo()
        .args(["doc", "--workspace", "--no-deps", "--locked"])
        .env("RUSTDOCFLAGS", "-D warnings"))
}
