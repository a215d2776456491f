//! Monotone fits over loads, and where they cross a value.
//!
//! Isotonic regression by pooling adjacent violators (Ayer et al. 1955): the closest non-decreasing sequence in
//! weighted least squares. Pooling is also what keeps the noise of a plateau from being its maximum.

/// Where a curve may cross a value, given only its values at the levels: from the earliest to the latest load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crossing {
    pub(super) earliest: f64,
    pub(super) latest: f64,
}

impl Crossing {
    /// `share` of the way from earliest to latest, in logarithms.
    pub(super) fn at(self, share: f64) -> f64 {
        if self.earliest <= 0.0 {
            return self.earliest + (self.latest - self.earliest) * share;
        }
        self.earliest * (self.latest / self.earliest).powf(share)
    }
}

/// The non-decreasing sequence closest to `values` with `weights` (of equal length, positive).
pub(super) fn non_decreasing(values: &[f64], weights: &[f64]) -> Vec<f64> {
    // Pools from left to right: (sum of weights, mean, number of values).
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(values.len());
    for (&value, &weight) in values.iter().zip(weights) {
        let mut pool = (weight, value, 1);
        while let Some(&(before, mean, num)) = pools.last() {
            if mean <= pool.1 {
                break;
            }
            pools.pop();
            let sum = before + pool.0;
            pool = ((sum), (before * mean + pool.0 * pool.1) / sum, num + pool.2);
        }
        pools.push(pool);
    }
    pools
        .iter()
        .flat_map(|&(_, mean, num)| std::iter::repeat_n(mean, num))
        .collect()
}

/// The value at `load` of the line through the points; level beyond the last, in proportion to the load before the first.
pub(super) fn linear(loads: &[f64], values: &[f64], load: f64) -> f64 {
    let after = loads.partition_point(|&level| level < load);
    if after == 0 {
        return values[0] * load / loads[0];
    }
    if after == loads.len() {
        return values[after - 1];
    }
    let (from, to) = (loads[after - 1], loads[after]);
    values[after - 1] + (values[after] - values[after - 1]) * (load - from) / (to - from)
}

/// Where a concave non-decreasing curve through the origin and the points first reaches `target`, which its last value
/// does.
///
/// # Panics
///
/// If no value reaches `target`.
pub(super) fn first_reached(loads: &[f64], values: &[f64], target: f64) -> Crossing {
    let at = values
        .iter()
        .position(|&value| value >= target)
        .expect("the largest value reaches its own share");
    let point = |idx: usize| match idx {
        0 => (0.0, 0.0),
        _ => (loads[idx - 1], values[idx - 1]),
    };
    // With the origin as point 0, the segment ends in point `at + 1`.
    let (from, to) = (point(at), point(at + 1));
    let chord = slope(from, to);
    let latest = from.0 + (target - from.1) / chord;
    let rising = match at {
        0 => chord,
        _ => slope(point(at - 1), from).max(chord),
    };
    let by_left = from.0 + (target - from.1) / rising;
    let by_right = match loads.get(at + 1) {
        Some(_) => {
            let flat = slope(to, point(at + 2)).min(chord);
            if flat > 0.0 {
                to.0 - (to.1 - target) / flat
            } else {
                from.0
            }
        }
        None => from.0,
    };
    Crossing {
        earliest: by_left.max(by_right).clamp(from.0, latest),
        latest,
    }
}

/// Where a convex non-decreasing curve through the points last stays within `limit`, which its first value does; none if
/// it does to the end.
pub(super) fn last_within(loads: &[f64], values: &[f64], limit: f64) -> Option<Crossing> {
    let beyond = values.iter().position(|&value| value > limit)?;
    let before = beyond.checked_sub(1)?;
    let from = (loads[before], values[before]);
    let to = (loads[beyond], values[beyond]);
    let chord = slope(from, to);
    let earliest = from.0 + (limit - from.1) / chord;
    let after = loads
        .get(beyond + 1)
        .map(|&load| (load, values[beyond + 1]));
    let latest = match after.map(|after| slope(to, after)) {
        Some(rising) if rising >= chord => to.0 - (to.1 - limit) / rising,
        // A jump is not convex: it may be anywhere in the gap.
        _ => to.0,
    };
    Some(Crossing {
        earliest,
        latest: latest.clamp(earliest, to.0),
    })
}

fn slope(from: (f64, f64), to: (f64, f64)) -> f64 {
    (to.1 - from.1) / (to.0 - from.0)
}

/// The value that a share `q` of `sorted` lies below, linear between neighbours; none of nothing.
pub(super) fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = q * sorted.len().checked_sub(1)? as f64;
    let below = rank.floor() as usize;
    let above = sorted[(below + 1).min(sorted.len() - 1)];
    // Infinities stand for "never": their differences are no numbers.
    if rank.fract() == 0.0 || above == sorted[below] {
        return Some(sorted[below]);
    }
    Some(sorted[below] + (above - sorted[below]) * rank.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violators_are_pooled_by_weight() {
        let fit = non_decreasing(&[1.0, 3.0, 2.0, 4.0], &[1.0, 1.0, 3.0, 1.0]);
        assert_eq!(fit, [1.0, 2.25, 2.25, 4.0]);
    }

    #[test]
    fn a_falling_sequence_becomes_its_mean() {
        assert_eq!(non_decreasing(&[3.0, 2.0, 1.0], &[1.0; 3]), [2.0; 3]);
    }

    #[test]
    fn extensions_of_neighbouring_chords_meet_at_a_sharp_knee() {
        // min(N, 24)
        let crossing = first_reached(&[1.0, 8.0, 32.0, 64.0], &[1.0, 8.0, 24.0, 24.0], 24.0 * 0.9);
        assert!((crossing.earliest - 21.6).abs() < 1e-9, "{crossing:?}");
        assert!(
            crossing.latest > 24.0 && crossing.latest < 32.0,
            "{crossing:?}"
        );
    }

    #[test]
    fn a_smooth_law_crosses_between_earliest_and_latest() {
        let law = |load: f64| load / (10.0 + load);
        let loads = [1.0, 8.0, 32.0, 64.0, 128.0, 256.0];
        let values = loads.map(law);
        for share in [0.2, 0.5, 0.8, 0.9] {
            let target = share * values[5];
            let truth = 10.0 * target / (1.0 - target);
            let crossing = first_reached(&loads, &values, target);
            assert!(
                crossing.earliest <= truth && truth <= crossing.latest,
                "{share}: {truth} {crossing:?}"
            );
        }
    }

    #[test]
    fn waiting_that_grows_linearly_is_traced_back_to_where_it_began() {
        let wait = |load: f64| 0.1 + (load - 24.0).max(0.0) / 10.0;
        let loads = [1.0, 8.0, 32.0, 64.0, 128.0];
        let crossing = last_within(&loads, &loads.map(wait), 0.2).expect("it leaves");
        assert!((crossing.latest - 25.0).abs() < 1e-9, "{crossing:?}");
        assert!(crossing.earliest >= 8.0, "{crossing:?}");
        assert_eq!(last_within(&loads, &[0.1; 5], 0.2), None);
    }

    #[test]
    fn quantiles_stand_between_their_neighbours() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.25), Some(1.5));
        assert_eq!(quantile(&[1.0, f64::INFINITY], 1.0), Some(f64::INFINITY));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
