//! One level's own books: how its requests ended, and a sample of their rows.

use std::collections::BTreeMap;

use crate::observe::{Flag, Status, TokenSource};
use crate::sample::{Pacing, Row, Sample};
use crate::stats::Resampler;
use crate::summary::{Counts, StoppedBy};
use crate::workload::OutputLength;

use super::goods::Kept;
use super::reservoir::Reservoir;
use super::{LIMITS, Load};

/// What further error texts are counted as.
const FURTHER: &str = "(further texts)";
/// Errors that a summary names.
const ERRORS_SHOWN_MAX: usize = 20;

/// A request that ended without a whole answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub class: usize,
    pub is_cancelled: bool,
    pub due: f64,
    pub held: f64,
    pub lag: f64,
    pub sent: f64,
    pub ended: f64,
    pub connect: Option<f64>,
}

/// A request that was due, and never sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    pub class: usize,
    pub due: f64,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub row: Row,
    pub is_good: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Book {
    pub load: Load,
    pub start: f64,
    pub end: Option<f64>,
    pub stopped_by: StoppedBy,
    pub num_sent: u64,
    /// When the last of its requests ended.
    pub last_ended: f64,
    /// `[classes]`
    pub counts: Vec<Counts>,
    pub answers: Reservoir<Answer>,
    pub failures: Reservoir<Failure>,
    pub dropped: Reservoir<Dropped>,
    flags: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    sources: BTreeMap<&'static str, u64>,
}

impl Book {
    pub fn new(load: Load, start: f64, num_classes: usize) -> Book {
        Book {
            load,
            start,
            end: None,
            stopped_by: StoppedBy::Unknown,
            num_sent: 0,
            last_ended: start,
            counts: vec![Counts::default(); num_classes],
            answers: Reservoir::new(LIMITS.level_rows_max),
            failures: Reservoir::new(LIMITS.level_rows_max),
            dropped: Reservoir::new(LIMITS.level_rows_max),
            flags: BTreeMap::new(),
            errors: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }

    pub fn take(&mut self, sample: &Sample, row: Row, kept: Kept, chance: &mut Resampler) {
        self.last_ended = self.last_ended.max(row.ended);
        let class = usize::from(row.class.0);
        *place_of(&mut self.counts[class], row.status) += 1;
        self.raise_flags(sample, kept);
        self.count_error(sample);
        if row.status == Status::Ok {
            let is_good = kept == Kept::Yes;
            self.answers.offer(Answer { row, is_good }, chance);
        } else {
            let failure = Failure {
                class,
                is_cancelled: row.status == Status::Cancelled,
                due: row.due,
                held: row.held,
                lag: row.lag,
                sent: row.sent,
                ended: row.ended,
                connect: row.connect,
            };
            self.failures.offer(failure, chance);
        }
    }

    pub fn drop(&mut self, dropped: Dropped, chance: &mut Resampler) {
        self.counts[dropped.class].dropped += 1;
        self.raise("dropped", 1);
        self.dropped.offer(dropped, chance);
    }

    pub fn raise(&mut self, name: &'static str, num: u64) {
        *self.flags.entry(name).or_insert(0) += num;
    }

    /// When a request counts as asked: users' requests when they are sent, others when they are due.
    pub fn asked(&self, due: f64, sent: f64) -> f64 {
        match self.load.pacing() {
            Pacing::Closed => sent,
            Pacing::Open => due,
        }
    }

    pub fn num_rows(&self) -> usize {
        self.answers.kept().len() + self.failures.kept().len()
    }

    pub fn halve(&mut self, chance: &mut Resampler) {
        let (answers, failures) = (self.answers.kept().len(), self.failures.kept().len());
        if answers >= failures {
            self.answers.shrink(answers.div_ceil(2), chance);
        } else {
            self.failures.shrink(failures.div_ceil(2), chance);
        }
    }

    /// `name:count`, for each flag that was raised.
    pub fn flags(&self) -> Vec<String> {
        self.flags
            .iter()
            .map(|(name, num)| format!("{name}:{num}"))
            .collect()
    }

    /// Failures by text, the most frequent first.
    pub fn errors(&self) -> Vec<(String, u64)> {
        let mut errors: Vec<_> = self
            .errors
            .iter()
            .map(|(text, &num)| (text.clone(), num))
            .collect();
        errors.sort_by_key(|(_, num)| std::cmp::Reverse(*num));
        errors.truncate(ERRORS_SHOWN_MAX);
        errors
    }

    /// Who counted the tokens of most whole answers.
    pub fn token_source(&self) -> &'static str {
        self.sources
            .iter()
            .max_by_key(|&(_, num)| num)
            .map_or("none", |(name, _)| name)
    }

    fn raise_flags(&mut self, sample: &Sample, kept: Kept) {
        let record = &sample.record;
        let mut raise = |name| *self.flags.entry(name).or_insert(0) += 1;
        for flag in &record.flags {
            raise(match flag {
                Flag::NotStreamed => "not_streamed",
                Flag::MissingDone => "missing_done",
                Flag::UsageSuspect => "usage_suspect",
                Flag::Buffered => "buffered",
            });
        }
        if record.num_tokens.is_none() && !record.marks.is_empty() {
            raise("tokens_uncounted");
        }
        if record.status != Status::Ok {
            return;
        }
        if let (Some(wanted), Some(got)) = (sample.num_output_wanted, record.num_tokens)
            && (got > wanted || (got < wanted && sample.output == OutputLength::Exact))
        {
            raise("output_length_mismatch");
        }
        if let (Some(wanted), Some(got)) = (sample.num_prompt_wanted, record.num_prompt_tokens)
            && got != wanted
        {
            raise("prompt_length_mismatch");
        }
        if kept == Kept::Unknown {
            raise("objective_unknown");
        }
        let source = match record.token_source {
            TokenSource::Usage => "usage",
            TokenSource::Events => "events",
            TokenSource::Tokenizer => "tokenizer",
            TokenSource::None => "none",
        };
        *self.sources.entry(source).or_insert(0) += 1;
    }

    fn count_error(&mut self, sample: &Sample) {
        let record = &sample.record;
        let kind = match record.status {
            Status::Ok | Status::Cancelled => return,
            Status::Truncated => "truncated",
            Status::ErrorEvent => "error in the stream",
            Status::HttpError => "HTTP",
            Status::Timeout => "timeout",
            Status::Connect => "no connection",
            Status::Protocol => "not an answer",
            Status::Empty => "empty answer",
        };
        let mut text = match (record.status, record.http_status) {
            (Status::HttpError, Some(number)) => format!("{kind} {number}"),
            _ => kind.to_owned(),
        };
        if let Some(words) = &record.error {
            text.push_str(": ");
            text.push_str(words);
        }
        text.truncate(text.floor_char_boundary(LIMITS.error_bytes_max));
        if !self.errors.contains_key(&text) && self.errors.len() >= LIMITS.errors_max {
            text = FURTHER.to_owned();
        }
        *self.errors.entry(text).or_insert(0) += 1;
    }
}

/// Adds the counts of another group of requests.
pub(super) fn add(sum: &mut Counts, other: &Counts) {
    let Counts {
        ok,
        truncated,
        error_event,
        http_error,
        timeout,
        connect,
        protocol,
        cancelled,
        empty,
        dropped,
    } = other;
    sum.ok += ok;
    sum.truncated += truncated;
    sum.error_event += error_event;
    sum.http_error += http_error;
    sum.timeout += timeout;
    sum.connect += connect;
    sum.protocol += protocol;
    sum.cancelled += cancelled;
    sum.empty += empty;
    sum.dropped += dropped;
}

fn place_of(counts: &mut Counts, status: Status) -> &mut u64 {
    match status {
        Status::Ok => &mut counts.ok,
        Status::Truncated => &mut counts.truncated,
        Status::ErrorEvent => &mut counts.error_event,
        Status::HttpError => &mut counts.http_error,
        Status::Timeout => &mut counts.timeout,
        Status::Connect => &mut counts.connect,
        Status::Protocol => &mut counts.protocol,
        Status::Cancelled => &mut counts.cancelled,
        Status::Empty => &mut counts.empty,
    }
}
