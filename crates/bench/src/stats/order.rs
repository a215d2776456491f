//! Percentiles and their intervals from order statistics.
//!
//! How many of `n` values lie below the true quantile is binomial whatever the distribution, so two ranks bracket it
//! with a known probability. Where no rank is high enough, the values cannot bound the quantile from above.
//!
//! Source: David and Nagaraja, "Order Statistics", 3rd edition, section 7.1; Clopper and Pearson 1934.

use statrs::distribution::{Binomial, DiscreteCDF};
use statrs::function::beta::beta_reg;

/// The value that a share `q` of `sorted` does not exceed, interpolated linearly as numpy does; none of nothing.
///
/// # Panics
///
/// If `q` is outside [0, 1].
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&q), "a share, not {q}");
    let last = sorted.len().checked_sub(1)?;
    let position = q * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (position - below as f64) * (sorted[above] - sorted[below]))
}

/// The interval of ranks (from 1) within `n` values that holds the true quantile with at least `confidence`, with at
/// most half of the rest on each side; none if `n` is too small.
///
/// ```text
/// 1000 values, p99, 95 %: ranks 983 to 997
/// ```
///
/// # Cost
///
/// A bisection over binomial sums.
pub fn interval_ranks(n: u64, q: f64, confidence: f64) -> Option<(u64, u64)> {
    if n < needed_for(q, confidence) {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let below = Binomial::new(q, n).ok()?;
    // The largest rank that at most the tail falls short of, and the smallest that at most the tail reaches.
    let low = bisect(1, n, |rank| below.cdf(rank - 1) > tail).saturating_sub(1);
    let high = bisect(1, n, |rank| below.cdf(rank - 1) >= 1.0 - tail);
    Some((low.max(1), high))
}

/// The interval of values that holds the true quantile with at least `confidence`; none if there are too few.
pub fn quantile_interval(sorted: &[f64], q: f64, confidence: f64) -> Option<[f64; 2]> {
    let (low, high) = interval_ranks(sorted.len() as u64, q, confidence)?;
    Some([sorted[low as usize - 1], sorted[high as usize - 1]])
}

/// How many independent values it takes to bound the quantile `q` on both sides: 6 for the median, 368 for p99.
///
/// # Panics
///
/// If `q` or `confidence` is not strictly between 0 and 1.
pub fn needed_for(q: f64, confidence: f64) -> u64 {
    assert!(q > 0.0 && q < 1.0 && confidence > 0.0 && confidence < 1.0);
    let tail = (1.0 - confidence) / 2.0;
    // All values on one side of the quantile must be improbable.
    let on_one_side = q.max(1.0 - q);
    (tail.ln() / on_one_side.ln()).ceil() as u64
}

/// The interval of a share of which `num` in `total` were seen (Clopper and Pearson: at least `confidence`); none of
/// nothing.
pub fn share_interval(num: u64, total: u64, confidence: f64) -> Option<[f64; 2]> {
    let tail = (1.0 - confidence) / 2.0;
    let rest = total.checked_sub(num).filter(|_| total > 0)?;
    let (seen, unseen) = (num as f64, rest as f64);
    let low = match num {
        0 => 0.0,
        _ => root(|share| beta_reg(seen, unseen + 1.0, share) - tail),
    };
    let high = match rest {
        0 => 1.0,
        _ => root(|share| beta_reg(seen + 1.0, unseen, share) - (1.0 - tail)),
    };
    Some([low, high])
}

/// The first number in `from..=to` that `holds`, which must hold from some number on; `to` if none does before.
fn bisect(from: u64, to: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Where an increasing function of a share is zero. Bisection, because the library's inverse does not always converge.
fn root(increasing: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if increasing(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CONFIDENCE;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_percentile_interpolates_as_numpy_does() {
        // numpy.percentile([1, 2, 4, 8], [0, 25, 50, 90, 100])
        let values = [1.0, 2.0, 4.0, 8.0];
        for (q, expected) in [(0.0, 1.0), (0.25, 1.75), (0.5, 3.0), (0.9, 6.8), (1.0, 8.0)] {
            let told = quantile(&values, q).expect("four values");
            assert!((told - expected).abs() < 1e-12, "{q}: {told}");
        }
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }

    #[test]
    fn a_claim_needs_so_many_requests() {
        let needs = [0.5, 0.9, 0.95, 0.99, 0.999].map(|q| needed_for(q, CONFIDENCE));
        assert_eq!(needs, [6, 36, 72, 368, 3688]);
    }

    #[test]
    fn ranks_are_those_of_the_tables() {
        for (n, q, expected) in [
            (367, 0.99, None),
            (368, 0.99, Some((360, 368))),
            (1_000, 0.99, Some((983, 997))),
            (3_000, 0.99, Some((2_959, 2_981))),
            (10_000, 0.99, Some((9_880, 9_920))),
            (100, 0.95, Some((90, 100))),
            (1_000, 0.95, Some((936, 964))),
            (5, 0.5, None),
            (6, 0.5, Some((1, 6))),
        ] {
            assert_eq!(interval_ranks(n, q, CONFIDENCE), expected, "{n} at {q}");
        }
    }

    #[test]
    fn an_interval_holds_the_true_percentile_as_often_as_it_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (q, n) in [(0.5, 40), (0.9, 120), (0.99, 600)] {
            let truth = -f64::ln(1.0 - q);
            let num_held = (0..2_000)
                .filter(|_| {
                    let mut values: Vec<f64> = (0..n)
                        .map(|_| -f64::ln(1.0 - rng.random::<f64>()))
                        .collect();
                    values.sort_by(f64::total_cmp);
                    let [low, high] = quantile_interval(&values, q, CONFIDENCE).expect("enough");
                    (low..=high).contains(&truth)
                })
                .count();
            let coverage = num_held as f64 / 2_000.0;
            // At least 95 %; by how much more depends on how coarse the ranks are.
            assert!((0.94..0.985).contains(&coverage), "{q}: {coverage}");
        }
    }

    #[test]
    fn a_share_of_none_or_all_has_an_interval_too() {
        // 3/n, roughly, and exactly 1 - 0.025^(1/n).
        let [low, high] = share_interval(0, 20, CONFIDENCE).expect("20 tries");
        assert_eq!(low, 0.0);
        assert!((high - (1.0 - 0.025_f64.powf(0.05))).abs() < 1e-9, "{high}");
        let [low, high] = share_interval(20, 20, CONFIDENCE).expect("20 tries");
        assert!((low - 0.025_f64.powf(0.05)).abs() < 1e-9 && high == 1.0);
        // R: binom.test(8, 10)$conf.int
        let [low, high] = share_interval(8, 10, CONFIDENCE).expect("10 tries");
        assert!((low - 0.443_904_5).abs() < 1e-6 && (high - 0.974_789_3).abs() < 1e-6);
        assert_eq!(share_interval(0, 0, CONFIDENCE), None);
    }
}
