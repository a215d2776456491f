//! A run from beginning to end: prepare, measure, summarise.
//!
//! ```text
//! Order ── prepare ──▶ Prepared ── measure ──▶ Measured ── summarise ──▶ Summary, Series
//!           probe, vocabulary,      levels, as           figures, operating point,
//!           calibration             results say          warnings
//! ```
//!
//! Not here: files, terminals and flags; they belong to whoever runs it ([`Audience`]).

// The words that prompts are made of.
mod vocabulary;

// Which level comes next.
mod levels;

// How much at once.
mod expect;

// What the client takes of the machine.
mod usage;

// A summary of a run that was killed.
mod again;

// What a reader should know before trusting the figures.
mod trust;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::calibrate::{Floor, Rehearsal, rehearse};
use crate::client::{Api, Client, ProbeError, Probed, probe};
use crate::ledger::{Ledger, LedgerConfig};
use crate::load::{Audience, Conduct, Ended, Hands, Setting, Timer, conduct};
use crate::operating_point::{Criteria, operating_point, slo_capacity};
use crate::report::Series;
use crate::sample::{GapSketch, LevelId};
use crate::slo::Slo;
use crate::summary::{ClientSummary, SCHEMA, Summary, Warning, WorkloadSummary};
use crate::workload::{Source, Vocabulary, Workload};

pub use self::again::summarise_again;
pub use self::levels::Levels;
pub use self::usage::{Usage, raise_open_files};

/// What is to be measured.
#[derive(Debug)]
pub struct Order {
    /// Of whom.
    pub client: Client,
    /// The model's name; none asks the server.
    pub model: Option<String>,
    /// Which API; none takes what the address says, or chat.
    pub api: Option<Api>,
    /// What is asked.
    pub workload: Workload,
    /// With which words; none asks the server.
    pub vocabulary: Option<Vocabulary>,
    /// What draws lengths and arrivals.
    pub seed: u64,
    /// What draws words.
    pub salt: u64,
    /// Body fields of every request.
    pub body: Map<String, Value>,
    /// Seconds between two conversations of a user.
    pub think_s: f64,
    /// Requests in flight at once, at most.
    pub concurrency_max: usize,
    /// How much load.
    pub levels: Levels,
    /// What was promised; empty if nothing.
    pub slo: Slo,
    /// Rules of the run.
    pub rules: Conduct,
    /// Whether the client measures itself first.
    pub calibration: Calibration,
}

/// Whether the client measures itself first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calibration {
    /// Against its own loop-back server.
    Measure,
    /// Not.
    Skip,
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The endpoint cannot be measured.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// A run that can begin.
#[derive(Debug)]
pub struct Prepared {
    /// What is measured.
    pub order: Order,
    /// What the endpoint turned out to be.
    pub probed: Probed,
    /// With which words it is asked.
    pub vocabulary: Vocabulary,
    /// What the client can do, if it was calibrated and every stream of that ended well.
    pub floor: Option<Floor>,
    /// What is known already.
    pub warnings: Vec<Warning>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Measured {
    /// Its books.
    pub ledger: Ledger,
    /// Why it ended; an error if somebody who watched could not go on.
    pub ended: io::Result<Ended>,
    /// What the client took.
    pub usage: Usage,
    /// Seconds.
    pub duration_s: f64,
    /// Connections at once, at most.
    pub connections_max: u64,
    /// Requests in flight at once, at most.
    pub in_flight_max: u64,
    /// What the client can do: see [`calibrate_again`].
    pub floor: Option<Floor>,
    /// What turned out since it was prepared.
    pub warnings: Vec<Warning>,
    /// How late the client's clock rang, level by level.
    pub delays: Vec<GapSketch>,
}

/// Asks the endpoint what it is, finds the words, and measures the client; `stage` hears of each step.
///
/// # Errors
///
/// If the endpoint does not answer a trial request.
///
/// # Cost
///
/// Some hundred small requests, and a second of calibration on `hands`.
pub async fn prepare(
    mut order: Order,
    hands: &Handle,
    mut stage: impl FnMut(&str),
) -> Result<Prepared, PrepareError> {
    stage("asking the endpoint for its model");
    let probed = probe(
        &order.client,
        order.model.as_deref(),
        order.api,
        &order.body,
    )
    .await?;
    let mut warnings: Vec<Warning> = order.workload.warnings.iter().map(Warning::clone).collect();
    let vocabulary = match order.vocabulary.take() {
        Some(vocabulary) => vocabulary,
        None if order.workload.needs_vocabulary() => {
            stage("finding words of one token");
            vocabulary::ask(&order.client, &probed, &order.body).await?
        }
        None => Vocabulary::estimate(),
    };
    let vocabulary = vocabulary.with_salt(order.salt);
    warnings.extend(order.workload.warnings_with(&vocabulary));
    let floor = match order.calibration {
        Calibration::Skip => None,
        Calibration::Measure => {
            let rehearsal = expect::rehearsal(&order, &probed, &vocabulary);
            stage(&format!("measuring {}", played(&rehearsal)));
            floor_of(hands, rehearsal, &mut warnings).await
        }
    };
    Ok(Prepared {
        order,
        probed,
        vocabulary,
        floor,
        warnings,
    })
}

fn played(rehearsal: &Rehearsal) -> String {
    format!(
        "the client itself with {} streams and {:.0} events/s over {}",
        rehearsal.num_streams,
        rehearsal.events_per_s(),
        rehearsal.transport.name()
    )
}

/// What the client can do, if that can be told; otherwise the reader is.
async fn floor_of(
    hands: &Handle,
    rehearsal: Rehearsal,
    warnings: &mut Vec<Warning>,
) -> Option<Floor> {
    let why = match rehearse(hands, rehearsal).await {
        Ok(floor) if floor.is_trusted() => return Some(floor),
        Ok(floor) => format!("{} streams failed", floor.num_failed),
        Err(error) => error.to_string(),
    };
    warnings.push(Warning {
        code: "not_calibrated".to_owned(),
        text: format!(
            "what the client can do is not known: measuring {}, {why}",
            played(&rehearsal)
        ),
        advice:
            "allow more open files (ulimit -n), or run the client where it has more of the machine"
                .to_owned(),
    });
    None
}

/// Measures the client again, with so much at once as the run turned out to have, if that is much more than was
/// calibrated before, or so much less that the floor would do it wrong; `stage` hears of it.
///
/// # Cost
///
/// About a second on `hands`, if at all.
pub async fn calibrate_again(
    prepared: &Prepared,
    measured: &mut Measured,
    hands: &Handle,
    mut stage: impl FnMut(&str),
) {
    let Some(floor) = &prepared.floor else { return };
    let ledger = &measured.ledger;
    let events_per_s = ledger
        .level_ids()
        .map(|id| ledger.glance(id).events_per_s)
        .fold(0.0, f64::max);
    let seen = expect::second_rehearsal(floor, measured.in_flight_max, events_per_s);
    if let Some(rehearsal) = seen {
        stage(&format!("measuring {}, as it had", played(&rehearsal)));
        measured.floor = floor_of(hands, rehearsal, &mut measured.warnings).await;
    }
}

/// Runs the levels on `hands`, keeping the books on the thread that calls.
pub async fn measure(prepared: &Prepared, hands: Handle, audience: &mut dyn Audience) -> Measured {
    let order = &prepared.order;
    let epoch = Instant::now();
    let before = Usage::now();
    let setting = Setting {
        client: order.client.clone(),
        dialect: prepared.probed.dialect,
        model: prepared.probed.model.clone(),
        workload: order.workload.clone(),
        vocabulary: prepared.vocabulary.clone(),
        seed: order.seed,
        body: order.body.clone(),
        think_s: order.think_s,
        concurrency_max: order.concurrency_max,
        timer: Timer::Kernel,
        epoch,
    };
    let mut ledger = Ledger::new(LedgerConfig {
        classes: order.workload.classes.clone(),
        slo: order.slo.clone(),
        seed: order.seed,
    });
    let hands = Hands::new(setting, hands);
    let counters = hands.counters();
    let pulse = hands.pulse();
    let mut search = levels::Search::new(order);
    let mut delays = Vec::new();
    let mut next = |ledger: &Ledger, now: f64| {
        // What rang before the first level belongs to nobody.
        let of_last = pulse.take();
        if search.num_levels() > 0 {
            delays.push(of_last);
        }
        search.next(ledger, now)
    };
    let ended = conduct(hands, &mut ledger, &mut next, audience, order.rules).await;
    if delays.len() < search.num_levels() {
        delays.push(pulse.take());
    }
    let after = Usage::now();
    Measured {
        ledger,
        ended,
        usage: Usage {
            cpu_s: after.cpu_s - before.cpu_s,
            memory_peak_bytes: after.memory_peak_bytes,
        },
        duration_s: epoch.elapsed().as_secs_f64(),
        connections_max: counters.connections_max.load(Ordering::Relaxed),
        in_flight_max: counters.in_flight_max.load(Ordering::Relaxed),
        floor: prepared.floor.clone(),
        warnings: Vec::new(),
        delays,
    }
}

/// What a run has in its summary that it does not know itself.
#[derive(Clone, Debug)]
pub struct Frame {
    /// RFC 3339, UTC.
    pub started: String,
    /// The flags as given, secrets left out.
    pub command: Vec<String>,
}

/// Figures, the operating point and what to know about them.
///
/// # Cost
///
/// Resampling: up to some seconds for many levels.
pub fn summarise(prepared: &Prepared, measured: &Measured, frame: Frame) -> (Summary, Series) {
    let order = &prepared.order;
    let ledger = &measured.ledger;
    let ids: Vec<LevelId> = ledger.level_ids().collect();
    let levels: Vec<_> = ids.iter().map(|&id| ledger.level(id)).collect();
    let points: Vec<_> = ids.iter().map(|&id| ledger.points(id)).collect();
    let mut warnings = prepared.warnings.clone();
    warnings.extend(measured.warnings.iter().cloned());
    let doubts = trust::Doubts {
        prepared,
        measured,
        levels: &levels,
    };
    let (bound, found) = doubts.look();
    warnings.extend(found);
    let has_slo = !order.slo.objectives.is_empty();
    let floor = measured.floor.as_ref();
    let client = ClientSummary {
        floor_ms_p99: floor.map(|floor| floor.p99_s * 1e3),
        floor_ms_p50: floor.map(|floor| floor.p50_s * 1e3),
        floor_streams: floor.map(|floor| floor.rehearsal.num_streams as u64),
        floor_events_per_s: floor.map(|floor| floor.rehearsal.events_per_s()),
        bound,
        cpu_s: measured.usage.cpu_s,
        cpu_share: measured.usage.cpu_s / measured.duration_s.max(1e-9),
        memory_peak_bytes: measured.usage.memory_peak_bytes,
        connections_max: measured.connections_max,
    };
    let summary = Summary {
        schema: SCHEMA.to_owned(),
        fulcrum: env!("CARGO_PKG_VERSION").to_owned(),
        started: frame.started,
        duration_s: measured.duration_s,
        command: frame.command,
        endpoint: order.client.endpoint.to_string(),
        model: prepared.probed.model.clone(),
        api: prepared.probed.dialect.api.name().to_owned(),
        protocol: order.client.protocol.name().to_owned(),
        seed: order.seed,
        salt: order.salt,
        workload: WorkloadSummary {
            name: order.workload.name.clone(),
            hash: order.workload.hash.clone(),
            prompt_tokens_from: prompt_tokens_from(prepared).to_owned(),
        },
        client,
        operating_point: operating_point(&points, &Criteria::STANDARD, order.seed),
        slo: has_slo.then(|| {
            // A level that measured nothing has neither kept a promise nor broken it.
            let measured = levels.iter().filter(|level| level.requests.attempted() > 0);
            let measured: Vec<_> = measured.cloned().collect();
            slo_capacity(&measured, &order.slo)
        }),
        levels,
        server_metrics: Vec::new(),
        warnings,
    };
    let series = ledger.series(measured.duration_s);
    (summary, series)
}

fn prompt_tokens_from(prepared: &Prepared) -> &'static str {
    if !prepared.order.workload.needs_vocabulary() {
        return "texts";
    }
    match prepared.vocabulary.source() {
        Source::Server => "server",
        Source::Tokenizer => "tokenizer",
        Source::Estimate => "estimate",
    }
}
