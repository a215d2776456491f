//! Which load comes next, on servers whose knees are known.

use super::*;

pub(super) fn limits() -> Search {
    Search {
        first: LEVELS.to_vec(),
        load_max: 1_024.0,
        levels_max: 14,
        level_s: 20.0,
        budget_s: None,
        narrow_ratio: 1.25,
    }
}

/// Measures whatever is asked for, until nothing is.
fn measured<X: Fn(f64) -> f64, T: Fn(f64) -> f64>(
    server: &Server<X, T>,
    search: &Search,
) -> Vec<LoadPoint> {
    let mut points: Vec<LoadPoint> = Vec::new();
    loop {
        let tested: Vec<f64> = points.iter().map(|point| point.load).collect();
        let next = next_level(&points, &tested, search, &Criteria::STANDARD, 9);
        let Some(next) = next else {
            return points;
        };
        assert!(
            !tested.contains(&next.load),
            "{next:?} again after {tested:?}"
        );
        assert!(next.load <= search.load_max, "{next:?}");
        assert!(
            tested.len() < search.levels_max,
            "{next:?} after {tested:?}"
        );
        points.push(server.point(next.load, 11));
    }
}

fn loads(points: &[LoadPoint]) -> Vec<f64> {
    points.iter().map(|point| point.load).collect()
}

#[test]
fn the_search_closes_in_on_the_knee() {
    for (num_slots, noise) in [
        (3.0, 0.0),
        (6.0, 0.05),
        (24.0, 0.02),
        (48.0, 0.05),
        (300.0, 0.02),
    ] {
        let points = measured(&slots(num_slots, noise), &limits());
        let point = check(&points, Verdict::Clear, num_slots);
        assert!(
            point.high <= point.low * 1.6,
            "{point:?} {:?}",
            loads(&points)
        );
    }
}

#[test]
fn planned_levels_come_first_and_in_order() {
    let points = measured(&slots(24.0, 0.02), &limits());
    assert_eq!(loads(&points)[..4], LEVELS);
}

#[test]
fn load_doubles_while_throughput_climbs() {
    let points = measured(&slots(1e6, 0.0), &limits());
    assert_eq!(loads(&points)[4..], [128.0, 256.0, 512.0, 1_024.0]);
}

#[test]
fn users_are_whole_and_rates_need_not_be() {
    let whole = measured(&slots(6.0, 0.02), &limits());
    assert!(
        loads(&whole).iter().all(|load| load.fract() == 0.0),
        "{:?}",
        loads(&whole)
    );
    let open = Server {
        pacing: Pacing::Open,
        requests_per_s: |due: f64| due.min(1.3),
        ttft_s: |due: f64| if due <= 1.3 { 0.05 } else { 8.0 },
        noise: 0.0,
    };
    let search = Search {
        first: vec![0.5, 1.0, 2.0, 4.0],
        ..limits()
    };
    let points = measured(&open, &search);
    let point = told(&points);
    assert!(
        point.low <= 1.3 && 1.3 <= point.high,
        "{point:?} {:?}",
        loads(&points)
    );
    assert!(
        point.high <= point.low * 1.6,
        "{point:?} {:?}",
        loads(&points)
    );
}

#[test]
fn lower_loads_are_measured_if_the_lowest_is_flat() {
    let search = Search {
        first: vec![32.0, 64.0],
        ..limits()
    };
    let points = measured(&slots(4.0, 0.0), &search);
    check(&points, Verdict::Clear, 4.0);
}

#[test]
fn a_budget_ends_the_search() {
    let search = Search {
        budget_s: Some(5.0),
        ..limits()
    };
    assert_eq!(measured(&slots(24.0, 0.02), &search), []);
}

#[test]
fn more_load_is_not_put_on_a_server_that_answers_nobody() {
    let dead = Server {
        pacing: Pacing::Closed,
        requests_per_s: |_| 0.0,
        ttft_s: |_| 0.05,
        noise: 0.0,
    };
    assert_eq!(loads(&measured(&dead, &limits())), [1.0]);
}

#[test]
fn a_search_ends_whatever_the_server_does() {
    // No law at all: every level another throughput and another TTFT.
    let chaos = |salt: u64| {
        move |load: f64| {
            let mut rng = ChaCha8Rng::seed_from_u64(load.to_bits() ^ salt);
            10.0 * uniform(&mut rng)
        }
    };
    for salt in 0..20 {
        let server = Server {
            pacing: Pacing::Closed,
            requests_per_s: chaos(salt),
            ttft_s: chaos(salt + 100),
            noise: 0.3,
        };
        assert!(measured(&server, &limits()).len() <= 14);
    }
}
