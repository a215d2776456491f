//! Which load keeps a promise.

use super::search::limits;
use super::*;
use crate::slo::Slo;
use crate::summary::{Counts, Figure, Level};

fn level(users: u32, p95_ms: Option<f64>) -> Level {
    Level {
        users: Some(users),
        requests: Counts {
            ok: 1_000,
            ..Counts::default()
        },
        ttft_ms: Figure {
            n: 1_000,
            p95: p95_ms,
            max: p95_ms.map(|p95| p95 * 3.0),
            ..Figure::default()
        },
        ..Level::default()
    }
}

fn slo() -> Slo {
    "ttft:p95<800ms".parse().expect("an SLO")
}

fn outcomes(levels: &[Level]) -> Vec<String> {
    let told = slo_capacity(levels, &slo());
    told.levels.into_iter().map(|level| level.outcome).collect()
}

#[test]
fn the_limit_lies_between_the_last_that_meets_it_and_the_first_that_misses() {
    let levels = [
        level(64, Some(3_200.0)),
        level(1, Some(50.0)),
        level(16, Some(200.0)),
    ];
    let told = slo_capacity(&levels, &slo());
    // 200 ms at 16 and 3,200 ms at 64: twice the load is four times the wait.
    assert_eq!(told.largest, Some(16.0));
    let estimate = told.estimate.expect("between 16 and 64");
    assert!((estimate - 32.0).abs() < 1e-9, "{estimate}");
    assert_eq!(told.slo, "ttft:p95<800ms");
    assert_eq!(outcomes(&levels), ["met", "met", "missed"]);
}

#[test]
fn a_percentile_that_is_missing_is_unknown_and_stops_nothing() {
    let levels = [
        level(8, Some(100.0)),
        level(16, None),
        level(32, Some(900.0)),
    ];
    let told = slo_capacity(&levels, &slo());
    assert_eq!(outcomes(&levels), ["met", "unknown", "missed"]);
    assert_eq!(told.largest, Some(8.0));
    assert!(
        told.estimate > Some(8.0) && told.estimate < Some(32.0),
        "{told:?}"
    );
}

#[test]
fn a_smaller_percentile_over_the_limit_is_enough_to_miss() {
    let mut few = level(8, None);
    few.ttft_ms.p50 = Some(900.0);
    assert_eq!(outcomes(&[few]), ["missed"]);
}

#[test]
fn many_requests_without_one_over_the_limit_are_enough_to_meet() {
    let p99: Slo = "ttft:p99<800ms".parse().expect("an SLO");
    let outcome = |n: u64| {
        let mut level = level(8, Some(100.0));
        level.ttft_ms.n = n;
        slo_capacity(&[level], &p99).levels[0].outcome.clone()
    };
    // 0.99^298 = 0.0500 and a little more
    assert_eq!(
        (outcome(298).as_str(), outcome(299).as_str()),
        ("unknown", "met")
    );
}

#[test]
fn requests_that_failed_were_too_slow() {
    let mut shed = level(8, Some(10.0));
    shed.requests.http_error = 100;
    let told = slo_capacity(&[shed.clone()], &slo());
    assert_eq!(told.levels[0].outcome, "missed");
    assert!(
        told.levels[0].because[0].contains("9.1 % of requests failed"),
        "{told:?}"
    );
    shed.requests.http_error = 40;
    assert_eq!(outcomes(&[shed]), ["met"]);
}

#[test]
fn a_larger_load_that_meets_it_is_told() {
    let levels = [
        level(8, Some(100.0)),
        level(16, Some(900.0)),
        level(32, Some(700.0)),
    ];
    let told = slo_capacity(&levels, &slo());
    assert_eq!((told.largest, told.estimate), (Some(32.0), None));
    assert!(
        told.levels[1].because[1].contains("not monotone"),
        "{told:?}"
    );
}

/// Case E4: nothing to divide by.
#[test]
fn levels_without_requests_are_unknown() {
    let empty = Level {
        users: Some(8),
        ..Level::default()
    };
    assert_eq!(outcomes(&[empty]), ["unknown"]);
    let none = slo_capacity(&[], &slo());
    assert_eq!((none.largest, none.estimate), (None, None));
    let mut failed = level(8, None);
    failed.requests = Counts {
        connect: 5,
        ..Counts::default()
    };
    assert_eq!(outcomes(&[failed]), ["missed"]);
}

#[test]
fn the_search_takes_the_middle_until_it_is_narrow() {
    for capacity in [0.5, 1.0, 5.0, 40.0, 700.0, 5_000.0] {
        let mut levels: Vec<Level> = Vec::new();
        loop {
            let tested: Vec<f64> = levels
                .iter()
                .filter_map(|level| level.users)
                .map(f64::from)
                .collect();
            let Some(next) = next_level_for_slo(&levels, &tested, &slo(), &limits()) else {
                break;
            };
            assert!(!tested.contains(&next.load), "{next:?} after {tested:?}");
            levels.push(level(next.load as u32, Some(790.0 * next.load / capacity)));
        }
        let told = slo_capacity(&levels, &slo());
        assert!(levels.len() <= limits().levels_max);
        match told.largest {
            None => assert!(capacity < 1.0, "{capacity}: {told:?}"),
            Some(largest) => {
                assert!(largest <= capacity * 1.02, "{capacity}: {told:?}");
                let near = largest * 1.3 + 1.0 >= capacity.min(limits().load_max);
                assert!(near, "{capacity}: {told:?}");
            }
        }
    }
}
