//! Places for requests, and the connections that wait in them.
//!
//! The one idea: a place is held while a request is in flight, and no longer. Who thinks, holds none. Who comes first is
//! served first; what waits in a schedule waits behind its own predecessors.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ask::Line;

/// `--max-concurrency` places.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// Connections that nobody uses at the moment.
    idle: Mutex<Vec<Line>>,
}

/// Where a conversation's connection is between its requests.
#[derive(Debug)]
pub(super) enum Lines<'a> {
    /// A user keeps one.
    Own(&'a mut Line),
    /// Arrivals take turns on those that are idle.
    Shared(&'a Places),
}

impl Lines<'_> {
    pub(super) fn take(&mut self) -> Line {
        match self {
            Lines::Own(line) => std::mem::take(*line),
            Lines::Shared(places) => places.take_line(),
        }
    }

    pub(super) fn give(&mut self, used: Line) {
        match self {
            Lines::Own(line) => **line = used,
            Lines::Shared(places) => places.give_line(used),
        }
    }
}

/// The right to have one request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    /// How many seconds it was waited for.
    pub waited: f64,
}

impl Places {
    pub(super) fn new(num_places: usize) -> Places {
        Places {
            free: Arc::new(Semaphore::new(num_places)),
            idle: Mutex::default(),
        }
    }

    /// The next free place; none if `until` comes first.
    pub(super) async fn take(&self, until: &CancellationToken) -> Option<Place> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(Place {
                _permit: permit,
                waited: 0.0,
            });
        }
        let begun = Instant::now();
        let free = Arc::clone(&self.free).acquire_owned();
        let permit = until.run_until_cancelled(free).await?.ok()?;
        Some(Place {
            _permit: permit,
            waited: begun.elapsed().as_secs_f64(),
        })
    }

    /// The connection that was used last: the others may then fall asleep as a server's idle ones do.
    fn take_line(&self) -> Line {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop().unwrap_or_default()
    }

    /// Never more than there are places, because each was used in one.
    fn give_line(&self, line: Line) {
        if line.0.is_some() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(line);
        }
    }
}
