//! From prepared requests to an answer: submit all, or none; then stream or collect.
//!
//! [`Choices`] joins the event streams of one HTTP request. Dropping it, which is what
//! happens when the client goes away in either mode, cancels everything it still holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Instant;

use api::answer::{FinishReason, Object, StopReason, Usage};
use api::params::{Delivery, Generation, MatchedStop};
use axum::extract::Request;
use axum::response::Response;
use engine::{AdmitError, Event, EventStream, Finished, StopCause};
use futures_core::Stream;
use text::SpecialText;
use tokio_util::sync::WaitForCancellationFutureOwned;
use uuid::Uuid;

use crate::errors::{QueueBound, Refusal};
use crate::state::{Serving, Shared, unix_seconds};
use crate::{body, offload, stream, whole};

/// Which of the two endpoints answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Chat,
    Completion,
}

/// A request with everything decided.
pub(crate) struct Prepared {
    pub endpoint: Endpoint,
    pub requests: Vec<engine::Request>,
    /// The served name it used.
    pub model: String,
    pub delivery: Delivery,
    pub matched_stop: MatchedStop,
}

impl Prepared {
    pub fn new(
        endpoint: Endpoint,
        requests: Vec<engine::Request>,
        model: &str,
        generation: &Generation,
    ) -> Prepared {
        Prepared {
            endpoint,
            requests,
            model: model.to_owned(),
            delivery: generation.delivery,
            matched_stop: generation.ending.matched_stop,
        }
    }
}

/// What every document of one answer repeats.
pub(crate) struct Identity {
    pub endpoint: Endpoint,
    pub id: String,
    pub created: u64,
    pub model: String,
    pub fingerprint: String,
}

impl Identity {
    fn new(endpoint: Endpoint, model: String, serving: &Serving) -> Identity {
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completion => "cmpl",
        };
        Identity {
            endpoint,
            id: format!("{prefix}-{}", Uuid::new_v4().simple()),
            created: unix_seconds(),
            model,
            fingerprint: serving.facts.fingerprint.clone(),
        }
    }

    pub fn head(&self, object: Object) -> api::answer::Head<'_> {
        api::answer::Head {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: &self.fingerprint,
        }
    }
}

/// Makes an endpoint's body into requests; may take long for a long body.
pub(crate) type Prepare = fn(&Shared, &Serving, &[u8], Instant) -> Result<Prepared, Refusal>;

/// Receives a body, prepares it, and answers: what both endpoints do.
pub(crate) async fn create(
    shared: Arc<Shared>,
    request: Request,
    prepare: Prepare,
) -> Result<Response, Refusal> {
    let arrived = Instant::now();
    let serving = Arc::clone(shared.serving()?);
    expect_room(&shared, &serving)?;
    let body = body::receive(&shared, request).await?;
    let num_bytes = body.bytes.len();
    let work = {
        let (shared, serving) = (Arc::clone(&shared), Arc::clone(&serving));
        move || prepare(&shared, &serving, &body.bytes, arrived)
    };
    let prepared = offload::run(&shared, num_bytes, work).await?;
    respond(&shared, &serving, prepared).await
}

/// Refuses before the body is read what the engine would refuse after it was encoded: an
/// overloaded server must not spend its time on what it will turn away.
fn expect_room(shared: &Shared, serving: &Serving) -> Result<(), Refusal> {
    let stats = serving.engine.stats();
    let limits = &serving.facts.engine_limits;
    let num_running = stats.num_running.load(Relaxed);
    let num_waiting = stats.num_waiting.load(Relaxed);
    // Requests that can start at once wait for a moment too; they fill no queue.
    let num_places = (limits.num_sequences_max as u64).saturating_sub(num_running);
    let num_waiting_max = limits.num_waiting_max as u64;
    if num_waiting < num_waiting_max + num_places {
        return Ok(());
    }
    Err(Refusal::QueueFull {
        bound: QueueBound::Requests,
        reason: format!("{num_waiting} requests already wait, at most {num_waiting_max} may"),
        retry_after: shared.config.limits.retry_after,
    })
}

/// Hands the requests to the engine and answers as asked.
async fn respond(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    prepared: Prepared,
) -> Result<Response, Refusal> {
    let Prepared {
        endpoint,
        requests,
        model,
        delivery,
        matched_stop,
    } = prepared;
    let choices = Choices::submit(shared, serving, requests, matched_stop)
        .map_err(|error| refused_by_engine(shared, error))?;
    let identity = Identity::new(endpoint, model, serving);
    match delivery {
        Delivery::Whole => whole::respond(shared, identity, choices).await,
        Delivery::Stream(usage) => Ok(stream::respond(shared, identity, choices, usage)),
    }
}

fn refused_by_engine(shared: &Shared, error: AdmitError) -> Refusal {
    let reason = error.to_string();
    match error {
        // Both were checked before; the engine's own bounds may still be tighter.
        AdmitError::TooLong { .. } => Refusal::ContextLength {
            param: "max_tokens",
            message: reason,
        },
        AdmitError::EmptyPrompt | AdmitError::UnknownToken { .. } => Refusal::ForModel {
            param: "prompt".to_owned(),
            reason: format!("cannot be continued: {reason}"),
        },
        AdmitError::QueueFull { retry_after, .. } => Refusal::QueueFull {
            bound: QueueBound::Requests,
            reason,
            retry_after,
        },
        AdmitError::QueueTokensFull { retry_after, .. } => Refusal::QueueFull {
            bound: QueueBound::Tokens,
            reason,
            retry_after,
        },
        AdmitError::ShuttingDown => Refusal::Draining {
            retry_after: shared.config.limits.retry_after,
        },
    }
}

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
    fn submit(
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
            Some(Event::Text { text, tokens }) => {
                choice.num_completion += tokens.len() as u64;
                (!text.is_empty()).then_some(Happening::Text(text))
            }
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
