//! `timeline`: where the time of each choice went, for requests that ask (`x-fulcrum-timeline: 1`).

use std::time::Instant;

use api::report::Told;
use api::timeline::Timeline;

use crate::choices::Ended;
use crate::dialect::choice_index;
use crate::enter::Placed;
use crate::watch::Phases;

/// The choices of one answer that ended.
#[derive(Debug)]
pub(crate) struct Timelines {
    asked: Told,
    arrived: Instant,
    ended: Vec<(usize, Phases)>,
}

impl Timelines {
    pub fn of(placed: &Placed) -> Timelines {
        Timelines {
            asked: placed.timeline,
            arrived: placed.arrived,
            ended: Vec::new(),
        }
    }

    /// A choice ended.
    pub fn ended(&mut self, idx: usize, ended: &Ended) {
        if self.asked == Told::Told {
            self.ended.push((idx, ended.phases));
        }
    }

    /// Of all that ended, told at `now`, by index.
    pub fn tell(&self, now: Instant) -> Option<Vec<Timeline>> {
        let e2e = now.saturating_duration_since(self.arrived);
        let timeline = |(idx, phases): &(usize, Phases)| Timeline {
            index: choice_index(*idx),
            phases: phases.told(e2e),
        };
        let mut told: Vec<Timeline> = self.ended.iter().map(timeline).collect();
        told.sort_by_key(|timeline| timeline.index);
        (self.asked == Told::Told).then_some(told)
    }
}
