//! Figures against known truth: a server that is a formula, and a loop that is a queue of moments.

// Rates over the steady window.
mod rates;
// Latencies of requests sent in it.
mod latencies;
// What must not crash, and what must be flagged.
mod faults;

use std::time::Duration;

use crate::observe::{Mark, Record, Status, TokenSource};
use crate::sample::{AskId, ClassId, LevelId, Pacing, Sample};
use crate::slo::Slo;
use crate::summary::StoppedBy;
use crate::workload::{Class, OutputLength};

use super::{Ledger, LedgerConfig, Load};

pub(super) fn class(name: &str, slo: &str) -> Class {
    Class {
        name: name.to_owned(),
        slo: parsed(slo),
        shared_share: None,
        share: 1.0,
        arrivals: None,
    }
}

pub(super) fn ledger(slo: &str) -> Ledger {
    Ledger::new(LedgerConfig {
        classes: vec![class("default", "")],
        slo: parsed(slo),
        seed: 11,
    })
}

fn parsed(slo: &str) -> Slo {
    match slo {
        "" => Slo::default(),
        slo => slo.parse().expect("an SLO"),
    }
}

/// A whole answer: the first of `num_tokens` tokens after `ttft` seconds, the others `gap` apart, an event each,
/// counted by the usage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub ttft: f64,
    pub gap: f64,
    pub num_tokens: u64,
}

impl Answer {
    pub fn e2e(self) -> f64 {
        self.ttft + self.gap * (self.num_tokens - 1) as f64
    }

    pub fn record(self) -> Record {
        let at = |idx: u64| Duration::from_secs_f64(self.ttft + self.gap * idx as f64);
        Record {
            status: Status::Ok,
            http_status: Some(200),
            first_token: Some(at(0)),
            first_answer: Some(at(0)),
            last_token: Some(at(self.num_tokens - 1)),
            done: Some(at(self.num_tokens - 1)),
            marks: (0..self.num_tokens)
                .map(|idx| Mark {
                    at: at(idx),
                    num_tokens: None,
                })
                .collect(),
            num_tokens: Some(self.num_tokens),
            token_source: TokenSource::Usage,
            num_prompt_tokens: Some(100),
            ended: at(self.num_tokens - 1),
            ..Record::default()
        }
    }
}

/// What was left of an answer when it was given up after `at` seconds: the usage never came.
pub(super) fn given_up(answer: Answer, at: f64) -> Record {
    let mut record = answer.record();
    let at = Duration::from_secs_f64(at);
    record.status = Status::Cancelled;
    record.marks.retain(|mark| mark.at <= at);
    record.last_token = record.marks.last().map(|mark| mark.at);
    record.first_token = record.first_token.filter(|&first| first <= at);
    record.num_tokens = None;
    record.token_source = TokenSource::None;
    record.done = None;
    record.ended = at;
    record
}

/// A request without an answer, after `ended` seconds.
pub(super) fn failed(status: Status, ended: f64) -> Record {
    Record {
        status,
        http_status: (status == Status::HttpError).then_some(404),
        ended: Duration::from_secs_f64(ended),
        ..Record::default()
    }
}

pub(super) fn sample(level: LevelId, sent: f64, record: Record) -> Sample {
    Sample {
        id: AskId {
            conversation: (sent * 1e6) as u64,
            turn: 0,
        },
        level,
        class: ClassId(0),
        pacing: Pacing::Closed,
        due: sent,
        sent,
        held: 0.0,
        handed: sent,
        told: sent,
        connect: None,
        num_prompt_wanted: None,
        num_prompt_shared: 0,
        num_output_wanted: None,
        output: OutputLength::AtMost,
        record,
    }
}

/// Sends and takes at once: for tests that do not look in between.
pub(super) fn put(ledger: &mut Ledger, sample: &Sample) {
    ledger.sent(sample.level, sample.told);
    ledger.take(sample);
}

/// One closed-loop level of `length` seconds whose users ask again as soon as they have an answer; what is in flight at
/// its end is awaited.
pub(super) fn closed_level(
    ledger: &mut Ledger,
    users: u32,
    start: f64,
    length: f64,
    mut answer: impl FnMut(f64) -> Answer,
) -> LevelId {
    let level = ledger.begin_level(Load::Users(users), start);
    for _ in 0..users {
        let mut now = start;
        while now < start + length {
            let answer = answer(now - start);
            put(ledger, &sample(level, now, answer.record()));
            now += answer.e2e();
        }
    }
    ledger.end_level(level, start + length, StoppedBy::Duration);
    level
}

pub(super) fn close(told: impl Into<Option<f64>>, expected: f64, share: f64) {
    let told = told.into().expect("a figure");
    let error = (told - expected).abs();
    assert!(
        error <= share * expected.abs(),
        "{told} instead of {expected}"
    );
}
