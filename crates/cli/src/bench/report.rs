//! A run again, in any format; one that was killed is summed up from its requests.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bench::directory;
use bench::report::{Series, Style};
use bench::summary::Summary;

use super::args::{Format, ReportArgs};
use crate::words::print;

/// Shows the run in a folder.
pub fn report(args: ReportArgs) -> anyhow::Result<ExitCode> {
    let run = directory::read(&args.dir)?;
    if !run.tail.is_whole() {
        let because = run.tail.because.as_deref().unwrap_or("it was broken off");
        eprintln!(
            "note: {} bytes and {} lines of the requests could not be read: {because}",
            run.tail.lost_bytes, run.tail.unreadable_lines
        );
    }
    let (summary, series) = match run.summary {
        Some(summary) => (summary, run.series.unwrap_or_default()),
        None => {
            eprintln!("note: the run has no summary: this one is made from its requests");
            let Some(line) = &run.run else {
                bail!(
                    "{}: not even the run's first line was written",
                    args.dir.display()
                );
            };
            let lines = directory::lines(&args.dir)?;
            bench::run::summarise_again(line, lines).context("nothing to sum up")?
        }
    };
    print(&shown(&summary, &series, args.format))?;
    Ok(ExitCode::SUCCESS)
}

/// A run's results, as `format` says.
pub fn shown(summary: &Summary, series: &Series, format: Format) -> String {
    match format {
        Format::Table => bench::report::table(summary, style()),
        Format::Json => bench::report::json(summary),
        Format::Csv => bench::report::csv(summary),
        Format::Md => bench::report::markdown(summary),
        Format::Html => bench::report::html(summary, series),
    }
}

/// Bold only where somebody looks.
fn style() -> Style {
    use std::io::IsTerminal as _;
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !is_plain {
        Style::Terminal
    } else {
        Style::Plain
    }
}
