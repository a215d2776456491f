//! Events to server-sent events.
//!
//! ```text
//! role chunk (chat)  at once, one per choice: the client sees headers and life
//! text chunks        as they come, whole characters, finish_reason null
//! terminal chunk     exactly one per choice, empty delta, finish_reason set
//! usage chunk        only if asked for, choices []
//! [DONE]
//! ```
//!
//! Each frame is formatted once, and only when the connection asks for it: the body
//! *is* this stream, no task or buffer stands between. A client that goes away drops it,
//! and with it the engine's work. While nothing happens a comment shows life.
//!
//! If the server has to end a stream, each choice still gets its terminal chunk
//! (`finish_reason` `abort`), then an error event, then `[DONE]`: never half an answer
//! that looks whole.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::answer::{
    ChatChunkChoice, CompletionChoice, Delta, Document, FinishReason, Never, Object, StopReason,
    UsageField,
};
use api::params::StreamUsage;
use api::sse;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep};

use crate::answer::{Endpoint, Identity};
use crate::choices::{Broken, Choices, Happening};
use crate::state::Shared;

/// The streamed response; its body starts with what is already known.
pub(crate) fn respond(
    shared: &Arc<Shared>,
    identity: Identity,
    choices: Choices,
    usage: StreamUsage,
) -> Response {
    let frames = Frames::new(Arc::clone(shared), Writer { identity, usage }, choices);
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

/// The frames of one streamed answer.
struct Frames {
    shared: Arc<Shared>,
    writer: Writer,
    choices: Choices,
    /// Formatted and not yet taken.
    ready: VecDeque<Bytes>,
    /// Due when the stream was silent for too long.
    ping: Pin<Box<Sleep>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Everything is in `ready`.
    Ended,
}

impl Frames {
    fn new(shared: Arc<Shared>, writer: Writer, choices: Choices) -> Frames {
        let ping = Box::pin(tokio::time::sleep(shared.config.limits.keep_alive));
        let usage = choices.usage();
        let mut ready = VecDeque::new();
        if writer.identity.endpoint == Endpoint::Chat {
            let opening = |idx| writer.chat_chunk(idx, OPENING, None, writer.so_far(usage));
            ready.extend((0..choices.num_choices()).map(opening));
        }
        Frames {
            shared,
            writer,
            choices,
            ready,
            ping,
            state: State::Running,
        }
    }

    fn write(&mut self, idx: usize, happening: Happening) {
        match happening {
            Happening::Text(text) => self.write_text(idx, &text),
            Happening::Ended {
                text,
                reason,
                stop_reason,
            } => {
                if !text.is_empty() {
                    self.write_text(idx, &text);
                }
                let usage = self.writer.so_far(self.choices.usage());
                let terminal = self.writer.terminal(idx, (reason, stop_reason), usage);
                self.ready.push_back(terminal);
            }
            Happening::Broken(broken) => self.write_broken(idx, &broken),
        }
    }

    fn write_text(&mut self, idx: usize, text: &str) {
        let usage = self.writer.so_far(self.choices.usage());
        self.ready.push_back(self.writer.text(idx, text, usage));
    }

    fn write_broken(&mut self, idx: usize, broken: &Broken) {
        let usage = self.writer.so_far(self.choices.usage());
        for idx in std::iter::once(idx).chain(self.choices.running()) {
            let terminal = self
                .writer
                .terminal(idx, (FinishReason::Abort, None), usage);
            self.ready.push_back(terminal);
        }
        let refusal = broken.refusal(&self.shared);
        self.shared.metrics.broken(&refusal);
        self.ready
            .push_back(refusal.with_body(|body| sse::frame(body)).into());
        self.ready.push_back(Bytes::from_static(sse::DONE));
        self.state = State::Ended;
    }

    fn write_end(&mut self) {
        self.ready.extend(self.writer.usage(self.choices.usage()));
        self.ready.push_back(Bytes::from_static(sse::DONE));
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
            if let Some(frame) = frames.ready.pop_front() {
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
                    frames.ready.push_back(Bytes::from_static(sse::PING));
                }
            }
        }
    }
}

const OPENING: Delta<'static> = Delta {
    role: Some("assistant"),
    content: Some(""),
};

/// Formats the frames of one answer.
struct Writer {
    identity: Identity,
    usage: StreamUsage,
}

type Ending = (FinishReason, Option<StopReason>);

impl Writer {
    /// The `usage` key of a chunk that has choices.
    fn so_far(&self, usage: api::answer::Usage) -> UsageField {
        match self.usage {
            StreamUsage::Never => UsageField::Absent,
            StreamUsage::AtEnd => UsageField::Null,
            StreamUsage::InEveryChunk => UsageField::Told(usage),
        }
    }

    fn text(&self, idx: usize, text: &str, usage: UsageField) -> Bytes {
        match self.identity.endpoint {
            Endpoint::Chat => {
                let delta = Delta {
                    role: None,
                    content: Some(text),
                };
                self.chat_chunk(idx, delta, None, usage)
            }
            Endpoint::Completion => self.completion_chunk(idx, text, None, usage),
        }
    }

    fn terminal(&self, idx: usize, ending: Ending, usage: UsageField) -> Bytes {
        match self.identity.endpoint {
            Endpoint::Chat => self.chat_chunk(idx, Delta::default(), Some(ending), usage),
            Endpoint::Completion => self.completion_chunk(idx, "", Some(ending), usage),
        }
    }

    /// The chunk that carries usage, if one was asked for.
    fn usage(&self, usage: api::answer::Usage) -> Option<Bytes> {
        if self.usage == StreamUsage::Never {
            return None;
        }
        let none: [Never; 0] = [];
        Some(self.chunk(&none, UsageField::Told(usage)))
    }

    fn chat_chunk(
        &self,
        idx: usize,
        delta: Delta<'_>,
        ending: Option<Ending>,
        usage: UsageField,
    ) -> Bytes {
        let (finish_reason, stop_reason) = split(ending);
        let index = choice_index(idx);
        let choice = ChatChunkChoice {
            index,
            delta,
            logprobs: Never,
            finish_reason,
            stop_reason,
        };
        self.chunk(&[choice], usage)
    }

    fn completion_chunk(
        &self,
        idx: usize,
        text: &str,
        ending: Option<Ending>,
        usage: UsageField,
    ) -> Bytes {
        let (finish_reason, stop_reason) = split(ending);
        let index = choice_index(idx);
        let choice = CompletionChoice {
            index,
            text,
            logprobs: Never,
            finish_reason,
            stop_reason,
        };
        self.chunk(&[choice], usage)
    }

    fn chunk<C: Serialize>(&self, choices: &[C], usage: UsageField) -> Bytes {
        let object = match self.identity.endpoint {
            Endpoint::Chat => Object::ChatChunk,
            Endpoint::Completion => Object::Completion,
        };
        let document = Document {
            head: self.identity.head(object),
            choices,
            usage,
        };
        sse::frame(&document).into()
    }
}

fn split(ending: Option<Ending>) -> (Option<FinishReason>, Option<StopReason>) {
    ending.map_or((None, None), |(reason, stop_reason)| {
        (Some(reason), stop_reason)
    })
}

/// A choice's index on the wire.
pub(crate) fn choice_index(idx: usize) -> u32 {
    u32::try_from(idx).expect("the number of prompts is bounded far below")
}
