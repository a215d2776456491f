//! The engine on a test stand: as `serve` runs it, asked by nobody but us.
//!
//! The one idea: scheduler, sampling and text are part of what a token costs, so they are measured along; only HTTP is
//! not. The engine's observer tells when each step ended, on the engine's own thread, and nobody reads the answers
//! meanwhile, so watching takes no processor away.
//!
//! ```text
//! decode of N   prompts of 128, together ── all N answer ├── 128 steps, timed ──┤ cancelled
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use engine::{
    ControlText, EngineHandle, EngineLimits, Event, EventStream, FinishReason, Logprobs, Observer,
    PrefixCache, Request, RequestFacts, Sampling, StepFacts, Stop, TokenId,
};
use model::Work;
use model::runner::Runner as _;

use super::super::args::RawArgs;
use super::{DECODE_LEVELS, PREFILL_TOKENS};
use crate::open::{self, KvPositions, Wanted};
use crate::weights;

/// Prompt of each answer that is decoded.
pub(super) const PROMPT_TOKENS: usize = 128;
/// Steps that are timed.
pub(super) const DECODE_STEPS: usize = 128;
/// Tokens of a step, as `serve` has it.
const STEP_TOKENS_MAX: usize = 512;
/// Prompts of which the median counts.
const NUM_PREFILLS: usize = 3;
const NUM_ANSWERS_MAX: usize = DECODE_LEVELS[DECODE_LEVELS.len() - 1];

/// A loaded model and its engine.
pub(super) struct Stand {
    engine: EngineHandle,
    thread: JoinHandle<()>,
    watch: Arc<Watch>,
    /// Ids below this may stand in prompts.
    vocab: usize,
    work: Work,
    weights: String,
    kv_type: &'static str,
}

impl Stand {
    pub(super) fn open(args: &RawArgs) -> anyhow::Result<Stand> {
        let source = open::source(&Wanted::parse(&args.model)?.path()?)?;
        let text = open::text_side(&source)?;
        let weights = weights::choose(&source, &args.compute)?;
        let positions = KvPositions::Each {
            // One more than needed: the scheduler admits only with room to spare.
            num_sequences: NUM_ANSWERS_MAX + 1,
            num_positions: PREFILL_TOKENS.max(PROMPT_TOKENS + answer_tokens(NUM_ANSWERS_MAX)),
        };
        let runner = open::runner(&source, &args.compute, weights.precision, positions, None)?;
        drop(source);
        let limits = EngineLimits {
            step_tokens_max: STEP_TOKENS_MAX,
            prompt_rows_max: 64,
            num_sequences_max: NUM_ANSWERS_MAX,
            context_max: open::context_max(&runner, None)?,
            num_waiting_max: NUM_ANSWERS_MAX,
            num_waiting_tokens_max: PREFILL_TOKENS.max(NUM_ANSWERS_MAX * PROMPT_TOKENS),
            prefix_cache: PrefixCache::Off,
        };
        let watch = Arc::new(Watch::default());
        let (work, kv_type) = (runner.work(), runner.kv_type().name());
        let vocab = runner.shape().vocab.min(text.tokenizer.vocab());
        let observer = Box::new(Reporter(Arc::clone(&watch)));
        let (engine, thread) = engine::start(Box::new(runner), text.tokenizer, limits, observer);
        Ok(Stand {
            engine,
            thread,
            watch,
            vocab,
            work,
            weights: weights.line(),
            kv_type,
        })
    }

    pub(super) fn close(self) {
        self.engine.drain(Duration::ZERO);
        // All figures are taken; a panic was reported already.
        let _ = self.thread.join();
    }

    /// What its steps ask of the machine.
    pub(super) fn work(&self) -> &Work {
        &self.work
    }

    /// How they are held, and why.
    pub(super) fn weights(&self) -> &str {
        &self.weights
    }

    /// How keys and values are held.
    pub(super) fn kv_type(&self) -> &'static str {
        self.kv_type
    }

    /// Touches all memory that will be used, so that no figure pays for it.
    pub(super) fn warm_up(&self) -> anyhow::Result<()> {
        self.prefill()?;
        self.decode_steps(NUM_ANSWERS_MAX, 1).map(drop)
    }

    /// Tokens a second of a prompt of [`PREFILL_TOKENS`], up to its first answer token.
    pub(super) fn prefill(&self) -> anyhow::Result<f64> {
        let mut speeds = Vec::new();
        for prompt_idx in 0..NUM_PREFILLS {
            let request = self.request(prompt_idx, PREFILL_TOKENS, 1);
            let start = Instant::now();
            let mut events = self
                .engine
                .submit(request)
                .context("cannot measure the prefill")?;
            await_end(&mut events)?;
            speeds.push(PREFILL_TOKENS as f64 / start.elapsed().as_secs_f64());
        }
        Ok(super::median(speeds.into_iter()))
    }

    /// Tokens a second of `num_answers` answers together, over [`DECODE_STEPS`] steps in which all got a token and no
    /// prompt was computed.
    pub(super) fn decode(&self, num_answers: usize) -> anyhow::Result<f64> {
        let elapsed = self.decode_steps(num_answers, DECODE_STEPS)?;
        Ok((num_answers * DECODE_STEPS) as f64 / elapsed.as_secs_f64())
    }

    fn decode_steps(&self, num_answers: usize, num_steps: usize) -> anyhow::Result<Duration> {
        self.watch.expect(num_answers, num_steps);
        let submit = |prompt_idx| {
            let request = self.request(prompt_idx, PROMPT_TOKENS, answer_tokens(num_answers));
            self.engine.submit(request)
        };
        let events: Result<Vec<EventStream>, _> = (0..num_answers).map(submit).collect();
        let events = events.context("cannot measure the decoding")?;
        let elapsed = self.watch.wait_for_steps();
        // Dropping the events ends the work, within two steps.
        drop(events);
        self.watch.wait_for_ends(num_answers);
        elapsed
    }

    /// A prompt that begins like no other, answered greedily to its limit.
    fn request(&self, prompt_idx: usize, num_prompt: usize, max_tokens: usize) -> Request {
        // Ids all over the vocabulary, so that the embedding is read as a text would.
        let token =
            |position: usize| ((prompt_idx * 7919 + position * 104_729 + 1) % self.vocab) as u32;
        Request {
            prompt: (0..num_prompt)
                .map(|position| TokenId(token(position)))
                .collect(),
            sampling: Sampling {
                temperature: 0.0,
                top_k: None,
                top_p: 1.0,
                min_p: 0.0,
                repetition_penalty: 1.0,
                presence_penalty: 0.0,
                frequency_penalty: 0.0,
                logit_bias: Vec::new(),
                allowed: None,
                bad_words: Vec::new(),
                seed: Some(0),
            },
            stop: Stop {
                max_tokens: max_tokens as u32,
                min_tokens: 0,
                strings: Vec::new(),
                token_ids: Vec::new(),
                ignore_eos: true,
            },
            logprobs: Logprobs::default(),
            constraint: None,
            control_text: ControlText::Dropped,
            arrived: Instant::now(),
        }
    }
}

/// Answer tokens that leave [`DECODE_STEPS`] steps with all of them: the first begins while the prompts of the others are
/// still computed, in twice as many steps as the budget needs at most.
const fn answer_tokens(num_answers: usize) -> usize {
    let num_prompt_steps = (num_answers * PROMPT_TOKENS).div_ceil(STEP_TOKENS_MAX - num_answers);
    DECODE_STEPS + 2 * num_prompt_steps + 4
}

/// Reads to the end, which must be the limit of its tokens.
fn await_end(events: &mut EventStream) -> anyhow::Result<()> {
    while let Some(event) = events.next_blocking() {
        if let Event::Finished(finished) = event {
            return match finished.reason {
                FinishReason::Length => Ok(()),
                FinishReason::Failed { message } => bail!("the engine failed: {message}"),
                reason => bail!("the answer ended early: {reason:?}"),
            };
        }
    }
    bail!("the engine ended without an answer")
}

/// Where the engine's thread leaves times for ours.
#[derive(Debug, Default)]
struct Watch {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    num_answers: usize,
    num_steps: usize,
    /// When steps ended in which just those answers got a token each; one more than `num_steps` at the end, because
    /// a step lasts from the end of the one before.
    ends: Vec<Instant>,
    num_finished: usize,
    failure: Option<String>,
}

impl Seen {
    fn elapsed(&self) -> Option<Duration> {
        let last = self.ends.get(self.num_steps)?;
        Some(*last - self.ends[0])
    }
}

impl Watch {
    /// No code that could panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, num_answers: usize, num_steps: usize) {
        *self.lock() = Seen {
            num_answers,
            num_steps,
            ends: Vec::with_capacity(num_steps + 1),
            ..Seen::default()
        };
    }

    /// How long the steps took.
    fn wait_for_steps(&self) -> anyhow::Result<Duration> {
        let unsettled = |seen: &mut Seen| seen.elapsed().is_none() && seen.num_finished == 0;
        let seen = self
            .changed
            .wait_while(self.lock(), unsettled)
            .unwrap_or_else(PoisonError::into_inner);
        match (seen.elapsed(), &seen.failure) {
            (Some(elapsed), _) => Ok(elapsed),
            (None, Some(message)) => bail!("the engine failed: {message}"),
            (None, None) => bail!(
                "only {} of {} steps had all {} answers",
                seen.ends.len().saturating_sub(1),
                seen.num_steps,
                seen.num_answers
            ),
        }
    }

    fn wait_for_ends(&self, num_answers: usize) {
        let running = |seen: &mut Seen| seen.num_finished < num_answers;
        drop(
            self.changed
                .wait_while(self.lock(), running)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// The engine's end of a [`Watch`].
struct Reporter(Arc<Watch>);

impl Observer for Reporter {
    fn step(&mut self, step: &StepFacts) {
        let now = Instant::now();
        let mut seen = self.0.lock();
        if seen.elapsed().is_some() {
            return;
        }
        if step.num_prefill_tokens == 0 && step.num_decode_tokens as usize == seen.num_answers {
            seen.ends.push(now);
        } else {
            // A row of steps without a gap counts.
            seen.ends.clear();
        }
        if seen.elapsed().is_some() {
            self.0.changed.notify_all();
        }
    }

    fn first_token(&mut self, _since_arrival: Duration) {}

    fn next_token(&mut self, _gap: Duration) {}

    fn finished(&mut self, request: &RequestFacts) {
        let mut seen = self.0.lock();
        seen.num_finished += 1;
        if let FinishReason::Failed { message } = &request.reason {
            seen.failure.get_or_insert_with(|| message.clone());
        }
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(num_prefill_tokens: u32, num_decode_tokens: u32) -> StepFacts {
        StepFacts {
            num_prefill_tokens,
            num_decode_tokens,
            ..StepFacts::default()
        }
    }

    #[test]
    fn only_an_unbroken_row_of_steps_with_all_answers_and_no_prompt_counts() {
        let watch = Arc::new(Watch::default());
        let mut reporter = Reporter(Arc::clone(&watch));
        watch.expect(8, 2);
        for (num_prefill_tokens, num_decode_tokens) in
            [(0, 8), (0, 8), (16, 8), (0, 8), (0, 7), (0, 8), (0, 8)]
        {
            reporter.step(&step(num_prefill_tokens, num_decode_tokens));
            assert_eq!(watch.lock().elapsed(), None);
        }
        reporter.step(&step(0, 8));
        assert!(watch.wait_for_steps().is_ok());
        // What comes later changes nothing.
        let elapsed = watch.lock().elapsed();
        reporter.step(&step(16, 0));
        assert_eq!(watch.lock().elapsed(), elapsed);
    }

    #[test]
    fn answers_that_end_before_the_steps_are_done_are_an_error_that_says_why() {
        let watch = Arc::new(Watch::default());
        let mut reporter = Reporter(Arc::clone(&watch));
        let facts = |reason| RequestFacts {
            reason,
            usage: engine::Usage::default(),
            times: engine::Times::default(),
            e2e: Duration::ZERO,
            max_tokens: 1,
        };
        watch.expect(1, 3);
        reporter.step(&step(0, 1));
        reporter.finished(&facts(FinishReason::Length));
        let error = watch.wait_for_steps().unwrap_err().to_string();
        assert!(error.contains("0 of 3 steps"), "{error}");

        watch.expect(1, 3);
        let message = "it burnt".to_owned();
        reporter.finished(&facts(FinishReason::Failed { message }));
        let error = watch.wait_for_steps().unwrap_err().to_string();
        assert!(error.contains("it burnt"), "{error}");
    }

    #[test]
    fn a_sequence_of_the_largest_level_is_no_longer_than_a_prompt_of_the_prefill() {
        // So the smallest context that can be measured is what the prefill needs.
        const { assert!(PROMPT_TOKENS + answer_tokens(NUM_ANSWERS_MAX) <= PREFILL_TOKENS) };
    }
}
