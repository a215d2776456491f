//! The one door into the engine thread: a bounded channel of submissions, plus the three
//! other things that concern it: someone left, please drain, all handles are gone.
//!
//! The one idea: everything that admission decides on stands behind one lock, so checking
//! the bounds and taking the place is one act, however many threads submit at once.
//!
//! ```text
//! waiting = pending (not yet taken by the engine thread) + queued (in the scheduler, not running)
//! ```
//!
//! Not here: whether a request fits the model (`handle.rs`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::EngineLimits;
use crate::events::Sender;
use crate::pace::Pace;
use crate::request::{AdmitError, Pooling, Request};
use crate::stats::Stats;

/// A request on its way to the engine thread, with the engine's ends of its mailboxes, one an answer.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) request: Request,
    pub(crate) senders: Vec<Sender>,
    /// Of an embedding, which has one sender and wants no tokens.
    pub(crate) pooling: Option<Pooling>,
}

/// What concerns the engine as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Takes requests.
    Open,
    /// Takes none, finishes those it has; ends at the deadline at the latest, if there is one.
    Draining { deadline: Option<Instant> },
    /// The engine thread has ended.
    Closed,
}

/// What [`Inbox::take`] found.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) submissions: VecDeque<Submission>,
    /// Since the last time, at least one reader went away.
    pub(crate) is_someone_gone: bool,
    pub(crate) phase: Phase,
}

/// What [`Inbox::take`] does if there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenEmpty {
    /// Sleeps until there is something.
    Wait,
    /// Returns; the engine has work to go on with.
    Return,
}

/// Answers that wait and the tokens of their prompts, one for several answers counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) num_requests: usize,
    pub(crate) num_tokens: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Rings for the sleeping engine thread.
    news: Condvar,
    is_someone_gone: AtomicBool,
    num_waiting_max: usize,
    num_waiting_tokens_max: usize,
    stats: Arc<Stats>,
}

#[derive(Debug)]
struct State {
    pending: VecDeque<Submission>,
    /// Answers of `pending`, and the tokens of its prompts.
    num_pending: Waiting,
    queued: Waiting,
    /// Places that the next step fills from the queue at once, so that they do not count as
    /// waiting: otherwise a burst would be refused while the engine is idle.
    num_places: usize,
    phase: Phase,
    pace: Pace,
}

impl Inbox {
    pub(crate) fn new(limits: &EngineLimits, stats: Arc<Stats>) -> Inbox {
        Inbox {
            state: Mutex::new(State {
                pending: VecDeque::new(),
                num_pending: Waiting::default(),
                queued: Waiting::default(),
                num_places: limits.num_sequences_max,
                phase: Phase::Open,
                pace: Pace::default(),
            }),
            news: Condvar::new(),
            is_someone_gone: AtomicBool::new(false),
            num_waiting_max: limits.num_waiting_max,
            num_waiting_tokens_max: limits.num_waiting_tokens_max,
            stats,
        }
    }

    /// Takes a place in the queue, if there is one, or says why not. Never blocks.
    pub(crate) fn submit(&self, submission: Submission, now: Instant) -> Result<(), AdmitError> {
        let mut state = self.lock();
        let new = Waiting {
            num_requests: submission.senders.len(),
            num_tokens: submission.request.prompt.len(),
        };
        self.expect_place(&state, new, now)?;
        state.pending.push_back(submission);
        state.num_pending.num_requests += new.num_requests;
        state.num_pending.num_tokens += new.num_tokens;
        self.show(&state);
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    /// Whether the shortest prompt there is would be taken now. Takes nothing.
    pub(crate) fn expect_room(&self, now: Instant) -> Result<(), AdmitError> {
        let shortest = Waiting {
            num_requests: 1,
            num_tokens: 1,
        };
        self.expect_place(&self.lock(), shortest, now)
    }

    /// Whether `new` answers to one prompt would be taken now.
    ///
    /// A prompt longer than the token bound is taken when no other waits: refusing it with
    /// "try again" would never come true.
    fn expect_place(&self, state: &State, new: Waiting, now: Instant) -> Result<(), AdmitError> {
        if state.phase != Phase::Open {
            return Err(AdmitError::ShuttingDown);
        }
        let waiting = state.waiting();
        if waiting.num_requests + new.num_requests > self.num_waiting_max + state.num_places {
            return Err(AdmitError::QueueFull {
                num_waiting: waiting.num_requests as u32,
                num_waiting_max: self.num_waiting_max as u32,
                retry_after: state.pace.time_for(waiting.num_requests, now),
            });
        }
        if waiting.num_tokens > 0
            && waiting.num_tokens + new.num_tokens > self.num_waiting_tokens_max
        {
            return Err(AdmitError::QueueTokensFull {
                num_tokens: waiting.num_tokens as u64,
                num_tokens_max: self.num_waiting_tokens_max as u64,
                retry_after: state.pace.time_for(waiting.num_requests, now),
            });
        }
        Ok(())
    }

    /// For the engine thread: everything new. What was pending counts as queued from here on.
    pub(crate) fn take(&self, when_empty: WhenEmpty) -> News {
        let mut state = self.lock();
        while when_empty == WhenEmpty::Wait
            && state.pending.is_empty()
            && state.phase == Phase::Open
        {
            state = self
                .news
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.queued = state.waiting();
        state.num_pending = Waiting::default();
        News {
            submissions: std::mem::take(&mut state.pending),
            is_someone_gone: self.is_someone_gone.swap(false, Ordering::AcqRel),
            phase: state.phase,
        }
    }

    /// For the engine thread: what waits in the scheduler now, and how many more sequences the
    /// next step could start. `num_started` requests began since the last call.
    pub(crate) fn settle(&self, queued: Waiting, num_places: usize, num_started: usize) {
        let mut state = self.lock();
        state.queued = queued;
        state.num_places = num_places;
        if num_started > 0 {
            state.pace.note(num_started, Instant::now());
        }
        self.show(&state);
    }

    /// A reader went away. The engine looks for it before its next step; an idle engine has none.
    pub(crate) fn ring_abandoned(&self) {
        self.is_someone_gone.store(true, Ordering::Release);
    }

    /// Stops taking requests. A deadline can only move forward; `None` waits for as long as it takes.
    pub(crate) fn drain(&self, deadline: Option<Instant>) {
        let mut state = self.lock();
        state.phase = match state.phase {
            Phase::Open => Phase::Draining { deadline },
            Phase::Draining { deadline: earlier } => Phase::Draining {
                deadline: earlier.into_iter().chain(deadline).min(),
            },
            Phase::Closed => Phase::Closed,
        };
        drop(state);
        self.news.notify_one();
    }

    /// For the ending engine thread: nothing is taken any more; returns what nobody took.
    pub(crate) fn close(&self) -> VecDeque<Submission> {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        state.queued = Waiting::default();
        state.num_pending = Waiting::default();
        let left = std::mem::take(&mut state.pending);
        self.show(&state);
        left
    }

    fn show(&self, state: &State) {
        let waiting = state.waiting();
        self.stats
            .num_waiting
            .store(waiting.num_requests as u64, Ordering::Relaxed);
        self.stats
            .num_waiting_tokens
            .store(waiting.num_tokens as u64, Ordering::Relaxed);
    }

    /// No code that could panic runs under the lock, so a poisoned one is as good as new.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waiting(&self) -> Waiting {
        Waiting {
            num_requests: self.queued.num_requests + self.num_pending.num_requests,
            num_tokens: self.queued.num_tokens + self.num_pending.num_tokens,
        }
    }
}

/// An inbox that nobody empties.
#[cfg(test)]
pub(crate) fn test_inbox() -> Arc<Inbox> {
    let limits = EngineLimits {
        step_tokens_max: 64,
        prompt_rows_max: 64,
        num_sequences_max: 1,
        context_max: 512,
        num_waiting_max: 2,
        num_waiting_tokens_max: 100,
        prefix_cache: crate::PrefixCache::On,
    };
    Arc::new(Inbox::new(&limits, Arc::new(Stats::default())))
}
