//! The engine thread: take what is new, then step, until told to end.
//!
//! The one idea: between two steps the engine is in one piece, so everything from outside
//! (submissions, departures, a drain) is handled there and nowhere else. With nothing to do
//! it sleeps in the inbox; it never spins.
//!
//! ```text
//! take news ─┬─ has answers ──> step, yield ──┐
//!            ├─ has none ─────> sleep ────────┤──> take news
//!            └─ drained ──────> end
//! ```

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::runner::Runner;
use sched::{Group, Scheduler, SeqId};

use crate::Vocabulary;
use crate::answer::Answer;
use crate::batch::Layout;
use crate::choose::Scratch;
use crate::inbox::{Inbox, News, Phase, Submission, Waiting, WhenEmpty};
use crate::masks::Masks;
use crate::request::{FinishReason, Request};
use crate::stats::{Observer, Stats};

/// All that the engine thread owns.
pub(crate) struct Engine {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) scheduler: Scheduler,
    pub(crate) runner: Box<dyn Runner>,
    pub(crate) vocabulary: Arc<dyn Vocabulary>,
    /// Ids below this may be chosen: those that both the model and the tokenizer have.
    pub(crate) vocab: usize,
    pub(crate) num_sequences_max: usize,
    pub(crate) observer: Box<dyn Observer>,
    /// Seeds for requests that bring none.
    pub(crate) seeds: Box<dyn FnMut() -> u64 + Send>,
    /// The answers in the making, oldest first. One for each sequence of the scheduler.
    pub(crate) answers: BTreeMap<SeqId, Answer>,
    pub(crate) layout: Layout,
    pub(crate) scratch: Scratch,
    pub(crate) masks: Masks,
    pub(crate) started: Instant,
}

/// What the engine does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Step,
    Rest,
    End,
}

impl Engine {
    /// Runs until drained, or until a panic outside a forward pass, of which everyone is told.
    pub(crate) fn run(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_until_drained()));
        let reason = match outcome {
            Ok(()) => FinishReason::Aborted,
            Err(panic) => {
                let message = panic_message(&*panic);
                tracing::error!(message, "the engine thread panicked; all requests fail");
                FinishReason::Failed { message }
            }
        };
        self.end_all(&reason);
    }

    fn run_until_drained(&mut self) {
        loop {
            match self.next_turn() {
                Turn::Step => {
                    self.step();
                    // With few cores the HTTP threads have waited for a slice since the step began.
                    std::thread::yield_now();
                }
                Turn::Rest => (),
                Turn::End => return,
            }
        }
    }

    /// Takes what is new, sleeping for it if there is no answer to go on with.
    fn next_turn(&mut self) -> Turn {
        let is_idle = self.answers.is_empty();
        let News {
            submissions,
            is_someone_gone,
            phase,
        } = self.inbox.take(if is_idle {
            WhenEmpty::Wait
        } else {
            WhenEmpty::Return
        });
        if is_idle {
            // Its silence until now was rest: a first step that takes long must not look like a
            // standstill since the last one.
            self.beat(Instant::now());
        }
        let welcome = |submission| self.welcome(submission);
        let turned_away: Vec<_> = submissions.into_iter().flat_map(welcome).collect();
        if !turned_away.is_empty() && self.answers.is_empty() {
            // They still count as queued, and no step will follow that would correct it.
            self.show_counts(0);
        }
        for (answer, reason) in turned_away {
            self.report_end(answer, reason);
        }
        if is_someone_gone {
            self.cancel_abandoned();
        }
        let is_idle = self.answers.is_empty();
        match phase {
            Phase::Draining {
                deadline: Some(deadline),
            } if Instant::now() >= deadline => Turn::End,
            Phase::Draining { .. } if is_idle => Turn::End,
            Phase::Closed => Turn::End,
            Phase::Open | Phase::Draining { .. } if is_idle => Turn::Rest,
            Phase::Open | Phase::Draining { .. } => Turn::Step,
        }
    }

    /// Hands a request to the scheduler. Returns its answers if it would not have them.
    fn welcome(&mut self, submission: Submission) -> Vec<(Answer, FinishReason)> {
        let prompt = submission.request.prompt.iter();
        let prompt = prompt.map(|token| token.0).collect();
        let max_tokens = submission.request.stop.max_tokens as usize;
        let answers = self.answers_to(submission);
        let num_answers = u32::try_from(answers.len()).ok().and_then(NonZeroU32::new);
        let group = Group {
            prompt,
            max_tokens,
            num_answers: num_answers.expect("submit_group made at least one, and counted in u32"),
            prompt_rows: answers[0].prompt_rows(),
        };
        let now = self.since_start(Instant::now());
        match self.scheduler.add_group(group, now) {
            Ok(seqs) => {
                self.answers.extend(seqs.into_iter().zip(answers));
                Vec::new()
            }
            // The handle's checks are at least as strict, so this is our fault and not the caller's.
            Err(refusal) => {
                tracing::error!(%refusal, "the scheduler refused an admitted request");
                let message = refusal.to_string();
                let reason = FinishReason::Failed { message };
                answers.into_iter().zip(std::iter::repeat(reason)).collect()
            }
        }
    }

    /// The answers to a submission, each with a seed of its own.
    fn answers_to(&mut self, submission: Submission) -> Vec<Answer> {
        let Submission {
            request,
            senders,
            pooling,
        } = submission;
        let seed = request.sampling.seed.unwrap_or_else(&mut self.seeds);
        let requests = repeat_n(request, senders.len());
        let each = requests.zip(senders).zip(0..);
        each.map(|((request, sender), answer_idx)| {
            let request = for_answer(request, seed, answer_idx);
            let answer = Answer::new(request, sender, &*self.vocabulary, self.vocab);
            answer.with_pooling(pooling)
        })
        .collect()
    }

    /// Ends the answers that nobody reads any more, queued, prefilling or decoding.
    fn cancel_abandoned(&mut self) {
        let abandoned: Vec<SeqId> = self
            .answers
            .iter()
            .filter(|(_, answer)| answer.is_abandoned())
            .map(|(&seq, _)| seq)
            .collect();
        for &seq in &abandoned {
            self.scheduler.cancel(seq);
        }
        self.show_counts(0);
        for seq in abandoned {
            self.end(seq, FinishReason::Cancelled);
        }
    }

    /// Ends an answer whose sequence the scheduler has already let go.
    pub(crate) fn end(&mut self, seq: SeqId, reason: FinishReason) {
        let answer = self
            .answers
            .remove(&seq)
            .expect("each sequence has its answer");
        self.report_end(answer, reason);
    }

    fn report_end(&mut self, answer: Answer, reason: FinishReason) {
        answer.finish(reason, Instant::now(), &mut *self.observer);
    }

    /// The last act of the thread: nobody is left waiting.
    fn end_all(&mut self, reason: &FinishReason) {
        for submission in self.inbox.close() {
            for answer in self.answers_to(submission) {
                self.report_end(answer, reason.clone());
            }
        }
        if *reason == FinishReason::Aborted {
            self.answers
                .keys()
                .for_each(|&seq| self.scheduler.cancel(seq));
            self.show_counts(0);
        } else {
            // The scheduler may be in pieces; it is not asked again.
            self.stats.num_running.store(0, Ordering::Relaxed);
        }
        while let Some((&seq, _)) = self.answers.first_key_value() {
            self.end(seq, reason.clone());
        }
    }

    /// Writes the gauges, and tells the inbox how long the queue is. `num_started` requests left it.
    pub(crate) fn show_counts(&self, num_started: usize) {
        let counts = self.scheduler.counts();
        let set = |gauge: &AtomicU64, value: usize| gauge.store(value as u64, Ordering::Relaxed);
        set(&self.stats.num_running, counts.num_running);
        set(&self.stats.blocks_held, counts.blocks_held);
        set(&self.stats.blocks_cached, counts.blocks_cached);
        set(&self.stats.blocks_total, counts.blocks_total);
        let num_accounted = counts.blocks_free + counts.blocks_held + counts.blocks_cached;
        set(
            &self.stats.blocks_leaked,
            counts.blocks_total.abs_diff(num_accounted),
        );

        let queued = Waiting {
            num_requests: counts.num_waiting,
            num_tokens: counts.num_waiting_tokens,
        };
        // If some could not start in the last step, the next will not start more on its own account.
        let num_places = match queued.num_requests {
            0 => self.num_sequences_max.saturating_sub(counts.num_running),
            _ => 0,
        };
        self.inbox.settle(queued, num_places, num_started);
    }

    /// Shows that the engine is alive.
    pub(crate) fn beat(&self, at: Instant) {
        let ms = self.since_start(at).as_millis() as u64;
        self.stats.last_step_ms.store(ms, Ordering::Relaxed);
    }

    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.started)
    }
}

impl Drop for Engine {
    /// If ending everyone panics too: what still lies in the inbox is dropped, and so told.
    fn drop(&mut self) {
        drop(self.inbox.close());
    }
}

/// What answer `answer_idx` to `request` is made of. Answer 0 draws from `seed` itself, the others from
/// what SplitMix64 (Steele et al. 2014) makes of it; the prompt is told of once.
fn for_answer(mut request: Request, seed: u64, answer_idx: u32) -> Request {
    request.sampling.seed = Some(seed);
    if answer_idx > 0 {
        let mixed = seed.wrapping_add(u64::from(answer_idx).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        request.sampling.seed = Some(mixed ^ (mixed >> 31));
        request.logprobs.prompt = None;
    }
    request
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panic without a message").to_owned()
}

#[cfg(test)]
mod tests;
