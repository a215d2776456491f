//! Which requests are compared: those due in the steady window of the same load on both sides.

use std::collections::{BTreeMap, HashMap};

use super::{LevelComparison, Run, load_of};
use crate::observe::Status;
use crate::sample::{AskId, Row};
use crate::summary::{Level, Summary, Warning};

/// Whether the same id asks the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairing {
    Paired,
    Unpaired,
}

impl Pairing {
    pub(super) fn of(a: &Run, b: &Run) -> Pairing {
        let same_workload = a.summary.workload.hash == b.summary.workload.hash;
        if same_workload && a.summary.seed == b.summary.seed {
            Pairing::Paired
        } else {
            Pairing::Unpaired
        }
    }
}

/// One load on both sides.
pub(super) struct Compared<'a> {
    pub(super) load: f64,
    pub(super) a: Half<'a>,
    pub(super) b: Half<'a>,
    pairing: Pairing,
}

/// One side of it.
pub(super) struct Half<'a> {
    pub(super) level: &'a Level,
    /// Whole answers, with the index of their conversation; if paired, the same requests in the same order as on the
    /// other side.
    pub(super) answers: Vec<(usize, &'a Row)>,
    pub(super) num_conversations: usize,
    /// Requests that ended within the steady window, with the seconds since it began.
    pub(super) ended: Vec<(f64, &'a Row)>,
    num_ok: usize,
    pub(super) failed: f64,
}

impl<'a> Compared<'a> {
    pub(super) fn of(a: (&'a Run, usize), b: (&'a Run, usize), pairing: Pairing) -> Compared<'a> {
        let (mut a, mut b) = (Half::of(a.0, a.1), Half::of(b.0, b.1));
        if pairing == Pairing::Paired {
            let in_b: HashMap<AskId, &Row> =
                b.answers.iter().map(|&(_, row)| (row.id, row)).collect();
            let pairs: Vec<(&Row, &Row)> = a
                .answers
                .iter()
                .filter_map(|&(_, row)| Some((row, *in_b.get(&row.id)?)))
                .collect();
            a.answers = pairs.iter().map(|&(row, _)| (0, row)).collect();
            b.answers = pairs.iter().map(|&(_, row)| (0, row)).collect();
        }
        a.number_conversations();
        b.number_conversations();
        Compared {
            load: load_of(a.level).unwrap_or(0.0),
            a,
            b,
            pairing,
        }
    }

    pub(super) fn is_paired(&self) -> bool {
        self.pairing == Pairing::Paired
    }

    pub(super) fn num_pairs(&self) -> usize {
        if self.is_paired() {
            self.a.answers.len()
        } else {
            0
        }
    }

    /// Of the side with fewer.
    pub(super) fn num_ended(&self) -> usize {
        self.a.ended.len().min(self.b.ended.len())
    }
}

impl<'a> Half<'a> {
    fn of(run: &'a Run, level_idx: usize) -> Half<'a> {
        let level = &run.summary.levels[level_idx];
        let from = level.start_s + level.steady_from_s;
        let within = |at: f64| at >= from && at < from + level.steady_s;
        let rows = run
            .rows
            .iter()
            .filter(|row| row.level.0 as usize == level_idx);
        let due: Vec<&Row> = rows
            .clone()
            .filter(|row| within(row.due) && row.status != Status::Cancelled)
            .collect();
        let mut answers: Vec<(usize, &Row)> = due
            .iter()
            .filter(|row| row.status == Status::Ok)
            .map(|&row| (0, row))
            .collect();
        // In an order that does not depend on who was answered first.
        answers.sort_by_key(|(_, row)| row.id);
        // Tokens may still arrive in a level that was not the one in which they were asked for.
        let ended = run
            .rows
            .iter()
            .filter(|row| row.status == Status::Ok && within(row.ended))
            .map(|row| (row.ended - from, row))
            .collect();
        Half {
            level,
            num_ok: answers.len(),
            failed: (due.len() - answers.len()) as f64 / due.len().max(1) as f64,
            answers,
            num_conversations: 0,
            ended,
        }
    }

    pub(super) fn num_ok(&self) -> usize {
        self.num_ok
    }

    fn number_conversations(&mut self) {
        let mut numbers: BTreeMap<u64, usize> = BTreeMap::new();
        for (conversation, row) in &mut self.answers {
            let next = numbers.len();
            *conversation = *numbers.entry(row.id.conversation).or_insert(next);
        }
        self.num_conversations = numbers.len();
    }
}

/// Indices of levels with the same load, in A's order; of several with one load, the first with the first.
pub(super) fn common_levels(a: &Summary, b: &Summary) -> Vec<(usize, usize)> {
    let mut free: Vec<usize> = (0..b.levels.len()).collect();
    let mut common = Vec::new();
    for (idx_a, level) in a.levels.iter().enumerate() {
        let same = |&idx: &usize| {
            let other = &b.levels[idx];
            // What a ramp offered depends on the window: the ramp is what was asked for.
            let is_same_rate = match (level.ramp_rps, other.ramp_rps) {
                (None, None) => level.offered_rps == other.offered_rps,
                (ramp, other_ramp) => ramp == other_ramp,
            };
            level.users == other.users && is_same_rate
        };
        if let Some(at) = free.iter().position(same) {
            common.push((idx_a, free.remove(at)));
        }
    }
    common
}

/// What makes the runs hard to compare as a whole.
pub(super) fn warnings(a: &Run, b: &Run) -> Vec<Warning> {
    let (a, b) = (&a.summary, &b.summary);
    let mut warnings = Vec::new();
    if a.workload.hash != b.workload.hash {
        warnings.push(warning(
            "workload_differs",
            format!(
                "A asked {} ({}), B asked {} ({}): requests are not paired, and differences may be the workload's",
                a.workload.name, a.workload.hash, b.workload.name, b.workload.hash
            ),
            "run both with the same --workload",
        ));
    }
    if a.seed != b.seed {
        warnings.push(warning(
            "seed_differs",
            format!(
                "A has seed {}, B has {}: requests are not paired",
                a.seed, b.seed
            ),
            "run both with the same --seed",
        ));
    }
    let common = common_levels(a, b);
    let loads = |summary: &Summary| -> Vec<String> {
        let loads = summary.levels.iter().filter_map(load_of);
        loads.map(|load| load.to_string()).collect()
    };
    if common.len() != a.levels.len() || common.len() != b.levels.len() {
        warnings.push(warning(
            "loads_differ",
            format!(
                "A ran at {}, B at {}: only common loads are compared",
                loads(a).join(", "),
                loads(b).join(", ")
            ),
            "run both with the same --users or --rate",
        ));
    }
    for (name, summary) in [("A", a), ("B", b)] {
        if summary.client.bound {
            warnings.push(warning(
                "client_bound",
                format!("in {name} the client was the limit, not the server"),
                "lower the load, or use a faster client machine",
            ));
        }
    }
    warnings
}

/// What makes one load hard to compare.
pub(super) fn level_warnings(level: &LevelComparison, pairing: Pairing) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let fewer = level.num_a.min(level.num_b);
    if pairing == Pairing::Paired && fewer > 0 && level.num_pairs * 2 < fewer {
        warnings.push(warning(
            "few_pairs",
            format!(
                "at load {}, only {} of {fewer} requests have a partner",
                level.load, level.num_pairs
            ),
            "run both with the same --duration, or with --requests",
        ));
    }
    if (level.failed_a - level.failed_b).abs() > 0.01 {
        warnings.push(warning(
            "failures_differ",
            format!(
                "at load {}, {:.1} % of A's requests failed and {:.1} % of B's: latencies are of whole answers only",
                level.load,
                level.failed_a * 100.0,
                level.failed_b * 100.0
            ),
            "compare at a load that both bear",
        ));
    }
    warnings
}

pub(super) fn warning(code: &str, text: String, advice: &str) -> Warning {
    Warning {
        code: code.to_owned(),
        text,
        advice: advice.to_owned(),
    }
}
