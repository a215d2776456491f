//! Two endpoints in turn, so that what drifts hurts both alike.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use bench::diff::{Round, Side, abba as ratios_of};
use bench::ledger::Ledger;
use bench::load::{Audience, Ended, LevelPlan, Now, Wish};
use bench::run::{self, Prepared};
use bench::sample::{LevelId, Sample};
use bench::summary::Level;

use super::args::{AbbaArgs, DiffFormat};
use super::measure::{Runtimes, on_signals, unprepared};
use super::{EXIT_UNREACHABLE, order};
use crate::words::print;

/// The order within a round: each side is once before and once after the other.
const TURNS: [Side; 4] = [Side::A, Side::B, Side::B, Side::A];

/// Measures `a` and `b` in turn.
pub fn abba(args: AbbaArgs) -> anyhow::Result<ExitCode> {
    let orders = [
        order::order(&args.a, &args.load)?,
        order::order(&args.b, &args.load)?,
    ];
    for order in &orders {
        order::single_level(&order.levels)?;
    }
    run::raise_open_files();
    let runtimes = Runtimes::new(args.load.client_threads)?;
    let handle = runtimes.hands.handle().clone();
    runtimes.head.block_on(async {
        let is_stopped = on_signals();
        let mut sides = Vec::new();
        for order in orders {
            match run::prepare(order, &handle, |stage| eprintln!("{stage} ...")).await {
                Ok(prepared) => sides.push(prepared),
                Err(error) => return Ok(unprepared(error)),
            }
        }
        let mut rounds = Vec::new();
        for turn in 0..args.rounds as usize * TURNS.len() {
            let side = TURNS[turn % TURNS.len()];
            let prepared = &mut sides[usize::from(side == Side::B)];
            // The same lengths in other words: what the server knows from the last round helps nobody.
            let salt = prepared.vocabulary.salt().wrapping_add(1);
            prepared.vocabulary = prepared.vocabulary.clone().with_salt(salt);
            let Some(level) = turn_of(prepared, &handle, &is_stopped).await? else {
                break;
            };
            if level.requests.ok == 0 {
                eprintln!(
                    "error: not one request to {} succeeded",
                    prepared.order.client.endpoint
                );
                return Ok(ExitCode::from(EXIT_UNREACHABLE));
            }
            let figures = figures_of(&level);
            eprintln!("{side:?}: {}", line_of(&figures));
            rounds.push(Round { side, figures });
        }
        if rounds.len() < 2 {
            bail!("stopped before both endpoints had a turn");
        }
        let report = ratios_of(&rounds);
        let shown = match args.format {
            DiffFormat::Table => report.to_table(),
            DiffFormat::Md => report.to_markdown(),
            DiffFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        };
        print(&shown)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// One turn; none if it was stopped.
async fn turn_of(
    prepared: &Prepared,
    handle: &tokio::runtime::Handle,
    is_stopped: &Arc<AtomicBool>,
) -> anyhow::Result<Option<Level>> {
    let mut audience = Nobody {
        is_stopped: Arc::clone(is_stopped),
    };
    let measured = run::measure(prepared, handle.clone(), &mut audience).await;
    let ended = measured.ended.context("the round ended early")?;
    let level = measured.ledger.level(LevelId(0));
    Ok((ended != Ended::Interrupted).then_some(level))
}

/// What is compared; what too few requests support is not.
fn figures_of(level: &Level) -> Vec<(String, f64)> {
    let figures = [
        ("ttft.p50", level.ttft_ms.p50),
        ("ttft.p95", level.ttft_ms.p95),
        ("tpot.p50", level.tpot_ms.p50),
        ("tpot.p95", level.tpot_ms.p95),
        ("itl.p99", level.itl_ms.p99),
        ("e2e.p50", level.e2e_ms.p50),
        ("throughput", level.output_tokens_per_s),
        ("requests", Some(level.requests_per_s)),
    ];
    figures
        .into_iter()
        // A missing figure keeps its place, and leaves its pair out.
        .map(|(name, value)| (name.to_owned(), value.unwrap_or(f64::NAN)))
        .collect()
}

fn line_of(figures: &[(String, f64)]) -> String {
    let known = figures.iter().filter(|(_, value)| value.is_finite());
    let shown: Vec<String> = known
        .map(|(name, value)| format!("{name} {value:.4}"))
        .collect();
    shown.join(", ")
}

/// Only listens for the end.
struct Nobody {
    is_stopped: Arc<AtomicBool>,
}

impl Audience for Nobody {
    fn begun(&mut self, _: LevelId, _: &LevelPlan, _: f64) -> io::Result<()> {
        Ok(())
    }

    fn heard(&mut self, _: &Sample) -> io::Result<()> {
        Ok(())
    }

    fn tick(&mut self, _: &Ledger, _: Now<'_>) -> io::Result<Wish> {
        Ok(match self.is_stopped.load(Ordering::Relaxed) {
            true => Wish::End,
            false => Wish::GoOn,
        })
    }

    fn ended(&mut self, _: &Ledger, _: LevelId, _: f64) -> io::Result<()> {
        Ok(())
    }
}
