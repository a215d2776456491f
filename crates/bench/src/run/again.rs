//! A summary of a run that was killed before it had one, from the requests that it had written.

use super::SCHEMA;
use crate::directory::{Line, RunLine};
use crate::ledger::{Ledger, LedgerConfig, Load};
use crate::operating_point::{Criteria, operating_point};
use crate::report::Series;
use crate::sample::LevelId;
use crate::slo::Slo;
use crate::summary::{ClientSummary, StoppedBy, Summary, Warning, WorkloadSummary};
use crate::workload::Class;

/// The summary and curves of what was written; none if not even a level was.
///
/// # Cost
///
/// Reads every line, and resamples.
pub fn summarise_again(
    run: &RunLine,
    lines: impl Iterator<Item = Line>,
) -> Option<(Summary, Series)> {
    let classes = run.classes.iter().map(|name| Class {
        name: name.clone(),
        slo: Slo::default(),
        shared_share: None,
        share: 0.0,
        arrivals: None,
    });
    let classes: Vec<Class> = classes.collect();
    if classes.is_empty() {
        return None;
    }
    let mut ledger = Ledger::new(LedgerConfig {
        classes,
        slo: Slo::default(),
        seed: run.seed,
    });
    let mut open: Option<LevelId> = None;
    let mut latest = 0.0;
    for line in lines {
        match line {
            Line::Run(_) => {}
            Line::Level(level) => {
                if let Some(before) = open {
                    ledger.end_level(before, level.start_s, StoppedBy::Unknown);
                }
                let load = match (level.users, level.offered_rps) {
                    (Some(users), _) => Load::Users(users),
                    (None, rate) => Load::Rate(rate.unwrap_or(0.0)),
                };
                open = Some(ledger.begin_level(load, level.start_s));
            }
            Line::Request(request) => {
                let is_known = open.is_some_and(|open| request.level <= open);
                if let Some(sample) = request.sample(&run.classes).filter(|_| is_known) {
                    latest = f64::max(latest, sample.sent + sample.record.ended.as_secs_f64());
                    ledger.sent(sample.level, sample.sent);
                    ledger.take(&sample);
                }
            }
        }
    }
    ledger.end_level(open?, latest, StoppedBy::Interrupted);
    Some(summary_of(run, &ledger, latest))
}

fn summary_of(run: &RunLine, ledger: &Ledger, duration_s: f64) -> (Summary, Series) {
    let points: Vec<_> = ledger.level_ids().map(|id| ledger.points(id)).collect();
    let summary = Summary {
        schema: SCHEMA.to_owned(),
        fulcrum: run.fulcrum.clone(),
        started: run.started.clone(),
        duration_s,
        command: run.command.clone(),
        endpoint: run.endpoint.clone(),
        model: run.model.clone(),
        api: run.api.clone(),
        protocol: String::new(),
        seed: run.seed,
        salt: 0,
        workload: WorkloadSummary {
            name: run.workload.clone(),
            hash: run.workload_hash.clone(),
            prompt_tokens_from: String::new(),
        },
        client: ClientSummary::default(),
        levels: ledger.level_ids().map(|id| ledger.level(id)).collect(),
        operating_point: operating_point(&points, &Criteria::STANDARD, run.seed),
        slo: None,
        server_metrics: Vec::new(),
        warnings: vec![Warning {
            code: "killed".to_owned(),
            text: "the run was killed: its last level and the requests in flight are cut off"
                .to_owned(),
            advice: "read the last level with care".to_owned(),
        }],
    };
    (summary, ledger.series(duration_s))
}
