//! `cargo xtask tidy`: the house rules that a machine can be right about, and a few
//! sizes that only a reader can judge, which it shows without judging.
//!
//! Every check returns the faults it found, each with its place; nothing stops at the first.

mod crates;
mod documents;
mod shown;
mod sources;

use anyhow::bail;

/// What to do with documents that are generated from the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// A difference is a fault.
    Compare,
    /// Write them anew.
    Rewrite,
}

/// Runs every check and prints what it found.
pub fn run(generated: Generated) -> anyhow::Result<()> {
    let mut faults = Vec::new();
    faults.extend(crates::edges_follow_the_table()?);
    faults.extend(crates::outside_crates_follow_rank()?);
    let sources = sources::read_all()?;
    for source in &sources {
        faults.extend(sources::check(source));
    }
    faults.extend(sources::simd_files_have_their_definition(&sources));
    faults.extend(sources::lints_stand_in_crate_roots(&sources));
    faults.extend(documents::named_paths_and_commands_exist()?);
    faults.extend(documents::generated_documents_are_current(generated)?);
    shown::print(&sources);
    if faults.is_empty() {
        println!("tidy: {} Rust files, no faults", sources.len());
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("{} faults against the house rules", faults.len())
}
