//! One answer as the engine tells of it: where its time went, and whether its class kept its word.
//!
//! ```text
//! arrived   submitted     started        first token         last token   ended
//!    │ prepare │   queued    │    prefill     │      decode                 │
//!                                 └ parked ┘       └ parked ┘  (told apart)
//! ```
//!
//! The phases of an answer add up to its time from arrival to end, whatever happened to it. All
//! times are the engine's, so a slow reader or a busy HTTP thread changes none of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::timeline::TimelinePhases;
use engine::{FinishReason, Usage, Witness};

use crate::class::Slo;
use crate::heart::Work;
use crate::metrics::{Cause, ClassBooks, Outcome, Target};
use crate::slowest::{Entry, Label, Slowest};

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch {
    books: Arc<ClassBooks>,
    targets: Slo,
    remembered: Option<Remembered>,
    state: Mutex<State>,
}

/// Where an answer is remembered once it ended, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub slowest: Arc<Slowest>,
    pub label: Arc<Label>,
}

/// Where the time of one answer went. The first five add up to its time from arrival to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    /// Reading the body, checking it, rendering, encoding.
    pub prepare: Duration,
    /// From there to the first step that computed some of it.
    pub queued: Duration,
    /// From there to the first token, but for what was preempted.
    pub prefill: Duration,
    /// From there to the end, but for what was preempted.
    pub decode: Duration,
    /// While its blocks were taken away.
    pub preempted: Duration,
    pub num_preemptions: u32,
    /// Steps before the first token: chunks of the prompt.
    pub num_prefill_steps: u32,
    pub num_decode_steps: u32,
    /// Prompt tokens from the prefix cache.
    pub num_cached: u32,
}

#[derive(Debug)]
struct State {
    arrived: Instant,
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    ended: Option<Instant>,
    parked_since: Option<Instant>,
    parked_in_prefill: Duration,
    parked_in_decode: Duration,
    /// Of the gap since the last token.
    parked_in_gap: Duration,
    num_preemptions: u32,
    num_prefill_steps: u32,
    num_decode_steps: u32,
    num_cached: u32,
    waits: bool,
    /// While the engine has it.
    work: Option<Work>,
}

impl Watch {
    /// Watches an answer that waits from `submitted` on.
    pub fn new(
        books: &Arc<ClassBooks>,
        targets: Slo,
        arrived: Instant,
        submitted: Instant,
        work: Work,
    ) -> Watch {
        books.waiting.inc();
        Watch {
            books: Arc::clone(books),
            targets,
            remembered: None,
            state: Mutex::new(State {
                arrived,
                submitted,
                started: None,
                first_token: None,
                last_token: None,
                ended: None,
                parked_since: None,
                parked_in_prefill: Duration::ZERO,
                parked_in_decode: Duration::ZERO,
                parked_in_gap: Duration::ZERO,
                num_preemptions: 0,
                num_prefill_steps: 0,
                num_decode_steps: 0,
                num_cached: 0,
                waits: true,
                work: Some(work),
            }),
        }
    }

    /// The same, remembered once it ended.
    pub fn remember(mut self, remembered: Option<Remembered>) -> Watch {
        self.remembered = remembered;
        self
    }

    /// Where the time went so far, up to its end if it ended, else to `now`.
    pub fn phases(&self, now: Instant) -> Phases {
        self.lock().phases(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self, state: &mut State, waits: bool) {
        match (state.waits, waits) {
            (false, true) => self.books.waiting.inc(),
            (true, false) => self.books.waiting.dec(),
            _ => 0,
        };
        state.waits = waits;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.waits) {
            self.books.waiting.dec();
        }
    }
}

impl Witness for Watch {
    fn started(&self, num_cached: u32, at: Instant) {
        let mut state = self.lock();
        state.started.get_or_insert(at);
        state.num_cached = num_cached;
        self.waits(&mut state, false);
    }

    fn stepped(&self) {
        let mut state = self.lock();
        match state.first_token {
            None => state.num_prefill_steps += 1,
            Some(_) => state.num_decode_steps += 1,
        }
    }

    fn parked(&self, at: Instant) {
        let mut state = self.lock();
        state.parked_since = Some(at);
        state.num_preemptions += 1;
        self.waits(&mut state, true);
    }

    fn resumed(&self, at: Instant) {
        let mut state = self.lock();
        state.unpark(at);
        self.waits(&mut state, false);
    }

    fn token(&self, at: Instant) {
        let mut state = self.lock();
        let parked = std::mem::take(&mut state.parked_in_gap);
        match state.last_token.replace(at) {
            None => {
                state.first_token = Some(at);
                let real = at.saturating_duration_since(state.arrived);
                let cause = state.phases(at).cause();
                self.books.ttft.observe(real.as_secs_f64());
                self.books
                    .judge(Target::Ttft, real, self.targets.ttft_p95, cause);
            }
            Some(last) => {
                let gap = at.saturating_duration_since(last);
                let cause = match parked * 2 > gap {
                    true => Cause::Preempt,
                    false => Cause::Decode,
                };
                self.books.inter_token.observe(gap.as_secs_f64());
                self.books
                    .judge(Target::Itl, gap, self.targets.itl_p99, cause);
            }
        }
    }

    fn ended(&self, reason: &FinishReason, usage: Usage, at: Instant) {
        let mut state = self.lock();
        state.unpark(at);
        state.ended = Some(at);
        state.work = None;
        self.waits(&mut state, false);
        let outcome = match reason {
            FinishReason::Stop(_) | FinishReason::Length => Outcome::Completed,
            FinishReason::Cancelled | FinishReason::Aborted => Outcome::Cancelled,
            FinishReason::OutOfConstraint { .. } | FinishReason::Failed { .. } => Outcome::Failed,
        };
        self.books.ended(outcome);
        if let Some(Remembered { slowest, label }) = &self.remembered {
            slowest.add(Entry {
                label: Arc::clone(label),
                outcome,
                ended: at,
                usage,
                phases: state.phases(at),
            });
        }
        if outcome == Outcome::Completed {
            let real = at.saturating_duration_since(state.arrived);
            let cause = state.phases(at).cause();
            self.books
                .judge(Target::Deadline, real, self.targets.deadline, cause);
        }
    }
}

impl State {
    fn unpark(&mut self, at: Instant) {
        let Some(since) = self.parked_since.take() else {
            return;
        };
        let parked = at.saturating_duration_since(since);
        self.parked_in_gap += parked;
        match self.first_token {
            None => self.parked_in_prefill += parked,
            Some(_) => self.parked_in_decode += parked,
        }
    }

    fn phases(&self, now: Instant) -> Phases {
        let end = self.ended.unwrap_or(now);
        let started = self.started.unwrap_or(end);
        let first_token = self.first_token.unwrap_or(end);
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from);
        // Still parked: it shows as preempted at once.
        let open = self
            .parked_since
            .map_or(Duration::ZERO, |since| between(since, end));
        let (mut in_prefill, mut in_decode) = (self.parked_in_prefill, self.parked_in_decode);
        match self.first_token {
            None => in_prefill += open,
            Some(_) => in_decode += open,
        }
        Phases {
            prepare: between(self.arrived, self.submitted),
            queued: between(self.submitted, started),
            prefill: between(started, first_token).saturating_sub(in_prefill),
            decode: between(first_token, end).saturating_sub(in_decode),
            preempted: in_prefill + in_decode,
            num_preemptions: self.num_preemptions,
            num_prefill_steps: self.num_prefill_steps,
            num_decode_steps: self.num_decode_steps,
            num_cached: self.num_cached,
        }
    }
}

impl Phases {
    /// For the wire, told `e2e` after arrival.
    pub fn told(&self, e2e: Duration) -> TimelinePhases {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        TimelinePhases {
            e2e_ms: ms(e2e),
            prepare_ms: ms(self.prepare),
            queue_ms: ms(self.queued),
            prefill_ms: ms(self.prefill),
            decode_ms: ms(self.decode),
            preempted_ms: ms(self.preempted),
            deliver_ms: ms(e2e.saturating_sub(self.sum())),
            prefill_steps: self.num_prefill_steps,
            decode_steps: self.num_decode_steps,
            preemptions: self.num_preemptions,
            cached_tokens: self.num_cached,
        }
    }

    /// From arrival to end.
    pub fn sum(&self) -> Duration {
        self.prepare + self.queued + self.prefill + self.decode + self.preempted
    }

    /// What took longest. Preparing is waiting, too: for a turn among other bodies.
    fn cause(&self) -> Cause {
        let phases = [
            (self.prepare + self.queued, Cause::Queue),
            (self.prefill, Cause::Prefill),
            (self.decode, Cause::Decode),
            (self.preempted, Cause::Preempt),
        ];
        let longest = phases.into_iter().max_by_key(|(time, _)| *time);
        longest.expect("there are four").1
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
