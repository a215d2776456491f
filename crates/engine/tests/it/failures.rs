//! A runner that fails, logits that are no numbers, an engine that dies: everybody is told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{AdmitError, FinishReason, Observer, RequestFacts, StepFacts};

use crate::lab::*;

fn has_failed(told: &Told) -> bool {
    matches!(told.finished.reason, FinishReason::Failed { .. })
}

#[test]
fn a_failing_step_ends_its_own_requests_and_no_others() {
    for accident in [Accident::Error, Accident::Panic] {
        let mut lab = Lab {
            gated: true,
            accident: Some((4, accident)),
            ..Lab::new()
        };
        lab.limits.num_sequences_max = 2;
        let bench = lab.start();
        let planned = [1, 2].map(|seed| bench.submit(request(&prompt(40, seed), 30)));
        let queued = bench.submit(request(&prompt(40, 3), 30));
        bench.gate.open();
        let mut num_told = 0;
        for stream in planned {
            let told = read(stream);
            assert!(has_failed(&told), "{:?}", told.finished.reason);
            assert!(told.tokens.len() <= 3);
            num_told += told.tokens.len();
        }
        assert_eq!(
            read(queued).tokens,
            Script::hashed().greedy(&prompt(40, 3), 30)
        );
        let num_counted: u32 = bench.log.read(|happened| {
            happened
                .steps
                .iter()
                .map(|step| step.num_decode_tokens)
                .sum()
        });
        assert_eq!(
            num_counted as usize,
            num_told + 30,
            "what the failed step did not choose is not counted"
        );
        // What the failed step might have left in the cache is not found again.
        let again = bench.ask(request(&prompt(40, 1), 30));
        assert_eq!(again.tokens, Script::hashed().greedy(&prompt(40, 1), 30));
        assert_eq!(bench.gauges(), [0, 0, 0, 0]);
    }
}

#[test]
fn logits_that_are_no_numbers_fail_their_request_and_not_its_neighbours() {
    let hashed = Script::hashed();
    // Token 57 in the prompt poisons a sequence from its fifth token on.
    let poisoned = Script::new(move |history, row| {
        let bad = history.contains(&57) && history.len() > 44;
        hashed.fill(history, row);
        if bad {
            row.fill(f32::NAN);
        }
    });
    let bench = Lab {
        script: poisoned.clone(),
        ..Lab::new()
    }
    .start();
    let mut poison = prompt(40, 1);
    poison[0] = 57;
    let told = bench.ask_all(vec![
        request(&prompt(40, 2), 30),
        request(&poison, 30),
        seeded(&poison, 30, 1),
        request(&prompt(40, 3), 30),
    ]);
    assert!(has_failed(&told[1]) && has_failed(&told[2]));
    assert_eq!(told[1].tokens.len(), 5);
    assert_eq!(told[0].tokens, Script::hashed().greedy(&prompt(40, 2), 30));
    assert_eq!(told[3].tokens, Script::hashed().greedy(&prompt(40, 3), 30));
    assert_eq!(bench.gauges(), [0, 0, 0, 0]);
}

#[test]
fn a_first_step_after_a_rest_does_not_look_like_a_standstill() {
    const REST: Duration = Duration::from_millis(20);
    let bench = Lab {
        gated: true,
        ..Lab::new()
    }
    .start();
    let heartbeat = || bench.stats.last_step_ms.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let only_step = bench.submit(request(&prompt(5, 1), 1));
        let inside_second = scope.spawn(|| bench.gate.run_to_step(2));
        assert_eq!(read(only_step).tokens.len(), 1);
        let before = heartbeat();
        std::thread::sleep(REST);
        let _running = bench.submit(request(&prompt(5, 2), 1));
        inside_second.join().expect("no panic");
        assert!(u128::from(heartbeat() - before) >= REST.as_millis());
        bench.gate.open();
    });
}

/// Panics when told of a step, and if asked to at each end as well.
struct Dropping {
    at_ends_too: bool,
}

impl Observer for Dropping {
    fn step(&mut self, _: &StepFacts) {
        panic!("as the test asked");
    }
    fn first_token(&mut self, _: Duration) {}
    fn next_token(&mut self, _: Duration) {}
    fn finished(&mut self, _: &RequestFacts) {
        assert!(!self.at_ends_too, "as the test asked");
    }
}

#[test]
fn when_the_engine_thread_dies_every_caller_is_told_and_new_ones_are_refused() {
    for at_ends_too in [false, true] {
        let mut lab = Lab {
            gated: true,
            observer: Some(Box::new(Dropping { at_ends_too })),
            ..Lab::new()
        };
        lab.limits.num_sequences_max = 1;
        let mut bench = lab.start();
        let streams = [1, 2, 3].map(|seed| bench.submit(request(&prompt(40, seed), 30)));
        bench.gate.run_to_step(1);
        let late = bench.submit(request(&prompt(40, 4), 30));
        bench.gate.open();
        for stream in streams.into_iter().chain([late]) {
            assert!(has_failed(&read(stream)));
        }
        assert_eq!(
            bench.try_submit(request(&prompt(5, 5), 3)).err(),
            Some(AdmitError::ShuttingDown)
        );
        let ended = bench.thread.take().expect("running").join();
        assert_eq!(ended.is_err(), at_ends_too);
    }
}
