//! Whether the engine's step loop lives: idle, busy and stalled told apart.
//!
//! ```text
//! stalled  =  there is work, and for longer than the limit neither did a step end nor was there no work
//! ```
//!
//! The work is counted here, where it is handed over, and not by the engine's own gauges: an engine
//! that stopped keeps no books. And the beginning of work counts like a step, so that the first look
//! after a night's rest finds no standstill.
//!
//! Asking costs a lock that nobody holds for long; the engine is never waited for.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use engine::Stats;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Heart {
    work: Mutex<InHand>,
    engine: OnceLock<Beating>,
}

/// Answers that the engine has and did not end.
#[derive(Debug, Default)]
struct InHand {
    num: usize,
    /// Since when there is one; `None` without.
    since: Option<Instant>,
}

/// The engine's heartbeat is told as time since its start.
#[derive(Debug)]
struct Beating {
    stats: Arc<Stats>,
    start: Instant,
}

/// How the step loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// There is nothing to do.
    Idle,
    /// Steps end; the last sign of life is this old.
    Busy { age: Duration },
    /// There is work, and no step has ended for this long.
    Stalled { age: Duration },
}

/// One answer in the engine's hands, until it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    heart: Arc<Heart>,
}

impl Heart {
    /// From now on this engine is listened to; it started at `start`.
    pub fn listen(&self, stats: Arc<Stats>, start: Instant) {
        let first = self.engine.set(Beating { stats, start }).is_ok();
        assert!(first, "a server has one engine");
    }

    /// The engine gets an answer to make.
    pub fn begin(self: &Arc<Heart>, now: Instant) -> Work {
        let mut work = self.lock();
        work.num += 1;
        work.since.get_or_insert(now);
        drop(work);
        Work {
            heart: Arc::clone(self),
        }
    }

    /// How the loop is.
    pub fn pulse(&self, now: Instant, stall_limit: Duration) -> Pulse {
        let Some(since) = self.lock().since else {
            return Pulse::Idle;
        };
        let last_step = self.engine.get().map(|engine| {
            let ms = engine.stats.last_step_ms.load(Relaxed);
            engine.start + Duration::from_millis(ms)
        });
        let sign_of_life = last_step.map_or(since, |last_step| last_step.max(since));
        let age = now.saturating_duration_since(sign_of_life);
        match age > stall_limit {
            true => Pulse::Stalled { age },
            false => Pulse::Busy { age },
        }
    }

    fn lock(&self) -> MutexGuard<'_, InHand> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pulse {
    /// Since the last sign of life, while there is work.
    pub fn age(self) -> Duration {
        match self {
            Pulse::Idle => Duration::ZERO,
            Pulse::Busy { age } | Pulse::Stalled { age } => age,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut work = self.heart.lock();
        work.num -= 1;
        if work.num == 0 {
            work.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    struct Stand {
        heart: Arc<Heart>,
        stats: Arc<Stats>,
        start: Instant,
    }

    impl Stand {
        fn new() -> Stand {
            let stand = Stand {
                heart: Arc::default(),
                stats: Arc::default(),
                start: Instant::now(),
            };
            stand.heart.listen(Arc::clone(&stand.stats), stand.start);
            stand
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn step_ends(&self, seconds: u64) {
            self.stats.last_step_ms.store(seconds * 1000, Relaxed);
        }

        fn pulse(&self, seconds: u64) -> Pulse {
            self.heart.pulse(self.at(seconds), LIMIT)
        }
    }

    fn age(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_engine_without_work_is_idle_however_long_ago_its_last_step_was() {
        let stand = Stand::new();
        assert_eq!(stand.pulse(100_000), Pulse::Idle);
        drop(stand.heart.begin(stand.at(100_000)));
        assert_eq!(stand.pulse(200_000), Pulse::Idle);
    }

    #[test]
    fn an_engine_whose_steps_end_is_busy_and_one_whose_do_not_is_stalled() {
        let stand = Stand::new();
        let _work = stand.heart.begin(stand.at(10));
        stand.step_ends(100);
        assert_eq!(stand.pulse(130), Pulse::Busy { age: age(30) });
        assert_eq!(stand.pulse(131), Pulse::Stalled { age: age(31) });
        stand.step_ends(132);
        assert_eq!(
            stand.pulse(133),
            Pulse::Busy { age: age(1) },
            "it lives again"
        );
    }

    #[test]
    fn work_after_a_long_rest_has_the_whole_limit_for_its_first_step() {
        let stand = Stand::new();
        stand.step_ends(5);
        let work = stand.heart.begin(stand.at(50_000));
        assert_eq!(stand.pulse(50_030), Pulse::Busy { age: age(30) });
        assert_eq!(stand.pulse(50_031), Pulse::Stalled { age: age(31) });
        let more = stand.heart.begin(stand.at(50_031));
        drop(work);
        assert_eq!(
            stand.pulse(50_032).age(),
            age(32),
            "more work is no sign of life"
        );
        drop(more);
        assert_eq!(stand.pulse(50_033), Pulse::Idle);
    }
}
