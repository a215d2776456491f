//! What must not crash, and what must be flagged.

use super::*;
use crate::ledger::{Estimate, LIMITS};
use crate::observe::Flag;
use crate::sample::Pacing;
use crate::slo::{Metric, Objective};
use crate::summary::StoppedBy;

fn flags_of(samples: impl IntoIterator<Item = Sample>) -> Vec<String> {
    let mut ledger = ledger("tpot:p50<1s");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for sample in samples {
        put(&mut ledger, &sample);
    }
    ledger.end_level(level, 10.0, StoppedBy::Duration);
    ledger.level(level).flags
}

/// Neither infinity nor NaN, which JSON cannot say.
fn assert_strict(level: &crate::summary::Level) {
    let text = format!("{level:?}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    let json = serde_json::to_string(level).expect("a level");
    serde_json::from_str::<crate::summary::Level>(&json).expect("a level again");
}

#[test]
fn a_level_of_refusals_has_counts_and_no_latencies() {
    let mut ledger = ledger("ttft:p95<1s");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for idx in 0..20 {
        let record = failed(Status::HttpError, 0.01);
        put(&mut ledger, &sample(level, f64::from(idx) * 0.01, record));
    }
    ledger.end_level(level, 0.2, StoppedBy::Requests);
    let told = ledger.level(level);
    assert_strict(&told);
    assert_eq!((told.requests.http_error, told.requests.ok), (20, 0));
    assert_eq!((told.attainment, told.goodput_rps), (Some(0.0), 0.0));
    assert_eq!(
        (told.ttft_ms.n, told.ttft_ms.mean, told.output_tokens_per_s),
        (0, None, None)
    );
    assert_eq!(told.errors, [("HTTP 404".to_owned(), 20)]);
    assert_eq!(told.token_source, "none");
}

#[test]
fn nothing_at_all_is_a_level_too() {
    // E4: no request, no time.
    for load in [Load::Users(1), Load::Rate(2.0)] {
        for length in [0.0, 5.0] {
            let mut ledger = ledger("ttft:p95<1s");
            let level = ledger.begin_level(load, 3.0);
            assert_strict(&ledger.level(level));
            ledger.end_level(level, 3.0 + length, StoppedBy::Interrupted);
            let told = ledger.level(level);
            assert_strict(&told);
            assert_eq!((told.requests_per_s, told.attainment), (0.0, None));
            assert_eq!(ledger.precision(level, 9.0), None);
            assert!(ledger.points(level).ttft.is_empty());
        }
    }
}

#[test]
fn answers_of_one_token_or_none_divide_by_nothing() {
    for num_tokens in [1, 0] {
        let mut ledger = ledger("tpot:p99<50ms");
        let level = ledger.begin_level(Load::Users(1), 0.0);
        for idx in 0..400 {
            let mut record = Answer {
                ttft: 0.1,
                gap: 0.0,
                num_tokens: 1,
            }
            .record();
            if num_tokens == 0 {
                record.status = Status::Empty;
                record.num_tokens = Some(0);
                record.marks.clear();
                (record.first_token, record.last_token) = (None, None);
            }
            put(&mut ledger, &sample(level, 0.1 * f64::from(idx), record));
        }
        ledger.end_level(level, 40.0, StoppedBy::Duration);
        let told = ledger.level(level);
        assert_strict(&told);
        assert_eq!(
            (told.tpot_ms.n, told.tpot_ms.p50, told.itl_ms.n),
            (0, None, 0)
        );
        // One token cannot be slow to follow another; none is a failure.
        close(told.attainment, num_tokens as f64, 1e-9);
        close(told.output_tokens_per_s, 10.0 * num_tokens as f64, 0.02);
    }
}

#[test]
fn one_request_has_a_mean_and_a_maximum() {
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    let answer = Answer {
        ttft: 0.1,
        gap: 0.1,
        num_tokens: 10,
    };
    ledger.sent(level, 0.0);
    // It stopped sending at once: the drain is all there is.
    ledger.end_level(level, 0.0, StoppedBy::Requests);
    ledger.take(&sample(level, 0.0, answer.record()));
    let told = ledger.level(level);
    assert_strict(&told);
    assert_eq!(
        (told.ttft_ms.mean, told.ttft_ms.max),
        (Some(100.0), Some(100.0))
    );
    close(told.steady_s, 1.0, 1e-9);
    close(told.requests_per_s, 1.0, 0.01);
    close(told.output_tokens_per_s, 10.0, 0.01);
    assert!(told.flags.contains(&"drain_included".to_owned()));
}

#[test]
fn where_nobody_counts_there_are_events_and_no_tokens() {
    let mut ledger = ledger("");
    let level = closed_level(&mut ledger, 2, 0.0, 0.0, |_| unreachable!("no time"));
    for idx in 0..20 {
        let mut record = Answer {
            ttft: 0.1,
            gap: 0.1,
            num_tokens: 10,
        }
        .record();
        record.num_tokens = None;
        record.token_source = crate::observe::TokenSource::None;
        put(&mut ledger, &sample(level, f64::from(idx), record));
    }
    ledger.end_level(level, 20.0, StoppedBy::Duration);
    let told = ledger.level(level);
    assert_eq!(
        (told.output_tokens_per_s, told.token_source.as_str()),
        (None, "none")
    );
    close(told.events_per_s, 10.0, 0.02);
    assert!(
        told.flags.contains(&"tokens_uncounted:20".to_owned()),
        "{:?}",
        told.flags
    );
    assert!(ledger.precision(level, 20.0).is_some());
}

#[test]
fn what_a_reader_should_know_is_counted() {
    let answer = Answer {
        ttft: 0.1,
        gap: 0.1,
        num_tokens: 10,
    };
    let with = |change: &dyn Fn(&mut Sample)| {
        let mut sample = sample(LevelId(0), 1.0, answer.record());
        change(&mut sample);
        sample
    };
    let flags = flags_of([
        with(&|sample| sample.record.flags = vec![Flag::MissingDone, Flag::Buffered]),
        with(&|sample| sample.record.flags = vec![Flag::MissingDone, Flag::UsageSuspect]),
        with(&|sample| (sample.num_output_wanted, sample.output) = (Some(12), OutputLength::Exact)),
        with(&|sample| sample.num_output_wanted = Some(12)),
        with(&|sample| sample.num_output_wanted = Some(9)),
        with(&|sample| sample.num_prompt_wanted = Some(99)),
        with(&|sample| sample.num_prompt_wanted = Some(100)),
        with(&|sample| sample.record.num_tokens = None),
    ]);
    let expected = [
        "buffered:1",
        "missing_done:2",
        "objective_unknown:1",
        "output_length_mismatch:2",
        "prompt_length_mismatch:1",
        "tokens_uncounted:1",
        "usage_suspect:1",
    ];
    assert_eq!(flags, expected);
}

#[test]
fn errors_are_counted_by_text_in_bounded_memory() {
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for idx in 0..2_000 {
        let mut record = failed(Status::ErrorEvent, 0.001);
        record.error = Some(match idx % 2 {
            0 => "out of memory".to_owned(),
            _ => format!("request {idx} failed: {}", "ä".repeat(500)),
        });
        put(&mut ledger, &sample(level, 0.001 * f64::from(idx), record));
    }
    let told = ledger.level(level).errors;
    assert_eq!(told.len(), 20);
    assert_eq!(
        told[0],
        ("error in the stream: out of memory".to_owned(), 1_000)
    );
    assert_eq!(told[1], ("(further texts)".to_owned(), 1_000 - 255));
    assert!(
        told.iter()
            .all(|(text, _)| text.len() <= LIMITS.error_bytes_max)
    );
}

#[test]
fn rows_are_bounded_however_many_requests_there_are() {
    let mut ledger = ledger("");
    let record = Answer {
        ttft: 0.1,
        gap: 0.1,
        num_tokens: 2,
    }
    .record();
    for idx in 0..4 {
        let start = 30.0 * f64::from(idx);
        let level = ledger.begin_level(Load::Users(1), start);
        for request in 0..25_000 {
            let sent = start + 0.001 * f64::from(request);
            put(&mut ledger, &sample(level, sent, record.clone()));
        }
        ledger.end_level(level, start + 25.0, StoppedBy::Duration);
    }
    let num_rows: usize = ledger.books.iter().map(|book| book.num_rows()).sum();
    assert!(num_rows <= LIMITS.rows_max, "{num_rows}");
    let told = ledger.level(LevelId(0));
    assert_eq!(told.requests.ok, 25_000);
    assert!(
        told.flags.iter().any(|flag| flag.starts_with("sampled:")),
        "{:?}",
        told.flags
    );
    close(told.requests_per_s, 1_000.0, 0.01);
    assert_eq!(told.attainment, Some(1.0));
}

#[test]
fn a_cache_is_compared_with_what_the_workload_declares() {
    let mut classes = vec![class("shared", ""), class("unique", "")];
    classes[0].shared_share = Some(0.8);
    classes[1].shared_share = Some(0.0);
    let mut ledger = Ledger::new(LedgerConfig {
        classes,
        slo: Slo::default(),
        seed: 1,
    });
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for idx in 0..20 {
        let mut record = Answer {
            ttft: 0.1,
            gap: 0.1,
            num_tokens: 2,
        }
        .record();
        let class = idx % 2;
        // 300 tokens of which 150 were found, and 100 of which the server says nothing.
        if class == 0 {
            (record.num_prompt_tokens, record.num_cached_tokens) = (Some(300), Some(150));
        }
        let sample = Sample {
            class: ClassId(class),
            ..sample(level, f64::from(idx), record)
        };
        put(&mut ledger, &sample);
    }
    ledger.end_level(level, 20.0, StoppedBy::Duration);
    let cache = ledger.level(level).cache.expect("told by some");
    close(cache.measured, 150.0 / 400.0, 1e-9);
    close(cache.declared, 240.0 / 400.0, 1e-9);
}

#[test]
fn an_objective_of_any_percentile_is_estimated_or_not_at_all() {
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for idx in 0..100 {
        let ttft = 0.01 * f64::from(idx + 1);
        let record = Answer {
            ttft,
            gap: 0.1,
            num_tokens: 2,
        }
        .record();
        put(&mut ledger, &sample(level, 0.01 * f64::from(idx), record));
    }
    ledger.end_level(level, 2.0, StoppedBy::Duration);
    let estimate = |metric, quantile| {
        let objective = Objective {
            metric,
            quantile,
            limit_s: 1.0,
        };
        ledger.estimate(level, None, &objective)
    };
    // numpy.percentile(range(1, 101), 75) is 75.25.
    let told = estimate(Metric::Ttft, 0.75).expect("100 requests");
    close(told.value, 0.7525, 1e-6);
    assert!(told.low < told.value && told.value < told.high);
    assert_eq!(estimate(Metric::Ttft, 0.99), None);
    let Some(Estimate { value, low, high }) = estimate(Metric::Ttft, 1.0) else {
        panic!("a maximum");
    };
    assert!(value == low && value == high && (value - 1.0).abs() < 1e-9);
    close(
        estimate(Metric::Itl, 0.5).map(|told| told.value),
        0.1,
        0.006,
    );
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(128))]

    /// Whatever requests do, their outcomes add up, shares are shares, and every figure can be written down.
    #[test]
    fn no_sequence_of_requests_brings_the_books_down(
        requests in proptest::collection::vec(
            (0_u32..3, 0.0_f64..20.0, 0.0_f64..3.0, 0.0_f64..0.5, 0_u64..60, 0_u8..9),
            0..120,
        ),
        is_open in proptest::bool::ANY,
        length in 0.0_f64..10.0,
    ) {
        let mut ledger = ledger("ttft:p95<500ms,itl:p90<100ms");
        let load = |idx: u32| match is_open {
            true => Load::Rate(f64::from(idx) + 0.5),
            false => Load::Users(idx + 1),
        };
        for idx in 0..3 {
            let start = f64::from(idx) * length;
            let level = ledger.begin_level(load(idx), start);
            ledger.end_level(level, start + length, StoppedBy::Requests);
        }
        for &(level, due, ttft, gap, num_tokens, kind) in &requests {
            let answer = Answer { ttft, gap, num_tokens: num_tokens.max(1) };
            let record = match kind {
                0 => failed(Status::HttpError, ttft),
                1 => given_up(answer, 1.0),
                2 => failed(Status::Empty, 0.0),
                _ => answer.record(),
            };
            let sample = Sample {
                due,
                pacing: if is_open { Pacing::Open } else { Pacing::Closed },
                ..sample(LevelId(level), due + gap, record)
            };
            put(&mut ledger, &sample);
        }
        let mut num_ended = 0;
        for id in (0..3).map(LevelId) {
            let told = ledger.level(id);
            assert_strict(&told);
            num_ended += told.requests.attempted() + told.requests.cancelled;
            proptest::prop_assert!(told.attainment.is_none_or(|share| (0.0..=1.0).contains(&share)));
            proptest::prop_assert!(told.goodput_rps <= told.requests_per_s + 1e-9);
            proptest::prop_assert!(2.0 * told.steady_from_s <= told.duration_s + 1e-9);
            for (low, value, high) in told.ttft_ms.ci95.iter().filter_map(|(name, &[low, high])| {
                let figure = &told.ttft_ms;
                let value = match name.as_str() {
                    "p50" => figure.p50,
                    "p90" => figure.p90,
                    "p95" => figure.p95,
                    _ => None,
                };
                value.map(|value| (low, value, high))
            }) {
                proptest::prop_assert!(low <= value && value <= high);
            }
            ledger.precision(id, 40.0);
            ledger.points(id);
        }
        proptest::prop_assert_eq!(num_ended, requests.len() as u64);
        proptest::prop_assert_eq!(ledger.num_in_flight(), 0);
    }
}

/// The books hear of a request just before its first byte is written. A level's users all ask at its first moment, which
/// is the end of a slice of the timeline: what was opened in one slice must not be closed in the next.
#[test]
fn a_request_told_in_one_slice_and_written_in_the_next_leaves_nothing_open() {
    let mut ledger = ledger("");
    let level = ledger.begin_level(Load::Users(32), 0.0);
    for round in 0..20 {
        for user in 0..32 {
            let told = f64::from(round) + 0.099_999;
            let mut sample = sample(
                level,
                told + 0.000_002 * f64::from(user + 1),
                Answer {
                    ttft: 0.1,
                    gap: 0.01,
                    num_tokens: 50,
                }
                .record(),
            );
            sample.told = told;
            put(&mut ledger, &sample);
        }
    }
    ledger.end_level(level, 20.0, StoppedBy::Duration);
    let told = ledger.level(level);
    assert!(told.steady_s > 10.0, "{}", told.steady_s);
    assert!(told.requests_per_s > 25.0, "{}", told.requests_per_s);
}
