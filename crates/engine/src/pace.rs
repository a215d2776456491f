//! How fast the queue moves, for an honest `Retry-After`.
//!
//! Counts requests that left the queue, forgetting with time constant [`MEMORY`]:
//!
//! ```text
//! level <- level * e^(-dt / MEMORY) + num_left          at each departure
//! rate   = level * e^(-dt / MEMORY) / (MEMORY * (1 - e^(-age / MEMORY)))
//! ```
//!
//! The second factor below makes the rate right from the first seconds on, when there is
//! less to remember than [`MEMORY`].

use std::time::{Duration, Instant};

/// Long enough to average over some requests, short enough to follow a change of load.
const MEMORY: Duration = Duration::from_secs(20);

/// `Retry-After` is whole seconds and 0 would mean "at once".
const RETRY_MIN: Duration = Duration::from_secs(1);

/// Beyond a minute an estimate is a guess, and clients should look again anyway.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Instant,
    last: Instant,
    level: f64,
}

impl Pace {
    /// `num_left` requests left the queue at `now`.
    pub(crate) fn note(&mut self, num_left: usize, now: Instant) {
        let seen = self.seen.get_or_insert(Seen {
            first: now,
            last: now,
            level: 0.0,
        });
        seen.level = seen.level_at(now) + num_left as f64;
        seen.last = now;
    }

    /// When trying again is worth it, with `num_waiting` in the queue: once half of them have left.
    /// Not when the first has, because everyone who is refused now will come back.
    pub(crate) fn time_for(&self, num_waiting: usize, now: Instant) -> Duration {
        let Some(seen) = &self.seen else {
            return RETRY_MIN;
        };
        let age = now.saturating_duration_since(seen.first).max(RETRY_MIN);
        let memory = MEMORY.as_secs_f64() * (1.0 - decay(age));
        let rate = seen.level_at(now) / memory;
        let seconds = num_waiting as f64 / 2.0 / rate;
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(RETRY_MAX)
            .clamp(RETRY_MIN, RETRY_MAX)
    }
}

impl Seen {
    fn level_at(&self, now: Instant) -> f64 {
        self.level * decay(now.saturating_duration_since(self.last))
    }
}

/// Share that is still remembered after `elapsed`.
fn decay(elapsed: Duration) -> f64 {
    (-elapsed.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two requests leave each second for `seconds`; returns the pace and the time it is then.
    fn two_a_second(seconds: u64) -> (Pace, Instant) {
        let began = Instant::now();
        let mut pace = Pace::default();
        for half in 0..=2 * seconds {
            pace.note(1, began + Duration::from_millis(500 * half));
        }
        (pace, began + Duration::from_secs(seconds))
    }

    #[test]
    fn the_estimate_is_the_time_in_which_half_of_the_queue_leaves() {
        for seconds in [5, 60, 600] {
            let (pace, now) = two_a_second(seconds);
            let estimate = pace.time_for(40, now).as_secs_f64();
            assert!(
                (estimate - 10.0).abs() < 1.5,
                "after {seconds} s: {estimate} s"
            );
        }
    }

    #[test]
    fn nothing_known_means_one_second_and_a_standing_queue_means_the_maximum() {
        assert_eq!(Pace::default().time_for(1000, Instant::now()), RETRY_MIN);
        let (pace, now) = two_a_second(60);
        assert_eq!(
            pace.time_for(40, now + Duration::from_secs(3600)),
            RETRY_MAX
        );
        assert_eq!(pace.time_for(0, now), RETRY_MIN);
    }
}
