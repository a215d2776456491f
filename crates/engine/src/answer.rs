//! One answer in the making: what the engine knows of a request besides its place in the
//! scheduler.
//!
//! The one idea: an answer takes one token at a time and says whether it ends there. The
//! order of the questions is what makes a stop within the budget win over the limit:
//!
//! 1. Is it an end token or one of the request's stop ids? Such a token has no text.
//! 2. Does its text complete a stop string?
//! 3. Is the budget used up?
//!
//! There is no fourth question about the context: a request whose prompt and `max_tokens`
//! exceed it was refused (`handle.rs`).

use std::time::{Duration, Instant};

use text::{Pushed, TextStream};

use crate::Vocabulary;
use crate::choose::{ChooseError, Chooser, EarlyBan, Scratch};
use crate::events::Sender;
use crate::inbox::Submission;
use crate::request::{Event, FinishReason, Finished, Stop, StopCause, Times, TokenId, Usage};
use crate::stats::{Observer, RequestFacts};

/// See the module.
#[derive(Debug)]
pub(crate) struct Answer {
    sender: Sender,
    chooser: Chooser,
    text: TextStream,
    stop: Stop,
    /// The model's own end tokens; none if the request ignores them.
    end_tokens: Vec<TokenId>,
    usage: Usage,
    clock: Clock,
    /// Preempted and not computed again since.
    is_parked: bool,
    num_preemptions: u32,
}

/// When what happened.
#[derive(Clone, Copy, Debug)]
struct Clock {
    arrived: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

/// What one more token did to an answer.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Text that is now certain; may be empty.
    pub(crate) text: String,
    /// Why the answer ends with this token, if it does.
    pub(crate) end: Option<FinishReason>,
    /// Time since what came before this token.
    pub(crate) since: Since,
}

/// What a token's waiting time counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// The request's arrival: this is the first token.
    Arrival(Duration),
    /// The token before.
    Token(Duration),
}

impl Answer {
    /// The answer to `submission`, of which only the prompt is left to the caller. `seed` is for a
    /// request that has none.
    pub(crate) fn new(
        submission: Submission,
        vocabulary: &dyn Vocabulary,
        vocab: usize,
        seed: impl FnOnce() -> u64,
    ) -> (Answer, Vec<TokenId>) {
        let Submission {
            mut request,
            sender,
        } = submission;
        // The front refuses it. Here it would end every answer before its first character.
        request.stop.strings.retain(|string| !string.is_empty());
        let end_tokens = if request.stop.ignore_eos {
            Vec::new()
        } else {
            vocabulary.end_tokens().to_vec()
        };
        let early_ban = EarlyBan {
            token_ids: [&end_tokens[..], &request.stop.token_ids].concat(),
            min_tokens: request.stop.min_tokens,
        };
        let seed = request.sampling.seed.unwrap_or_else(seed);
        let answer = Answer {
            sender,
            chooser: Chooser::new(&request.sampling, &request.prompt, early_ban, vocab, seed),
            text: TextStream::new(request.stop.strings.clone()),
            stop: request.stop,
            end_tokens,
            usage: Usage {
                num_prompt: request.prompt.len() as u32,
                ..Usage::default()
            },
            clock: Clock {
                arrived: request.arrived,
                started: None,
                first_token: None,
                last_token: None,
            },
            is_parked: false,
            num_preemptions: 0,
        };
        (answer, request.prompt)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.sender.is_abandoned()
    }

    pub(crate) fn max_tokens(&self) -> usize {
        self.stop.max_tokens as usize
    }

    pub(crate) fn num_prompt(&self) -> usize {
        self.usage.num_prompt as usize
    }

    /// The first step that computes some of it begins.
    pub(crate) fn start(&mut self, num_cached: usize, at: Instant) {
        self.usage.num_cached = num_cached as u32;
        self.clock.started = Some(at);
        self.sender.post(Event::Started {
            num_cached: num_cached as u32,
        });
    }

    pub(crate) fn has_started(&self) -> bool {
        self.clock.started.is_some()
    }

    /// The scheduler took its blocks away; counted once until [`Answer::resume`].
    pub(crate) fn park(&mut self) {
        if !self.is_parked {
            self.is_parked = true;
            self.num_preemptions += 1;
        }
    }

    /// It is computed again.
    pub(crate) fn resume(&mut self) {
        self.is_parked = false;
    }

    /// Chooses the next token from its logits. Changes nothing until [`Answer::accept`].
    pub(crate) fn choose(
        &self,
        row: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<TokenId, ChooseError> {
        self.chooser.choose(row, self.usage.num_completion, scratch)
    }

    /// Takes `token`, chosen at `at`, into the answer.
    pub(crate) fn accept(
        &mut self,
        token: TokenId,
        at: Instant,
        vocabulary: &dyn Vocabulary,
    ) -> Accepted {
        self.usage.num_completion += 1;
        self.chooser.record(token);
        let (text, stop) = self.push(token, vocabulary);
        let is_used_up = self.usage.num_completion >= self.stop.max_tokens;
        Accepted {
            text,
            end: match stop {
                Some(cause) => Some(FinishReason::Stop(cause)),
                None => is_used_up.then_some(FinishReason::Length),
            },
            since: self.clock.token(at),
        }
    }

    /// The text that `token` releases, and whether it stops the answer.
    fn push(&mut self, token: TokenId, vocabulary: &dyn Vocabulary) -> (String, Option<StopCause>) {
        if self.end_tokens.contains(&token) {
            return (String::new(), Some(StopCause::EndToken));
        }
        if self.stop.token_ids.contains(&token) {
            return (String::new(), Some(StopCause::TokenId(token)));
        }
        match self
            .text
            .push(vocabulary.token_bytes(token).unwrap_or_default())
        {
            Pushed::Text(text) => (text, None),
            Pushed::Stopped { text, stop_idx } => (
                text,
                Some(StopCause::String(self.stop.strings[stop_idx].clone())),
            ),
        }
    }

    /// Tells the reader of one more token.
    pub(crate) fn post(&self, text: String, token: TokenId) {
        self.sender.post(Event::Text {
            text,
            tokens: vec![token],
            logprobs: Vec::new(),
        });
    }

    /// Ends the answer at `at`: tells the observer, then the reader.
    pub(crate) fn finish(mut self, reason: FinishReason, at: Instant, observer: &mut dyn Observer) {
        let text = match reason {
            // What follows a stop string is not part of the answer.
            FinishReason::Stop(StopCause::String(_)) => String::new(),
            _ => self.text.finish(),
        };
        let times = Times {
            num_preemptions: self.num_preemptions,
            ..self.clock.times(at)
        };
        observer.finished(&RequestFacts {
            reason: reason.clone(),
            usage: self.usage,
            times,
            e2e: at.saturating_duration_since(self.clock.arrived),
            max_tokens: self.stop.max_tokens,
        });
        self.sender.finish(Finished {
            text,
            reason,
            usage: self.usage,
            times,
            logprob_sum: 0.0,
        });
    }
}

impl Clock {
    fn token(&mut self, at: Instant) -> Since {
        let since = match self.last_token {
            None => Since::Arrival(at.saturating_duration_since(self.arrived)),
            Some(last) => Since::Token(at.saturating_duration_since(last)),
        };
        self.first_token.get_or_insert(at);
        self.last_token = Some(at);
        since
    }

    /// Of an answer that ended at `end`, maybe before it began.
    fn times(&self, end: Instant) -> Times {
        let started = self.started.unwrap_or(end);
        let first_token = self.first_token.unwrap_or(end);
        let last_token = self.last_token.unwrap_or(end);
        Times {
            queued: started.saturating_duration_since(self.arrived),
            prefill: first_token.saturating_duration_since(started),
            decode: last_token.saturating_duration_since(first_token),
            num_preemptions: 0,
        }
    }
}
