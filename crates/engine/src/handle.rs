//! The caller's side of the engine: hand a request over, get its events.
//!
//! Nothing here knows an async runtime: an [`EventStream`] is a `futures_core::Stream`
//! through `std::task::Waker` alone, and can be read blocking as well.

use std::sync::Arc;
use std::time::Duration;

use crate::request::{AdmitError, Event, Request};
use crate::stats::Stats;

/// Hands requests to the engine thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {}

impl EngineHandle {
    /// Queues a request; never blocks.
    ///
    /// # Errors
    ///
    /// What [`AdmitError`] lists; the request was then not taken.
    pub fn submit(&self, request: Request) -> Result<EventStream, AdmitError> {
        let _ = request;
        unimplemented!()
    }

    /// Gauges and counters, readable at any time without waiting for the engine.
    pub fn stats(&self) -> &Arc<Stats> {
        unimplemented!()
    }

    /// Stops taking requests, lets the running ones finish for at most `limit`, ends the
    /// rest with [`crate::FinishReason::Aborted`], and stops the engine thread. Returns at once.
    pub fn drain(&self, limit: Duration) {
        let _ = limit;
        unimplemented!()
    }
}

/// The events of one request. Dropping it cancels the request within two steps.
#[derive(Debug)]
pub struct EventStream {}

impl EventStream {
    /// Waits for the next event on this thread; `None` after `Finished`.
    pub fn next_blocking(&mut self) -> Option<Event> {
        unimplemented!()
    }
}

impl futures_core::Stream for EventStream {
    type Item = Event;
    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Event>> {
        unimplemented!()
    }
}
