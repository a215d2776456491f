//! What a witness of one answer hears.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use engine::{AdmitError, FinishReason, Usage, Witness};

use crate::lab::*;

/// Remembers everything, in order.
#[derive(Debug, Default)]
struct Memory(Mutex<Vec<(Heard, Option<Instant>)>>);

#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Started { num_cached: u32 },
    Stepped,
    Parked,
    Resumed,
    Token,
    Ended { reason: FinishReason, usage: Usage },
}

impl Memory {
    fn note(&self, heard: Heard, at: Option<Instant>) {
        self.0.lock().unwrap().push((heard, at));
    }

    fn count(&self, wanted: &Heard) -> usize {
        let heard = self.0.lock().unwrap();
        heard.iter().filter(|(heard, _)| heard == wanted).count()
    }
}

impl Witness for Memory {
    fn started(&self, num_cached: u32, at: Instant) {
        self.note(Heard::Started { num_cached }, Some(at));
    }
    fn stepped(&self) {
        self.note(Heard::Stepped, None);
    }
    fn parked(&self, at: Instant) {
        self.note(Heard::Parked, Some(at));
    }
    fn resumed(&self, at: Instant) {
        self.note(Heard::Resumed, Some(at));
    }
    fn token(&self, at: Instant) {
        self.note(Heard::Token, Some(at));
    }
    fn ended(&self, reason: &FinishReason, usage: Usage, at: Instant) {
        let reason = reason.clone();
        self.note(Heard::Ended { reason, usage }, Some(at));
    }
}

#[test]
fn it_hears_each_step_each_token_and_the_end_in_the_order_of_their_times() {
    let bench = Lab::new().start();
    let memory = Arc::new(Memory::default());
    let witness = |_| Arc::clone(&memory) as Arc<dyn Witness>;
    // 150 tokens of prompt are three steps of 64, the last of which chooses the first token.
    let asked = request(&prompt(150, 1), 4);
    let streams = bench
        .handle()
        .submit_group_watched(asked, NonZeroU32::MIN, witness);
    let told = streams.unwrap().into_iter().map(read).next().unwrap();
    let heard = memory.0.lock().unwrap().clone();
    let words: Vec<Heard> = heard.iter().map(|(heard, _)| heard.clone()).collect();
    let ended = Heard::Ended {
        reason: FinishReason::Length,
        usage: told.finished.usage,
    };
    let (step, token) = (Heard::Stepped, Heard::Token);
    let mut expected = vec![step.clone(), Heard::Started { num_cached: 0 }];
    expected.extend([step.clone(), step.clone(), token.clone()]);
    for _ in 0..3 {
        expected.extend([step.clone(), token.clone()]);
    }
    expected.push(ended);
    assert_eq!(words, expected);
    let times: Vec<Instant> = heard.iter().filter_map(|(_, at)| *at).collect();
    assert!(times.is_sorted(), "{heard:?}");
}

/// Case C8.
#[test]
fn it_hears_of_every_preemption_and_its_end() {
    let tight = Lab {
        num_blocks: 44,
        ..Lab::new()
    }
    .start();
    let memories: Vec<Arc<Memory>> = (0..6).map(|_| Arc::default()).collect();
    let submit = |(idx, memory): (u64, &Arc<Memory>)| {
        let witness = |_| Arc::clone(memory) as Arc<dyn Witness>;
        let asked = request(&prompt(20, idx), 300);
        let streams = tight
            .handle()
            .submit_group_watched(asked, NonZeroU32::MIN, witness);
        streams.unwrap().pop().unwrap()
    };
    let streams: Vec<_> = (0..).zip(&memories).map(submit).collect();
    let mut num_parked = 0;
    for (stream, memory) in streams.into_iter().zip(&memories) {
        let told = read(stream);
        let preempted = told.finished.times.num_preemptions as usize;
        assert_eq!(memory.count(&Heard::Parked), preempted);
        assert_eq!(
            memory.count(&Heard::Resumed),
            preempted,
            "all ended running"
        );
        assert_eq!(memory.count(&Heard::Token), 300);
        num_parked += preempted;
    }
    assert!(num_parked > 0, "void without a preemption");
}

#[test]
fn it_hears_nothing_of_an_answer_that_was_not_taken() {
    let bench = Lab::new().start();
    let memory = Arc::new(Memory::default());
    let witness = |_| Arc::clone(&memory) as Arc<dyn Witness>;
    let asked = request(&prompt(20, 1), 100_000);
    let refused = bench
        .handle()
        .submit_group_watched(asked, NonZeroU32::MIN, witness);
    assert!(matches!(refused, Err(AdmitError::TooLong { .. })));
    assert_eq!(memory.0.lock().unwrap().len(), 0);
    assert_eq!(Arc::strong_count(&memory), 1, "and it is let go");
}
