//! Futures that a connection hands out, polled with it.
//!
//! The one idea: HTTP/2 wants an executor for the half that moves frames. Spawned, that half would read the socket
//! while the answer's task is elsewhere, and the stamp of a read would no longer be that of the bytes in hand; and it
//! would outlive a connection that was given up. So it is kept here, polled by whoever polls the connection, and
//! dropped with it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use hyper::rt::Executor;

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor that waits for [`SameTask::beside`] to poll what it is given.
#[derive(Clone, Default)]
pub struct SameTask {
    /// Given, and not yet polled. A connection hands out one for itself and one for each request, and each ends with it.
    given: Arc<Mutex<Vec<Part>>>,
}

impl SameTask {
    /// `connection`, with all that it hands out polled beside it; ends when it does.
    pub async fn beside<F: Future>(self, connection: F) -> F::Output {
        let mut connection = pin!(connection);
        let mut parts: Vec<Part> = Vec::new();
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
                    return Poll::Ready(outcome);
                }
                parts.retain_mut(|part| part.as_mut().poll(cx).is_pending());
                let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
                if given.is_empty() {
                    return Poll::Pending;
                }
                // What was just given has not been polled, so nothing would wake it.
                parts.append(&mut given);
            }
        })
        .await
    }
}

impl<F> Executor<F> for SameTask
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        let part = Box::pin(async move {
            future.await;
        });
        self.given
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(part);
    }
}
