//! What a reader should know before trusting the figures, and what to do about it.

use super::{Levels, Measured, Prepared};
use crate::summary::{Level, Warning};

/// A client whose own delay is this share of the first token's measures itself.
const FIRST_SHARE_MAX: f64 = 0.1;
/// The same, of the largest gaps: two delays are in each, and they are what delays show in.
const GAP_SHARE_MAX: f64 = 0.5;
/// Delays below this are the runtime's timers, which tell milliseconds.
pub(super) const DELAY_S_MIN: f64 = 0.002;
/// Lag beyond this share of TTFT is in every figure.
const LAG_SHARE_MAX: f64 = 0.05;
/// Lag beyond this is too much whatever the server does.
const LAG_MS_MAX: f64 = 500.0;
/// A thread that is this busy has no time to be on time.
const BUSY_SHARE_MAX: f64 = 0.9;
/// Cache hits this far beyond what the workload declares come from somewhere else.
const CACHE_EXCESS_MAX: f64 = 0.05;
/// Little's law may be off by this much before a window cannot be called steady.
const LITTLE_MAX: f64 = 0.2;

/// Everything that could be wrong.
pub(super) struct Doubts<'a> {
    pub prepared: &'a Prepared,
    pub measured: &'a Measured,
    pub levels: &'a [Level],
}

impl Doubts<'_> {
    /// Whether the client was the limit, and all that a reader should know.
    pub fn look(&self) -> (bool, Vec<Warning>) {
        let mut found = Vec::new();
        found.extend(self.client_bound());
        let bound = !found.is_empty();
        found.extend(self.cache());
        found.extend(self.flags());
        found.extend(self.held());
        found.extend(self.unmeasured());
        found.extend(self.few_requests());
        found.extend(self.little());
        found.extend(self.repeats());
        (bound, found)
    }

    fn client_bound(&self) -> Option<Warning> {
        let floor_s = self
            .measured
            .floor
            .as_ref()
            .map_or(0.0, |floor| floor.p99_s);
        let mut reasons = Vec::new();
        for (idx, level) in self.levels.iter().enumerate() {
            let name = name_of(level);
            let delay_s = self
                .measured
                .delays
                .get(idx)
                .and_then(|delays| delays.quantile(0.99));
            let delay_s = delay_s.unwrap_or(0.0).max(floor_s);
            // A delay of the client is in the first token as it is, and in the largest gaps; a mean over an answer's
            // tokens hardly knows it.
            let felt = [
                ("TTFT p50", level.ttft_ms.p50, FIRST_SHARE_MAX),
                ("ITL p99", level.itl_ms.p99, GAP_SHARE_MAX),
            ];
            for (what, felt_ms, share_max) in felt {
                let Some(felt_ms) = felt_ms else { continue };
                if delay_s > DELAY_S_MIN && delay_s * 1e3 > share_max * felt_ms {
                    reasons.push(format!(
                        "at {name} it was up to {:.1} ms late (p99), beside a {what} of {felt_ms:.1} ms",
                        delay_s * 1e3
                    ));
                }
            }
            let lag = level.lag_ms.p99.or(level.lag_ms.max);
            if let (Some(lag), Some(ttft)) = (lag, level.ttft_ms.p50)
                && level.offered_rps.is_some()
                && lag > LAG_MS_MAX.min(LAG_SHARE_MAX * ttft).max(DELAY_S_MIN * 1e3)
            {
                reasons.push(format!(
                    "at {name} requests were sent {lag:.1} ms late (p99)"
                ));
            }
        }
        let share = self.measured.usage.cpu_s / self.measured.duration_s.max(1e-9);
        if share > BUSY_SHARE_MAX {
            reasons.push(format!("the client took {share:.1} processor cores"));
        }
        let (first, more) = (reasons.first()?, reasons.len() - 1);
        let text = match more {
            0 => format!("CLIENT-BOUND: {first}"),
            _ => format!("CLIENT-BOUND: {first}, and {more} more like it"),
        };
        Some(warning(
            "client_bound",
            text,
            "run the client on another machine, raise --client-threads, or take less load",
        ))
    }

    /// Prompts that the server knew already make it look fast.
    fn cache(&self) -> Option<Warning> {
        let level = self.levels.iter().find(|level| {
            level.cache.is_some_and(|cache| {
                let expected = cache.declared.unwrap_or(0.0) + self.template_share(level);
                cache.measured > expected + CACHE_EXCESS_MAX
            })
        })?;
        let cache = level.cache?;
        Some(warning(
            "cache_hits",
            format!(
                "at {} the server had {:.0} % of prompt tokens in its cache, where the workload declares {:.0} %",
                name_of(level),
                cache.measured * 100.0,
                cache.declared.unwrap_or(0.0) * 100.0,
            ),
            "leave --salt out, so that each run asks in other words; texts of a data set that came before are known to the server",
        ))
    }

    /// The share of prompt tokens that are the server's own template, which all requests share.
    fn template_share(&self, level: &Level) -> f64 {
        let overhead = self.prepared.vocabulary.overhead().user as f64;
        let num_prompt_tokens = level
            .input_tokens_per_s
            .map(|tokens| tokens / level.requests_per_s);
        match num_prompt_tokens {
            Some(num) if num > 0.0 => (overhead / num).min(1.0),
            _ => 0.0,
        }
    }

    /// What the flags of levels mean for a reader.
    fn flags(&self) -> Vec<Warning> {
        let explained = [
            (
                "not_steady",
                "was not steady: requests in flight kept growing",
                "offer less load, or read its figures as those of an overload",
            ),
            (
                "censored",
                "has requests that never ended; high percentiles are missing for that reason",
                "give answers more time with --grace",
            ),
            (
                "dropped",
                "has requests that were due and still waited for a place at its end: attempted, not good, and no latency",
                "raise --max-concurrency, or offer less load",
            ),
            (
                "carried_over",
                "began while requests of the level before were still in flight: they took from it",
                "give answers more time with --grace",
            ),
            (
                "output_length_mismatch",
                "has answers of other lengths than asked for",
                "a server that takes ignore_eos gives exact lengths; compare runs by TPOT, not by E2E",
            ),
            (
                "prompt_length_mismatch",
                "has prompts of other lengths than meant",
                "give the model's tokenizer with --tokenizer",
            ),
            (
                "usage_suspect",
                "has usage that cannot be",
                "count tokens with --tokenizer, and do not trust tok/s",
            ),
            (
                "not_streamed",
                "has answers that were not streamed: they have no TTFT",
                "ask the server to stream",
            ),
            (
                "buffered",
                "has answers that arrived in one read: a proxy buffers them, and gaps say nothing",
                "measure behind the proxy",
            ),
        ];
        explained
            .iter()
            .filter_map(|(flag, says, advice)| {
                let levels: Vec<String> = self
                    .levels
                    .iter()
                    .filter(|level| {
                        level
                            .flags
                            .iter()
                            .any(|raised| raised.split(':').next() == Some(flag))
                    })
                    .map(name_of)
                    .collect();
                let first = levels.first()?;
                let more = match levels.len() {
                    1 => String::new(),
                    num => format!(" (and {} more levels)", num - 1),
                };
                Some(warning(flag, format!("{first} {says}{more}"), advice))
            })
            .collect()
    }

    /// The user's own bound is no fault of client or server, but it is in what an open loop's users feel.
    fn held(&self) -> Option<Warning> {
        let (level, held_ms) = self.levels.iter().find_map(|level| {
            let held_ms = level.held_ms.p50?;
            (held_ms > LAG_SHARE_MAX * level.service_ttft_ms.p50?).then_some((level, held_ms))
        })?;
        let effect = match level.offered_rps {
            Some(_) => "that is in its latencies",
            None => "it had fewer users in flight than it names",
        };
        Some(warning(
            "concurrency_capped",
            format!(
                "at {} requests waited {held_ms:.1} ms (p50) for a place: {effect}",
                name_of(level)
            ),
            "raise --max-concurrency, unless the bound is what you want to measure",
        ))
    }

    /// Levels that were asked for, and that the run's end came before.
    fn unmeasured(&self) -> Option<Warning> {
        let num_measured = self
            .levels
            .iter()
            .filter(|level| level.requests.attempted() > 0)
            .count();
        let num_planned = match &self.prepared.order.levels {
            Levels::Listed(plans) => plans.len(),
            Levels::Search { .. } => self.levels.len(),
        };
        let num_missing = num_planned.saturating_sub(num_measured);
        (num_missing > 0).then(|| {
            warning(
                "not_measured",
                format!(
                    "{num_missing} of {num_planned} levels measured nothing, so nothing is said of their SLO"
                ),
                "give the run more time with --budget, or name fewer levels",
            )
        })
    }

    fn few_requests(&self) -> Option<Warning> {
        let level = self.levels.iter().find(|level| {
            // Without a need, the median is missing because others were not waited for.
            let lacks = level.ttft_ms.n == 0 || level.ttft_ms.needs.contains_key("p50");
            lacks && level.ttft_ms.p50.is_none() && level.requests.attempted() > 0
        })?;
        Some(warning(
            "few_requests",
            format!(
                "{} has only {} whole answers in its steady window: not even a median stands on that",
                name_of(level),
                level.ttft_ms.n
            ),
            "measure longer (--duration, --requests), or until --precision is reached",
        ))
    }

    fn little(&self) -> Option<Warning> {
        let level = self.levels.iter().find(|level| {
            level
                .littles_law
                .is_some_and(|law| law.ratio.is_finite() && (law.ratio - 1.0).abs() > LITTLE_MAX)
        })?;
        Some(warning(
            "littles_law",
            format!(
                "at {} throughput times time is {:.2} of the requests in flight: the window is too short for its answers",
                name_of(level),
                level.littles_law?.ratio,
            ),
            "measure longer than several answers take",
        ))
    }

    /// A data set that was asked more than once is in the server's cache.
    fn repeats(&self) -> Option<Warning> {
        let num = self.prepared.order.workload.num_conversations()?;
        let level = self
            .levels
            .iter()
            .find(|level| level.requests.attempted() - level.requests.dropped > num)?;
        Some(warning(
            "data_repeats",
            format!(
                "{} asked some of the {num} conversations of the data more than once",
                name_of(level)
            ),
            "give more data, or fewer --requests",
        ))
    }
}

/// `8 users`, `2.5 req/s`.
fn name_of(level: &Level) -> String {
    match (level.users, level.offered_rps) {
        (Some(1), _) => "1 user".to_owned(),
        (Some(users), _) => format!("{users} users"),
        (None, rate) => format!("{:.3} req/s", rate.unwrap_or(0.0)).replace(".000 ", " "),
    }
}

fn warning(code: &str, text: String, advice: &str) -> Warning {
    Warning {
        code: code.to_owned(),
        text,
        advice: advice.to_owned(),
    }
}
