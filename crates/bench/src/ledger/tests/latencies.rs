//! Latencies of requests sent in the steady window.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::ledger::gaps::Pool;
use crate::sample::{GapSketch, Pacing};
use crate::stats::CONFIDENCE;
use crate::summary::StoppedBy;

#[test]
fn constant_answers_have_the_figures_they_were_given() {
    let mut ledger = ledger("");
    let answer = Answer {
        ttft: 0.2,
        gap: 0.02,
        num_tokens: 41,
    };
    let level = closed_level(&mut ledger, 8, 0.0, 60.0, |_| answer);
    let told = ledger.level(level);
    assert_eq!(told.ttft_ms.n, 480);
    for (figure, expected) in [
        (&told.ttft_ms, 200.0),
        (&told.tpot_ms, 20.0),
        (&told.e2e_ms, 1000.0),
        (&told.itl_ms, 20.0),
        (&told.service_ttft_ms, 200.0),
    ] {
        let values = [
            figure.mean,
            figure.p50,
            figure.p90,
            figure.p95,
            figure.p99,
            figure.max,
        ];
        for value in values {
            close(value, expected, 0.006);
        }
    }
    assert!(told.residual_ms.max.expect("answers").abs() < 5.0);
    close(told.requests_per_s, 8.0, 0.02);
    close(told.output_tokens_per_s, 8.0 * 41.0, 0.02);
    close(told.events_per_s, 8.0 * 41.0, 0.02);
    close(told.input_tokens_per_s, 800.0, 0.02);
    close(told.littles_law.map(|law| law.ratio), 1.0, 0.02);
    close(told.littles_law.map(|law| law.in_flight), 8.0, 0.001);
}

#[test]
fn a_wait_for_a_free_client_is_latency_when_requests_were_due() {
    // E7: ten a second for 20 s, half a second each, one at a time: the i-th waits for 0.4 s times i.
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Rate(10.0), 0.0);
    for idx in 0..200 {
        let sent = 0.5 * f64::from(idx);
        let answer = Answer {
            ttft: 0.1,
            gap: 0.4,
            num_tokens: 2,
        };
        let sample = Sample {
            due: 0.1 * f64::from(idx),
            pacing: Pacing::Open,
            ..sample(level, sent, answer.record())
        };
        put(&mut ledger, &sample);
    }
    ledger.end_level(level, 20.0, StoppedBy::Duration);
    let told = ledger.level(level);
    // The later half may be all that is kept of a level that never settles.
    let from = told.steady_from_s;
    let waits: Vec<f64> = (0..200)
        .filter(|&idx| 0.1 * f64::from(idx) >= from)
        .map(|idx| 0.4 * f64::from(idx))
        .collect();
    let mean_wait = waits.iter().sum::<f64>() / waits.len() as f64;
    close(told.e2e_ms.mean, 1e3 * (mean_wait + 0.5), 0.02);
    close(told.ttft_ms.mean, 1e3 * (mean_wait + 0.1), 0.02);
    close(told.lag_ms.mean, 1e3 * mean_wait, 0.02);
    close(told.service_e2e_ms.p50, 500.0, 1e-6);
    close(told.service_ttft_ms.p50, 100.0, 1e-6);
    close(told.offered_rps, 10.0, 1e-9);
    close(told.achieved_rps, 2.0, 0.1);
    assert!(
        told.flags.contains(&"not_steady".to_owned()),
        "{:?}",
        told.flags
    );
}

#[test]
fn users_feel_no_wait_before_they_ask() {
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    let answer = Answer {
        ttft: 0.1,
        gap: 0.1,
        num_tokens: 2,
    };
    for idx in 0..10 {
        let sent = f64::from(idx);
        let sample = Sample {
            due: sent - 0.05,
            ..sample(level, sent, answer.record())
        };
        put(&mut ledger, &sample);
    }
    ledger.end_level(level, 10.0, StoppedBy::Requests);
    let told = ledger.level(level);
    close(told.ttft_ms.p50, 100.0, 1e-6);
    close(told.lag_ms.max, 50.0, 1e-6);
}

#[test]
fn a_percentile_without_enough_requests_is_absent_and_says_what_it_needs() {
    let mut ledger = ledger("");
    let answer = Answer {
        ttft: 0.1,
        gap: 0.0,
        num_tokens: 1,
    };
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for idx in 0..5 {
        put(
            &mut ledger,
            &sample(level, 0.1 * f64::from(idx), answer.record()),
        );
    }
    ledger.end_level(level, 0.5, StoppedBy::Requests);
    let told = ledger.level(level).ttft_ms;
    assert_eq!((told.n, told.p50, told.p99), (5, None, None));
    assert!(told.mean.is_some() && told.max.is_some());
    let needs = [("p50", 6), ("p90", 36), ("p95", 72), ("p99", 368)];
    assert_eq!(
        told.needs,
        needs.map(|(name, num)| (name.to_owned(), num)).into()
    );
}

#[test]
fn long_answers_that_outlive_the_level_stay_in_its_tail() {
    // One in ten takes 20 s instead of 1 s; the level ends after 30 s and everything is awaited.
    let mut ledger = ledger("");
    let mut asked = Vec::new();
    let level = closed_level(&mut ledger, 40, 0.0, 30.0, |at| {
        asked.push(at);
        let gap = if asked.len().is_multiple_of(10) {
            0.5
        } else {
            0.025
        };
        Answer {
            ttft: 0.025,
            gap,
            num_tokens: 40,
        }
    });
    let told = ledger.level(level);
    let slow = ledger.books[0].answers.kept().iter();
    let slow = slow.filter(|answer| answer.row.e2e > Some(10.0)).count();
    assert!(slow > 20, "{slow}");
    let in_window = asked.iter().filter(|&&at| at >= told.steady_from_s);
    assert_eq!(told.e2e_ms.n, in_window.count() as u64);
    close(told.e2e_ms.p95, 19_525.0, 0.01);
}

#[test]
fn a_tail_that_nobody_waited_for_is_absent() {
    // One in twenty was given up: nothing can be said beyond p95.
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    let answer = Answer {
        ttft: 0.1,
        gap: 0.01,
        num_tokens: 2,
    };
    for idx in 0..500 {
        let sent = 0.01 * f64::from(idx);
        let record = match idx % 20 {
            0 => given_up(answer, 0.05),
            _ => answer.record(),
        };
        put(&mut ledger, &sample(level, sent, record));
    }
    ledger.end_level(level, 5.0, StoppedBy::Duration);
    let told = ledger.level(level);
    assert!(told.flags[0].starts_with("censored:"), "{:?}", told.flags);
    assert!(told.e2e_ms.n > 368 && told.e2e_ms.p99.is_none());
    assert!(told.e2e_ms.p90.is_some() && !told.e2e_ms.needs.contains_key("p99"));
    assert_eq!(
        told.attainment,
        Some(1.0),
        "what was given up is not the server's doing"
    );
}

fn sketch(gaps: impl Iterator<Item = f64>) -> GapSketch {
    let mut sketch = GapSketch::default();
    gaps.for_each(|gap| sketch.add(gap));
    sketch
}

#[test]
fn a_stall_shows_in_gaps_though_averages_hide_it() {
    // E2: one gap of 2 s among 99 of 10 ms.
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    let mut record = Answer {
        ttft: 0.5,
        gap: 0.01,
        num_tokens: 100,
    }
    .record();
    for mark in &mut record.marks[50..] {
        mark.at += std::time::Duration::from_millis(1_990);
    }
    record.last_token = record.marks.last().map(|mark| mark.at);
    put(&mut ledger, &sample(level, 0.0, record));
    ledger.end_level(level, 4.0, StoppedBy::Requests);
    let told = ledger.level(level);
    close(told.itl_ms.max, 2_000.0, 0.006);
    close(told.tpot_ms.mean, (98.0 * 10.0 + 2_000.0) / 99.0, 1e-6);
    close(told.residual_ms.max, 1_990.0, 0.01);
}

#[test]
fn gaps_of_one_request_are_not_so_many_facts() {
    // 100 gaps each. Alike within a request, they are worth as many as there are requests; unlike, all of them.
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let alike: Vec<GapSketch> = (0..60)
        .map(|_| {
            let gap = 0.01 + rng.random::<f64>();
            sketch(std::iter::repeat_n(gap, 100))
        })
        .collect();
    let unlike: Vec<GapSketch> = (0..60)
        .map(|_| sketch((0..100).map(|_| 0.01 + rng.random::<f64>())))
        .collect();
    let alike = Pool::of(alike.iter());
    let unlike = Pool::of(unlike.iter());
    assert_eq!((alike.needed(0.5), unlike.needed(0.5)), (None, None));
    assert_eq!(unlike.needed(0.99), None);
    let needed = alike.needed(0.99).expect("60 facts do not make a p99");
    assert!((200..600).contains(&needed), "{needed}");
}

#[test]
fn intervals_of_gaps_hold_the_truth_as_often_as_they_say() {
    // Requests have a pace of their own (uniform from 10 to 30 ms), and jitter around it.
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let num_runs = 100;
    let mut num_held = 0;
    for run in 0..num_runs {
        let sketches: Vec<GapSketch> = (0..80)
            .map(|_| {
                let pace = 0.01 + 0.02 * rng.random::<f64>();
                sketch((0..30).map(|_| pace + 0.004 * (rng.random::<f64>() - 0.5)))
            })
            .collect();
        let intervals = Pool::of(sketches.iter())
            .intervals(&[0.5], run)
            .expect("80 requests");
        let [low, high] = intervals[0];
        num_held += u64::from((low..=high).contains(&0.02));
        let [low, high] = intervals[1];
        // Within the half percent that a bucket is wide.
        num_held += u64::from((low * 0.995..=high * 1.005).contains(&0.02));
    }
    let coverage = num_held as f64 / (2 * num_runs) as f64;
    assert!((CONFIDENCE - 0.05..=0.99).contains(&coverage), "{coverage}");
}

#[test]
fn good_requests_meet_every_objective_by_their_own_values() {
    // Of four kinds: good, late to begin, slow, and both.
    let mut ledger = ledger("ttft:p95<500ms,tpot:p99<50ms");
    let level = ledger.begin_level(Load::Users(4), 0.0);
    for idx in 0..80 {
        let ttft = if idx % 2 == 0 { 0.1 } else { 0.9 };
        let gap = if idx % 4 < 2 { 0.01 } else { 0.1 };
        let record = Answer {
            ttft,
            gap,
            num_tokens: 2,
        }
        .record();
        put(&mut ledger, &sample(level, 0.1 * f64::from(idx), record));
    }
    for _ in 0..20 {
        put(
            &mut ledger,
            &sample(level, 4.0, failed(Status::Timeout, 1.0)),
        );
    }
    ledger.end_level(level, 10.0, StoppedBy::Duration);
    let told = ledger.level(level);
    close(told.attainment, 0.2, 1e-9);
    close(told.goodput_rps, 2.0, 1e-9);
    close(told.requests_per_s, 8.0, 1e-9);
    assert_eq!(told.classes["default"].slo, "ttft:p95<500ms,tpot:p99<50ms");
}

#[test]
fn company_costs_a_class_what_its_tpot_says() {
    let classes = vec![class("quick", "ttft:p95<1s"), class("bulk", "")];
    let config = LedgerConfig {
        classes,
        slo: Slo::default(),
        seed: 1,
    };
    let mut ledger = Ledger::new(config);
    let mut level_of = |users: u32, start: f64, gaps: [f64; 2]| {
        let level = ledger.begin_level(Load::Users(users), start);
        for idx in 0..40 {
            let class = idx % 2;
            let answer = Answer {
                ttft: 0.1,
                gap: gaps[class],
                num_tokens: 11,
            };
            let sample = Sample {
                class: ClassId(class as u16),
                ..sample(level, start + 0.5 * idx as f64, answer.record())
            };
            put(&mut ledger, &sample);
        }
        ledger.end_level(level, start + 20.0, StoppedBy::Duration);
        level
    };
    let alone = level_of(1, 0.0, [0.01, 0.02]);
    let together = level_of(8, 20.0, [0.015, 0.06]);
    let classes = ledger.level(together).classes;
    close(classes["quick"].interference, 1.5, 1e-6);
    close(classes["bulk"].interference, 3.0, 1e-6);
    close(classes["bulk"].output_tokens_per_s, 11.0, 0.05);
    assert_eq!(ledger.level(alone).classes["quick"].interference, None);
    assert_eq!(classes["quick"].slo, "ttft:p95<1000ms");
    assert_eq!(classes["bulk"].slo, "");
}

#[test]
fn precision_is_the_widest_interval_and_narrows_with_time() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut after = |length: f64| {
        let mut ledger = ledger("");
        let level = closed_level(&mut ledger, 8, 0.0, length, |_| Answer {
            ttft: 0.05 + 0.1 * rng.random::<f64>(),
            gap: 0.01 + 0.01 * rng.random::<f64>(),
            num_tokens: 50,
        });
        ledger.precision(level, length)
    };
    assert_eq!(after(0.5), None);
    let (short, long) = (after(20.0).expect("enough"), after(320.0).expect("enough"));
    assert!(long < 0.5 * short && long < 0.05, "{short} {long}");
}
