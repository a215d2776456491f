//! What waits for a place or thinks, what is dropped, what is left over, and how late the client is: each told as what it is.

use super::*;
use crate::summary::Counts;

/// Three questions to a conversation, five seconds of thinking between them.
const THREE_TURNS: &str = r#"
version = 1
name = "talk"
description = "Three turns."
[[class]]
name = "default"
prompt = { distribution = "fixed", value = 40 }
output = { distribution = "fixed", value = 11, exact = true }
turns = { distribution = "fixed", value = 3 }
think = { distribution = "fixed", value = 5 }
history = "none"
"#;

fn flag(level: &Level, name: &str) -> Option<u64> {
    let mut flags = level.flags.iter().filter_map(|flag| flag.split_once(':'));
    let (_, num) = flags.find(|(found, _)| *found == name)?;
    num.parse().ok()
}

/// An answer of 200 ms, 100 of them to the first token.
fn in_200_ms(_: Asked) -> std::future::Ready<Script> {
    std::future::ready(good_answer(1, 11, 100.0, 10.0))
}

#[tokio::test(start_paused = true)]
async fn arrivals_that_still_wait_for_a_place_at_the_end_were_attempted() {
    let mut trial = Trial::of(vec![arrivals(Process::Constant { rate: 10.0 }, 20.0)]);
    trial.concurrency_max = 1;
    trial.slo = "tpot:p95<1s";
    let level = trial.run(in_200_ms).await.level(0);
    let Counts { ok, dropped, .. } = level.requests;
    assert_eq!(ok + dropped, 200, "every arrival is told: {level:?}");
    assert!((99..=101).contains(&dropped), "{dropped}");
    assert_eq!(flag(&level, "dropped"), Some(dropped));
    assert_eq!(level.requests.attempted(), 200);
    // Those that were due in the first ten seconds had their turn; the steady window begins somewhere in them.
    let from = level.steady_from_s;
    assert_near(level.attainment, (10.0 - from) / (20.0 - from), 0.02);
    assert_eq!(
        level.e2e_ms.p90, None,
        "half of the waits are unknown, and they are the longest"
    );
}

#[tokio::test(start_paused = true)]
async fn a_number_of_requests_leaves_nothing_to_drop() {
    let mut plan = arrivals(Process::Constant { rate: 10.0 }, 1_000.0);
    plan.stop.requests = Some(50);
    let mut trial = Trial::of(vec![plan]);
    trial.concurrency_max = 1;
    let level = trial.run(in_200_ms).await.level(0);
    assert_eq!((level.requests.ok, level.requests.dropped), (50, 0));
    assert_eq!(level.stopped_by, StoppedBy::Requests);
}

#[tokio::test(start_paused = true)]
async fn who_thinks_holds_no_place() {
    let mut trial = Trial::of(vec![arrivals(Process::Constant { rate: 1.0 }, 60.0)]);
    trial.workload = THREE_TURNS;
    // Three questions of 200 ms a second take 0.6 places; ten conversations think at any moment.
    trial.concurrency_max = 2;
    let outcome = trial.run(in_200_ms).await;
    let level = outcome.level(0);
    assert_eq!(level.requests.dropped, 0);
    assert_near(level.held_ms.p50, 0.0, 1.0);
    assert!(level.held_ms.max < Some(300.0), "{:?}", level.held_ms);
}

#[tokio::test(start_paused = true)]
async fn users_of_a_closed_loop_share_the_places() {
    let mut trial = Trial::of(vec![users(8, 20.0)]);
    trial.concurrency_max = 2;
    let level = trial.run(in_200_ms).await.level(0);
    assert_near(level.littles_law.map(|law| law.in_flight), 2.0, 0.1);
    assert_near(Some(level.requests_per_s), 10.0, 0.3);
    // Each waits for three answers of two others, and that is no latency of the server.
    assert_near(level.held_ms.p50, 600.0, 10.0);
    assert_near(level.ttft_ms.p50, 100.0, 1.0);
    assert_near(level.lag_ms.max, 0.0, 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_number_of_requests_counts_turns_in_an_open_loop_too() {
    let mut plan = arrivals(Process::Constant { rate: 1.0 }, 1_000.0);
    plan.stop.requests = Some(20);
    let mut trial = Trial::of(vec![plan]);
    trial.workload = THREE_TURNS;
    let outcome = trial.run(in_200_ms).await;
    let level = outcome.level(0);
    assert_eq!((level.requests.ok, outcome.heard.samples.len()), (20, 20));
    assert_eq!(level.stopped_by, StoppedBy::Requests);
    assert!(
        outcome
            .heard
            .samples
            .iter()
            .any(|sample| sample.id.turn == 2)
    );
}

#[tokio::test(start_paused = true)]
async fn lag_is_neither_connecting_nor_waiting_for_a_place() {
    let server = Mock::new(in_200_ms);
    let slow = Connector::from_fn(move || {
        let near = server.connect();
        async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(near)
        }
    });
    let mut trial = Trial::of(vec![arrivals(Process::Constant { rate: 10.0 }, 20.0)]);
    trial.concurrency_max = 1;
    let outcome = trial.run_over(slow, Heard::default()).await;
    let level = outcome.level(0);
    let first = &outcome.heard.samples[0];
    assert_near(first.connect, 0.3, 0.002);
    assert_near(first.row().ttft, 0.4, 0.002);
    for sample in &outcome.heard.samples {
        assert!(sample.lag() < 0.0015, "{} s late", sample.lag());
    }
    assert_near(level.lag_ms.max, 0.0, 1.5);
    let last = outcome.heard.samples.last().expect("a request");
    // One after the other, the last of them waited half of the time.
    assert_near(Some(last.held), 10.0, 0.5);
    assert_near(last.row().ttft, last.held + 0.1, 0.01);
}

#[tokio::test(start_paused = true)]
async fn a_later_turn_is_due_when_its_user_has_thought() {
    for plan in [
        users(1, 30.0),
        arrivals(Process::Constant { rate: 0.01 }, 30.0),
    ] {
        let mut trial = Trial::of(vec![plan]);
        trial.workload = THREE_TURNS;
        let outcome = trial.run(in_200_ms).await;
        let samples = &outcome.heard.samples;
        let of_first: Vec<&Sample> = samples
            .iter()
            .filter(|sample| sample.id.conversation == samples[0].id.conversation)
            .collect();
        assert_eq!(of_first.len(), 3);
        for pair in of_first.windows(2) {
            let ended = pair[0].sent + pair[0].record.ended.as_secs_f64();
            assert_near(Some(pair[1].due), ended + 5.0, 1e-9);
            // The runtime's timers tell milliseconds.
            assert!((0.0..0.0015).contains(&pair[1].lag()), "{}", pair[1].lag());
        }
    }
}

/// Answers that never come to their second token.
fn hangs(_: Asked) -> std::future::Ready<Script> {
    std::future::ready(Script {
        steps: vec![step(0.0, STREAM_HEAD), step(10.0, chunk(&text_event("a")))],
        end: End::Hang,
        held: None,
    })
}

#[tokio::test(start_paused = true)]
async fn what_an_open_level_leaves_behind_is_told_of_the_next() {
    let process = Process::Constant { rate: 1.0 };
    let mut trial = Trial::of(vec![arrivals(process.clone(), 5.0), arrivals(process, 5.0)]);
    trial.grace_s = 1.0;
    let outcome = trial.run(hangs).await;
    assert_eq!(flag(&outcome.level(0), "carried_over"), None);
    assert_eq!(flag(&outcome.level(1), "carried_over"), Some(5));
    assert!(
        outcome.heard.num_draining >= 15,
        "{}",
        outcome.heard.num_draining
    );
}

#[tokio::test(start_paused = true)]
async fn users_who_are_handed_over_are_nobodys_leftovers() {
    let outcome = Trial::of(vec![users(4, 10.0), users(8, 10.0)])
        .run(four_slots())
        .await;
    assert_eq!(flag(&outcome.level(1), "carried_over"), None);
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_interrupted_while_it_waits_for_the_last_answers() {
    for plan in [
        users(2, 5.0),
        arrivals(Process::Constant { rate: 1.0 }, 5.0),
    ] {
        let mut trial = Trial::of(vec![plan]);
        trial.grace_s = 1_000.0;
        let heard = Heard {
            patience_s: Some(8.0),
            ..Heard::default()
        };
        let begun = Instant::now();
        let outcome = trial.run_over(connector_to(hangs), heard).await;
        assert_eq!(outcome.ended, Ended::Interrupted);
        assert!(begun.elapsed().as_secs_f64() < 8.5, "{:?}", begun.elapsed());
        assert!(outcome.level(0).requests.cancelled > 0);
        assert_eq!(outcome.level(0).stopped_by, StoppedBy::Duration);
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_who_thinks_goes_on_into_the_next_level() {
    let mut trial = Trial::of(vec![users(1, 3.0), users(1, 20.0)]);
    trial.workload = THREE_TURNS;
    let outcome = trial.run(in_200_ms).await;
    let asked: Vec<_> = outcome
        .heard
        .samples
        .iter()
        .take(3)
        .map(|sample| (sample.id.turn, sample.level.0))
        .collect();
    assert_eq!(asked, [(0, 0), (1, 1), (2, 1)]);
    assert_eq!(flag(&outcome.level(0), "conversations_cut"), None);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_of_an_open_level_ends_with_it_and_that_is_told() {
    let process = Process::Constant { rate: 1.0 };
    let mut trial = Trial::of(vec![
        arrivals(process.clone(), 10.0),
        arrivals(process, 10.0),
    ]);
    trial.workload = THREE_TURNS;
    let outcome = trial.run(in_200_ms).await;
    let late = outcome
        .heard
        .samples
        .iter()
        .filter(|sample| sample.level == LevelId(0) && sample.sent > 10.2);
    assert_eq!(late.count(), 0, "no level asks in another's time");
    // Ten began; those of the first and the last five seconds had a turn left.
    assert_eq!(flag(&outcome.level(0), "conversations_cut"), Some(10));
    assert_eq!(outcome.level(0).requests.dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn a_trace_ends_with_the_last_turn_of_its_last_conversation() {
    let process = Process::Replay {
        times: [0.0, 1.0].into(),
        speed: 1.0,
    };
    let mut plan = arrivals(process, 0.0);
    plan.stop.duration_s = None;
    let mut trial = Trial::of(vec![plan]);
    trial.workload = THREE_TURNS;
    let level = trial.run(in_200_ms).await.level(0);
    assert_eq!(
        (level.requests.ok, level.stopped_by),
        (6, StoppedBy::TraceEnd)
    );
}

#[tokio::test(start_paused = true)]
async fn a_ramp_tells_the_rate_that_it_offered_in_its_window() {
    let process = Process::Ramp {
        from: 0.0,
        to: 40.0,
        seconds: 40.0,
    };
    let level = Trial::of(vec![arrivals(process, 40.0)])
        .run(in_200_ms)
        .await
        .level(0);
    // In a straight line from 0 to 40: on average the rate of the window's middle.
    let middle = level.steady_from_s + level.steady_s / 2.0;
    assert_near(level.offered_rps, middle, 1e-6);
    assert_near(level.achieved_rps, middle, 3.0);
    assert_eq!(level.ramp_rps, Some([0.0, 40.0]));
}
