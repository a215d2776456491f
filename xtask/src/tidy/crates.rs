//! The rank table: which crate may know which, and which outside crates stay above rank 2.

use crate::workspace::{Package, packages};

/// Crate, rank, and what it may use of ours. The same table stands in ARCHITECTURE.md.
const RANKS: &[(&str, u8, &[&str])] = &[
    ("tensor", 0, &[]),
    ("formats", 0, &[]),
    ("sched", 0, &[]),
    ("api", 0, &[]),
    ("text", 1, &["formats"]),
    ("model", 1, &["tensor", "formats"]),
    ("engine", 2, &["sched", "model", "text"]),
    ("server", 3, &["engine", "text", "api"]),
    ("bench", 3, &["api", "text"]),
    (
        "cli",
        5,
        &[
            "tensor", "formats", "sched", "api", "text", "model", "engine", "server", "bench",
        ],
    ),
];

/// For tests only: no crate may depend on them but as a dev-dependency.
const DEVELOPMENT: &[&str] = &["testkit", "xtask"];

/// Outside crates that need a runtime or a network: rank 3 and above.
const RUNTIME: &[&str] = &[
    "tokio",
    "tokio-util",
    "hyper",
    "hyper-util",
    "axum",
    "tower",
    "tower-http",
];

/// Outside crates for the edge of the program only.
const EDGE: &[&str] = &["anyhow", "clap"];

/// Every edge between our crates is in [`RANKS`], and every crate has its row.
pub fn edges_follow_the_table() -> anyhow::Result<Vec<String>> {
    let packages = packages()?;
    let ours: Vec<&str> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut faults = Vec::new();
    for package in packages
        .iter()
        .filter(|package| !DEVELOPMENT.contains(&package.name.as_str()))
    {
        let Some((_, _, may_use)) = row(package) else {
            faults.push(format!(
                "crate {} has no row in the rank table",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            if ours.contains(&dependency.as_str()) && !may_use.contains(&dependency.as_str()) {
                faults.push(format!("crate {} may not use {dependency}", package.name));
            }
        }
    }
    Ok(faults)
}

/// No runtime below rank 3; `anyhow` and `clap` only at the edge.
pub fn outside_crates_follow_rank() -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in packages()? {
        let name = &package.name;
        if DEVELOPMENT.contains(&name.as_str()) {
            continue;
        }
        let rank = row(&package).map_or(0, |(_, rank, _)| *rank);
        for dependency in &package.dependencies {
            if rank < 3 && RUNTIME.contains(&dependency.as_str()) {
                faults.push(format!(
                    "crate {name} (rank {rank}) may not use {dependency}: rank 3 and above"
                ));
            }
            if name != "cli" && EDGE.contains(&dependency.as_str()) {
                faults.push(format!(
                    "crate {name} may not use {dependency}: only the binary and tests"
                ));
            }
        }
    }
    Ok(faults)
}

fn row(package: &Package) -> Option<&'static (&'static str, u8, &'static [&'static str])> {
    RANKS.iter().find(|(name, _, _)| *name == package.name)
}
