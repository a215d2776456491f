//! Where throughput flattens, where TTFT leaves and where throughput drops, by one figure of each at every level.

use super::Criteria;
use super::curve::{Crossing, first_reached, last_within, linear, non_decreasing};

/// What one level comes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) load: f64,
    pub(super) throughput: f64,
    pub(super) num_blocks: usize,
    /// None if no answer came.
    pub(super) ttft_p95: Option<f64>,
    pub(super) num_requests: usize,
}

/// Where between the earliest and the latest a crossing is taken to be, in [0, 1].
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) flattened: f64,
    pub(super) left: f64,
}

impl Draw {
    pub(super) const HALF_WAY: Draw = Draw {
        flattened: 0.5,
        left: 0.5,
    };
}

/// How throughput goes on at the largest load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The last doubling still brought it to its maximum.
    Climbing,
    /// It is flat, or falls.
    Settled,
}

/// Loads, ascending, and the value at each.
type Curve = (Vec<f64>, Vec<f64>);

/// The loads of the definition, and the fits they were read from.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// `F`.
    pub(super) flattened: f64,
    /// The first level that reaches `X_max`.
    full: f64,
    flat_share: f64,
    flat_within: Crossing,
    left_within: Option<Crossing>,
    /// `L`; none if TTFT stayed.
    pub(super) left: Option<f64>,
    /// `D`; none if throughput never fell.
    pub(super) dropped: Option<f64>,
    pub(super) course: Course,
    /// Of the last doubling up to the largest load, by the chords.
    pub(super) gain: f64,
    throughput: Curve,
    ttft: Curve,
}

/// How many times `F` throughput must stay flat: over a doubling.
const FLAT_OVER: f64 = 2.0;

impl Place {
    /// `figures` ascend in load and the largest throughput is positive; `origin` is the load below which nothing is flat.
    pub(super) fn of(figures: &[Figures], origin: f64, criteria: &Criteria, draw: Draw) -> Place {
        let loads: Vec<f64> = figures.iter().map(|level| level.load).collect();
        let risen = risen(figures, criteria.flat_share);
        let fit = non_decreasing(
            &figures[..risen]
                .iter()
                .map(|level| level.throughput)
                .collect::<Vec<_>>(),
            &figures[..risen]
                .iter()
                .map(|level| level.num_blocks as f64)
                .collect::<Vec<_>>(),
        );
        let max = fit[risen - 1];
        let target = max * criteria.flat_share;
        let mut flat = first_reached(&loads[..risen], &fit, target);
        if flat.latest < loads[0] {
            flat.earliest = flat.earliest.min(origin * criteria.flat_share);
        }
        let flattened = flat.at(draw.flattened);
        let full = fit.partition_point(|&value| value < max);
        let dropped = figures.get(risen).map(|fallen| {
            let (from, fell) = (loads[risen - 1], max - fallen.throughput);
            from + (fallen.load - from) * (max - target) / fell
        });
        let (mut ttft, left) = ttft(figures, criteria);
        let largest = loads[risen - 1];
        let mut fitted = fit;
        let mut loads = loads;
        fitted.extend(figures[risen..].iter().map(|level| level.throughput));
        let gain = max / linear(&loads, &fitted, largest / 2.0) - 1.0;
        let first_full = loads[full];
        let left_at = left.map(|(crossing, limit)| (crossing.at(draw.left), limit));
        // So that figures at the point agree with what places it.
        insert(&mut loads, &mut fitted, (flattened, target));
        if let Some(left) = left_at {
            insert(&mut ttft.0, &mut ttft.1, left);
        }
        Place {
            flattened,
            full: first_full,
            flat_share: criteria.flat_share,
            flat_within: flat,
            left_within: left.map(|(crossing, _)| crossing),
            left: left_at.map(|(load, _)| load),
            dropped,
            course: match dropped {
                None if flattened > largest / 2.0 => Course::Climbing,
                _ => Course::Settled,
            },
            gain,
            throughput: (loads, fitted),
            ttft,
        }
    }

    /// `min(S, L, D)` as drawn.
    pub(super) fn point(&self) -> f64 {
        self.point_with(self.flattened, self.left)
    }

    /// The point if the curves bend as early, and as late, as they can.
    pub(super) fn bounds(&self) -> Crossing {
        let left = |side: fn(Crossing) -> f64| self.left_within.map(side);
        Crossing {
            earliest: self.point_with(self.flat_within.earliest, left(|left| left.earliest)),
            latest: self.point_with(self.flat_within.latest, left(|left| left.latest)),
        }
    }

    fn point_with(&self, flattened: f64, left: Option<f64>) -> f64 {
        (flattened / self.flat_share)
            .min(self.full)
            .min(left.unwrap_or(f64::INFINITY))
            .min(self.dropped.unwrap_or(f64::INFINITY))
    }

    /// Whether no load is right, wherever within the gaps between levels the curves bend.
    pub(super) fn is_cliff(&self) -> bool {
        let leaves_first = |left: Crossing| left.latest < self.flat_within.earliest;
        self.left_within.is_some_and(leaves_first)
            || self
                .dropped
                .is_some_and(|dropped| dropped < FLAT_OVER * self.flattened)
    }

    /// Whether TTFT leaves before throughput flattens, as drawn.
    pub(super) fn leaves_before_flat(&self) -> bool {
        self.left.is_some_and(|left| left < self.flattened)
    }

    pub(super) fn throughput_at(&self, load: f64) -> f64 {
        linear(&self.throughput.0, &self.throughput.1, load)
    }

    pub(super) fn throughput_max(&self) -> f64 {
        self.throughput.1.iter().copied().fold(0.0, f64::max)
    }

    /// TTFT p95 of the fit in seconds; that of the lowest level below it.
    pub(super) fn ttft_at(&self, load: f64) -> Option<f64> {
        let (loads, values) = &self.ttft;
        let lowest = *loads.first()?;
        Some(linear(loads, values, load.max(lowest)))
    }

    /// `T_0`.
    pub(super) fn ttft_light(&self) -> Option<f64> {
        self.ttft.1.first().copied()
    }
}

/// Adds a point to a curve.
fn insert(loads: &mut Vec<f64>, values: &mut Vec<f64>, point: (f64, f64)) {
    let at = loads.partition_point(|&load| load < point.0);
    loads.insert(at, point.0);
    values.insert(at, point.1);
}

/// How many levels there are before throughput has fallen behind its peak.
fn risen(figures: &[Figures], flat_share: f64) -> usize {
    let peak = figures
        .iter()
        .map(|level| level.throughput)
        .enumerate()
        .fold(
            (0, 0.0),
            |best, level| if level.1 > best.1 { level } else { best },
        );
    let fallen = figures[peak.0..]
        .iter()
        .position(|level| level.throughput < peak.1 * flat_share);
    fallen.map_or(figures.len(), |after| peak.0 + after)
}

/// The fit of TTFT p95 over the loads at which it is known, where it leaves, and the limit that it crosses there.
fn ttft(figures: &[Figures], criteria: &Criteria) -> (Curve, Option<(Crossing, f64)>) {
    let known: Vec<(&Figures, f64)> = figures
        .iter()
        .filter_map(|level| Some((level, level.ttft_p95?)))
        .collect();
    let loads: Vec<f64> = known.iter().map(|(level, _)| level.load).collect();
    let weights: Vec<f64> = known
        .iter()
        .map(|(level, _)| level.num_requests as f64)
        .collect();
    let values: Vec<f64> = known.iter().map(|&(_, p95)| p95).collect();
    let fit = non_decreasing(&values, &weights);
    let left = fit.first().and_then(|&light| {
        let limit = (light * criteria.ttft_factor).max(light + criteria.ttft_floor_s);
        last_within(&loads, &fit, limit).map(|crossing| (crossing, limit))
    });
    ((loads, fit), left)
}
