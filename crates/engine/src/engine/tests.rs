//! What no caller can bring about, because the handle refuses it first.

use std::time::Duration;

use model::runner::{Batch, Logits, RunnerError, RunnerShape};
use text::TokenId;

use super::*;
use crate::events::mailbox;
use crate::request::{ControlText, Event, Logprobs, Request, Sampling, Stop};
use crate::stats::{RequestFacts, StepFacts};
use crate::{EngineLimits, PrefixCache, scheduler_limits};

const VOCAB: usize = 2;
const NUM_BLOCKS: usize = 4;

/// Nothing gets as far as a step.
struct Idle(RunnerShape);

impl Runner for Idle {
    fn shape(&self) -> &RunnerShape {
        &self.0
    }

    fn forward(&mut self, _: &Batch) -> Result<Logits<'_>, RunnerError> {
        unreachable!("nothing to compute")
    }
}

struct TwoLetters;

impl Vocabulary for TwoLetters {
    fn token_bytes(&self, _: TokenId) -> Option<&[u8]> {
        Some(b"a")
    }

    fn control_text(&self, _: TokenId) -> Option<&str> {
        None
    }

    fn end_tokens(&self) -> &[TokenId] {
        &[]
    }

    fn vocab(&self) -> usize {
        VOCAB
    }
}

struct Deaf;

impl Observer for Deaf {
    fn step(&mut self, _: &StepFacts) {}
    fn first_token(&mut self, _: Duration) {}
    fn next_token(&mut self, _: Duration) {}
    fn finished(&mut self, _: &RequestFacts) {}
}

fn engine() -> Engine {
    let limits = EngineLimits {
        step_tokens_max: 64,
        prompt_rows_max: 64,
        num_sequences_max: 1,
        context_max: 64,
        num_waiting_max: 2,
        num_waiting_tokens_max: 100,
        prefix_cache: PrefixCache::On,
    };
    let shape = RunnerShape {
        vocab: VOCAB,
        hidden: 1,
        context_max: 64,
        num_blocks: NUM_BLOCKS,
        block_bytes: 1,
        fingerprint: String::new(),
    };
    let stats = Arc::new(Stats::default());
    Engine {
        inbox: Arc::new(Inbox::new(&limits, Arc::clone(&stats))),
        stats,
        scheduler: Scheduler::new(scheduler_limits(&limits, NUM_BLOCKS)),
        runner: Box::new(Idle(shape)),
        vocabulary: Arc::new(TwoLetters),
        vocab: VOCAB,
        num_sequences_max: limits.num_sequences_max,
        observer: Box::new(Deaf),
        seeds: Box::new(|| 0),
        answers: BTreeMap::new(),
        layout: Layout::default(),
        scratch: Scratch::default(),
        masks: crate::masks::Masks::start(),
        started: Instant::now(),
    }
}

fn without_a_prompt() -> Request {
    Request {
        prompt: Vec::new(),
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
            seed: Some(1),
        },
        stop: Stop {
            max_tokens: 1,
            min_tokens: 0,
            strings: Vec::new(),
            token_ids: Vec::new(),
            ignore_eos: false,
        },
        logprobs: Logprobs::default(),
        constraint: None,
        control_text: ControlText::Dropped,
        arrived: Instant::now(),
    }
}

#[test]
fn a_request_that_the_scheduler_refuses_does_not_stay_in_the_count_of_those_that_wait() {
    let mut engine = engine();
    let (sender, mut events) = mailbox(Arc::clone(&engine.inbox));
    let request = without_a_prompt();
    let submission = Submission {
        request,
        senders: vec![sender],
        pooling: None,
    };
    engine.inbox.submit(submission, Instant::now()).unwrap();
    let num_waiting = |engine: &Engine| engine.stats.num_waiting.load(Ordering::Relaxed);
    assert_eq!(num_waiting(&engine), 1);
    assert_eq!(engine.next_turn(), Turn::Rest);
    assert_eq!(num_waiting(&engine), 0);
    let Some(Event::Finished(finished)) = events.next_blocking() else {
        panic!("its reader is told");
    };
    assert!(matches!(finished.reason, FinishReason::Failed { .. }));
}
