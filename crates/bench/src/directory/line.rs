//! The lines of `requests.jsonl.zst`, schema `fulcrum.bench.requests/1`: one JSON object each, its kind in `kind`.
//!
//! ```text
//! {"kind":"run","schema":"fulcrum.bench.requests/1",...}       first
//! {"kind":"level","level":0,"users":8,...}                      before the level's first request
//! {"kind":"request","conversation":17,"turn":0,"level":0,...}   when it has ended, so not in order of sending
//! ```
//!
//! Moments are seconds since the run began (`_s`), spans are milliseconds (`_ms`); `null` is what was not there.
//! Latencies count from `due_s` in an open loop; all statuses have them here, as far as the request came.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::observe::{Flag, Mark, Record, Status, TokenSource};
use crate::sample::{AskId, ClassId, LevelId, Pacing, Sample};
use crate::workload::OutputLength;

/// The schema's name.
pub const REQUESTS_SCHEMA: &str = "fulcrum.bench.requests/1";

/// One line. Lines of other kinds may be added: readers skip them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// What ran.
    Run(Box<RunLine>),
    /// A level began.
    Level(LevelLine),
    /// A request ended.
    Request(Box<Request>),
}

/// What ran: enough to tell two runs apart without a summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// [`REQUESTS_SCHEMA`].
    pub schema: String,
    /// The version of Fulcrum that measured.
    pub fulcrum: String,
    /// When the run began: RFC 3339, UTC.
    pub started: String,
    /// The flags as given, secrets left out.
    pub command: Vec<String>,
    /// The address that was measured.
    pub endpoint: String,
    /// The model as named in requests.
    pub model: Option<String>,
    /// `chat` or `completions`.
    pub api: String,
    /// The workload's name.
    pub workload: String,
    /// Hash of its content: runs of one hash and seed pair.
    pub workload_hash: String,
    /// What drew prompts, lengths and arrivals.
    pub seed: u64,
    /// The workload's classes in their order.
    pub classes: Vec<String>,
}

/// A level of load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelLine {
    /// Its number.
    pub level: LevelId,
    /// Closed loop: so many users.
    pub users: Option<u32>,
    /// Open loop: so many requests a second were due.
    pub offered_rps: Option<f64>,
    /// When it began.
    pub start_s: f64,
}

/// A request, as far as it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// `conversation` and `turn`: the same in every run of the same workload and seed.
    #[serde(flatten)]
    pub id: AskId,
    /// During which level it was sent.
    pub level: LevelId,
    /// The name of its class.
    pub class: String,
    /// `closed` or `open`.
    pub pacing: Pacing,
    /// How it ended.
    pub status: Status,
    /// The status line's number.
    pub http_status: Option<u16>,
    /// When it should have been sent.
    pub due_s: f64,
    /// When it was.
    pub sent_s: f64,
    /// How long it waited for a place.
    #[serde(default)]
    pub held_ms: f64,
    /// How late the client was: from due until it was handed to its connection, less `held_ms`.
    #[serde(default)]
    pub lag_ms: f64,
    /// To open a connection, if it had to.
    pub connect_ms: Option<f64>,
    /// Queueing by the server's own account.
    pub queue_ms: Option<f64>,
    /// From due to the first content.
    pub ttft_ms: Option<f64>,
    /// From due to the first content that is not reasoning.
    pub ttfo_ms: Option<f64>,
    /// (E2E - TTFT) / (N - n1).
    pub tpot_ms: Option<f64>,
    /// From due to the last content.
    pub e2e_ms: Option<f64>,
    /// From sent to the last byte, or to when it was given up.
    pub ended_ms: f64,
    /// Prompt tokens by the server's count.
    pub prompt_tokens: Option<u64>,
    /// Of those, found in its cache.
    pub cached_tokens: Option<u64>,
    /// Answer tokens, reasoning included.
    pub output_tokens: Option<u64>,
    /// Of those, reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Who counted answer tokens.
    pub token_source: TokenSource,
    /// Prompt tokens as meant.
    pub wanted_prompt_tokens: Option<u64>,
    /// Of those, shared with other requests by declaration.
    pub shared_prompt_tokens: u64,
    /// Answer tokens as meant.
    pub wanted_output_tokens: Option<u64>,
    /// Whether exactly as many were meant, end token or not.
    #[serde(default)]
    pub exact_output: bool,
    /// Why the answer ended, in the server's words.
    pub finish_reason: Option<String>,
    /// What the server said of its failure.
    pub error: Option<String>,
    /// What to know about the figures.
    pub flags: Vec<Flag>,
    /// When content arrived.
    pub events: Events,
}

/// Arrivals of content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Milliseconds since sent.
    pub ms: Vec<f64>,
    /// Tokens of each, `null` where the server did not tell; left out if it never did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Option<u64>>,
}

impl Request {
    /// A sample as a line. `classes` are the names of the run's classes in their order.
    pub fn of(sample: &Sample, classes: &[String]) -> Request {
        let record = &sample.record;
        let waited = sample.waited();
        let since_due = |at: Duration| ms(waited + at.as_secs_f64());
        Request {
            id: sample.id,
            level: sample.level,
            class: class_name(sample.class, classes),
            pacing: sample.pacing,
            status: record.status,
            http_status: record.http_status,
            due_s: micros(sample.due),
            sent_s: micros(sample.sent),
            held_ms: ms(sample.held),
            lag_ms: ms(sample.lag()),
            connect_ms: sample.connect.map(ms),
            queue_ms: record.queue.map(|queue| ms(queue.as_secs_f64())),
            ttft_ms: record.first_token.map(since_due),
            ttfo_ms: record.first_answer.map(since_due),
            tpot_ms: record.tpot().map(ms),
            e2e_ms: record.last_token.map(since_due),
            ended_ms: ms(record.ended.as_secs_f64()),
            prompt_tokens: record.num_prompt_tokens,
            cached_tokens: record.num_cached_tokens,
            output_tokens: record.num_tokens,
            reasoning_tokens: record.num_reasoning_tokens,
            token_source: record.token_source,
            wanted_prompt_tokens: sample.num_prompt_wanted,
            shared_prompt_tokens: sample.num_prompt_shared,
            wanted_output_tokens: sample.num_output_wanted,
            exact_output: sample.output == OutputLength::Exact,
            finish_reason: record.finish_reason.clone(),
            error: record.error.clone(),
            flags: record.flags.clone(),
            events: Events::of(&record.marks),
        }
    }

    /// The sample that it was, as far as statistics ask: without text and byte counts, times to the microsecond.
    /// None if no class of the run has its class's name.
    pub fn sample(&self, classes: &[String]) -> Option<Sample> {
        let class = classes.iter().position(|name| *name == self.class)?;
        let waited_ms = match self.pacing {
            Pacing::Closed => 0.0,
            Pacing::Open => (self.sent_s - self.due_s).max(0.0) * 1e3,
        };
        let since_sent = |at: f64| span(at - waited_ms);
        Some(Sample {
            id: self.id,
            level: self.level,
            class: ClassId(u16::try_from(class).ok()?),
            pacing: self.pacing,
            due: self.due_s,
            held: self.held_ms / 1e3,
            handed: self.due_s + (self.held_ms + self.lag_ms) / 1e3,
            sent: self.sent_s,
            told: self.sent_s,
            connect: self.connect_ms.map(|at| at / 1e3),
            num_prompt_wanted: self.wanted_prompt_tokens,
            num_prompt_shared: self.shared_prompt_tokens,
            num_output_wanted: self.wanted_output_tokens,
            output: match self.exact_output {
                true => OutputLength::Exact,
                false => OutputLength::AtMost,
            },
            record: Record {
                status: self.status,
                http_status: self.http_status,
                first_token: self.ttft_ms.map(since_sent),
                first_answer: self.ttfo_ms.map(since_sent),
                last_token: self.e2e_ms.map(since_sent),
                marks: self.events.marks().collect(),
                num_tokens: self.output_tokens,
                token_source: self.token_source,
                num_reasoning_tokens: self.reasoning_tokens,
                num_prompt_tokens: self.prompt_tokens,
                num_cached_tokens: self.cached_tokens,
                queue: self.queue_ms.map(span),
                ended: span(self.ended_ms),
                finish_reason: self.finish_reason.clone(),
                error: self.error.clone(),
                flags: self.flags.clone(),
                ..Record::default()
            },
        })
    }
}

impl Events {
    fn of(marks: &[Mark]) -> Events {
        let is_counted = marks.iter().any(|mark| mark.num_tokens.is_some());
        let tokens = marks.iter().filter(|_| is_counted);
        Events {
            ms: marks.iter().map(|mark| ms(mark.at.as_secs_f64())).collect(),
            tokens: tokens.map(|mark| mark.num_tokens).collect(),
        }
    }

    /// The arrivals again.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.ms.iter().enumerate().map(|(idx, &at)| Mark {
            at: span(at),
            num_tokens: self.tokens.get(idx).copied().flatten(),
        })
    }
}

/// A class without a name is one that the driver made up; its number still tells it apart.
fn class_name(class: ClassId, classes: &[String]) -> String {
    classes
        .get(usize::from(class.0))
        .cloned()
        .unwrap_or_else(|| format!("class-{}", class.0))
}

/// Seconds as milliseconds, to the microsecond: no stamp is better, and more digits double the file.
fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

/// Seconds, to the microsecond.
fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// A span of so many milliseconds; zero for what is none (files are foreign).
fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or_default()
}
