//! Two runs: what changed, and how sure that is.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bench::diff::{DiffOptions, FailOn, Run, diff as compare};
use bench::directory::{self, Line, write_whole};

use super::EXIT_MISSED;
use super::args::{DiffArgs, DiffFormat};
use crate::words::{WithHint as _, print};

/// Compares the runs in two folders.
pub fn diff(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let rules: Result<Vec<FailOn>, _> = args.fail_on.iter().map(|rule| rule.parse()).collect();
    let options = DiffOptions {
        margin: args.margin,
        seed: args.seed,
        fail_on: rules?,
    };
    let (before, after) = (run_in(&args.before)?, run_in(&args.after)?);
    let comparison = compare(&before, &after, &options);
    if let Some(path) = &args.junit {
        write_whole(path, comparison.to_junit().as_bytes())?;
    }
    let shown = match args.format {
        DiffFormat::Table => comparison.to_table(),
        DiffFormat::Md => comparison.to_markdown(),
        DiffFormat::Json => serde_json::to_string_pretty(&comparison)? + "\n",
    };
    print(&shown)?;
    Ok(if comparison.is_failed() {
        ExitCode::from(EXIT_MISSED)
    } else {
        ExitCode::SUCCESS
    })
}

/// A run with its requests, gaps and all.
fn run_in(folder: &Path) -> anyhow::Result<Run> {
    let run = directory::read(folder)?;
    let Some(summary) = run.summary else {
        let error: anyhow::Result<Run> = Err(anyhow::anyhow!(
            "{}: the run was killed before it had a summary",
            folder.display()
        ));
        return error.hint(|| {
            format!(
                "fulcrum bench report {} shows what it has",
                folder.display()
            )
        });
    };
    let Some(line) = run.run else {
        bail!("{}: the run's requests are missing", folder.display());
    };
    let mut rows = Vec::new();
    for found in directory::lines(folder).with_context(|| format!("{}", folder.display()))? {
        if let Line::Request(request) = found
            && let Some(sample) = request.sample(&line.classes)
            && (sample.level.0 as usize) < summary.levels.len()
        {
            rows.push(sample.row());
        }
    }
    Ok(Run {
        name: folder.display().to_string(),
        summary,
        rows,
    })
}
