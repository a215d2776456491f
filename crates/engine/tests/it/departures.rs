//! Someone leaves: a reader, or everybody.

use std::time::Duration;

use engine::{AdmitError, FinishReason};

use crate::lab::*;

const AN_HOUR: Duration = Duration::from_secs(3600);

fn one_seat() -> Lab {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.num_sequences_max = 1;
    lab
}

/// Reasons of those that have finished, in order.
fn reasons(bench: &Bench) -> Vec<FinishReason> {
    bench.log.read(|happened| {
        happened
            .finished
            .iter()
            .map(|facts| facts.reason.clone())
            .collect()
    })
}

/// Case C1.
#[test]
fn a_reader_that_leaves_the_queue_is_gone_at_the_next_step() {
    let bench = one_seat().start();
    let running = bench.submit(request(&prompt(5, 1), 4));
    bench.gate.run_to_step(1);
    let queued = bench.submit(request(&prompt(5, 2), 4));
    let behind = bench.submit(request(&prompt(5, 3), 4));
    drop(queued);
    bench.gate.run_to_step(2);
    assert_eq!(reasons(&bench), [FinishReason::Cancelled]);
    assert_eq!(bench.gauges()[1], 1);
    bench.gate.open();
    assert_eq!(
        read(running).tokens,
        Script::hashed().greedy(&prompt(5, 1), 4)
    );
    assert_eq!(
        read(behind).tokens,
        Script::hashed().greedy(&prompt(5, 3), 4)
    );
}

/// Case C1.
#[test]
fn a_reader_that_leaves_during_prefill_stops_it_before_the_next_chunk() {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.step_tokens_max = 16;
    let bench = lab.start();
    let stream = bench.submit(request(&prompt(200, 1), 4));
    bench.gate.run_to_step(2);
    drop(stream);
    bench.gate.open();
    bench.log.wait_for_finished(1);
    assert_eq!(reasons(&bench), [FinishReason::Cancelled]);
    assert_eq!(bench.gauges(), [0, 0, 0, 0]);
    assert_eq!(bench.log.read(|happened| happened.batches.len()), 2);
}

/// Case C1.
#[test]
fn a_reader_that_leaves_while_decoding_frees_the_seat_and_disturbs_nobody() {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.num_sequences_max = 2;
    let bench = lab.start();
    let leaving = bench.submit(request(&prompt(5, 1), 400));
    let staying = bench.submit(request(&prompt(5, 2), 40));
    bench.gate.run_to_step(5);
    let queued = bench.submit(request(&prompt(5, 3), 4));
    drop(leaving);
    bench.gate.run_to_step(6);
    assert_eq!(reasons(&bench), [FinishReason::Cancelled]);
    bench.log.read(|happened| {
        let last = happened.batches.last().expect("a step");
        assert_eq!(
            last.last(),
            Some(&(0, 5)),
            "the queued request has the seat in the next step"
        );
    });
    bench.gate.open();
    assert_eq!(
        read(staying).tokens,
        Script::hashed().greedy(&prompt(5, 2), 40)
    );
    assert_eq!(
        read(queued).tokens,
        Script::hashed().greedy(&prompt(5, 3), 4)
    );
}

/// Case C1.
#[test]
fn five_hundred_abandoned_requests_leave_nothing_behind() {
    let bench = Lab::new().start();
    for seed in 0..500 {
        drop(bench.submit(request(&prompt(40, seed), 900)));
        bench.log.wait_for_finished(seed as usize + 1);
    }
    assert_eq!(bench.gauges(), [0, 0, 0, 0]);
    assert!(
        reasons(&bench)
            .iter()
            .all(|reason| *reason == FinishReason::Cancelled)
    );
    assert_eq!(bench.ask(request(&prompt(5, 1), 3)).tokens.len(), 3);
}

#[test]
fn a_stream_dropped_after_the_end_cancels_nothing() {
    let bench = Lab::new().start();
    let stream = bench.submit(request(&prompt(5, 1), 3));
    bench.log.wait_for_finished(1);
    drop(stream);
    bench.ask(request(&prompt(5, 2), 3));
    bench.log.wait_for_finished(2);
    assert_eq!(
        reasons(&bench),
        [FinishReason::Length, FinishReason::Length]
    );
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_up_the_others() {
    let bench = Lab::new().start();
    let unread = bench.submit(request(&prompt(5, 1), 900));
    assert_eq!(bench.ask(request(&prompt(5, 2), 100)).tokens.len(), 100);
    bench.log.wait_for_finished(2);
    assert_eq!(
        read(unread).tokens,
        Script::hashed().greedy(&prompt(5, 1), 900)
    );
}

/// Case F5.
#[test]
fn a_drain_finishes_what_was_taken_and_takes_nothing_more() {
    let bench = one_seat().start();
    let running = bench.submit(request(&prompt(5, 1), 30));
    let queued = bench.submit(request(&prompt(5, 2), 30));
    bench.gate.run_to_step(2);
    bench.handle().drain(AN_HOUR);
    assert_eq!(
        bench.try_submit(request(&prompt(5, 3), 3)).err(),
        Some(AdmitError::ShuttingDown)
    );
    assert_eq!(bench.handle().expect_room(), Err(AdmitError::ShuttingDown));
    bench.gate.open();
    assert_eq!(
        read(running).tokens,
        Script::hashed().greedy(&prompt(5, 1), 30)
    );
    assert_eq!(
        read(queued).tokens,
        Script::hashed().greedy(&prompt(5, 2), 30)
    );
}

/// Case F5.
#[test]
fn a_second_drain_of_no_time_ends_everything_after_the_step() {
    let mut bench = one_seat().start();
    let running = bench.submit(request(&prompt(5, 1), 30));
    let queued = bench.submit(request(&prompt(5, 2), 30));
    bench.gate.run_to_step(3);
    bench.handle().drain(AN_HOUR);
    bench.handle().drain(Duration::ZERO);
    bench.handle().drain(AN_HOUR);
    bench.gate.open();
    let running = read(running);
    assert_eq!(running.finished.reason, FinishReason::Aborted);
    assert_eq!(running.tokens, Script::hashed().greedy(&prompt(5, 1), 3));
    let queued = read_unstarted(queued);
    assert_eq!(queued, FinishReason::Aborted);
    bench
        .thread
        .take()
        .expect("running")
        .join()
        .expect("a clean end");
    assert_eq!(bench.gauges(), [0, 0, 0, 0]);
    assert_eq!(
        bench.try_submit(request(&prompt(5, 3), 3)).err(),
        Some(AdmitError::ShuttingDown)
    );
}

/// The reason of a request that ended before it started: `Finished` is all it hears.
fn read_unstarted(stream: engine::EventStream) -> FinishReason {
    let told = read(stream);
    assert_eq!(told.num_cached, None);
    assert!(told.tokens.is_empty());
    told.finished.reason
}

#[test]
fn a_limit_beyond_all_clocks_is_no_limit() {
    let bench = Lab::new().start();
    let stream = bench.submit(request(&prompt(5, 1), 30));
    bench.handle().drain(Duration::MAX);
    assert_eq!(read(stream).finished.reason, FinishReason::Length);
}

#[test]
fn an_idle_engine_drains_at_once() {
    let mut bench = Lab::new().start();
    bench.handle().drain(AN_HOUR);
    bench
        .thread
        .take()
        .expect("running")
        .join()
        .expect("a clean end");
}

#[test]
fn without_handles_the_engine_finishes_its_requests_and_ends() {
    let mut bench = Lab {
        gated: true,
        ..Lab::new()
    }
    .start();
    let second = bench.handle().clone();
    drop(bench.handle.take());
    let stream = second
        .submit(request(&prompt(5, 1), 30))
        .expect("a clone is as good");
    drop(second);
    bench.gate.open();
    assert_eq!(
        read(stream).tokens,
        Script::hashed().greedy(&prompt(5, 1), 30)
    );
    bench
        .thread
        .take()
        .expect("running")
        .join()
        .expect("a clean end");
}
