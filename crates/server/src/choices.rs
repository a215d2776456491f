//! The event streams of one HTTP request, joined: whichever has news comes first.
//!
//! ```text
//! engine ── Event ──▶ Choice: count, parse the text into parts ── Happening ──▶ dialect
//! ```
//!
//! The one idea is ownership. Whoever holds [`Choices`] holds the engine's work: dropping
//! it, which is what happens when the client goes away in either mode, cancels all of it.
//! Not here: what a happening looks like on the wire (`dialect`).

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::answer::{FinishReason, StopReason, Usage};
use api::params::MatchedStop;
use engine::{Event, EventStream, Finished, StopCause, Times, TokenLogprobs, Witness};
use futures_core::Stream;
use text::{SpecialText, TokenId};
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::answer::Ask;
use crate::enter::Placed;
use crate::errors::Refusal;
use crate::parse::{OutputParser, Part};
use crate::state::{Serving, Shared};
use crate::watch::{Phases, Watch};

/// The choices of one answer and their events, whichever comes first.
pub(crate) struct Choices {
    serving: Arc<Serving>,
    matched_stop: MatchedStop,
    choices: Vec<Choice>,
    /// Choices of each prompt.
    num_answers: usize,
    /// Where to look first next time, so that no choice starves another.
    next_idx: usize,
    /// Fires when the server can wait no longer for the engine.
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when the request's time is over, if it has a limit.
    due: Option<Pin<Box<Sleep>>>,
    placed: Placed,
}

struct Choice {
    /// `None` once it ended.
    events: Option<EventStream>,
    /// Where its time goes.
    watch: Arc<Watch>,
    parser: OutputParser,
    prompt: PromptScores,
    /// How it ended, while that was not told yet.
    ended: Option<Ended>,
    /// 0 for all but one of the answers to a prompt: it is counted once.
    num_prompt: u64,
    /// Of those.
    num_cached: u64,
    num_completion: u64,
    /// Of those.
    num_reasoning: u64,
}

/// Where the log-probabilities of a choice's prompt are. The engine gives them to the first
/// of the answers to a prompt; the others wait for it, since they come before any news.
#[derive(Debug)]
enum PromptScores {
    /// Nobody asked, or they were told.
    Done,
    /// The engine gives them with this choice's events.
    Own,
    /// This choice's first sibling will have them.
    Awaited,
    /// Here they are.
    Here(Arc<Vec<TokenLogprobs>>),
}

/// What happened to a choice.
#[derive(Debug, PartialEq)]
pub(crate) enum Happening {
    /// The first tokens of its prompt are about to be computed.
    Started,
    /// Log-probabilities of its whole prompt, if the request wants them: one per prompt
    /// token after the first, before any news.
    Prompt(Arc<Vec<TokenLogprobs>>),
    /// More of the answer.
    News(News),
    /// It ended by itself; everything of it was told.
    Ended(Ended),
    /// The server ended it.
    Broken(Broken),
}

/// More of an answer. Never empty as a whole, but any of its lists may be.
///
/// Over all news of a choice `tokens` are the answer's tokens as usage counts them, and
/// the text of `parts` is the answer's text; a token's text may come with later news than
/// the token (a character or a stop string may be unfinished).
#[derive(Debug, PartialEq)]
pub(crate) struct News {
    pub parts: Vec<Part>,
    pub tokens: Vec<TokenId>,
    /// One per token if the request wants them, else none.
    pub logprobs: Vec<TokenLogprobs>,
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub reason: FinishReason,
    pub stop_reason: Option<StopReason>,
    pub times: Times,
    /// The same in full.
    pub phases: Phases,
    pub usage: engine::Usage,
    /// Sum of the answer's log-probabilities, if the request wants them.
    pub logprob_sum: f64,
}

/// Why the server ended an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    ShuttingDown,
    EngineFailed,
    /// The request's time is over.
    TimedOut {
        timeout: Duration,
    },
    /// The answer cannot go on within its constraint.
    OutOfConstraint {
        reason: String,
    },
}

impl Broken {
    pub fn refusal(&self, shared: &Shared) -> Refusal {
        match self {
            Broken::ShuttingDown => Refusal::CutOff {
                retry_after: shared.config.limits.retry_after,
            },
            Broken::EngineFailed => Refusal::EngineFailed,
            Broken::TimedOut { timeout } => Refusal::TimedOut { timeout: *timeout },
            Broken::OutOfConstraint { reason } => Refusal::OutOfConstraint {
                reason: reason.clone(),
            },
        }
    }
}

impl Drop for Choices {
    /// What was answered is paid for, however it ended.
    fn drop(&mut self) {
        let num_tokens = self.choices.iter().map(|choice| choice.num_completion);
        self.placed.charge(num_tokens.sum());
    }
}

impl Choices {
    /// Hands all requests to the engine, or none. The answers to one prompt stand together.
    pub fn submit(shared: &Shared, serving: &Arc<Serving>, ask: Ask) -> Result<Choices, Refusal> {
        let Ask {
            requests,
            answers,
            parser,
            matched_stop,
            // Met by now: the requests have their constraints.
            demand: _,
            placed,
        } = ask;
        let num_answers = u32::try_from(answers.num_made)
            .ok()
            .and_then(NonZeroU32::new);
        let num_answers = num_answers.expect("the API bounds it, and it is at least 1");
        let num_choices = requests.len() * answers.num_made;
        let choices = placed.queue(shared, serving, num_choices, |watch| {
            let mut choices = Vec::with_capacity(num_choices);
            // On the first refusal the earlier ones are dropped, and so cancelled.
            for request in requests {
                let num_prompt = request.prompt.len() as u64;
                let scores = request.logprobs.prompt.is_some();
                let mut watches = Vec::with_capacity(answers.num_made);
                let witness = |_| {
                    let watch = watch();
                    watches.push(Arc::clone(&watch));
                    watch as Arc<dyn Witness>
                };
                let engine = &serving.engine;
                let streams = engine.submit_group_watched(request, num_answers, witness)?;
                placed.charge(num_prompt);
                let each = streams.into_iter().zip(watches);
                for (answer_idx, (events, watch)) in each.enumerate() {
                    shared.metrics.arrived();
                    choices.push(Choice {
                        events: Some(events),
                        watch,
                        parser: parser.clone(),
                        prompt: match (scores, answer_idx) {
                            (false, _) => PromptScores::Done,
                            (true, 0) => PromptScores::Own,
                            (true, _) => PromptScores::Awaited,
                        },
                        ended: None,
                        num_prompt: if answer_idx == 0 { num_prompt } else { 0 },
                        num_cached: 0,
                        num_completion: 0,
                        num_reasoning: 0,
                    });
                }
            }
            Ok(choices)
        })?;
        Ok(Choices {
            serving: Arc::clone(serving),
            matched_stop,
            choices,
            num_answers: answers.num_made,
            next_idx: 0,
            cut: Box::pin(shared.cut.clone().cancelled_owned()),
            due: placed
                .time_left(Instant::now())
                .map(|left| Box::pin(tokio::time::sleep(left))),
            placed,
        })
    }

    pub fn num_choices(&self) -> usize {
        self.choices.len()
    }

    /// Indices of choices that have not ended.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        let running = |(idx, choice): (usize, &Choice)| choice.is_running().then_some(idx);
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
        .with_reasoning(sum(|choice| choice.num_reasoning))
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
            if let Some(ended) = self.choices[idx].ended.take() {
                self.next_idx = idx + 1;
                return Poll::Ready(Some((idx, Happening::Ended(ended))));
            }
            match self.prompt_of_sibling(idx) {
                None => (),
                Some(Poll::Ready(logprobs)) => {
                    return Poll::Ready(Some((idx, Happening::Prompt(logprobs))));
                }
                // Its sibling's events wake this, too.
                Some(Poll::Pending) => {
                    running = Some(idx);
                    continue;
                }
            }
            while let Some(events) = &mut self.choices[idx].events {
                match Pin::new(events).poll_next(context) {
                    Poll::Pending => {
                        running = Some(idx);
                        break;
                    }
                    Poll::Ready(event) => {
                        if let Some(happening) = self.take(idx, event) {
                            // An end must directly follow the last news of its choice.
                            self.next_idx = idx + usize::from(self.choices[idx].ended.is_none());
                            return Poll::Ready(Some((idx, happening)));
                        }
                    }
                }
            }
        }
        let Some(idx) = running else {
            return Poll::Ready(None);
        };
        let broken = std::task::ready!(self.poll_end(context));
        self.choices[idx].events = None;
        Poll::Ready(Some((idx, Happening::Broken(broken))))
    }

    /// Why the server ends what still runs, once it does.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        if let Some(due) = &mut self.due
            && due.as_mut().poll(context).is_ready()
        {
            let timeout = self.placed.timeout.unwrap_or_default();
            return Poll::Ready(Broken::TimedOut { timeout });
        }
        self.cut
            .as_mut()
            .poll(context)
            .map(|()| Broken::ShuttingDown)
    }

    /// The log-probabilities that the first of the answers to a prompt was given for all;
    /// `None` if this choice does not wait for them.
    fn prompt_of_sibling(&mut self, idx: usize) -> Option<Poll<Arc<Vec<TokenLogprobs>>>> {
        let first_idx = idx - idx % self.num_answers;
        let first_has_ended = self.choices[first_idx].events.is_none();
        let scores = &mut self.choices[idx].prompt;
        match std::mem::replace(scores, PromptScores::Done) {
            PromptScores::Here(logprobs) => Some(Poll::Ready(logprobs)),
            // An answer whose sibling was given up without a word will hear the same itself.
            PromptScores::Awaited if first_has_ended => None,
            PromptScores::Awaited => {
                *scores = PromptScores::Awaited;
                Some(Poll::Pending)
            }
            other @ (PromptScores::Done | PromptScores::Own) => {
                *scores = other;
                None
            }
        }
    }

    /// Counts an event, and tells what a client should hear of it.
    fn take(&mut self, idx: usize, event: Option<Event>) -> Option<Happening> {
        let choice = &mut self.choices[idx];
        match event {
            Some(Event::Started { num_cached }) => {
                if choice.num_prompt > 0 {
                    choice.num_cached = u64::from(num_cached);
                }
                Some(Happening::Started)
            }
            Some(Event::Text {
                text,
                tokens,
                logprobs,
            }) => {
                choice.num_completion += tokens.len() as u64;
                let parts = choice.parser.push(&text);
                // The markers around it are of it.
                if choice.parser.took_reasoning() {
                    choice.num_reasoning += tokens.len() as u64;
                }
                if choice.parser.is_satisfied() {
                    choice.leave();
                }
                Some(Happening::News(News {
                    parts,
                    tokens,
                    logprobs,
                }))
            }
            Some(Event::Prompt { logprobs }) => {
                choice.prompt = PromptScores::Done;
                let logprobs = Arc::new(logprobs);
                for sibling in &mut self.choices[idx + 1..idx + self.num_answers] {
                    sibling.prompt = PromptScores::Here(Arc::clone(&logprobs));
                }
                Some(Happening::Prompt(logprobs))
            }
            // Of a prompt without choices.
            Some(Event::Embedding { .. }) => None,
            Some(Event::Finished(finished)) => {
                choice.events = None;
                if choice.num_prompt > 0 {
                    choice.num_cached = u64::from(finished.usage.num_cached);
                }
                choice.num_completion = u64::from(finished.usage.num_completion);
                Some(self.finish(idx, finished))
            }
            // A stream without an end: the engine thread is gone.
            None => {
                choice.events = None;
                Some(Happening::Broken(Broken::EngineFailed))
            }
        }
    }

    /// The end of a choice, or the last news before it: then the end waits in the choice.
    fn finish(&mut self, idx: usize, finished: Finished) -> Happening {
        let Finished {
            mut text,
            reason,
            usage,
            times,
            logprob_sum,
        } = finished;
        let (reason, stop_reason) = match reason {
            engine::FinishReason::Stop(cause) => {
                let stop_reason = stop_reason(&cause);
                if self.matched_stop == MatchedStop::Kept {
                    text += &self.matched_text(cause);
                }
                (FinishReason::Stop, stop_reason)
            }
            engine::FinishReason::Length => (FinishReason::Length, None),
            // Nobody cancels but whoever holds this, by dropping it; the engine may still
            // say so while it shuts down.
            engine::FinishReason::Cancelled | engine::FinishReason::Aborted => {
                return Happening::Broken(Broken::ShuttingDown);
            }
            engine::FinishReason::OutOfConstraint { reason } => {
                return Happening::Broken(Broken::OutOfConstraint { reason });
            }
            engine::FinishReason::Failed { message } => {
                tracing::error!(message, "the engine failed a request");
                return Happening::Broken(Broken::EngineFailed);
            }
        };
        let choice = &mut self.choices[idx];
        let mut parts = choice.parser.push(&text);
        parts.extend(choice.parser.finish());
        let reason = match reason {
            // Not of an answer that was cut: a call may be missing.
            FinishReason::Stop if choice.parser.has_calls() => FinishReason::ToolCalls,
            reason => reason,
        };
        let ended = Ended {
            reason,
            stop_reason,
            times,
            phases: choice.watch.phases(Instant::now()),
            usage,
            logprob_sum,
        };
        if parts.is_empty() {
            return Happening::Ended(ended);
        }
        choice.ended = Some(ended);
        Happening::News(News {
            parts,
            tokens: Vec::new(),
            logprobs: Vec::new(),
        })
    }

    fn matched_text(&self, cause: StopCause) -> String {
        match cause {
            StopCause::EndToken | StopCause::Exhausted => String::new(),
            StopCause::TokenId(token) => {
                self.serving.tokenizer.decode(&[token], SpecialText::Parse)
            }
            StopCause::String(text) => text,
        }
    }
}

impl Choice {
    /// Ends the work on it: it has all the calls that it may have.
    fn leave(&mut self) {
        self.events = None;
        let phases = self.watch.phases(Instant::now());
        self.ended = Some(Ended {
            reason: FinishReason::ToolCalls,
            stop_reason: None,
            // The engine has not ended it, so its own account does not come.
            times: Times {
                queued: phases.prepare + phases.queued,
                prefill: phases.prefill,
                decode: phases.decode,
                num_preemptions: phases.num_preemptions,
            },
            phases,
            usage: engine::Usage {
                num_prompt: u32::try_from(self.num_prompt).unwrap_or(u32::MAX),
                num_cached: u32::try_from(self.num_cached).unwrap_or(u32::MAX),
                num_completion: u32::try_from(self.num_completion).unwrap_or(u32::MAX),
            },
            logprob_sum: 0.0,
        });
    }

    fn is_running(&self) -> bool {
        self.events.is_some() || self.ended.is_some()
    }
}

fn stop_reason(cause: &StopCause) -> Option<StopReason> {
    match cause {
        StopCause::EndToken | StopCause::Exhausted => None,
        StopCause::TokenId(token) => Some(StopReason::Token(token.0)),
        StopCause::String(text) => Some(StopReason::Text(text.clone())),
    }
}
