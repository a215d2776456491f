//! Where a warm-up ends, and whether anything grows.
//!
//! MSER takes the truncation that makes the mean of the rest most certain, and is known to cut noise as well. So a cut
//! counts only if what it cuts off differs from the rest by more than noise and by more than a little; a series that
//! was steady from the start loses nothing.
//!
//! Source: White 1997, "An effective truncation heuristic for bias reduction in simulation output"; Mann 1945,
//! "Nonparametric tests against trend".

use super::batch::mean;

/// Values below which nothing can be said.
const VALUES_MIN: usize = 16;
/// What is cut off differs from the rest by so many of its standard errors. Far above 2, because the cut is chosen
/// from many and neighbours are alike.
const WARM_UP_ERRORS: f64 = 4.5;
/// A trend in so many standard deviations is none of chance.
const TREND_SCORE: f64 = 3.0;

/// What a rise must amount to besides not being chance: the mean of the last third over that of the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rise(pub f64);

/// How many values at the beginning to leave out, at most half, for the mean of the rest to be most certain.
pub fn mser(values: &[f64]) -> usize {
    let num = values.len();
    // From the back, so that each truncation costs one step.
    let (mut sum, mut squares) = (0.0, 0.0);
    let centre = mean(values).unwrap_or(0.0);
    let mut best = (f64::INFINITY, 0);
    for cut in (0..num).rev() {
        let value = values[cut] - centre;
        sum += value;
        squares += value * value;
        let left = (num - cut) as f64;
        let error = (squares - sum * sum / left).max(0.0) / (left * left);
        if cut <= num / 2 && error <= best.0 {
            best = (error, cut);
        }
    }
    best.1
}

/// How many values at the beginning are warm-up: [`mser`]'s answer if their mean differs from that of the rest, not by
/// chance and by at least `departure` of it; else 0.
pub fn warm_up(values: &[f64], departure: f64) -> usize {
    if values.len() < VALUES_MIN {
        return 0;
    }
    let cut = mser(values);
    let (head, rest) = values.split_at(cut);
    let (Some(of_head), Some(of_rest)) = (mean(head), mean(rest)) else {
        return 0;
    };
    let variance = rest
        .iter()
        .map(|value| (value - of_rest).powi(2))
        .sum::<f64>()
        / rest.len() as f64;
    let error = (variance * (1.0 / head.len() as f64 + 1.0 / rest.len() as f64)).sqrt();
    let difference = (of_head - of_rest).abs();
    let differs = difference > WARM_UP_ERRORS * error && difference > departure * of_rest.abs();
    if differs { cut } else { 0 }
}

/// Mann and Kendall's score of a trend, in standard deviations; 0 of fewer than three values.
pub fn trend(values: &[f64]) -> f64 {
    let num = values.len() as f64;
    let mut score = 0.0;
    for (idx, earlier) in values.iter().enumerate() {
        for later in &values[idx + 1..] {
            score += match later.total_cmp(earlier) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Less => -1.0,
            };
        }
    }
    let variance = num * (num - 1.0) * (2.0 * num + 5.0) / 18.0;
    if values.len() < 3 {
        return 0.0;
    }
    score / variance.sqrt()
}

/// Whether values grow: not by chance, and by at least `rise` from their first third to their last.
pub fn is_growing(values: &[f64], rise: Rise) -> bool {
    if values.len() < VALUES_MIN {
        return false;
    }
    let third = values.len() / 3;
    let first = mean(&values[..third]).unwrap_or(0.0);
    let last = mean(&values[values.len() - third..]).unwrap_or(0.0);
    trend(values) > TREND_SCORE && last > rise.0 * first
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        std::iter::repeat_with(move || rng.random::<f64>() - 0.5)
    }

    #[test]
    fn a_known_warm_up_is_found() {
        for seed in 0..50 {
            let values: Vec<f64> = noise(seed)
                .take(80)
                .enumerate()
                .map(|(idx, noise)| 100.0 - 80.0 * (-(idx as f64) / 5.0).exp() + 8.0 * noise)
                .collect();
            // After 10 values 11 of 100 are missing, after 25 less than one.
            let cut = warm_up(&values, 0.1);
            assert!((8..=30).contains(&cut), "seed {seed}: {cut}");
        }
    }

    #[test]
    fn what_was_steady_from_the_start_loses_nothing() {
        for seed in 0..500 {
            let values: Vec<f64> = noise(seed)
                .take(80)
                .map(|noise| 100.0 + 60.0 * noise)
                .collect();
            assert_eq!(warm_up(&values, 0.1), 0, "seed {seed}");
        }
        assert_eq!(warm_up(&[5.0; 80], 0.1), 0);
    }

    #[test]
    fn at_most_half_is_warm_up() {
        let values: Vec<f64> = (0..80).map(f64::from).collect();
        assert_eq!(warm_up(&values, 0.1), 40);
    }

    #[test]
    fn few_values_have_no_warm_up() {
        assert_eq!(warm_up(&[0.0, 0.0, 9.0, 9.0, 9.0, 9.0], 0.1), 0);
        assert_eq!(warm_up(&[], 0.1), 0);
    }

    #[test]
    fn growth_is_told_from_noise() {
        let growing: Vec<f64> = noise(1)
            .take(40)
            .enumerate()
            .map(|(idx, noise)| idx as f64 + 10.0 * noise)
            .collect();
        assert!(is_growing(&growing, Rise(1.25)));
        let num_alarms = (0..500)
            .filter(|&seed| {
                let flat: Vec<f64> = noise(seed)
                    .take(40)
                    .map(|noise| 20.0 + 20.0 * noise)
                    .collect();
                is_growing(&flat, Rise(1.25))
            })
            .count();
        assert!(num_alarms <= 2, "{num_alarms}");
    }

    #[test]
    fn a_small_rise_is_not_growth() {
        let values: Vec<f64> = (0..40).map(|idx| 100.0 + f64::from(idx) * 0.1).collect();
        assert!(trend(&values) > 3.0 && !is_growing(&values, Rise(1.25)));
    }
}
