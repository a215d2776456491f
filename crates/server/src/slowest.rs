//! The slowest requests that ended lately, for `/debug/requests`: a bounded list of where their
//! time went, with nothing of what was said in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::timeline::{SlowRequest, SlowRequests};
use engine::Usage;

use crate::metrics::Outcome;
use crate::watch::Phases;

/// As many as one looks at.
const NUM_MAX: usize = 32;
/// What was slow an hour ago helps nobody now.
const WINDOW: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    entries: Mutex<Vec<Entry>>,
}

/// What a request is called.
#[derive(Debug, Default)]
pub(crate) struct Label {
    pub id: String,
    pub route: String,
    pub class: String,
}

/// One sequence that ended.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub label: Arc<Label>,
    pub outcome: Outcome,
    pub ended: Instant,
    pub usage: Usage,
    pub phases: Phases,
}

impl Slowest {
    /// Takes it in, if it is among the slowest. Costs a walk over a short list.
    pub fn add(&self, entry: Entry) {
        let mut entries = self.lock();
        let now = entry.ended;
        entries.retain(|old| now.saturating_duration_since(old.ended) <= WINDOW);
        if entries.len() < NUM_MAX {
            entries.push(entry);
            return;
        }
        let fastest = entries.iter_mut().min_by_key(|entry| entry.phases.sum());
        let fastest = fastest.expect("the list is full");
        if fastest.phases.sum() < entry.phases.sum() {
            *fastest = entry;
        }
    }

    /// Slowest first.
    pub fn list(&self, now: Instant) -> SlowRequests {
        let mut entries = self.lock().clone();
        entries.retain(|entry| now.saturating_duration_since(entry.ended) <= WINDOW);
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.phases.sum()));
        SlowRequests {
            window_s: WINDOW.as_secs_f64(),
            requests: entries.iter().map(|entry| entry.told(now)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn told(&self, now: Instant) -> SlowRequest {
        let ago = now.saturating_duration_since(self.ended);
        SlowRequest {
            id: self.label.id.clone(),
            route: self.label.route.clone(),
            class: self.label.class.clone(),
            outcome: self.outcome.word(),
            ended_s_ago: ago.as_secs_f64(),
            prompt_tokens: self.usage.num_prompt,
            completion_tokens: self.usage.num_completion,
            phases: self.phases.told(self.phases.sum()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ended: Instant, ms: u64) -> Entry {
        Entry {
            label: Arc::new(Label {
                id: ms.to_string(),
                ..Label::default()
            }),
            outcome: Outcome::Completed,
            ended,
            usage: Usage::default(),
            phases: Phases {
                decode: Duration::from_millis(ms),
                ..Phases::default()
            },
        }
    }

    fn ids(list: &SlowRequests) -> Vec<u64> {
        let id = |request: &SlowRequest| request.id.parse().unwrap();
        list.requests.iter().map(id).collect()
    }

    #[test]
    fn a_thousand_requests_leave_the_slowest_few_in_order() {
        let (slowest, now) = (Slowest::default(), Instant::now());
        // In an order that is neither up nor down: 7 and 1000 share no divisor.
        for idx in 0..1000_u64 {
            slowest.add(entry(now, 1 + idx * 7 % 1000));
        }
        let expected: Vec<u64> = (0..32).map(|idx| 1000 - idx).collect();
        assert_eq!(ids(&slowest.list(now)), expected);
    }

    #[test]
    fn what_ended_long_ago_makes_room() {
        let (slowest, start) = (Slowest::default(), Instant::now());
        for ms in 0..32 {
            slowest.add(entry(start, 10_000 + ms));
        }
        let later = start + WINDOW + Duration::from_millis(1);
        slowest.add(entry(later, 5));
        assert_eq!(ids(&slowest.list(later)), [5]);
        assert_eq!(slowest.list(later + WINDOW * 2).requests.len(), 0);
    }
}
