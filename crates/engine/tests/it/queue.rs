//! Admission: bounded by requests and by tokens, however many threads submit at once.

use std::time::Duration;

use engine::{AdmitError, Fault, TokenId};

use crate::lab::*;

/// One request runs, inside its first step; the queue behind it is empty.
fn busy(num_waiting_max: usize, num_waiting_tokens_max: usize) -> (Bench, engine::EventStream) {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.num_sequences_max = 1;
    lab.limits.num_waiting_max = num_waiting_max;
    lab.limits.num_waiting_tokens_max = num_waiting_tokens_max;
    let bench = lab.start();
    let running = bench.submit(request(&prompt(5, 1), 3));
    bench.gate.run_to_step(1);
    (bench, running)
}

/// Case F6.
#[test]
fn the_queue_is_bounded_by_requests_and_serves_those_it_took() {
    let (bench, running) = busy(2, 1000);
    let waiting = [2, 3].map(|seed| bench.submit(request(&prompt(5, seed), 3)));
    let refusal = bench
        .try_submit(request(&prompt(5, 4), 3))
        .expect_err("two wait");
    let AdmitError::QueueFull {
        num_waiting,
        num_waiting_max,
        retry_after,
    } = refusal
    else {
        panic!("{refusal}")
    };
    assert_eq!((num_waiting, num_waiting_max), (2, 2));
    assert!((Duration::from_secs(1)..=Duration::from_secs(60)).contains(&retry_after));
    assert_eq!(refusal.fault(), Fault::Load { retry_after });
    assert_eq!(bench.gauges()[..2], [1, 2]);
    // Who asks before reading a prompt hears the same.
    assert!(matches!(
        bench.handle().expect_room(),
        Err(AdmitError::QueueFull {
            num_waiting: 2,
            num_waiting_max: 2,
            ..
        })
    ));

    bench.gate.open();
    for stream in [running].into_iter().chain(waiting) {
        assert_eq!(read(stream).tokens.len(), 3);
    }
    assert_eq!(bench.ask(request(&prompt(5, 4), 3)).tokens.len(), 3);
    assert_eq!(bench.gauges()[..2], [0, 0]);
}

/// Case F6.
#[test]
fn the_queue_is_bounded_by_prompt_tokens() {
    let (bench, _running) = busy(100, 100);
    let _first = bench.submit(request(&prompt(60, 2), 3));
    let refusal = bench
        .try_submit(request(&prompt(41, 3), 3))
        .expect_err("101 tokens");
    assert!(matches!(
        refusal,
        AdmitError::QueueTokensFull {
            num_tokens: 60,
            num_tokens_max: 100,
            ..
        }
    ));
    assert_eq!(bench.handle().expect_room(), Ok(()));
    let _second = bench.submit(request(&prompt(40, 4), 3));
    assert!(matches!(
        bench.handle().expect_room(),
        Err(AdmitError::QueueTokensFull {
            num_tokens: 100,
            ..
        })
    ));
    bench.gate.open();
}

#[test]
fn a_prompt_above_the_token_bound_is_taken_when_no_other_waits() {
    let (bench, _running) = busy(100, 100);
    let large = bench.submit(request(&prompt(500, 2), 3));
    assert!(bench.try_submit(request(&prompt(1, 3), 3)).is_err());
    bench.gate.open();
    assert_eq!(
        read(large).tokens,
        Script::hashed().greedy(&prompt(500, 2), 3)
    );
}

#[test]
fn a_burst_fills_free_seats_even_if_nothing_may_wait() {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.num_sequences_max = 8;
    lab.limits.num_waiting_max = 0;
    let bench = lab.start();
    let seated: Vec<_> = (0..8)
        .map(|seed| bench.submit(request(&prompt(5, seed), 3)))
        .collect();
    assert!(matches!(
        bench.try_submit(request(&prompt(5, 9), 3)),
        Err(AdmitError::QueueFull { .. })
    ));
    bench.gate.open();
    assert!(
        seated
            .into_iter()
            .all(|stream| read(stream).tokens.len() == 3)
    );
}

#[test]
fn many_threads_together_never_exceed_the_bound() {
    let (bench, running) = busy(10, 100_000);
    let handle = bench.handle();
    let taken: Vec<_> = std::thread::scope(|scope| {
        let submit = |seed| {
            move || {
                let tries = (0..50).map(|_| handle.submit(request(&prompt(5, seed), 3)));
                tries.filter_map(Result::ok).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(submit(seed))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert_eq!(taken.len(), 10);
    bench.gate.open();
    assert!(
        [running]
            .into_iter()
            .chain(taken)
            .all(|stream| read(stream).tokens.len() == 3)
    );
}

/// Cases A8 and S2.
#[test]
fn an_empty_prompt_and_an_unknown_token_are_the_callers_fault_and_harm_nobody() {
    let bench = Lab::new().start();
    assert_eq!(
        bench.try_submit(request(&[], 3)).expect_err("empty"),
        AdmitError::EmptyPrompt
    );
    for token in [VOCAB as u32, u32::MAX] {
        let refusal = bench
            .try_submit(request(&[1, token], 3))
            .expect_err("unknown token");
        assert_eq!(
            refusal,
            AdmitError::UnknownToken {
                token: TokenId(token),
                vocab: VOCAB as u32
            }
        );
        assert_eq!(refusal.fault(), Fault::Caller);
    }
    assert_eq!(bench.ask(request(&prompt(5, 1), 3)).tokens.len(), 3);
}
