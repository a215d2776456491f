//! Rates over the steady window.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::ledger::timeline::{Arrivals, SLICES_MAX, Timeline};
use crate::summary::StoppedBy;

/// Ten tokens a second for ten seconds.
const STREAM: Answer = Answer {
    ttft: 0.1,
    gap: 0.1,
    num_tokens: 100,
};

#[test]
fn tokens_count_when_they_arrive_whatever_becomes_of_their_request() {
    // E11: eight streams of ten tokens a second; what is unfinished at the end is given up.
    for length in [15.0, 20.0, 25.0] {
        let mut ledger = ledger("");
        let level = ledger.begin_level(Load::Users(8), 0.0);
        for _ in 0..8 {
            let mut now = 0.0;
            while now < length {
                let left = length - now;
                let record = match STREAM.e2e() < left {
                    true => STREAM.record(),
                    false => given_up(STREAM, left),
                };
                put(&mut ledger, &sample(level, now, record));
                now += STREAM.e2e();
            }
        }
        ledger.end_level(level, length, StoppedBy::Duration);
        let told = ledger.level(level);
        close(told.output_tokens_per_s, 80.0, 0.02);
        let ended = told.requests.ok + told.requests.cancelled;
        assert_eq!(ended, ledger.books[0].num_sent);
        assert!(
            told.flags.contains(&"censored:8".to_owned()),
            "{:?}",
            told.flags
        );
    }
}

#[test]
fn a_level_is_charged_for_what_arrives_in_it_and_not_for_what_it_sent() {
    // Two users hand over to four without draining: the first level's answers run 5 s into the second.
    let mut ledger = ledger("");
    let first = ledger.begin_level(Load::Users(2), 0.0);
    let mut late = Vec::new();
    for _ in 0..2 {
        put(&mut ledger, &sample(first, 0.0, STREAM.record()));
        late.push(sample(first, 10.0, STREAM.record()));
    }
    ledger.end_level(first, 15.0, StoppedBy::Duration);
    let second = ledger.begin_level(Load::Users(4), 15.0);
    for sample in &late {
        put(&mut ledger, sample);
    }
    for (sent, num) in [(15.0, 2), (20.0, 2), (25.0, 2)] {
        for _ in 0..num {
            put(&mut ledger, &sample(second, sent, STREAM.record()));
        }
    }
    ledger.end_level(second, 30.0, StoppedBy::Duration);
    close(ledger.level(first).output_tokens_per_s, 20.0, 0.02);
    close(ledger.level(second).output_tokens_per_s, 40.0, 0.02);
    assert_eq!(ledger.level(first).requests.ok, 4);
    let law = ledger.level(second).littles_law.expect("a window");
    close(law.in_flight, 4.0, 0.01);
}

#[test]
fn the_warm_up_is_left_out_and_its_length_is_told() {
    // Answers of 10 s and 10 tokens for the first 12 s, of 1 s after: a tenth of the later throughput.
    let mut ledger = ledger("");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let level = closed_level(&mut ledger, 16, 0.0, 120.0, |at| {
        let scale = if at < 12.0 { 6.0 } else { 1.0 };
        let jitter = 0.8 + 0.4 * rng.random::<f64>();
        Answer {
            ttft: 0.1 * scale * jitter,
            gap: 0.1 * scale * jitter,
            num_tokens: 10,
        }
    });
    let told = ledger.level(level);
    assert!(
        (10.0..30.0).contains(&told.steady_from_s),
        "{}",
        told.steady_from_s
    );
    close(told.steady_s + told.steady_from_s, 120.0, 1e-9);
    close(told.output_tokens_per_s, 160.0, 0.03);
    close(told.ttft_ms.mean, 100.0, 0.03);
}

#[test]
fn a_synchronised_burst_of_prompts_is_warm_up_though_throughput_hides_it() {
    // 32 users start at once and wait in line for their first answer: TTFT up to 6.4 s, later 0.2 s.
    let mut ledger = ledger("");
    let mut num_started = 0;
    let level = closed_level(&mut ledger, 32, 0.0, 100.0, |at| {
        num_started += u32::from(at == 0.0);
        let ttft = if at == 0.0 {
            0.2 * f64::from(num_started)
        } else {
            0.2
        };
        Answer {
            ttft,
            gap: 0.05,
            num_tokens: 60,
        }
    });
    let told = ledger.level(level);
    assert!(told.steady_from_s > 0.0);
    close(told.ttft_ms.max, 200.0, 1e-6);
}

#[test]
fn a_level_that_is_steady_from_the_start_loses_nothing() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ledger = ledger("");
        let level = closed_level(&mut ledger, 8, 0.0, 60.0, |_| Answer {
            ttft: 0.05 + 0.1 * rng.random::<f64>(),
            gap: 0.01 + 0.01 * rng.random::<f64>(),
            num_tokens: 20 + rng.random_range(0..60),
        });
        // No more than the stretch in which no first token had come.
        let cut = ledger.level(level).steady_from_s;
        assert!(cut <= 0.75, "seed {seed}: {cut}");
    }
}

#[test]
fn a_very_short_level_keeps_everything() {
    let mut ledger = ledger("");
    let answer = Answer {
        ttft: 0.1,
        gap: 0.01,
        num_tokens: 41,
    };
    let level = closed_level(&mut ledger, 2, 0.0, 2.0, |_| answer);
    let told = ledger.level(level);
    assert_eq!((told.steady_from_s, told.steady_s), (0.0, 2.0));
    assert_eq!(told.ttft_ms.n, 8);
}

#[test]
fn intervals_of_rates_hold_the_true_rate_as_often_as_they_say() {
    // Poisson arrivals of ten a second, 21 tokens each.
    let num_runs = 200;
    let (mut tokens, mut requests) = (0, 0);
    for seed in 0..num_runs {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ledger = ledger("");
        let level = ledger.begin_level(Load::Rate(10.0), 0.0);
        let mut now = 0.0;
        loop {
            now -= f64::ln(1.0 - rng.random::<f64>()) / 10.0;
            if now > 60.0 {
                break;
            }
            let answer = Answer {
                ttft: 0.05,
                gap: 0.01,
                num_tokens: 21,
            };
            put(&mut ledger, &sample(level, now, answer.record()));
        }
        ledger.end_level(level, 60.0, StoppedBy::Duration);
        let told = ledger.glance(level);
        let holds = |key: &str, truth: f64| {
            let [low, high] = told.rates_ci95[key];
            u64::from((low..=high).contains(&truth))
        };
        tokens += holds("output_tokens_per_s", 210.0);
        requests += holds("requests_per_s", 10.0);
    }
    for held in [tokens, requests] {
        let coverage = held as f64 / num_runs as f64;
        assert!((0.90..=0.99).contains(&coverage), "{coverage}");
    }
}

#[test]
fn a_backlog_that_grows_for_ever_is_flagged() {
    // Twelve a second are due, ten a second are served, in order.
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Rate(12.0), 0.0);
    for idx in 0..720 {
        let due = f64::from(idx) / 12.0;
        let began = f64::from(idx) / 10.0;
        let answer = Answer {
            ttft: 0.05 + began - due,
            gap: 0.05,
            num_tokens: 2,
        };
        put(&mut ledger, &sample(level, due, answer.record()));
    }
    ledger.end_level(level, 60.0, StoppedBy::Duration);
    let told = ledger.level(level);
    assert!(
        told.flags.contains(&"not_steady".to_owned()),
        "{:?}",
        told.flags
    );
    close(told.requests_per_s, 10.0, 0.02);
    close(told.achieved_rps, 12.0, 0.02);
}

#[test]
fn a_queue_in_balance_is_not_flagged() {
    // M/D/1 at 70 % load.
    let mut num_flagged = 0;
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ledger = ledger("");
        let level = ledger.begin_level(Load::Rate(7.0), 0.0);
        let (mut now, mut free) = (0.0, 0.0);
        while now < 60.0 {
            let began = f64::max(now, free);
            free = began + 0.1;
            let answer = Answer {
                ttft: 0.05 + began - now,
                gap: 0.05,
                num_tokens: 2,
            };
            put(&mut ledger, &sample(level, now, answer.record()));
            now -= f64::ln(1.0 - rng.random::<f64>()) / 7.0;
        }
        ledger.end_level(level, 60.0, StoppedBy::Duration);
        num_flagged += u32::from(
            ledger
                .glance(level)
                .flags
                .contains(&"not_steady".to_owned()),
        );
    }
    assert!(num_flagged <= 2, "{num_flagged} of 50");
}

#[test]
fn a_long_run_has_wider_slices_and_the_same_sums() {
    let mut timeline = Timeline::new(2);
    let one = Arrivals {
        tokens: 1.0,
        whole: 1.0,
        ..Arrivals::default()
    };
    // One request a second, each 2.5 s long, for ten hours.
    let length = 36_000;
    for second in 0..length {
        let at = f64::from(second);
        timeline.open(at);
        timeline.add(1, at, &one);
        timeline.close(at, at + 2.5);
    }
    let num_slices = f64::from(length) / timeline.width();
    assert!(num_slices <= SLICES_MAX as f64 && timeline.width() > 0.1);
    close(
        timeline.sum(Some(1), 1_000.0, 19_000.0).tokens,
        18_000.0,
        1e-3,
    );
    assert_eq!(timeline.sum(Some(0), 0.0, 1e9), Arrivals::default());
    close(timeline.in_flight(1_000.0, 19_000.0, 1)[0], 2.5, 1e-3);
    close(timeline.opened(1_000.0, 19_000.0), 18_000.0, 1e-3);
}

#[test]
fn requests_in_flight_are_counted_to_the_moment() {
    let mut timeline = Timeline::new(1);
    timeline.open(0.05);
    timeline.open(0.55);
    timeline.close(0.05, 0.75);
    // 0.7 s of one, and the other until the end of what is known.
    timeline.open(0.99);
    close(timeline.in_flight(0.0, 1.0, 1)[0], 0.7 + 0.45 + 0.01, 1e-9);
    assert_eq!(timeline.num_open(), 2.0);
}

#[test]
fn a_live_figure_ends_where_the_oldest_answer_in_flight_began() {
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(2), 0.0);
    let answer = Answer {
        ttft: 0.5,
        gap: 0.5,
        num_tokens: 10,
    };
    for user in 0..2 {
        for round in 0..4 {
            let sent = 5.0 * f64::from(round) + f64::from(user);
            ledger.sent(level, sent);
            if round < 3 {
                ledger.take(&sample(level, sent, answer.record()));
            }
        }
    }
    // The first user's fourth request was sent at 15: what it brought since then nobody knows. Before, 29 tokens of
    // the first user and 27 of the second came.
    let told = ledger.glance(level);
    close(told.steady_s, 15.0, 1e-9);
    close(told.output_tokens_per_s, 56.0 / 15.0, 0.001);
    assert_eq!(ledger.num_in_flight(), 2);
}
