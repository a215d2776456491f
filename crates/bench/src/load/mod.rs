//! Who asks when: users who wait for answers, arrivals that wait for nobody, and the levels between them.
//!
//! The one idea: hands and head are apart. The *hands* (`users`, `arrivals`) ask, and tell what came over a bounded
//! channel; they know the level of the moment and nothing of figures. The *head* (`conduct`) decides about levels and
//! keeps the books, on another thread, so that no sum or file ever delays a request.
//!
//! ```text
//!   conduct ── Target (watch) ──▶ users, arrivals ──▶ sockets
//!      ▲                              │
//!      └────── Told (bounded) ────────┘
//! ```
//!
//! Closed levels hand over without draining: a user who is in the middle of an answer goes on, and the request
//! belongs to the level in which it was sent; a user who thinks goes on thinking, and asks in the next level. Open levels
//! drain, because their backlog is not the next level's doing: what was due and still waits for a place is dropped and
//! counted, and conversations between two turns end there.
//!
//! Not here: how one question is asked (`client`), what the figures are (`ledger`).

// One conversation, turn by turn.
mod converse;

// On whose behalf.
mod caller;

// One question, from the conversation so far to its sample.
mod ask;

// Who may have a request in flight.
mod places;

// Users who wait.
mod users;

// Arrivals that do not.
mod arrivals;

// The threads that drive connections.
mod threads;

// A moment more exactly than the runtime tells it.
mod alarm;

// How late the client's own clock rings.
mod pulse;

// The order of levels, and when each ends.
mod conduct;

// What the head knows of the hands.
mod told;

// Which conversations a level asks.
mod numbers;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Dialect};
use crate::sample::{ClassId, LevelId, Sample};
use crate::workload::{Conversation, Vocabulary, Workload};

use self::places::Places;

pub use self::alarm::Timer;
pub use self::conduct::{
    Audience, Conduct, Ended, LevelPlan, Next, Now, Pace, Stage, Stop, Wish, conduct,
};
pub use self::pulse::Pulse;
pub use self::threads::ClientThreads;

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What was told and not yet heard. When it is full, the hands wait, and the lag shows it.
    pub told_max: usize,
    /// Bytes of an answer that a next turn repeats.
    pub answer_bytes_max: usize,
    /// Users of one level.
    pub users_max: u32,
}

/// The bounds in force.
pub const LIMITS: Limits = Limits {
    told_max: 8_192,
    answer_bytes_max: 1 << 20,
    users_max: 65_536,
};

/// What is asked, of whom, and how.
#[derive(Debug)]
pub struct Setting {
    /// Of whom.
    pub client: Client,
    /// In which words.
    pub dialect: Dialect,
    /// The model's name.
    pub model: Option<String>,
    /// What.
    pub workload: Workload,
    /// With which words.
    pub vocabulary: Vocabulary,
    /// What draws lengths and arrivals.
    pub seed: u64,
    /// Body fields of every request, over the workload's.
    pub body: serde_json::Map<String, serde_json::Value>,
    /// Seconds that a user waits between two conversations.
    pub think_s: f64,
    /// Requests in flight at once, at most; more wait for a place. An arrival's wait is in its latency.
    pub concurrency_max: usize,
    /// What tells arrivals their time.
    pub timer: Timer,
    /// When the run began.
    pub epoch: Instant,
}

/// What the hands should do at the moment.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    level: LevelId,
    /// Its beginning, in seconds of the run.
    start: f64,
    /// Users who ask; the others rest.
    users: u32,
    /// The first number of the level's conversations.
    first_number: u64,
    /// Questions of the level, at most, whoever asks them; none is no bound.
    quota: Option<u64>,
    /// What was asked in the level: its own, so that a late user of the last one takes nothing of it.
    tally: Arc<Tally>,
    /// Nobody begins anything any more.
    is_over: bool,
}

/// What was asked in a level.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Questions.
    asked: AtomicU64,
    /// Conversations.
    begun: AtomicU64,
}

impl Target {
    /// Whether the level may ask more.
    fn has_quota(&self) -> bool {
        let asked = self.tally.asked.load(Ordering::Relaxed);
        self.quota.is_none_or(|quota| asked < quota)
    }

    /// Counts a question, if the level may ask more.
    fn takes_quota(&self) -> bool {
        let asked = self.tally.asked.fetch_add(1, Ordering::Relaxed);
        self.quota.is_none_or(|quota| asked < quota)
    }

    /// The next conversation's number.
    fn next_number(&self) -> u64 {
        self.first_number + self.tally.begun.fetch_add(1, Ordering::Relaxed)
    }
}

/// What the hands tell.
#[derive(Debug)]
pub(crate) enum Told {
    /// A request was handed over at a moment of the run.
    Sent(LevelId, f64),
    /// It ended.
    Ended(Box<Sample>),
    /// There is nothing left to ask in a level.
    Exhausted(LevelId),
    /// Questions of these classes, due at these seconds, waited for a place when their level ended.
    Dropped(LevelId, Vec<(ClassId, f64)>),
    /// A conversation was given up between two turns, the last of them in this level.
    Cut(LevelId),
    /// A schedule will begin nothing more.
    ScheduleEnded,
}

/// What the hands count as they go: for those who watch.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests in flight.
    pub in_flight: AtomicU64,
    /// The most of them at once.
    pub in_flight_max: AtomicU64,
    /// Content events that arrived.
    pub events: AtomicU64,
    /// Connections open.
    pub connections: AtomicU64,
    /// The most of them at once.
    pub connections_max: AtomicU64,
}

impl Counters {
    fn asked(&self) {
        let num = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight_max.fetch_max(num, Ordering::Relaxed);
    }

    fn answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    fn opened(&self) {
        let num = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.connections_max.fetch_max(num, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What all hands share.
#[derive(Debug)]
pub(crate) struct Shared {
    setting: Setting,
    counters: Arc<Counters>,
    places: Places,
    told: mpsc::Sender<Told>,
    /// Ends requests in flight.
    cancel: CancellationToken,
}

impl Shared {
    /// Seconds since the run began.
    fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.setting.epoch)
            .as_secs_f64()
    }

    /// The instant of a moment.
    fn instant(&self, seconds: f64) -> Instant {
        self.setting.epoch + Duration::from_secs_f64(seconds.max(0.0))
    }

    /// Conversation `number`, or the one that stands for it if there are not so many.
    fn conversation(&self, number: u64) -> Option<Conversation> {
        let Setting {
            workload,
            vocabulary,
            seed,
            ..
        } = &self.setting;
        workload.conversation(self.numbered(number)?, *seed, vocabulary)
    }

    /// Of which class it is.
    fn class_of(&self, number: u64) -> Option<ClassId> {
        let Setting { workload, seed, .. } = &self.setting;
        let class = workload.class_at(self.numbered(number)?, *seed)?;
        Some(ClassId(class as u16))
    }

    /// Data that has ended begins again; none if there is none.
    fn numbered(&self, number: u64) -> Option<u64> {
        match self.setting.workload.num_conversations() {
            Some(num) => number.checked_rem(num),
            None => Some(number),
        }
    }

    /// Tells; a listener that has gone wants to hear nothing.
    async fn tell(&self, told: Told) {
        let _ = self.told.send(told).await;
    }
}

/// The hands of a run, waiting for a level.
#[derive(Debug)]
pub struct Hands {
    shared: Arc<Shared>,
    target: watch::Sender<Target>,
    told: mpsc::Receiver<Told>,
    handle: Handle,
    pulse: Pulse,
    num_users: u32,
}

impl Hands {
    /// Hands that work on `handle`'s runtime: one thread of it is enough for thousands of streams.
    pub fn new(setting: Setting, handle: Handle) -> Hands {
        let (sender, told) = mpsc::channel(LIMITS.told_max);
        let (target, _) = watch::channel(Target {
            level: LevelId(0),
            start: 0.0,
            users: 0,
            first_number: 0,
            quota: None,
            tally: Arc::default(),
            is_over: false,
        });
        let pulse = Pulse::start(&handle);
        Hands {
            shared: Arc::new(Shared {
                places: Places::new(setting.concurrency_max),
                setting,
                counters: Arc::default(),
                told: sender,
                cancel: CancellationToken::new(),
            }),
            target,
            told,
            handle,
            pulse,
            num_users: 0,
        }
    }

    /// What the hands count as they go.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// How late the hands' clock rings.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }
}
