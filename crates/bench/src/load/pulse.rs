//! How late the client's own clock rings: the client under load, measured while it is.
//!
//! The one idea: a task that only sleeps is late by what any other task on its thread is late by. The loop-back
//! calibration tells what the client can do on an idle machine; this tells what it did beside the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::sample::GapSketch;

/// Often enough to catch stalls of some milliseconds, seldom enough to cost nothing.
const INTERVAL: Duration = Duration::from_millis(10);

/// A running count of delays; stops when its last copy is dropped.
#[derive(Clone, Debug)]
pub struct Pulse {
    delays: Arc<Mutex<GapSketch>>,
    _running: Arc<DropGuard>,
}

impl Pulse {
    /// Begins to count on `handle`'s runtime.
    pub fn start(handle: &Handle) -> Pulse {
        let delays = Arc::new(Mutex::new(GapSketch::default()));
        let stop = CancellationToken::new();
        let (counted, stopped) = (Arc::clone(&delays), stop.clone());
        handle.spawn(async move {
            while !stopped.is_cancelled() {
                let due = Instant::now() + INTERVAL;
                sleep_until(due).await;
                let delay = due.elapsed().as_secs_f64();
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                counted.add(delay);
            }
        });
        Pulse {
            delays,
            _running: Arc::new(stop.drop_guard()),
        }
    }

    /// Delays in seconds since the last call. The runtime's timers are a millisecond coarse, so that much is always
    /// possible.
    pub fn take(&self) -> GapSketch {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *delays)
    }
}
