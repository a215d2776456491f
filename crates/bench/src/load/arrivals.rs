//! Open loop: conversations begin when they are due, whatever became of those before.

use std::iter::Peekable;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::alarm::Alarm;
use super::caller::Caller;
use super::converse::{Begin, converse};
use super::places::Lines;
use super::{Shared, Target, Told};
use crate::arrival::Arrivals;
use crate::sample::ClassId;

/// Arrivals that are told as dropped in one go.
const DROPPED_AT_ONCE: usize = 1_024;

/// One level's arrivals: of the run, or of a class with its own.
#[derive(Debug)]
pub(super) struct Schedule {
    pub arrivals: Peekable<Arrivals>,
    /// Whose they are, if not the run's: such a class does not end the level with its end.
    pub class: Option<ClassId>,
    /// The next conversation's number; the others follow.
    pub number: u64,
    /// How long the level lasts: what is due later is not its.
    pub duration_s: Option<f64>,
    /// The level.
    pub target: Target,
    /// It ends.
    pub over: CancellationToken,
}

impl Schedule {
    /// Begins every conversation at its time, until the level or the schedule ends; tells what was due and never began.
    pub(super) async fn run(mut self, shared: Arc<Shared>) {
        let over = self.over.clone();
        let ended = over.run_until_cancelled(self.begin_all(&shared)).await;
        let level = self.target.level;
        if ended.is_some() {
            if self.class.is_none() {
                shared.tell(Told::Exhausted(level)).await;
            }
        } else {
            self.tell_dropped(&shared).await;
        }
        shared.tell(Told::ScheduleEnded).await;
    }

    /// Ends when every conversation of a schedule that ends has ended.
    async fn begin_all(&mut self, shared: &Arc<Shared>) {
        let alarm = Alarm::new(shared.setting.timer);
        let (alive, is_alive) = watch::channel(());
        // Until then, arrivals waited for the place of one that came before them.
        let mut blocked_until: f64 = 0.0;
        while let Some(after) = self.arrivals.peek().copied() {
            if self.is_beyond(after) || !self.target.has_quota() {
                // The level is about to end, and not for want of arrivals.
                std::future::pending::<()>().await;
            }
            let due = self.target.start + after;
            alarm.wait_until(shared.instant(due)).await;
            let woken = shared.seconds(Instant::now());
            let Some(mut place) = shared.places.take(&self.over).await else {
                // The level ends, and what is due now is told as dropped.
                std::future::pending::<()>().await;
                return;
            };
            let queued = f64::max(blocked_until.min(woken) - due, 0.0);
            if place.waited > 0.0 {
                blocked_until = woken + place.waited;
            }
            place.waited += queued;
            let Some(conversation) = shared.conversation(self.number) else {
                break;
            };
            self.arrivals.next();
            self.number += 1;
            let (shared, target, over) =
                (Arc::clone(shared), self.target.clone(), self.over.clone());
            let is_alive = is_alive.clone();
            tokio::spawn(async move {
                let place = Some(place);
                let caller = Caller::Arrival {
                    target: &target,
                    over: &over,
                };
                let lines = Lines::Shared(&shared.places);
                let begin = Begin { due, place };
                converse(&shared, caller, lines, &conversation, begin).await;
                drop(is_alive);
            });
        }
        drop(is_alive);
        alive.closed().await;
    }

    /// Whether what is due so many seconds after the level's beginning is not its own.
    fn is_beyond(&self, after: f64) -> bool {
        self.duration_s
            .is_some_and(|duration_s| after >= duration_s)
    }

    /// What was due by now waited for a place until the level's end: it was attempted, and came to nothing.
    async fn tell_dropped(&mut self, shared: &Shared) {
        let ended = shared.seconds(Instant::now());
        let mut dropped = Vec::new();
        while let Some(after) = self.arrivals.peek().copied() {
            let due = self.target.start + after;
            if due > ended || self.is_beyond(after) || !self.target.takes_quota() {
                break;
            }
            let Some(class) = shared.class_of(self.number) else {
                break;
            };
            dropped.push((class, due));
            self.arrivals.next();
            self.number += 1;
            if dropped.len() == DROPPED_AT_ONCE {
                let told = Told::Dropped(self.target.level, std::mem::take(&mut dropped));
                shared.tell(told).await;
            }
        }
        if !dropped.is_empty() {
            let told = Told::Dropped(self.target.level, dropped);
            shared.tell(told).await;
        }
    }
}
