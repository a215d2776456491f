//! Means and rates of values that depend on their neighbours: batch means.
//!
//! Means of long enough stretches hardly depend on each other, so Student's t holds for them where it would not for
//! the values. Stretches are lengthened until their means look independent or there are few of them.
//!
//! Source: Law and Kelton, "Simulation Modeling and Analysis", chapter 9.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Batches to begin with; below the smaller number, an interval costs more in width than it gains in honesty.
const BATCHES_MAX: usize = 32;
const BATCHES_MIN: usize = 8;
/// Correlation between neighbouring batches that may be noise.
const CORRELATION_MAX: f64 = 0.2;

/// The arithmetic mean; none of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The interval of the mean of values in time order, which may depend on their neighbours; none of fewer than two.
pub fn mean_interval(in_time_order: &[f64], confidence: f64) -> Option<[f64; 2]> {
    t_interval(&batches(in_time_order), confidence)
}

/// Means of stretches of equal length that look independent: at most 32, and 8 or more if there are as many values.
/// What is left over at the beginning belongs to none.
pub fn batches(in_time_order: &[f64]) -> Vec<f64> {
    let mut num_batches = in_time_order.len().min(BATCHES_MAX);
    loop {
        let means = means_of(in_time_order, num_batches);
        if num_batches / 2 < BATCHES_MIN || correlation(&means) <= CORRELATION_MAX {
            return means;
        }
        num_batches /= 2;
    }
}

/// Student's interval of the mean of independent values; none of fewer than two.
pub fn t_interval(values: &[f64], confidence: f64) -> Option<[f64; 2]> {
    let num_free = values.len().checked_sub(1).filter(|&free| free > 0)? as f64;
    let middle = mean(values)?;
    let variance = values
        .iter()
        .map(|value| (value - middle).powi(2))
        .sum::<f64>()
        / num_free;
    let t = StudentsT::new(0.0, 1.0, num_free).ok()?;
    let half = t.inverse_cdf(0.5 + confidence / 2.0) * (variance / values.len() as f64).sqrt();
    Some([middle - half, middle + half])
}

fn means_of(values: &[f64], num_batches: usize) -> Vec<f64> {
    let Some(len) = values.len().checked_div(num_batches) else {
        return Vec::new();
    };
    let num_left_over = values.len() - len * num_batches;
    values[num_left_over..]
        .chunks_exact(len)
        .filter_map(mean)
        .collect()
}

/// Between each value and the next; 0 if nothing varies.
fn correlation(values: &[f64]) -> f64 {
    let middle = mean(values).unwrap_or(0.0);
    let total: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let shared: f64 = values
        .windows(2)
        .map(|pair| (pair[0] - middle) * (pair[1] - middle))
        .sum();
    if total > 0.0 { shared / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CONFIDENCE;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn students_interval_is_that_of_the_textbook() {
        // t(0.975, 4) = 2.776445; mean 3, standard deviation sqrt(2.5).
        let [low, high] = t_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], CONFIDENCE).expect("five");
        let half = 2.776_445 * (2.5_f64 / 5.0).sqrt();
        assert!((low - (3.0 - half)).abs() < 1e-5 && (high - (3.0 + half)).abs() < 1e-5);
        assert_eq!(t_interval(&[1.0], CONFIDENCE), None);
        assert_eq!(t_interval(&[], CONFIDENCE), None);
    }

    #[test]
    fn values_that_never_vary_have_an_interval_without_width() {
        assert_eq!(mean_interval(&[2.0; 40], CONFIDENCE), Some([2.0, 2.0]));
    }

    /// How often the interval of the mean of an AR(1) series around 0 holds it.
    fn coverage(memory: f64, len: usize) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let num_held = (0..1_000)
            .filter(|_| {
                let mut value = 0.0;
                let series: Vec<f64> = (0..len + 50)
                    .map(|_| {
                        value = memory * value + rng.random::<f64>() - 0.5;
                        value
                    })
                    .collect();
                let [low, high] = mean_interval(&series[50..], CONFIDENCE).expect("many");
                (low..=high).contains(&0.0)
            })
            .count();
        num_held as f64 / 1_000.0
    }

    #[test]
    fn an_interval_of_a_mean_holds_it_as_often_as_it_says() {
        let coverage = coverage(0.0, 200);
        assert!((0.93..0.97).contains(&coverage), "{coverage}");
    }

    #[test]
    fn neighbours_that_resemble_each_other_widen_the_interval() {
        // Taken for independent, 600 such values would cover in about half of all cases.
        let coverage = coverage(0.8, 600);
        assert!((0.90..0.98).contains(&coverage), "{coverage}");
    }
}
