//! Servers whose knees are known: as formulae with noise, and one that is simulated request by request.

use std::collections::BinaryHeap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

// Which load comes next.
mod search;
// Which load keeps a promise.
mod capacity;

const TOKENS_PER_REQUEST: f64 = 100.0;
const LEVELS: [f64; 4] = [1.0, 8.0, 32.0, 64.0];

/// A server by its laws: requests a second and TTFT at a load.
struct Server<X, T> {
    pacing: Pacing,
    requests_per_s: X,
    ttft_s: T,
    /// Relative deviation of a block's throughput, and of a request's TTFT.
    noise: f64,
}

/// K slots, two seconds each, 50 ms to the first token; who finds no slot waits.
fn slots(num_slots: f64, noise: f64) -> Server<impl Fn(f64) -> f64, impl Fn(f64) -> f64> {
    Server {
        pacing: Pacing::Closed,
        requests_per_s: move |users: f64| users.min(num_slots) / 2.0,
        ttft_s: move |users: f64| 0.05 + 2.0 * (users - num_slots).max(0.0) / num_slots,
        noise,
    }
}

impl<X: Fn(f64) -> f64, T: Fn(f64) -> f64> Server<X, T> {
    fn points(&self, loads: &[f64], seed: u64) -> Vec<LoadPoint> {
        loads.iter().map(|&load| self.point(load, seed)).collect()
    }

    fn point(&self, load: f64, seed: u64) -> LoadPoint {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ load.to_bits());
        let requests_per_s = (self.requests_per_s)(load);
        let mut noisy = |value: f64| value * (self.noise * normal(&mut rng)).exp();
        let blocks = (0..20)
            .map(|_| noisy(requests_per_s))
            .map(|requests_per_s| Block {
                tokens_per_s: Some(requests_per_s * TOKENS_PER_REQUEST),
                requests_per_s,
            })
            .collect();
        let num_answers = ((requests_per_s * 30.0) as usize).min(100);
        let ttft: Vec<f64> = (0..num_answers)
            .map(|_| noisy((self.ttft_s)(load)))
            .collect();
        LoadPoint {
            pacing: self.pacing,
            load,
            blocks,
            e2e: ttft.iter().map(|ttft| ttft + 1.95).collect(),
            ttft,
        }
    }
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // Twelve uniform values have a variance of one.
    let sum: f64 = (0..12).map(|_| uniform(rng)).sum();
    sum - 6.0
}

fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    f64::from(rng.next_u32()) / 2_f64.powi(32)
}

fn told(points: &[LoadPoint]) -> OperatingPoint {
    operating_point(points, &Criteria::STANDARD, 7).expect("there are enough levels")
}

#[track_caller]
fn check(points: &[LoadPoint], verdict: Verdict, knee: f64) -> OperatingPoint {
    let point = told(points);
    assert_eq!(point.verdict, verdict, "{point:?}");
    assert!(point.low <= knee && knee <= point.high, "{knee}: {point:?}");
    point
}

#[test]
fn a_server_with_slots_runs_best_with_as_many_users() {
    for num_slots in [5.0, 6.0, 12.0, 24.0, 30.0] {
        let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
        let point = check(
            &slots(num_slots, 0.0).points(&loads, 1),
            Verdict::Clear,
            num_slots,
        );
        let n_star = point.n_star.expect("a closed loop");
        assert!((n_star / num_slots - 1.0).abs() < 1e-9, "{point:?}");
        let tokens = point.output_tokens_per_s_max.expect("tokens are counted");
        assert!((tokens - num_slots * 50.0).abs() < 1e-9, "{point:?}");
    }
}

#[test]
fn a_gap_in_which_ttft_may_leave_first_is_no_cliff() {
    let point = check(&slots(6.0, 0.0).points(&LEVELS, 1), Verdict::Interval, 6.0);
    assert!(point.because.contains("not settled"), "{}", point.because);
}

#[test]
fn closer_levels_narrow_the_interval() {
    let server = slots(24.0, 0.0);
    let coarse = told(&server.points(&LEVELS, 1));
    let fine = check(
        &server.points(&[1.0, 8.0, 16.0, 20.0, 22.0, 26.0, 32.0, 64.0], 1),
        Verdict::Clear,
        24.0,
    );
    assert!(
        fine.high / fine.low < coarse.high / coarse.low,
        "{fine:?} {coarse:?}"
    );
    let users = fine.users.expect("a closed loop");
    assert!(
        fine.ttft_ms_p95 < Some(105.0),
        "within the limit by definition: {fine:?}"
    );
    assert!((users / 24.0 - 1.0).abs() < 0.05, "{fine:?}");
}

#[test]
fn a_smooth_law_flattens_where_the_formula_says() {
    // X = N / (2 + N/4): the half of the maximum at 8 users.
    let server = Server {
        pacing: Pacing::Closed,
        requests_per_s: |users: f64| users / (2.0 + users / 4.0),
        ttft_s: |_| 0.05,
        noise: 0.0,
    };
    let loads = [1.0, 8.0, 32.0, 64.0, 128.0, 256.0];
    let max = (server.requests_per_s)(256.0);
    // N = 2 x / (1 - x/4) at x = 0.9 X_max
    let flattened = 2.0 * 0.9 * max / (1.0 - 0.9 * max / 4.0);
    check(&server.points(&loads, 1), Verdict::Clear, flattened / 0.9);
}

#[test]
fn throughput_that_never_flattens_is_not_reached() {
    let point = told(&slots(1e6, 0.0).points(&LEVELS, 1));
    assert_eq!(
        (point.verdict, point.users),
        (Verdict::NotReached, Some(64.0))
    );
    assert!(
        point.because.contains("climbed by 100 %"),
        "{}",
        point.because
    );
}

#[test]
fn throughput_that_collapses_is_a_cliff() {
    // From 40 users on, memory is short and work is thrown away.
    let server = Server {
        pacing: Pacing::Closed,
        requests_per_s: |users: f64| if users <= 40.0 { users / 2.0 } else { 3.0 },
        ttft_s: |users: f64| if users <= 40.0 { 0.05 } else { 9.0 },
        noise: 0.02,
    };
    let point = check(
        &server.points(&[1.0, 8.0, 32.0, 38.0, 45.0, 64.0], 3),
        Verdict::Cliff,
        38.0,
    );
    assert!(point.low > 32.0 && point.high < 45.0, "{point:?}");
    assert!(point.because.contains("never flat"), "{}", point.because);
}

#[test]
fn ttft_that_leaves_before_throughput_is_flat_is_a_cliff() {
    let server = Server {
        pacing: Pacing::Closed,
        requests_per_s: |users: f64| users.min(48.0) / 2.0,
        ttft_s: |users: f64| 0.1 * users,
        noise: 0.02,
    };
    let point = told(&server.points(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], 3));
    assert_eq!(point.verdict, Verdict::Cliff, "{point:?}");
    assert!(point.users < Some(4.0), "{point:?}");
    assert!(
        point.because.starts_with("TTFT p95 leaves"),
        "{}",
        point.because
    );
}

#[test]
fn an_open_loop_saturates_at_its_capacity() {
    let server = Server {
        pacing: Pacing::Open,
        requests_per_s: |due: f64| due.min(12.0),
        ttft_s: |due: f64| {
            if due <= 12.0 {
                0.05
            } else {
                8.0 * (due / 12.0 - 1.0)
            }
        },
        noise: 0.02,
    };
    let point = check(
        &server.points(&[1.0, 4.0, 8.0, 16.0, 32.0], 5),
        Verdict::Clear,
        12.0,
    );
    assert_eq!((point.users, point.n_star), (None, None));
    assert!(point.rps.is_some(), "{point:?}");
}

#[test]
fn a_server_with_one_slot_runs_best_with_one_user() {
    let point = check(
        &slots(1.0, 0.0).points(&[1.0, 8.0, 32.0], 1),
        Verdict::Clear,
        1.0,
    );
    assert_eq!(point.users, Some(1.0));
}

#[test]
fn levels_that_are_all_beyond_the_knee_say_so() {
    let point = told(&slots(4.0, 0.0).points(&[32.0, 64.0, 128.0], 1));
    assert_eq!(point.verdict, Verdict::Interval, "{point:?}");
    assert!(point.low <= 4.0 && point.high >= 4.0, "{point:?}");
    assert!(
        point.because.contains("measure lower ones"),
        "{}",
        point.because
    );
}

#[test]
fn the_interval_covers_the_knee_in_spite_of_noise() {
    let covered = |points: &dyn Fn(u64) -> Vec<LoadPoint>, knee: f64| {
        (0..40)
            .map(|seed| operating_point(&points(seed), &Criteria::STANDARD, seed))
            .filter_map(|point| point.map(|point| point.low <= knee && knee <= point.high))
            .filter(|&is_covered| is_covered)
            .count()
    };
    for noise in [0.02, 0.15] {
        let server = slots(24.0, noise);
        for loads in [&LEVELS[..], &[1.0, 8.0, 16.0, 21.0, 27.0, 32.0, 64.0]] {
            let num = covered(&|seed| server.points(loads, seed), 24.0);
            assert!(
                num >= 35,
                "{num} of 40 with a noise of {noise} at {loads:?}"
            );
        }
    }
}

#[test]
fn a_simulated_server_has_its_knee_at_its_slots() {
    let points: Vec<LoadPoint> = [1, 4, 8, 12, 16, 24, 32, 64]
        .into_iter()
        .map(|users| simulated(users, 16))
        .collect();
    let point = check(&points, Verdict::Clear, 16.0);
    let n_star = point.n_star.expect("a closed loop");
    assert!((n_star / 16.0 - 1.0).abs() < 0.15, "{point:?}");
}

/// Users who ask again at once, before `num_slots` slots; service takes 0.5 s to 1.5 s, the first token a tenth of it.
fn simulated(num_users: usize, num_slots: usize) -> LoadPoint {
    let mut rng = ChaCha8Rng::seed_from_u64(num_users as u64);
    // When a slot is free, in microseconds, soonest first; users queue in order.
    let mut free: BinaryHeap<std::cmp::Reverse<u64>> =
        (0..num_slots).map(|_| std::cmp::Reverse(0)).collect();
    let mut asking: BinaryHeap<std::cmp::Reverse<u64>> =
        (0..num_users).map(|_| std::cmp::Reverse(0)).collect();
    let (warm, end) = (10.0, 70.0);
    let mut ends = vec![0.0; 20];
    let (mut ttft, mut e2e) = (Vec::new(), Vec::new());
    while let Some(std::cmp::Reverse(asked)) = asking.pop() {
        if asked as f64 * 1e-6 >= end {
            continue;
        }
        let std::cmp::Reverse(slot) = free.pop().expect("there is a slot");
        let service = 0.5 + uniform(&mut rng);
        let begun = slot.max(asked);
        let done = begun + (service * 1e6) as u64;
        free.push(std::cmp::Reverse(done));
        asking.push(std::cmp::Reverse(done));
        let since_warm = done as f64 * 1e-6 - warm;
        if since_warm >= 0.0 && since_warm < end - warm {
            ends[(since_warm / 3.0) as usize] += 1.0 / 3.0;
        }
        if asked as f64 * 1e-6 >= warm {
            ttft.push((begun - asked) as f64 * 1e-6 + 0.1 * service);
            e2e.push((done - asked) as f64 * 1e-6);
        }
    }
    let blocks = ends.into_iter().map(|requests_per_s| Block {
        tokens_per_s: None,
        requests_per_s,
    });
    LoadPoint {
        pacing: Pacing::Closed,
        load: num_users as f64,
        blocks: blocks.collect(),
        ttft,
        e2e,
    }
}

#[test]
fn the_same_seed_tells_the_same() {
    let points = slots(24.0, 0.1).points(&LEVELS, 1);
    assert_eq!(told(&points), told(&points));
}

/// Case E4: nothing to divide by.
#[test]
fn too_little_is_no_point() {
    let server = slots(24.0, 0.0);
    let of = |points: &[LoadPoint]| operating_point(points, &Criteria::STANDARD, 1);
    assert_eq!(of(&[]), None);
    assert_eq!(of(&server.points(&[8.0], 1)), None, "one level");
    assert_eq!(
        of(&server.points(&[8.0, 8.0, 8.0], 1)),
        None,
        "one load, thrice"
    );
    let mut silent = server.points(&LEVELS, 1);
    silent.iter_mut().for_each(|point| point.blocks.clear());
    assert_eq!(of(&silent), None, "no steady window");
    let dead = Server {
        pacing: Pacing::Closed,
        requests_per_s: |_| 0.0,
        ttft_s: |_| 0.05,
        noise: 0.0,
    };
    assert_eq!(of(&dead.points(&LEVELS, 1)), None, "every request failed");
    let mut mixed = server.points(&LEVELS, 1);
    mixed[0].pacing = Pacing::Open;
    assert_eq!(of(&mixed), None, "users and rates");
}

/// Case E4: a figure that is there is a number.
#[test]
fn hostile_levels_give_finite_figures() {
    let mut points = slots(24.0, 0.1).points(&[1.0, 8.0, 8.0, 32.0, 64.0], 1);
    points[1].ttft.clear();
    points[1].e2e.clear();
    points[2].blocks.truncate(1);
    points[3].ttft[0] = f64::NAN;
    points[3].blocks[0].tokens_per_s = Some(f64::INFINITY);
    points[4]
        .blocks
        .iter_mut()
        .for_each(|block| block.tokens_per_s = Some(0.0));
    points[4].ttft.clear();
    points.push(LoadPoint {
        load: f64::NAN,
        ..points[0].clone()
    });
    let point = told(&points);
    for value in [
        point.users,
        point.n_star,
        point.output_tokens_per_s,
        point.output_tokens_per_s_max,
        point.ttft_ms_p95,
        Some(point.low),
        Some(point.high),
    ] {
        assert!(value.is_some_and(f64::is_finite), "{point:?}");
    }
    assert!(
        !point.because.contains("NaN") && !point.because.contains("inf"),
        "{}",
        point.because
    );
}
