//! The caller's side of the engine: hand a request over, get its events.
//!
//! Checks what needs no engine thread (does the request fit this model at all?) and leaves
//! the queue's bounds to `inbox.rs`. Nothing here knows an async runtime.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::choose::leave_nothing;
use crate::events::{EventStream, watched_mailbox};
use crate::inbox::{Inbox, Submission};
use crate::request::{AdmitError, EmbedRequest, Pooling, Request, Witness};
use crate::stats::Stats;

/// Hands requests to the engine thread. Cheap to clone. When the last clone is dropped, the
/// engine finishes what it has and its thread ends.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    door: Arc<Door>,
    stats: Arc<Stats>,
}

/// What all clones of a handle share. Its drop is the departure of the last of them.
#[derive(Debug)]
struct Door {
    inbox: Arc<Inbox>,
    fit: Fit,
}

/// What fits the model behind the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Prompt plus answer, in tokens: what the model, the limits and the whole KV pool allow.
    pub(crate) num_tokens_max: usize,
    /// Token ids are below this.
    pub(crate) vocab: usize,
    /// Ids below this may be chosen: those that the tokenizer has too.
    pub(crate) num_choosable: usize,
    /// Answers of one request that could ever be taken together.
    pub(crate) num_answers_max: usize,
}

impl EngineHandle {
    pub(crate) fn new(inbox: Arc<Inbox>, fit: Fit, stats: Arc<Stats>) -> EngineHandle {
        EngineHandle {
            door: Arc::new(Door { inbox, fit }),
            stats,
        }
    }

    /// Queues a request; never blocks.
    ///
    /// # Errors
    ///
    /// What [`AdmitError`] lists; the request was then not taken.
    pub fn submit(&self, request: Request) -> Result<EventStream, AdmitError> {
        let mut streams = self.submit_group(request, NonZeroU32::MIN)?;
        Ok(streams.pop().expect("one answer, one stream"))
    }

    /// Queues `num_answers` answers to one request, all or none; never blocks. One stream each.
    ///
    /// The prompt is computed once, and the answers share its keys and values, whether or not there is a
    /// prefix cache (but for the tokens behind its last full block, and for answers that find no place
    /// beside the others). Each counts in the queue; the tokens of the prompt count once.
    ///
    /// Answer 0 is what [`EngineHandle::submit`] would give. Answer `i` has the request's seed mixed with
    /// `i` as its seed; so greedy answers are all the same. Only answer 0 tells
    /// [`crate::Event::Prompt`]. A dropped stream cancels its answer and no other.
    ///
    /// # Errors
    ///
    /// What [`AdmitError`] lists; nothing was then taken.
    pub fn submit_group(
        &self,
        request: Request,
        num_answers: NonZeroU32,
    ) -> Result<Vec<EventStream>, AdmitError> {
        self.hand_over(request, num_answers, None, |_| None)
    }

    /// As [`EngineHandle::submit_group`]; `witness` makes a witness for each answer, by its place.
    ///
    /// # Errors
    ///
    /// What [`AdmitError`] lists; nothing was then taken, and the witnesses hear nothing.
    pub fn submit_group_watched(
        &self,
        request: Request,
        num_answers: NonZeroU32,
        mut witness: impl FnMut(u32) -> Arc<dyn Witness>,
    ) -> Result<Vec<EventStream>, AdmitError> {
        self.hand_over(request, num_answers, None, |idx| Some(witness(idx)))
    }

    /// Queues a prompt to be embedded; never blocks. Its stream tells `Started`, one
    /// [`crate::Event::Embedding`] and `Finished` with [`crate::FinishReason::Length`].
    ///
    /// # Errors
    ///
    /// What [`AdmitError`] lists; the request was then not taken.
    pub fn embed(&self, request: EmbedRequest) -> Result<EventStream, AdmitError> {
        self.hand_over_embed(request, None)
    }

    /// As [`EngineHandle::embed`], with a witness.
    ///
    /// # Errors
    ///
    /// What [`AdmitError`] lists; nothing was then taken, and the witness hears nothing.
    pub fn embed_watched(
        &self,
        request: EmbedRequest,
        witness: Arc<dyn Witness>,
    ) -> Result<EventStream, AdmitError> {
        self.hand_over_embed(request, Some(witness))
    }

    fn hand_over_embed(
        &self,
        request: EmbedRequest,
        mut witness: Option<Arc<dyn Witness>>,
    ) -> Result<EventStream, AdmitError> {
        let pooling = request.pooling;
        let request = request.into_request();
        let mut streams =
            self.hand_over(request, NonZeroU32::MIN, Some(pooling), |_| witness.take())?;
        Ok(streams.pop().expect("one prompt, one stream"))
    }

    fn hand_over(
        &self,
        request: Request,
        num_answers: NonZeroU32,
        pooling: Option<Pooling>,
        mut witness: impl FnMut(u32) -> Option<Arc<dyn Witness>>,
    ) -> Result<Vec<EventStream>, AdmitError> {
        self.door.fit.check(&request, num_answers)?;
        let (senders, streams) = (0..num_answers.get())
            .map(|idx| watched_mailbox(Arc::clone(&self.door.inbox), witness(idx)))
            .unzip();
        let submission = Submission {
            request,
            senders,
            pooling,
        };
        self.door.inbox.submit(submission, Instant::now())?;
        Ok(streams)
    }

    /// Whether the shortest request there is would be taken now: for refusing early, before a
    /// prompt is read and encoded. Takes no place, so [`EngineHandle::submit`] may still refuse.
    ///
    /// # Errors
    ///
    /// [`AdmitError::QueueFull`], [`AdmitError::QueueTokensFull`], [`AdmitError::ShuttingDown`].
    pub fn expect_room(&self) -> Result<(), AdmitError> {
        self.door.inbox.expect_room(Instant::now())
    }

    /// Gauges and counters, readable at any time without waiting for the engine.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Stops taking requests, lets those it has (queued ones too) finish for at most `limit`, ends
    /// the rest with [`crate::FinishReason::Aborted`], and stops the engine thread. Returns at
    /// once. A second call can shorten the limit, to zero for "after this step".
    pub fn drain(&self, limit: Duration) {
        // A limit beyond the clock's end is none.
        self.door.inbox.drain(Instant::now().checked_add(limit));
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.inbox.drain(None);
    }
}

impl Fit {
    fn check(&self, request: &Request, num_answers: NonZeroU32) -> Result<(), AdmitError> {
        let num_prompt = request.prompt.len();
        let num_tokens = num_prompt.saturating_add(request.stop.max_tokens as usize);
        if num_prompt == 0 {
            return Err(AdmitError::EmptyPrompt);
        }
        if num_answers.get() as usize > self.num_answers_max {
            return Err(AdmitError::TooManyAnswers {
                num_answers: num_answers.get(),
                num_answers_max: saturating_u32(self.num_answers_max),
            });
        }
        if let Some(&token) = request
            .prompt
            .iter()
            .find(|token| token.0 as usize >= self.vocab)
        {
            return Err(AdmitError::UnknownToken {
                token,
                vocab: self.vocab as u32,
            });
        }
        if leave_nothing(&request.sampling, self.num_choosable) {
            return Err(AdmitError::NothingAllowed);
        }
        if num_tokens > self.num_tokens_max {
            return Err(AdmitError::TooLong {
                num_tokens: saturating_u32(num_tokens),
                num_prompt: saturating_u32(num_prompt),
                max_tokens: request.stop.max_tokens,
                num_tokens_max: saturating_u32(self.num_tokens_max),
            });
        }
        Ok(())
    }
}

fn saturating_u32(num: usize) -> u32 {
    u32::try_from(num).unwrap_or(u32::MAX)
}
