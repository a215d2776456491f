//! Arrivals are what they are called. The bounds are five standard errors wide, and the seeds fixed.

use super::*;

const SEQUENCE: Sequence = Sequence {
    seed: 7,
    level: LevelId(0),
    class: None,
};

fn times(process: Process, num: usize) -> Vec<f64> {
    let arrivals = Arrivals::new(process, SEQUENCE).expect("sound");
    arrivals.take(num).collect()
}

/// Variance over mean of the number of arrivals in windows of `span` seconds: 1 for Poisson.
fn dispersion(times: &[f64], span: f64) -> f64 {
    let last = times.last().copied().expect("some");
    let mut counts = vec![0.0; (last / span) as usize];
    for time in times {
        if let Some(count) = counts.get_mut((time / span) as usize) {
            *count += 1.0;
        }
    }
    let num = counts.len() as f64;
    let mean = counts.iter().sum::<f64>() / num;
    let squares: f64 = counts
        .iter()
        .map(|count| (count - mean) * (count - mean))
        .sum();
    squares / (num - 1.0) / mean
}

#[test]
fn constant_is_constant_to_the_millionth() {
    let times = times(Process::Constant { rate: 3.0 }, 1_000_001);
    assert_eq!(times[0], 0.0);
    for (idx, time) in times.iter().enumerate() {
        assert_eq!(*time, idx as f64 / 3.0);
    }
}

#[test]
fn poisson_has_its_rate_and_the_variance_of_independent_users() {
    let times = times(Process::Poisson { rate: 5.0 }, 100_000);
    let rate = times.len() as f64 / times[times.len() - 1];
    assert!((rate / 5.0 - 1.0).abs() < 0.016, "{rate}");
    let dispersion = dispersion(&times, 10.0);
    // 2000 windows: the standard error of the index is sqrt(2 / 2000) = 0.032.
    assert!((dispersion - 1.0).abs() < 0.16, "{dispersion}");
}

#[test]
fn burstiness_below_one_bunches_and_above_one_spaces() {
    // In the long run the index of dispersion of a renewal process is the squared variation of its gaps.
    for (burstiness, expected) in [(0.25, 4.0), (1.0, 1.0), (4.0, 0.25)] {
        let process = Process::Gamma {
            rate: 5.0,
            burstiness,
        };
        let times = times(process, 200_000);
        let rate = times.len() as f64 / times[times.len() - 1];
        assert!((rate / 5.0 - 1.0).abs() < 0.025, "{burstiness}: {rate}");
        let dispersion = dispersion(&times, 40.0);
        assert!(
            (dispersion / expected - 1.0).abs() < 0.2,
            "{burstiness}: {dispersion}"
        );
    }
}

#[test]
fn a_count_varies_from_seed_to_seed() {
    // A sequence stretched to an exact total would give the same count each time.
    let count = |seed| {
        let sequence = Sequence { seed, ..SEQUENCE };
        let arrivals = Arrivals::new(Process::Poisson { rate: 10.0 }, sequence).expect("sound");
        arrivals.take_while(|time| *time < 10.0).count() as f64
    };
    let counts: Vec<f64> = (0..400).map(count).collect();
    let mean = counts.iter().sum::<f64>() / 400.0;
    let variance = counts
        .iter()
        .map(|count| (count - mean).powi(2))
        .sum::<f64>()
        / 399.0;
    assert!((mean - 100.0).abs() < 2.5, "{mean}");
    assert!((variance / 100.0 - 1.0).abs() < 0.36, "{variance}");
}

#[test]
fn a_seed_gives_the_same_arrivals_and_every_level_and_class_its_own() {
    let of = |sequence| -> Vec<f64> {
        let arrivals = Arrivals::new(Process::Poisson { rate: 1.0 }, sequence).expect("sound");
        arrivals.take(50).collect()
    };
    assert_eq!(of(SEQUENCE), of(SEQUENCE));
    let others = [
        Sequence {
            seed: 8,
            ..SEQUENCE
        },
        Sequence {
            level: LevelId(1),
            ..SEQUENCE
        },
        Sequence {
            class: Some(ClassId(0)),
            ..SEQUENCE
        },
    ];
    for other in others {
        assert_ne!(of(SEQUENCE), of(other), "{other:?}");
    }
}

#[test]
fn a_ramp_has_as_many_arrivals_in_each_part_as_its_rate_says() {
    let process = Process::Ramp {
        from: 100.0,
        to: 500.0,
        seconds: 100.0,
    };
    let times = times(process, 100_000);
    let count = |from: f64, to: f64| {
        times
            .iter()
            .filter(|time| (from..to).contains(*time))
            .count() as f64
    };
    for (from, to, expected) in [
        (0.0, 25.0, 3_750.0),
        (75.0, 100.0, 11_250.0),
        (100.0, 120.0, 10_000.0),
    ] {
        let counted = count(from, to);
        let error = (counted - expected).abs() / f64::sqrt(expected);
        assert!(error < 5.0, "{from}..{to}: {counted}, expected {expected}");
    }
}

#[test]
fn a_ramp_to_nothing_ends_and_a_flat_one_is_poisson() {
    let down = Process::Ramp {
        from: 20.0,
        to: 0.0,
        seconds: 10.0,
    };
    let down = times(down, 10_000);
    assert!((50..150).contains(&down.len()), "{}", down.len());
    assert!(down.iter().all(|time| *time <= 10.0));
    let flat = Process::Ramp {
        from: 5.0,
        to: 5.0,
        seconds: 1.0,
    };
    let poisson = times(Process::Poisson { rate: 5.0 }, 1000);
    for (left, right) in times(flat, 1000).iter().zip(poisson) {
        assert!((left - right).abs() < 1e-6, "{left} {right}");
    }
}

#[test]
fn a_replay_starts_at_once_keeps_its_gaps_and_ends() {
    let process = Process::Replay {
        times: [3.0, 4.0, 4.0, 9.0].into(),
        speed: 2.0,
    };
    assert_eq!(process.mean_rate(), Some(1.0));
    assert_eq!(times(process, 10), [0.0, 0.5, 0.5, 3.0]);
}

#[test]
fn due_times_never_go_back() {
    let processes = [
        Process::Poisson { rate: 1e6 },
        Process::Gamma {
            rate: 1.0,
            burstiness: 0.01,
        },
        Process::Ramp {
            from: 0.0,
            to: 1e-3,
            seconds: 1e4,
        },
        Process::Ramp {
            from: 1e3,
            to: 0.5,
            seconds: 3.0,
        },
    ];
    for process in processes {
        let times = times(process.clone(), 10_000);
        assert!(
            times.iter().all(|time| time.is_finite() && *time >= 0.0),
            "{process:?}"
        );
        assert!(
            times.windows(2).all(|pair| pair[0] <= pair[1]),
            "{process:?}"
        );
    }
}

#[test]
fn numbers_that_make_no_arrivals_are_refused() {
    let refused = [
        Process::Constant { rate: 0.0 },
        Process::Poisson { rate: f64::NAN },
        Process::Poisson { rate: -1.0 },
        Process::Gamma {
            rate: 1.0,
            burstiness: 0.0,
        },
        Process::Ramp {
            from: 0.0,
            to: 0.0,
            seconds: 1.0,
        },
        Process::Ramp {
            from: 1.0,
            to: f64::INFINITY,
            seconds: 1.0,
        },
        Process::Replay {
            times: [0.0, 2.0, 1.0].into(),
            speed: 1.0,
        },
        Process::Replay {
            times: [0.0].into(),
            speed: 0.0,
        },
    ];
    for process in refused {
        assert!(
            Arrivals::new(process.clone(), SEQUENCE).is_err(),
            "{process:?}"
        );
    }
}
