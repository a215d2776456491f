//! The event streams of one HTTP request, joined: whichever has news comes first.
//!
//! The one idea is ownership. Whoever holds [`Choices`] holds the engine's work: dropping
//! it, which is what happens when the client goes away in either mode, cancels all of it.
//! Not here: what a happening looks like on the wire (`stream.rs`, `whole.rs`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::answer::{FinishReason, StopReason, Usage};
use api::params::MatchedStop;
use engine::{AdmitError, Event, EventStream, Finished, StopCause};
use futures_core::Stream;
use text::SpecialText;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::errors::Refusal;
use crate::state::{Serving, Shared};

/// The choices of one answer and their events, whichever comes first.
pub(crate) struct Choices {
    serving: Arc<Serving>,
    matched_stop: MatchedStop,
    choices: Vec<Choice>,
    /// Where to look first next time, so that no choice starves another.
    next_idx: usize,
    /// Fires when the server can wait no longer for the engine.
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

struct Choice {
    /// `None` once it ended.
    events: Option<EventStream>,
    num_prompt: u64,
    num_cached: u64,
    num_completion: u64,
}

/// What happened to a choice.
#[derive(Debug, PartialEq)]
pub(crate) enum Happening {
    /// More text, never empty.
    Text(String),
    /// It ended by itself; the text that was held back comes first and may be empty.
    Ended {
        text: String,
        reason: FinishReason,
        stop_reason: Option<StopReason>,
    },
    /// The server ended it.
    Broken(Broken),
}

/// Why the server ended an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    ShuttingDown,
    EngineFailed,
}

impl Broken {
    pub fn refusal(&self, shared: &Shared) -> Refusal {
        match self {
            Broken::ShuttingDown => Refusal::CutOff {
                retry_after: shared.config.limits.retry_after,
            },
            Broken::EngineFailed => Refusal::EngineFailed,
        }
    }
}

impl Choices {
    /// Hands all requests to the engine, or none.
    pub fn submit(
        shared: &Shared,
        serving: &Arc<Serving>,
        requests: Vec<engine::Request>,
        matched_stop: MatchedStop,
    ) -> Result<Choices, AdmitError> {
        let submit = |request: engine::Request| {
            let num_prompt = request.prompt.len() as u64;
            let events = Some(serving.engine.submit(request)?);
            shared.metrics.arrived();
            Ok(Choice {
                events,
                num_prompt,
                num_cached: 0,
                num_completion: 0,
            })
        };
        // On the first refusal the earlier ones are dropped, and so cancelled.
        let choices = requests
            .into_iter()
            .map(submit)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Choices {
            serving: Arc::clone(serving),
            matched_stop,
            choices,
            next_idx: 0,
            cut: Box::pin(shared.cut.clone().cancelled_owned()),
        })
    }

    pub fn num_choices(&self) -> usize {
        self.choices.len()
    }

    /// Indices of choices that have not ended.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        let running = |(idx, choice): (usize, &Choice)| choice.events.is_some().then_some(idx);
        self.choices.iter().enumerate().filter_map(running)
    }

    /// Token counts so far, over all choices.
    pub fn usage(&self) -> Usage {
        let sum = |count: fn(&Choice) -> u64| self.choices.iter().map(count).sum();
        Usage::new(
            sum(|choice| choice.num_prompt),
            sum(|choice| choice.num_cached),
            sum(|choice| choice.num_completion),
        )
    }

    /// The next happening of any choice; `None` when all have ended.
    pub async fn next(&mut self) -> Option<(usize, Happening)> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Choices::next`], for hand-written futures.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Happening)>> {
        let num_choices = self.choices.len();
        let mut running = None;
        for turn in 0..num_choices {
            let idx = (self.next_idx + turn) % num_choices;
            while let Some(events) = &mut self.choices[idx].events {
                match Pin::new(events).poll_next(context) {
                    Poll::Pending => {
                        running = Some(idx);
                        break;
                    }
                    Poll::Ready(event) => {
                        if let Some(happening) = self.take(idx, event) {
                            self.next_idx = idx + 1;
                            return Poll::Ready(Some((idx, happening)));
                        }
                    }
                }
            }
        }
        let Some(idx) = running else {
            return Poll::Ready(None);
        };
        std::task::ready!(self.cut.as_mut().poll(context));
        self.choices[idx].events = None;
        Poll::Ready(Some((idx, Happening::Broken(Broken::ShuttingDown))))
    }

    /// Counts an event, and tells what a client should hear of it.
    fn take(&mut self, idx: usize, event: Option<Event>) -> Option<Happening> {
        let choice = &mut self.choices[idx];
        match event {
            Some(Event::Started { num_cached }) => {
                choice.num_cached = u64::from(num_cached);
                None
            }
            Some(Event::Text { text, tokens, .. }) => {
                choice.num_completion += tokens.len() as u64;
                (!text.is_empty()).then_some(Happening::Text(text))
            }
            Some(Event::Prompt { .. }) => None,
            Some(Event::Finished(finished)) => {
                choice.events = None;
                choice.num_cached = u64::from(finished.usage.num_cached);
                choice.num_completion = u64::from(finished.usage.num_completion);
                Some(self.ended(finished))
            }
            // A stream without an end: the engine thread is gone.
            None => {
                choice.events = None;
                Some(Happening::Broken(Broken::EngineFailed))
            }
        }
    }

    fn ended(&self, finished: Finished) -> Happening {
        let Finished {
            mut text, reason, ..
        } = finished;
        match reason {
            engine::FinishReason::Stop(cause) => {
                let stop_reason = self.stop_reason(&cause);
                if self.matched_stop == MatchedStop::Kept {
                    text += &self.matched_text(cause);
                }
                Happening::Ended {
                    text,
                    reason: FinishReason::Stop,
                    stop_reason,
                }
            }
            engine::FinishReason::Length => Happening::Ended {
                text,
                reason: FinishReason::Length,
                stop_reason: None,
            },
            // Nobody cancels but whoever holds this, by dropping it; the engine may still
            // say so while it shuts down.
            engine::FinishReason::Cancelled | engine::FinishReason::Aborted => {
                Happening::Broken(Broken::ShuttingDown)
            }
            engine::FinishReason::Failed { message } => {
                tracing::error!(message, "the engine failed a request");
                Happening::Broken(Broken::EngineFailed)
            }
        }
    }

    fn stop_reason(&self, cause: &StopCause) -> Option<StopReason> {
        match cause {
            StopCause::EndToken => None,
            StopCause::TokenId(token) => Some(StopReason::Token(token.0)),
            StopCause::String(text) => Some(StopReason::Text(text.clone())),
        }
    }

    fn matched_text(&self, cause: StopCause) -> String {
        match cause {
            StopCause::EndToken => String::new(),
            StopCause::TokenId(token) => {
                self.serving.tokenizer.decode(&[token], SpecialText::Parse)
            }
            StopCause::String(text) => text,
        }
    }
}
