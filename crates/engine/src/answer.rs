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
//! Of a constrained answer they are asked differently, so that a stop implies a complete answer: its
//! constraint allows end tokens and stop ids where the answer is complete, a stop string counts only
//! behind a complete answer, and an answer that nothing may follow has stopped.
//!
//! There is no fourth question about the context: a request whose prompt and `max_tokens`
//! exceed it was refused (`handle.rs`).

use std::time::{Duration, Instant};

use sched::PromptRows;
use text::{Pushed, TextStream};

use crate::Vocabulary;
use crate::choose::{ChooseError, Chooser, EarlyBan, Scratch};
use crate::constraint::{Constrained, Constraint, ConstraintError, Ends, Progress};
use crate::events::Sender;
use crate::pooling::{Pool, PoolError};
use crate::request::{
    ControlText, Event, FinishReason, Finished, Logprobs, Pooling, Request, Stop, StopCause, Times,
    TokenId, TokenLogprobs, Usage,
};
use crate::stats::{Observer, RequestFacts};

/// See the module.
#[derive(Debug)]
pub(crate) struct Answer {
    sender: Sender,
    chooser: Chooser,
    text: TextStream,
    stop: Stop,
    rule: Rule,
    control_text: ControlText,
    logprobs: Logprobs,
    logprob_sum: f64,
    /// Of prompt tokens 1, 2, 3 … as far as it is computed, if the request wants them.
    prompt_logprobs: Vec<TokenLogprobs>,
    /// Of a request that wants a vector and no tokens.
    pool: Option<Pool>,
    /// The model's own end tokens; none if the request ignores them.
    end_tokens: Vec<TokenId>,
    usage: Usage,
    clock: Clock,
    /// Preempted and not computed again since.
    is_parked: bool,
    num_preemptions: u32,
}

/// As far back as a stop string may reach: one of 512 bytes spans at most as many tokens with text.
const NUM_COMPLETE_MAX: usize = 512;

/// What an answer must look like.
#[derive(Debug)]
enum Rule {
    Free,
    /// `constrained` is `None` while it is lent to the masks thread.
    Constrained {
        constrained: Option<Constrained>,
        /// Where in the answer's text, in bytes, it was complete; the last [`NUM_COMPLETE_MAX`] places.
        complete_at: Vec<usize>,
        num_bytes: usize,
    },
}

/// Why an answer got no token.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NoToken {
    #[error(transparent)]
    Choose(#[from] ChooseError),
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// Nor a vector, of which it wanted one instead.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl NoToken {
    pub(crate) fn reason(&self) -> FinishReason {
        match self {
            NoToken::Choose(ChooseError::NothingAllowed) | NoToken::Constraint(_) => {
                FinishReason::OutOfConstraint {
                    reason: self.to_string(),
                }
            }
            NoToken::Choose(ChooseError::NoNumber { .. }) | NoToken::Pool(_) => {
                FinishReason::Failed {
                    message: self.to_string(),
                }
            }
        }
    }
}

/// A token chosen, and how likely it was if the request wants to know.
#[derive(Debug)]
pub(crate) struct Pick {
    pub(crate) token: TokenId,
    pub(crate) logprobs: Option<TokenLogprobs>,
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
    /// An answer to `request`, which has a seed, that is told to `sender`.
    pub(crate) fn new(
        mut request: Request,
        sender: Sender,
        vocabulary: &dyn Vocabulary,
        vocab: usize,
    ) -> Answer {
        // The front refuses it. Here it would end every answer before its first character.
        request.stop.strings.retain(|string| !string.is_empty());
        let rule = Rule::new(request.constraint.take(), &request.stop, vocabulary, vocab);
        let end_tokens = match (&rule, request.stop.ignore_eos) {
            (Rule::Free, true) => Vec::new(),
            _ => vocabulary.end_tokens().to_vec(),
        };
        let early_ban = match &rule {
            Rule::Free => EarlyBan {
                token_ids: [&end_tokens[..], &request.stop.token_ids].concat(),
                min_tokens: request.stop.min_tokens,
            },
            // Its constraint knows better when it may end.
            Rule::Constrained { .. } => EarlyBan::default(),
        };
        let seed = request.sampling.seed.unwrap_or_default();
        Answer {
            sender,
            chooser: Chooser::new(&request.sampling, &request.prompt, early_ban, vocab, seed),
            text: TextStream::new(request.stop.strings.clone()),
            stop: request.stop,
            rule,
            control_text: request.control_text,
            logprobs: request.logprobs,
            logprob_sum: 0.0,
            prompt_logprobs: Vec::new(),
            pool: None,
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
        }
    }

    /// The same, wanting a vector if `pooling` says of what.
    pub(crate) fn with_pooling(mut self, pooling: Option<Pooling>) -> Answer {
        self.pool = pooling.map(Pool::new);
        self
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.sender.is_abandoned()
    }

    pub(crate) fn num_prompt(&self) -> usize {
        self.usage.num_prompt as usize
    }

    /// The first step that computes some of it begins.
    pub(crate) fn start(&mut self, num_cached: usize, at: Instant) {
        self.usage.num_cached = num_cached as u32;
        self.clock.started = Some(at);
        let num_told = num_cached as u32;
        self.sender.witness(|witness| witness.started(num_told, at));
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
            self.sender
                .witness(|witness| witness.parked(Instant::now()));
        }
    }

    /// A step computes some of it, again if it was parked.
    pub(crate) fn resume(&mut self) {
        let was_parked = std::mem::take(&mut self.is_parked);
        self.sender.witness(|witness| {
            if was_parked {
                witness.resumed(Instant::now());
            }
            witness.stepped();
        });
    }

    /// Whether the rows of its prompt are wanted.
    pub(crate) fn prompt_rows(&self) -> PromptRows {
        match (&self.pool, self.logprobs.prompt) {
            (Some(pool), _) => pool.prompt_rows(),
            (None, Some(_)) => PromptRows::Each,
            (None, None) => PromptRows::Last,
        }
    }

    /// Whether its rows are hidden states, and no logits.
    pub(crate) fn wants_states(&self) -> bool {
        self.pool.is_some()
    }

    /// Takes the state of `position` into its vector; not again when it is computed once more after
    /// a preemption.
    pub(crate) fn pool(&mut self, position: usize, state: &[f32]) {
        let num_prompt = self.num_prompt();
        if let Some(pool) = &mut self.pool {
            pool.add(position, num_prompt, state);
        }
    }

    /// The vector, once all of the prompt is computed.
    pub(crate) fn vector(&self) -> Result<Option<Vec<f32>>, NoToken> {
        let vector = |pool: &Pool| pool.vector(self.num_prompt());
        Ok(self.pool.as_ref().map(vector).transpose()?)
    }

    /// Tells the reader of the vector.
    pub(crate) fn post_vector(&self, vector: Vec<f32>) {
        self.sender.post(Event::Embedding { vector });
    }

    /// Notes how likely the prompt's token behind `position` was, whose logits are `row`; not again
    /// when they are computed once more after a preemption.
    pub(crate) fn score(&mut self, tokens: &[u32], position: usize, row: &[f32]) {
        let is_prompt = position + 1 < self.num_prompt();
        if let Some(num_top) = self.logprobs.prompt
            && is_prompt
            && self.prompt_logprobs.len() == position
        {
            let next = TokenId(tokens[position + 1]);
            let logprobs = TokenLogprobs::of(row, next, num_top);
            self.prompt_logprobs.push(logprobs);
        }
    }

    /// Tells the reader of the prompt's tokens, once.
    pub(crate) fn post_prompt(&mut self) {
        if self.logprobs.prompt.take().is_some() {
            let logprobs = std::mem::take(&mut self.prompt_logprobs);
            self.sender.post(Event::Prompt { logprobs });
        }
    }

    /// Chooses the next token from its logits, `row`, of which ids below `vocab` may be chosen, and which
    /// are used up. `None` if no token is wanted. Changes nothing until [`Answer::accept`].
    pub(crate) fn choose(
        &self,
        row: &mut [f32],
        vocab: usize,
        scratch: &mut Scratch,
    ) -> Result<Option<Pick>, NoToken> {
        if self.stop.max_tokens == 0 {
            return Ok(None);
        }
        let allowed = self.rule.allowed()?;
        let answer_idx = self.usage.num_completion;
        let Some(num_top) = self.logprobs.answer else {
            let row = &mut row[..vocab];
            let token = self.chooser.choose(row, answer_idx, allowed, scratch)?;
            return Ok(Some(Pick {
                token,
                logprobs: None,
            }));
        };
        let mut raw = std::mem::take(&mut scratch.raw);
        raw.clear();
        raw.extend_from_slice(row);
        let row = &mut row[..vocab];
        let token = self.chooser.choose(row, answer_idx, allowed, scratch);
        let logprobs = token.map(|token| TokenLogprobs::of(&raw, token, num_top));
        scratch.raw = raw;
        Ok(Some(Pick {
            token: token?,
            logprobs: Some(logprobs?),
        }))
    }

    /// Tokens of the answer so far, and its constraint if it has one, to be filled elsewhere. It chooses
    /// nothing until [`Answer::give_back`].
    pub(crate) fn lend(&mut self) -> Option<(u32, Constrained)> {
        match &mut self.rule {
            Rule::Free => None,
            Rule::Constrained { constrained, .. } => {
                Some((self.usage.num_completion, constrained.take()?))
            }
        }
    }

    /// Takes back what [`Answer::lend`] gave.
    pub(crate) fn give_back(&mut self, filled: Constrained) {
        match &mut self.rule {
            Rule::Free => unreachable!("free text has no constraint to lend"),
            Rule::Constrained { constrained, .. } => *constrained = Some(filled),
        }
    }

    /// Takes what was picked at `at` into the answer.
    pub(crate) fn accept(
        &mut self,
        pick: &Pick,
        at: Instant,
        vocabulary: &dyn Vocabulary,
    ) -> Accepted {
        let token = pick.token;
        self.usage.num_completion += 1;
        if let Some(logprobs) = &pick.logprobs {
            self.logprob_sum += f64::from(logprobs.logprob);
        }
        self.chooser.record(token);
        self.sender.witness(|witness| witness.token(at));
        let (text, end) = self.push(token, vocabulary);
        let is_used_up = self.usage.num_completion >= self.stop.max_tokens;
        Accepted {
            text,
            end: end.or(is_used_up.then_some(FinishReason::Length)),
            since: self.clock.token(at),
        }
    }

    /// The text that `token` releases, and whether it ends the answer.
    fn push(
        &mut self,
        token: TokenId,
        vocabulary: &dyn Vocabulary,
    ) -> (String, Option<FinishReason>) {
        let stopped = |cause| Some(FinishReason::Stop(cause));
        if self.end_tokens.contains(&token) {
            return (String::new(), stopped(StopCause::EndToken));
        }
        if self.stop.token_ids.contains(&token) {
            return (String::new(), stopped(StopCause::TokenId(token)));
        }
        let name = match self.control_text {
            ControlText::Dropped => None,
            ControlText::Shown => vocabulary.control_text(token).map(str::as_bytes),
        };
        let bytes = name.or(vocabulary.token_bytes(token)).unwrap_or_default();
        let pushed = match &self.rule {
            Rule::Free => self.text.push(bytes),
            Rule::Constrained { complete_at, .. } => {
                let is_complete = |at: usize| complete_at.contains(&at);
                self.text.push_if(bytes, is_complete)
            }
        };
        let text = match pushed {
            Pushed::Text(text) => text,
            Pushed::Stopped { text, stop_idx } => {
                let cause = StopCause::String(self.stop.strings[stop_idx].clone());
                return (text, stopped(cause));
            }
        };
        match self.rule.accept(token, bytes.len()) {
            Ok(Progress::Open | Progress::Complete) => (text, None),
            Ok(Progress::Exhausted) => (text, stopped(StopCause::Exhausted)),
            Err(error) => (text, Some(NoToken::from(error).reason())),
        }
    }

    /// Tells the reader of one more token.
    pub(crate) fn post(&self, text: String, pick: Pick) {
        self.sender.post(Event::Text {
            text,
            tokens: vec![pick.token],
            logprobs: pick.logprobs.into_iter().collect(),
        });
    }

    /// The text held back, and why the answer ends: a character that stays unfinished may complete a
    /// stop string.
    fn release(&mut self, reason: FinishReason) -> (String, FinishReason) {
        match (self.text.finish(), reason) {
            (Pushed::Text(text), reason) => (text, reason),
            (
                Pushed::Stopped { text, stop_idx },
                FinishReason::Length | FinishReason::Stop(StopCause::EndToken),
            ) => {
                let matched = self.stop.strings[stop_idx].clone();
                (text, FinishReason::Stop(StopCause::String(matched)))
            }
            (Pushed::Stopped { text, .. }, reason) => (text, reason),
        }
    }

    /// Ends the answer at `at`: tells the observer, then the reader.
    pub(crate) fn finish(mut self, reason: FinishReason, at: Instant, observer: &mut dyn Observer) {
        let (text, reason) = match reason {
            // What follows a stop string is not part of the answer.
            FinishReason::Stop(StopCause::String(_)) => (String::new(), reason),
            _ => self.release(reason),
        };
        let times = Times {
            num_preemptions: self.num_preemptions,
            ..self.clock.times(at)
        };
        let usage = self.usage;
        self.sender
            .witness(|witness| witness.ended(&reason, usage, at));
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
            logprob_sum: self.logprob_sum,
        });
    }
}

impl Rule {
    fn new(
        constraint: Option<Box<dyn Constraint>>,
        stop: &Stop,
        vocabulary: &dyn Vocabulary,
        vocab: usize,
    ) -> Rule {
        let Some(constraint) = constraint else {
            return Rule::Free;
        };
        let ends = Ends {
            end_tokens: vocabulary.end_tokens().to_vec(),
            stop_ids: stop.token_ids.clone(),
            // An answer that ignores end tokens goes on while its constraint lets it.
            min_tokens: match stop.ignore_eos {
                true => u32::MAX,
                false => stop.min_tokens,
            },
        };
        Rule::Constrained {
            constrained: Some(Constrained::new(constraint, ends, vocab)),
            complete_at: Vec::new(),
            num_bytes: 0,
        }
    }

    /// One bit for each token that may come next; `None` allows all.
    fn allowed(&self) -> Result<Option<&[u32]>, ConstraintError> {
        match self {
            Rule::Free => Ok(None),
            Rule::Constrained { constrained, .. } => match constrained {
                Some(constrained) => constrained.allowed().map(Some),
                None => Err(ConstraintError {
                    reason: "it was lent and not given back".to_owned(),
                }),
            },
        }
    }

    /// Moves on by a token of `num_token_bytes`.
    fn accept(
        &mut self,
        token: TokenId,
        num_token_bytes: usize,
    ) -> Result<Progress, ConstraintError> {
        let Rule::Constrained {
            constrained: Some(constrained),
            complete_at,
            num_bytes,
        } = self
        else {
            return Ok(Progress::Open);
        };
        let progress = constrained.accept(token)?;
        *num_bytes += num_token_bytes;
        if progress == Progress::Complete {
            if complete_at.len() >= NUM_COMPLETE_MAX {
                complete_at.remove(0);
            }
            complete_at.push(*num_bytes);
        }
        Ok(progress)
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
