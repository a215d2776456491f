//! The part of a request's body that nobody read before the answer was there.
//!
//! The one idea: a client that writes everything before it reads would see a reset
//! connection in place of a refusal, so what it still sends is read and dropped, within
//! bounds. That is done here for every refusal, whoever made it: a handler is lent the
//! body, and what it left comes back.
//!
//! Not here: reading what is wanted (`body.rs`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use crate::limits::Limits;

/// What is left of a body that was lent.
pub(crate) struct Unread {
    lent: Arc<Mutex<Lent>>,
    /// The client waits for permission to send. Asking for a body gives it.
    waits: bool,
}

#[derive(Default)]
struct Lent {
    /// `None` once it ended or broke off, so that it is not kept while the answer is made.
    body: Option<Body>,
    was_asked_for: bool,
}

/// What the handler reads.
struct Borrowed {
    lent: Arc<Mutex<Lent>>,
}

impl Unread {
    /// Puts a borrowed body in place of a request's own.
    pub fn lend(request: Request) -> (Request, Unread) {
        let (head, body) = request.into_parts();
        let waits = expects_continue(&head.headers);
        if body.is_end_stream() {
            let lent = Arc::default();
            return (Request::from_parts(head, body), Unread { lent, waits });
        }
        let lent = Arc::new(Mutex::new(Lent {
            body: Some(body),
            was_asked_for: false,
        }));
        let borrowed = Body::new(Borrowed {
            lent: Arc::clone(&lent),
        });
        (Request::from_parts(head, borrowed), Unread { lent, waits })
    }

    /// Reads on and forgets, within bounds.
    pub async fn discard(self, limits: &Limits) {
        let body = {
            let mut lent = lock(&self.lent);
            // Refusing a client that waits for permission is enough.
            let is_coming = lent.was_asked_for || !self.waits;
            lent.body.take().filter(|_| is_coming)
        };
        let Some(mut body) = body else {
            return;
        };
        let reading = async {
            let mut num_bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                num_bytes += frame.data_ref().map_or(0, Bytes::len);
                if num_bytes > limits.discard_bytes_max {
                    break;
                }
            }
        };
        // Past the limit the client gets the answer and a closed connection, whatever it sends.
        let _ = tokio::time::timeout(limits.discard, reading).await;
    }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    let expect = headers.get(header::EXPECT).map(|value| value.as_bytes());
    expect.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// A body that panicked while it was read is as broken as one that reports an error.
fn lock(lent: &Mutex<Lent>) -> MutexGuard<'_, Lent> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpBody for Borrowed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut lent = lock(&self.lent);
        lent.was_asked_for = true;
        let Some(body) = &mut lent.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            lent.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.lent)
            .body
            .as_ref()
            .is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let lent = lock(&self.lent);
        lent.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
