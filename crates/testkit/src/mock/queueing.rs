//! Servers with a known operating point: so many slots, a service time, a queue before them.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::wire::good_answer;
use super::{Asked, Script};

/// A server of `slots` places. Requests wait for a place in order of arrival, and then take a time that does not
/// depend on the others: throughput grows with users up to the places, and then waiting does.
#[derive(Clone, Debug)]
pub struct Slots {
    free: Arc<Semaphore>,
    first_ms: f64,
    gap_ms: f64,
}

impl Slots {
    /// Each request takes `first_ms` to its first token and `gap_ms` for each other.
    pub fn new(num_slots: usize, first_ms: f64, gap_ms: f64) -> Slots {
        Slots {
            free: Arc::new(Semaphore::new(num_slots)),
            first_ms,
            gap_ms,
        }
    }

    /// Answers with as many tokens as asked for.
    ///
    /// # Panics
    ///
    /// Never: the places are never closed.
    pub async fn answer(self, asked: Asked) -> Script {
        let place = Arc::clone(&self.free)
            .acquire_owned()
            .await
            .expect("places are never closed");
        let num_tokens = asked.json()["max_tokens"].as_u64().unwrap_or(1);
        let mut script = good_answer(10, num_tokens, self.first_ms, self.gap_ms);
        script.held = Some(Box::new(place));
        script
    }
}
