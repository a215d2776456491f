//! Happenings to server-sent events, whatever the dialect.
//!
//! ```text
//! Choices ── Happening ──▶ Dialect ── frames ──▶ Out ──▶ body
//!                                    ping ───────┘
//! ```
//!
//! Each frame is formatted once, and only when the connection asks for it: the body
//! *is* this stream, no task or buffer stands between. A client that goes away drops it,
//! and with it the engine's work. While nothing happens a comment shows life.
//!
//! If the server has to end a stream, the dialect still ends every choice and says why:
//! never half an answer that looks whole. Not here: what a frame says.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::sse;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep};

use crate::choices::{Broken, Choices, Happening};
use crate::dialect::Dialect;
use crate::state::Shared;

/// The streamed response; its body starts with what is already known.
pub(crate) fn respond(
    shared: &Arc<Shared>,
    dialect: Box<dyn Dialect>,
    choices: Choices,
) -> Response {
    let frames = Frames::new(Arc::clone(shared), dialect, choices);
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would hold the events back otherwise.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Frames that were formatted and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Out {
    ready: VecDeque<Bytes>,
}

impl Out {
    /// A document as an event without a name.
    pub fn frame<T: Serialize>(&mut self, document: &T) {
        self.ready.push_back(sse::frame(document).into());
    }

    /// A document as an event with a name.
    pub fn event<T: Serialize>(&mut self, name: &str, document: &T) {
        self.ready.push_back(sse::event(name, document).into());
    }

    /// A comment, which clients skip.
    pub fn ping(&mut self) {
        self.ready.push_back(Bytes::from_static(sse::PING));
    }

    /// The end marker of OpenAI's older streams.
    pub fn done(&mut self) {
        self.ready.push_back(Bytes::from_static(sse::DONE));
    }
}

/// The frames of one streamed answer.
struct Frames {
    shared: Arc<Shared>,
    dialect: Box<dyn Dialect>,
    choices: Choices,
    out: Out,
    /// Due when the stream was silent for too long.
    ping: Pin<Box<Sleep>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Everything is in `out`.
    Ended,
}

impl Frames {
    fn new(shared: Arc<Shared>, mut dialect: Box<dyn Dialect>, choices: Choices) -> Frames {
        let ping = Box::pin(tokio::time::sleep(shared.config.limits.keep_alive));
        let mut out = Out::default();
        dialect.open(choices.usage(), &mut out);
        Frames {
            shared,
            dialect,
            choices,
            out,
            ping,
            state: State::Running,
        }
    }

    fn write(&mut self, idx: usize, happening: Happening) {
        let (usage, out) = (self.choices.usage(), &mut self.out);
        match happening {
            Happening::Started => self.dialect.started(idx),
            Happening::Prompt(logprobs) => self.dialect.prompt(idx, &logprobs, usage, out),
            Happening::News(news) => self.dialect.news(idx, news, usage, out),
            Happening::Ended(ended) => self.dialect.ended(idx, ended, usage, out),
            Happening::Broken(broken) => self.write_broken(idx, &broken),
        }
    }

    fn write_broken(&mut self, idx: usize, broken: &Broken) {
        let refusal = broken.refusal(&self.shared);
        let running: Vec<usize> = std::iter::once(idx).chain(self.choices.running()).collect();
        let usage = self.choices.usage();
        self.dialect
            .broken(&running, &refusal, usage, &mut self.out);
        self.shared.metrics.broken(&refusal);
        self.state = State::Ended;
    }

    fn write_end(&mut self) {
        self.dialect.close(self.choices.usage(), &mut self.out);
        self.state = State::Ended;
    }

    fn rest_ping(&mut self) {
        let due = Instant::now() + self.shared.config.limits.keep_alive;
        self.ping.as_mut().reset(due);
    }
}

impl Stream for Frames {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let frames = &mut *self;
        loop {
            if let Some(frame) = frames.out.ready.pop_front() {
                frames.rest_ping();
                return Poll::Ready(Some(Ok(frame)));
            }
            if frames.state == State::Ended {
                return Poll::Ready(None);
            }
            match frames.choices.poll_next(context) {
                Poll::Ready(Some((idx, happening))) => frames.write(idx, happening),
                Poll::Ready(None) => frames.write_end(),
                Poll::Pending => {
                    std::task::ready!(frames.ping.as_mut().poll(context));
                    frames.dialect.ping(&mut frames.out);
                }
            }
        }
    }
}
