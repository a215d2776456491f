//! What the head knows of the hands, from what they told: the books, and who is still at work.

use super::Told;
use crate::ledger::{Ledger, LevelFlag};
use crate::observe::Status;
use crate::sample::{LevelId, Sample};

/// The head's view.
pub(super) struct Books<'a> {
    pub ledger: &'a mut Ledger,
    /// Requests in flight, by level.
    in_flight: Vec<u64>,
    /// Questions of the level that runs.
    pub num_sent: u64,
    /// Whole answers to them.
    pub num_ok: u64,
    /// When the last request was sent.
    pub last_sent: f64,
    /// The level that has nothing left to ask.
    exhausted: Option<LevelId>,
    /// Schedules at work.
    pub num_schedules: usize,
}

impl Books<'_> {
    pub(super) fn new(ledger: &mut Ledger) -> Books<'_> {
        Books {
            ledger,
            in_flight: Vec::new(),
            num_sent: 0,
            num_ok: 0,
            last_sent: 0.0,
            exhausted: None,
            num_schedules: 0,
        }
    }

    /// A level begins.
    pub(super) fn begin(&mut self) {
        self.in_flight.push(0);
        (self.num_sent, self.num_ok) = (0, 0);
    }

    /// Requests of all levels that are in flight.
    pub(super) fn num_in_flight(&self) -> u64 {
        self.in_flight.iter().sum()
    }

    /// Those of one.
    pub(super) fn num_in_flight_of(&self, level: LevelId) -> u64 {
        self.in_flight[level.0 as usize]
    }

    /// Whether the level that runs has asked all of at most `quota` questions.
    pub(super) fn has_asked(&self, quota: Option<u64>) -> bool {
        quota.is_some_and(|quota| self.num_sent >= quota)
    }

    /// Whether `level` has nothing left to ask.
    pub(super) fn is_exhausted(&self, level: LevelId) -> bool {
        self.exhausted == Some(level)
    }

    /// Keeps the books; gives back what else should be heard of.
    pub(super) fn note(&mut self, told: Told) -> Option<Box<Sample>> {
        match told {
            Told::Sent(level, at) => {
                self.in_flight[level.0 as usize] += 1;
                self.num_sent += u64::from(self.is_of_now(level));
                self.last_sent = self.last_sent.max(at);
                self.ledger.sent(level, at);
            }
            Told::Ended(sample) => {
                self.in_flight[sample.level.0 as usize] -= 1;
                let is_ok = sample.record.status == Status::Ok;
                self.num_ok += u64::from(is_ok && self.is_of_now(sample.level));
                self.ledger.take(&sample);
                return Some(sample);
            }
            Told::Exhausted(level) => self.exhausted = Some(level),
            Told::Dropped(level, questions) => {
                for (class, due) in questions {
                    self.ledger.dropped(level, class, due);
                }
            }
            Told::Cut(level) => self.ledger.raise(level, LevelFlag::ConversationsCut, 1),
            Told::ScheduleEnded => self.num_schedules -= 1,
        }
        None
    }

    fn is_of_now(&self, level: LevelId) -> bool {
        level.0 as usize + 1 == self.in_flight.len()
    }
}
