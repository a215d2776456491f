//! llama.cpp's `timings`: tokens of all choices, and the longest of their times.
//!
//! While an answer runs the clock is this side's; once a choice ended, the engine's account
//! of it counts.

use std::time::{Duration, Instant};

use api::answer::{Timings, Usage};
use engine::Times;

/// Watches one answer.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    started: Option<Instant>,
    first_token: Option<Instant>,
    /// Longest of the choices that ended.
    queued: Option<Duration>,
    prompt: Duration,
    predicted: Duration,
}

impl Meter {
    /// Some choice began to be computed.
    pub fn started(&mut self) {
        self.started.get_or_insert_with(Instant::now);
    }

    /// Some choice has more tokens.
    pub fn tokens(&mut self) {
        self.first_token.get_or_insert_with(Instant::now);
    }

    /// A choice ended.
    pub fn ended(&mut self, times: &Times) {
        self.queued = self.queued.max(Some(times.queued));
        self.prompt = self.prompt.max(times.prefill);
        self.predicted = self.predicted.max(times.decode);
    }

    /// Of an answer that still runs.
    pub fn so_far(&self, usage: Usage) -> Timings {
        let between = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        };
        let prompt = between(self.started, self.first_token);
        timings(
            usage,
            prompt,
            between(self.first_token, Some(Instant::now())),
        )
    }

    /// Of an answer whose choices have all ended.
    pub fn whole(&self, usage: Usage) -> Timings {
        Timings {
            queue_ms: self.queued.map(|queued| queued.as_secs_f64() * 1e3),
            ..timings(usage, self.prompt, self.predicted)
        }
    }
}

fn timings(usage: Usage, prompt: Duration, predicted: Duration) -> Timings {
    let cache_n = usage.prompt_tokens_details.cached_tokens;
    let prompt_n = usage.prompt_tokens.saturating_sub(cache_n);
    let prompt_ms = prompt.as_secs_f64() * 1e3;
    let predicted_ms = predicted.as_secs_f64() * 1e3;
    let predicted_n = usage.completion_tokens;
    Timings {
        cache_n,
        prompt_n,
        prompt_ms,
        prompt_per_token_ms: ratio(prompt_ms, prompt_n as f64),
        prompt_per_second: ratio(prompt_n as f64 * 1e3, prompt_ms),
        predicted_n,
        predicted_ms,
        predicted_per_token_ms: ratio(predicted_ms, predicted_n as f64),
        predicted_per_second: ratio(predicted_n as f64 * 1e3, predicted_ms),
        queue_ms: None,
    }
}

/// 0 where nothing was measured: JSON has no infinity.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_tokens_by_time_and_cached_tokens_are_told_apart() {
        let mut meter = Meter::default();
        let times = |prefill, decode| Times {
            queued: Duration::from_millis(prefill / 2),
            prefill: Duration::from_millis(prefill),
            decode: Duration::from_millis(decode),
            ..Times::default()
        };
        meter.ended(&times(40, 500));
        meter.ended(&times(20, 1000));
        let told = meter.whole(Usage::new(30, 10, 50));
        assert_eq!(
            (told.cache_n, told.prompt_n, told.predicted_n),
            (10, 20, 50)
        );
        assert_eq!((told.prompt_ms, told.prompt_per_second), (40.0, 500.0));
        assert_eq!(told.queue_ms, Some(20.0), "the longest wait");
        assert_eq!(
            (told.predicted_ms, told.predicted_per_second),
            (1000.0, 50.0)
        );
    }

    #[test]
    fn what_was_not_measured_is_zero_and_never_infinite() {
        let told = Meter::default().whole(Usage::new(3, 0, 0));
        assert_eq!(
            (told.prompt_per_second, told.predicted_per_token_ms),
            (0.0, 0.0)
        );
    }
}
