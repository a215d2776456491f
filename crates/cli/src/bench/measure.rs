//! One endpoint: prepare, measure, summarise, write down, show.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bench::directory::{RunLine, RunWriter, write_whole};
use bench::load::{ClientThreads, Ended};
use bench::run::{self, Frame, Levels, Order, PrepareError, Prepared};
use bench::summary::Summary;
use tokio::runtime::{Builder, Runtime};

use super::args::{LoadArgs, OutputArgs};
use super::watch::{Scrape, Watch};
use super::{EXIT_MISSED, EXIT_UNREACHABLE, order, report};
use crate::words::{print, print_error};

/// Measures the server at `url`.
pub fn measure(url: &str, load: &LoadArgs, output: &OutputArgs) -> anyhow::Result<ExitCode> {
    let order = order::order(url, load)?;
    let scrape = Scrape::of(&order.client, output.prometheus.as_deref(), load)?;
    run::raise_open_files();
    let runtimes = Runtimes::new(load.client_threads)?;
    let handle = runtimes.hands.handle().clone();
    runtimes.head.block_on(async {
        let is_stopped = on_signals();
        let prepared = match run::prepare(order, &handle, |stage| eprintln!("{stage} ...")).await {
            Ok(prepared) => prepared,
            Err(error) => return Ok(unprepared(error)),
        };
        tell(&prepared);
        let frame = frame();
        let writer = RunWriter::create(&wanted_directory(output), &run_line(&prepared, &frame))?;
        let mut watch = Watch::new(&prepared, writer, output, is_stopped)?;
        let scraping = scrape.start();
        let mut measured = run::measure(&prepared, handle.clone(), &mut watch).await;
        let writer = watch.into_writer();
        if matches!(measured.ended, Ok(Ended::Complete | Ended::Budget)) {
            let stage = |stage: &str| eprintln!("{stage} ...");
            run::calibrate_again(&prepared, &mut measured, &handle, stage).await;
        }
        let (mut summary, series) = run::summarise(&prepared, &measured, frame);
        summary.server_metrics = scraping.finish().await;
        let directory = writer.finish(&summary, &series)?;
        let page = bench::report::html(&summary, &series);
        write_whole(&directory.join("report.html"), page.as_bytes())?;
        print(&report::shown(&summary, &series, output.format))?;
        eprintln!("written to {}", directory.display());
        // Only now, with everything saved that there is.
        measured.ended.context("the run ended early")?;
        Ok(exit_code(&prepared.order, &summary))
    })
}

/// One thread for the hands, so that nothing delays them; one for the head, which is the program's own.
pub struct Runtimes {
    /// Drives connections.
    pub hands: ClientThreads,
    /// Everything else.
    pub head: Runtime,
}

impl Runtimes {
    /// Both, with so many threads for the hands.
    pub fn new(client_threads: u16) -> anyhow::Result<Runtimes> {
        let hands = ClientThreads::start(usize::from(client_threads))
            .context("cannot start the client's threads")?;
        let head = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        Ok(Runtimes { hands, head })
    }
}

/// Turns true at the first Ctrl-C or SIGTERM: the run then ends and keeps what it has. The second ends the program.
pub fn on_signals() -> Arc<AtomicBool> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_stopped);
    tokio::spawn(async move {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
        loop {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                () = async {
                    match &mut terminate {
                        Some(terminate) => { terminate.recv().await; }
                        None => std::future::pending().await,
                    }
                } => {}
            }
            if told.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            eprintln!("stopping; once more to stop at once");
        }
    });
    is_stopped
}

/// Why a run cannot begin, and the code that says so.
pub fn unprepared(error: PrepareError) -> ExitCode {
    let is_usage = matches!(
        &error,
        PrepareError::Probe(bench::client::ProbeError::Header(_))
    );
    print_error(&anyhow::Error::from(error));
    if is_usage {
        ExitCode::FAILURE
    } else {
        ExitCode::from(EXIT_UNREACHABLE)
    }
}

/// What was found out before the run.
fn tell(prepared: &Prepared) {
    let order = &prepared.order;
    let model = prepared.probed.model.as_deref().unwrap_or("(unnamed)");
    eprintln!(
        "{}: model {}, workload {} {}, seed {}",
        order.client.endpoint,
        crate::words::printable(model),
        order.workload.name,
        order.workload.hash,
        order.seed
    );
    if let Some(floor) = &prepared.floor {
        eprintln!(
            "client floor: {:.2} ms (p99) with {} streams and {:.0} events/s",
            floor.p99_s * 1e3,
            floor.rehearsal.num_streams,
            floor.rehearsal.events_per_s()
        );
    }
}

/// When and how the run was started.
pub fn frame() -> Frame {
    Frame {
        started: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        command: without_secrets(std::env::args()),
    }
}

/// Headers may be keys.
fn without_secrets(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_header = false;
    arguments
        .map(|argument| {
            let hides = std::mem::replace(&mut is_header, argument == "--header");
            let value = argument.strip_prefix("--header=");
            match (hides, value) {
                (true, _) => hidden(&argument),
                (false, Some(value)) => format!("--header={}", hidden(value)),
                (false, None) => argument,
            }
        })
        .collect()
}

fn hidden(header: &str) -> String {
    let name = header.split(':').next().unwrap_or("");
    format!("{name}:(hidden)")
}

/// The first line of a run's file.
pub fn run_line(prepared: &Prepared, frame: &Frame) -> RunLine {
    let order = &prepared.order;
    RunLine {
        schema: bench::directory::REQUESTS_SCHEMA.to_owned(),
        fulcrum: env!("CARGO_PKG_VERSION").to_owned(),
        started: frame.started.clone(),
        command: frame.command.clone(),
        endpoint: order.client.endpoint.to_string(),
        model: prepared.probed.model.clone(),
        api: prepared.probed.dialect.api.name().to_owned(),
        workload: order.workload.name.clone(),
        workload_hash: order.workload.hash.clone(),
        seed: order.seed,
        classes: order
            .workload
            .classes
            .iter()
            .map(|class| class.name.clone())
            .collect(),
    }
}

fn wanted_directory(output: &OutputArgs) -> PathBuf {
    let by_time = || {
        let now = jiff::Timestamp::now();
        PathBuf::from(format!("bench-{}", now.strftime("%Y%m%d-%H%M%S")))
    };
    output.out.as_deref().map_or_else(by_time, Path::to_owned)
}

/// What the run says to a script.
fn exit_code(order: &Order, summary: &Summary) -> ExitCode {
    let num_ok: u64 = summary.levels.iter().map(|level| level.requests.ok).sum();
    if num_ok == 0 {
        eprintln!("error: not one request succeeded");
        return ExitCode::from(EXIT_UNREACHABLE);
    }
    let is_kept = match (&summary.slo, &order.levels) {
        (None, _) => true,
        // Who names loads wants them kept; who lets search wants one that is.
        (Some(slo), Levels::Listed(_)) => slo.levels.iter().all(|level| level.outcome == "met"),
        (Some(slo), Levels::Search { .. }) => slo.largest.is_some(),
    };
    if is_kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_MISSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_not_written_down() {
        let typed = [
            "fulcrum",
            "bench",
            "--header",
            "x-key: secret",
            "--header=a:b",
            "--users",
            "1",
        ];
        let kept = without_secrets(typed.into_iter().map(str::to_owned));
        assert_eq!(
            kept,
            [
                "fulcrum",
                "bench",
                "--header",
                "x-key:(hidden)",
                "--header=a:(hidden)",
                "--users",
                "1"
            ]
        );
    }
}
