//! Distributions: each figure with its interval, or how many requests it would need.

use crate::stats::{CONFIDENCE, mean, mean_interval, needed_for, quantile, quantile_interval};
use crate::summary::Figure;

/// The percentiles of a figure.
pub(super) const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
/// If so few requests are missing, the tail is as it was measured.
const MISSING_SHARE_MAX: f64 = 0.01;

/// The share of requests whose values are missing because nobody waited for them. They would have been the longest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Missing(pub f64);

impl Missing {
    /// Whether a quantile can be read off the values that are there, if the missing ones are of few requests or beyond it.
    pub fn spares(self, q: f64) -> bool {
        self.0 <= MISSING_SHARE_MAX || q <= 1.0 - self.0
    }

    /// Where among the values that are there the quantile of all lies, when the missing ones are larger than each of
    /// them; none if it is one of the missing.
    ///
    /// ```text
    /// there |==================|   missing |- - -|     q of all = q / (1 - missing) of those that are there
    /// ```
    fn place(self, q: f64) -> Option<f64> {
        let place = q / (1.0 - self.0);
        (place < 1.0).then_some(place)
    }
}

/// Milliseconds of values in seconds, in time order.
pub(super) fn figure_of(in_time_order: &[f64], missing: Missing) -> Figure {
    let mut sorted = in_time_order.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut figure = Figure {
        n: sorted.len() as u64,
        // Without its largest values, a mean is no estimate of anything.
        mean: mean(&sorted)
            .filter(|_| missing.0 <= MISSING_SHARE_MAX)
            .map(ms),
        max: sorted.last().copied().map(ms),
        ..Figure::default()
    };
    if let Some(interval) = mean_interval(in_time_order, CONFIDENCE)
        && figure.mean.is_some()
    {
        figure.ci95.insert("mean".to_owned(), interval.map(ms));
    }
    for (name, q) in QUANTILES {
        let Some(place) = missing.place(q) else {
            continue;
        };
        let Some(interval) = quantile_interval(&sorted, place, CONFIDENCE) else {
            let num = needed_for(place, CONFIDENCE);
            figure.needs.insert(name.to_owned(), num);
            continue;
        };
        *place_of(&mut figure, name) = quantile(&sorted, place).map(ms);
        figure.ci95.insert(name.to_owned(), interval.map(ms));
    }
    figure
}

/// Where a percentile stands.
pub(super) fn place_of<'a>(figure: &'a mut Figure, name: &str) -> &'a mut Option<f64> {
    match name {
        "mean" => &mut figure.mean,
        "p50" => &mut figure.p50,
        "p90" => &mut figure.p90,
        "p95" => &mut figure.p95,
        _ => &mut figure.p99,
    }
}

pub(super) fn ms(seconds: f64) -> f64 {
    seconds * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_the_largest() {
        // 1 to 100 s, of which nobody waited for the last 20.
        let there: Vec<f64> = (1..=80).map(f64::from).collect();
        let figure = figure_of(&there, Missing(0.2));
        let all: Vec<f64> = (1..=100).map(f64::from).collect();
        let truth = quantile(&all, 0.5).map(ms).expect("a median");
        let told = figure.p50.expect("a median");
        assert!((told - truth).abs() < 1_000.0, "{told} is not {truth}");
        assert_eq!((figure.mean, figure.p90), (None, None));
    }
}
