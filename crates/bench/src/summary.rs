//! The result of a run: `summary.json`, schema `fulcrum.bench/1`.
//!
//! Only ever extended: a key keeps its name, its unit and its meaning. `null` stands where too few requests support
//! a figure. Units are in the names; figures without one are counts or shares.
//!
//! Not here: how figures come about (`ledger`, `operating_point`), and how they are shown (`report`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema's name.
pub const SCHEMA: &str = "fulcrum.bench/1";

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of Fulcrum that measured.
    pub fulcrum: String,
    /// When the run began: RFC 3339, UTC.
    pub started: String,
    /// How long it took, from the first level on.
    pub duration_s: f64,
    /// The flags as given, secrets left out.
    pub command: Vec<String>,
    /// The address that was measured.
    pub endpoint: String,
    /// The model as named in requests.
    pub model: Option<String>,
    /// `chat` or `completions`.
    pub api: String,
    /// `http/1.1` or `http/2`.
    pub protocol: String,
    /// What drew prompts, lengths and arrivals.
    pub seed: u64,
    /// What drew words: with it and the seed, `--salt` asks the same again.
    #[serde(default)]
    pub salt: u64,
    /// What was asked.
    pub workload: WorkloadSummary,
    /// What the client itself can do.
    pub client: ClientSummary,
    /// In the order in which they ran.
    pub levels: Vec<Level>,
    /// Where to run the server; none if there were too few levels.
    pub operating_point: Option<OperatingPoint>,
    /// The largest load that meets `--slo`; none without it.
    pub slo: Option<SloOutcome>,
    /// The server's own counters over the run, if `--prometheus` was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_metrics: Vec<ServerSeries>,
    /// What a reader should know before trusting the figures.
    pub warnings: Vec<Warning>,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSummary {
    /// Its name, or the file's.
    pub name: String,
    /// Hash of its content, 16 hex digits.
    pub hash: String,
    /// How prompt tokens were counted: `server` (`/tokenize`), `tokenizer`, `estimate`, `texts`.
    pub prompt_tokens_from: String,
}

/// The client's own limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientSummary {
    /// By how much the client told an arrival too late, against its own loop-back server over the run's own protocol, TLS
    /// included: 99th percentile; `null` if not calibrated, or if a stream of that failed.
    pub floor_ms_p99: Option<f64>,
    /// The median of the same.
    pub floor_ms_p50: Option<f64>,
    /// The streams of that: the run's largest concurrency as it was planned, or as it was seen if that is much more.
    #[serde(default)]
    pub floor_streams: Option<u64>,
    /// The events a second of that, all streams together.
    #[serde(default)]
    pub floor_events_per_s: Option<f64>,
    /// Whether the client, and not the server, limited a level.
    pub bound: bool,
    /// Processor seconds of the client over the run.
    pub cpu_s: f64,
    /// Of one core, over the run.
    pub cpu_share: f64,
    /// Its largest resident memory.
    pub memory_peak_bytes: u64,
    /// Connections open at once, at most.
    pub connections_max: u64,
}

/// One level of load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Closed loop: so many users.
    pub users: Option<u32>,
    /// Open loop: so many conversations a second (requests, where they have one turn) were due by schedule; of a ramp,
    /// on average over the steady window.
    pub offered_rps: Option<f64>,
    /// A ramp: the rate at its beginning and that at its end.
    #[serde(default)]
    pub ramp_rps: Option<[f64; 2]>,
    /// Open loop: so many a second were sent.
    pub achieved_rps: Option<f64>,
    /// When it began, in seconds since the run did.
    pub start_s: f64,
    /// How long it lasted.
    pub duration_s: f64,
    /// When its steady window begins, in seconds since the level did.
    pub steady_from_s: f64,
    /// How long the steady window is: rates are over it.
    pub steady_s: f64,
    /// Why it ended.
    pub stopped_by: StoppedBy,
    /// How the requests that were sent in the level ended, by kind.
    pub requests: Counts,
    /// Whole answers a second.
    pub requests_per_s: f64,
    /// Tokens that arrived, a second; `null` if nobody counts tokens.
    pub output_tokens_per_s: Option<f64>,
    /// Prompt tokens of answers begun, a second.
    pub input_tokens_per_s: Option<f64>,
    /// Content events that arrived, a second.
    pub events_per_s: f64,
    /// Requests a second that met every objective.
    pub goodput_rps: f64,
    /// Good requests over attempted ones; `null` if none was attempted.
    pub attainment: Option<f64>,
    /// 95 % intervals of the rates above: key to [low, high].
    pub rates_ci95: BTreeMap<String, [f64; 2]>,
    /// From due (open) or sent (closed) to the first content.
    pub ttft_ms: Figure,
    /// The same, to the first content that is not reasoning.
    pub ttfo_ms: Figure,
    /// Per request: (E2E - TTFT) / (N - n1).
    pub tpot_ms: Figure,
    /// Gaps between consecutive tokens, pooled over requests.
    pub itl_ms: Figure,
    /// From due or sent to the last content.
    pub e2e_ms: Figure,
    /// From sent to the first content, also in an open loop: the server's part of [`Level::ttft_ms`].
    #[serde(default)]
    pub service_ttft_ms: Figure,
    /// From sent to the last content.
    #[serde(default)]
    pub service_e2e_ms: Figure,
    /// By how much the client was late: from due until a request was handed to its connection, less `held_ms`.
    pub lag_ms: Figure,
    /// How long requests waited for a place, because `--max-concurrency` of them were in flight.
    #[serde(default)]
    pub held_ms: Figure,
    /// To open a connection, of the requests that had to.
    pub connect_ms: Figure,
    /// Queueing by the server's own account.
    pub queue_ms: Figure,
    /// E2E - (TTFT + (N - n1) * its own median gap).
    pub residual_ms: Figure,
    /// Little's law: requests in flight on average against throughput times E2E.
    pub littles_law: Option<LittlesLaw>,
    /// The share of prompt tokens found in the server's cache, against what the workload declares.
    pub cache: Option<CacheShare>,
    /// The same figures for each class.
    pub classes: BTreeMap<String, ClassFigures>,
    /// What to know about the figures, as `name:count` of requests. Answers: `not_streamed`, `missing_done`,
    /// `buffered`, `usage_suspect`, `tokens_uncounted`, `output_length_mismatch`, `prompt_length_mismatch`,
    /// `objective_unknown`. Load: `dropped` were due and still waited for a place when the level ended (attempted, not
    /// good); `carried_over` were left in flight by the level before; `conversations_cut` counts conversations that the
    /// level's end cut off between two turns (nothing that was due is lost). Figures: `censored` were given up when the
    /// run ended, `sampled` are kept of more; `not_steady` and `drain_included` have no count.
    pub flags: Vec<String>,
    /// Who counted tokens: `usage`, `events`, `tokenizer`, `none`.
    pub token_source: String,
    /// Failures in the server's words, the most frequent first: text to count.
    pub errors: Vec<(String, u64)>,
}

/// Why a level ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoppedBy {
    /// Its time was over.
    Duration,
    /// All its requests were asked and answered.
    Requests,
    /// Its figures were known well enough.
    Precision,
    /// The run's time was over.
    Budget,
    /// Somebody wished so.
    Interrupted,
    /// Its data or its schedule had nothing more.
    TraceEnd,
    /// Nobody wrote it down, or it has not ended.
    #[default]
    #[serde(other)]
    Unknown,
}

impl StoppedBy {
    /// As in `summary.json`.
    pub fn name(self) -> &'static str {
        match self {
            StoppedBy::Duration => "duration",
            StoppedBy::Requests => "requests",
            StoppedBy::Precision => "precision",
            StoppedBy::Budget => "budget",
            StoppedBy::Interrupted => "interrupted",
            StoppedBy::TraceEnd => "trace_end",
            StoppedBy::Unknown => "unknown",
        }
    }
}

/// One class within a level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassFigures {
    /// How its requests ended.
    pub requests: Counts,
    /// Whole answers a second.
    pub requests_per_s: f64,
    /// Answer tokens a second.
    pub output_tokens_per_s: Option<f64>,
    /// Requests a second that met every objective.
    pub goodput_rps: f64,
    /// Good over attempted.
    pub attainment: Option<f64>,
    /// The objectives in force, as text; empty if there are none.
    pub slo: String,
    /// As in [`Level`].
    pub ttft_ms: Figure,
    /// As in [`Level`].
    pub tpot_ms: Figure,
    /// As in [`Level`].
    pub itl_ms: Figure,
    /// As in [`Level`].
    pub e2e_ms: Figure,
    /// Its median TPOT over its median TPOT in the level with the lowest load: what the company costs it; `null` in
    /// the lowest level.
    pub interference: Option<f64>,
}

/// Requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Whole answers.
    pub ok: u64,
    /// Answers that stopped in the middle.
    pub truncated: u64,
    /// Errors told in the stream.
    pub error_event: u64,
    /// Statuses that are not 2xx.
    pub http_error: u64,
    /// Waited for too long.
    pub timeout: u64,
    /// No connection, or it ended before an answer.
    pub connect: u64,
    /// What arrived was no answer.
    pub protocol: u64,
    /// Given up because the run ended.
    pub cancelled: u64,
    /// 200 without a token.
    pub empty: u64,
    /// Due, but never sent: they still waited for a place when the level ended.
    pub dropped: u64,
}

impl Counts {
    /// All but cancelled ones: those were not the server's doing.
    pub fn attempted(&self) -> u64 {
        self.ok
            + self.truncated
            + self.error_event
            + self.http_error
            + self.timeout
            + self.connect
            + self.protocol
            + self.empty
            + self.dropped
    }
}

/// A distribution. A figure is `null` where there are too few values to support it with 95 % confidence; `needs`
/// then tells how many it takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Values it rests on (requests; for ITL gaps).
    pub n: u64,
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The largest value seen: a fact, not an estimate.
    pub max: Option<f64>,
    /// 95 % intervals: `mean`, `p50`, ... to [low, high].
    pub ci95: BTreeMap<String, [f64; 2]>,
    /// Requests that an absent percentile needs: `p99` to 368.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs: BTreeMap<String, u64>,
}

/// Requests in flight on average, counted and by Little's law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LittlesLaw {
    /// Mean of the requests in flight over the window.
    pub in_flight: f64,
    /// Requests a second times the mean time from sent to the end.
    pub rate_times_time: f64,
    /// The second over the first: far from 1, the window is not steady.
    pub ratio: f64,
}

/// Prompt tokens that the server did not have to compute.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheShare {
    /// By the workload; `null` if it cannot know.
    pub declared: Option<f64>,
    /// By the server's `cached_tokens`.
    pub measured: f64,
}

/// What the operating point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval is narrow.
    Clear,
    /// It lies somewhere within a wide interval.
    Interval,
    /// Throughput was still climbing at the largest load.
    NotReached,
    /// Throughput falls, or TTFT leaves its light-load level, before throughput has flattened.
    Cliff,
}

/// The load at which throughput has flattened while TTFT has not yet left its light-load level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperatingPoint {
    /// The point, in users; `null` for an open loop.
    pub users: Option<f64>,
    /// The point, in requests a second; `null` for a closed loop.
    pub rps: Option<f64>,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// How sure.
    pub verdict: Verdict,
    /// `X_max * R_0`: users beyond which somebody must wait, whatever the server does; `null` for an open loop.
    pub n_star: Option<f64>,
    /// Tokens a second at the point.
    pub output_tokens_per_s: Option<f64>,
    /// The largest tokens a second that the fit sees.
    pub output_tokens_per_s_max: Option<f64>,
    /// TTFT p95 at the point.
    pub ttft_ms_p95: Option<f64>,
    /// Why, in a sentence.
    pub because: String,
}

/// The largest load that meets `--slo`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloOutcome {
    /// As given.
    pub slo: String,
    /// The largest level that meets it; `null` if none does.
    pub largest: Option<f64>,
    /// Interpolated between that level and the next, which does not.
    pub estimate: Option<f64>,
    /// Whether each level meets it: load, met, and the objectives that are missed with their values in ms.
    pub levels: Vec<SloLevel>,
}

/// Whether a level meets the SLO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloLevel {
    /// Users or requests a second.
    pub load: f64,
    /// `met`, `missed` or `unknown` (too few requests).
    pub outcome: String,
    /// What was missed or is unknown, as text.
    pub because: Vec<String>,
}

/// One of the server's own series over the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSeries {
    /// Its name with labels.
    pub name: String,
    /// Seconds since the run began, and the value.
    pub points: Vec<(f64, f64)>,
}

/// Something a reader should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Stable name, for example `client_bound`.
    pub code: String,
    /// What is so.
    pub text: String,
    /// What to do.
    pub advice: String,
}
