//! Where the project is, what its crates are, and running commands in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The project's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the project")
        .to_path_buf()
}

/// Runs a command in the root folder, its output going where ours goes.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{command:?}");
    let status = command
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// Runs a command in the root folder and returns what it printed to stdout.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let output = command
        .current_dir(root())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        bail!(
            "{shown} failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown} did not print UTF-8"))
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Where cargo builds, and where we keep the tools that we install.
pub fn target_folder() -> anyhow::Result<PathBuf> {
    let metadata = metadata()?;
    Ok(PathBuf::from(
        metadata["target_directory"]
            .as_str()
            .context("cargo metadata names no target directory")?,
    ))
}

fn metadata() -> anyhow::Result<serde_json::Value> {
    let printed = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    Ok(serde_json::from_str(&printed)?)
}

/// Files of the project that git tracks or would track, relative to the root, with one of `extensions`.
pub fn files(extensions: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let listed = output(Command::new("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ]))?;
    Ok(listed
        .lines()
        .map(PathBuf::from)
        .filter(|path| {
            path.extension()
                .and_then(|extension| extension.to_str())
                .is_some_and(|extension| extensions.contains(&extension))
        })
        .filter(|path| root().join(path).is_file())
        .collect())
}

/// One crate of the workspace.
#[derive(Debug)]
pub struct Package {
    /// Its short name: `tensor`, `cli`, `xtask`.
    pub name: String,
    /// What it depends on when built, not when tested; external names as published.
    pub dependencies: Vec<String>,
}

/// The crates of the workspace.
pub fn packages() -> anyhow::Result<Vec<Package>> {
    let metadata = metadata()?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    Ok(packages
        .iter()
        .map(|package| Package {
            name: short_name(package["name"].as_str().unwrap_or_default()),
            dependencies: package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| short_name(dependency["name"].as_str().unwrap_or_default()))
                .collect(),
        })
        .collect())
}

/// `fulcrum-tensor` → `tensor`, `fulcrum` → `cli`.
fn short_name(published: &str) -> String {
    match published {
        "fulcrum" => "cli".to_owned(),
        other => other.strip_prefix("fulcrum-").unwrap_or(other).to_owned(),
    }
}
