//! Open loop: conversations begin when they are due, whatever became of those before.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::alarm::Alarm;
use super::ask::{Line, Moment, converse};
use super::{Shared, Target, Told};
use crate::arrival::Arrivals;
use crate::sample::{LevelId, Pacing};

/// Connections that nobody uses at the moment, and places for requests.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Vec<Line>>,
    places: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(num_places: usize) -> Arc<Pool> {
        Arc::new(Pool {
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(num_places)),
        })
    }

    /// The connection that was used last: the others may then fall asleep as a server's idle ones do.
    fn take(&self) -> Line {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop().unwrap_or_default()
    }

    /// At most as many as there are places.
    fn give(&self, line: Line) {
        if line.0.is_some() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(line);
        }
    }
}

/// One level's arrivals: of the run, or of a class with its own.
#[derive(Debug)]
pub(super) struct Schedule {
    pub level: LevelId,
    /// The level's beginning, in seconds of the run.
    pub start: f64,
    pub arrivals: Arrivals,
    /// The first conversation's number; the others follow.
    pub first_number: u64,
    /// How long the level lasts: what is due later is not its.
    pub duration_s: f64,
    /// Whether they count against the level's quota, and end it with their end.
    pub is_main: bool,
    /// The level ends.
    pub over: CancellationToken,
    pub target: watch::Receiver<Target>,
}

impl Schedule {
    /// Begins every conversation at its time, until the level or the schedule ends.
    pub(super) async fn run(self, shared: Arc<Shared>, pool: Arc<Pool>) {
        let outcome = tokio::select! {
            () = self.over.cancelled() => None,
            () = self.begin_all(&shared, &pool) => Some(()),
        };
        if outcome.is_some() && self.is_main {
            shared.tell(Told::Exhausted(self.level)).await;
        }
    }

    async fn begin_all(&self, shared: &Arc<Shared>, pool: &Arc<Pool>) {
        let alarm = Alarm::new(shared.setting.timer);
        for (idx, after) in (0..).zip(self.arrivals.clone()) {
            if after >= self.duration_s {
                // The level is about to end, and not for want of arrivals.
                std::future::pending::<()>().await;
            }
            let due = self.start + after;
            alarm.wait_until(shared.instant(due)).await;
            let Ok(place) = Arc::clone(&pool.places).acquire_owned().await else {
                return;
            };
            if self.is_main && !self.target.borrow().takes_quota() {
                return;
            }
            let Some(conversation) = shared.conversation(self.first_number + idx) else {
                return;
            };
            let (shared, pool) = (Arc::clone(shared), Arc::clone(pool));
            let (target, level) = (self.target.clone(), self.level);
            tokio::spawn(async move {
                let mut line = pool.take();
                converse(&shared, &mut line, &conversation, || {
                    let is_over = target.borrow().is_over;
                    (!is_over).then_some(Moment {
                        level,
                        pacing: Pacing::Open,
                        due: Some(due),
                    })
                })
                .await;
                pool.give(line);
                drop(place);
            });
        }
    }
}
