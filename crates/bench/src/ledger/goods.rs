//! Whether a request met what its users were promised.

use crate::observe::Status;
use crate::sample::Row;
use crate::slo::{Metric, Objective, Slo};

/// What came of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
    /// It cannot be told: counted as not kept, and flagged.
    Unknown,
}

/// All objectives of one request. Only whole answers can be good.
pub(super) fn is_good(row: &Row, slo: &Slo) -> Kept {
    if row.status != Status::Ok {
        return Kept::No;
    }
    let mut all = Kept::Yes;
    for objective in &slo.objectives {
        match meets(row, objective) {
            Kept::Yes => {}
            Kept::No => return Kept::No,
            Kept::Unknown => all = Kept::Unknown,
        }
    }
    all
}

fn meets(row: &Row, objective: &Objective) -> Kept {
    let below = |value: f64| {
        if value < objective.limit_s {
            Kept::Yes
        } else {
            Kept::No
        }
    };
    // An answer of one token has no later ones that could be slow.
    let has_one_token = row.num_output.is_some_and(|num| num <= 1);
    match objective.metric {
        // An answer that came whole began no later than it ended.
        Metric::Ttft => match (row.ttft, row.e2e) {
            (Some(ttft), _) => below(ttft),
            (None, Some(e2e)) if below(e2e) == Kept::Yes => Kept::Yes,
            _ => Kept::Unknown,
        },
        Metric::Tpot => match row.tpot {
            Some(tpot) => below(tpot),
            None if has_one_token => Kept::Yes,
            None => Kept::Unknown,
        },
        // The request's own gaps, at the objective's own percentile.
        Metric::Itl => match row.gaps.quantile(objective.quantile) {
            Some(gap) => below(gap),
            None if has_one_token => Kept::Yes,
            None => Kept::Unknown,
        },
        Metric::E2e => row.e2e.map_or(Kept::Unknown, below),
    }
}
