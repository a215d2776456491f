//! Which load to measure next.
//!
//! First the planned levels; then doubling while throughput climbs; then, between the two levels that bracket the
//! operating point, the load that narrows its interval most per second of measuring. A run always ends: no load is
//! measured twice, and there is a largest number of levels and a largest load.

use super::curve::linear;
use super::levels::Condensed;
use super::replicate::Replicates;
use super::{Criteria, LoadPoint, verdict};
use crate::sample::Pacing;
use crate::summary::Verdict;

/// How far to look.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Loads that are measured in any case, ascending: 1, 8, 32 and 64 users.
    pub first: Vec<f64>,
    /// No load is larger (1,024 users).
    pub load_max: f64,
    /// No more levels than this, the first ones included.
    pub levels_max: usize,
    /// Seconds that a level takes at least: warm-up and steady window.
    pub level_s: f64,
    /// Seconds that are left for measuring; none if there is no budget.
    pub budget_s: Option<f64>,
    /// Close enough: the interval's upper end is at most so many times the lower (1.25).
    pub narrow_ratio: f64,
}

/// A load to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Users (whole) or requests a second.
    pub load: f64,
    /// Why, for people who watch.
    pub reason: String,
}

/// Loads closer than this are the same to a measurement.
const APART_RATIO: f64 = 1.08;

/// The load to measure after `points`; none if that is enough. `tested` are the loads measured so far, those that gave
/// no point included: none of them comes again.
///
/// # Cost
///
/// That of [`super::operating_point`].
pub fn next_level(
    points: &[LoadPoint],
    tested: &[f64],
    search: &Search,
    criteria: &Criteria,
    seed: u64,
) -> Option<Next> {
    let pacing = points.first().map_or(Pacing::Closed, |point| point.pacing);
    let candidates = Candidates {
        tested,
        search,
        pacing,
    };
    if tested.len() >= search.levels_max {
        return None;
    }
    if let Some(&load) = search.first.iter().find(|&&load| candidates.is_new(load)) {
        // A server that answers nobody will not answer more of them.
        let silent = !points.is_empty() && points.iter().all(is_silent);
        let cost = cost(points, load, search);
        return (!silent && candidates.is_affordable(cost)).then(|| Next {
            load,
            reason: "planned".to_owned(),
        });
    }
    let levels = Condensed::of(points)?;
    let replicates = Replicates::draw(&levels, criteria, seed);
    let (low, high) = replicates.interval();
    if verdict(&replicates, criteria) == Verdict::NotReached {
        return climb(points, &candidates);
    }
    if high <= low * search.narrow_ratio {
        return None;
    }
    refine(points, &candidates, &replicates)
}

fn is_silent(point: &LoadPoint) -> bool {
    point.blocks.iter().all(|block| block.requests_per_s <= 0.0)
}

/// Twice the largest load.
fn climb(points: &[LoadPoint], candidates: &Candidates<'_>) -> Option<Next> {
    let largest = candidates.tested.iter().copied().fold(0.0, f64::max);
    let load = candidates.rounded((largest * 2.0).min(candidates.search.load_max));
    let cost = cost(points, load, candidates.search);
    (load > largest && candidates.is_new(load) && candidates.is_affordable(cost)).then(|| Next {
        load,
        reason: "throughput still climbs".to_owned(),
    })
}

/// The middle, in logarithms, of the gap between two levels that promises most per second.
///
/// A level at `c` tells on which side of `c` the point lies. If a share `p` of replicates lies below, the logarithm of
/// the interval's width shrinks from `ln(high/low)` to `p ln(c/low) + (1 - p) ln(high/c)` on average.
fn refine(
    points: &[LoadPoint],
    candidates: &Candidates<'_>,
    replicates: &Replicates,
) -> Option<Next> {
    let (low, high) = replicates.interval();
    let low = low.max(high * 1e-3);
    let promise = |load: f64| {
        let below = replicates.share(|place| place.point() <= load);
        let after = below * (load / low).ln() + (1.0 - below) * (high / load).ln();
        (high / low).ln() - after
    };
    candidates
        .gaps()
        .filter_map(|(from, to)| {
            let (from, to) = (from.max(low), to.min(high));
            let load = candidates.rounded((from * to).sqrt());
            let inside = from < to && load > low && load < high;
            (inside && candidates.is_new(load)).then_some(load)
        })
        .map(|load| (load, cost(points, load, candidates.search)))
        .filter(|&(_, cost)| candidates.is_affordable(cost))
        .map(|(load, cost)| (load, promise(load) / cost))
        .filter(|&(_, per_second)| per_second > 0.0)
        .max_by(|left, right| left.1.total_cmp(&right.1))
        .map(|(load, _)| Next {
            load,
            reason: format!("the operating point lies between {low:.1} and {high:.1}"),
        })
}

/// Seconds that a level takes: its own, and until those who came before it and in it are answered.
pub(super) fn cost(points: &[LoadPoint], load: f64, search: &Search) -> f64 {
    let residence = Condensed::of(points)
        .map(|levels| levels.residence())
        .filter(|(loads, _)| !loads.is_empty());
    let seconds = residence.map_or(0.0, |(loads, seconds)| {
        let largest = loads[loads.len() - 1];
        let within = linear(&loads, &seconds, load.clamp(loads[0], largest));
        // Beyond the largest load, everybody waits in proportion.
        within * (load / largest).max(1.0)
    });
    search.level_s + 2.0 * seconds
}

/// What may be measured.
pub(super) struct Candidates<'a> {
    pub(super) tested: &'a [f64],
    pub(super) search: &'a Search,
    pub(super) pacing: Pacing,
}

impl Candidates<'_> {
    /// Users are whole, from one on.
    pub(super) fn rounded(&self, load: f64) -> f64 {
        match self.pacing {
            Pacing::Closed => load.round().max(1.0),
            Pacing::Open => load,
        }
    }

    /// Whether a measurement could tell `load` from all that were tested.
    pub(super) fn is_new(&self, load: f64) -> bool {
        let planned = self.search.first.contains(&load);
        load > 0.0
            && load <= self.search.load_max
            && self.tested.iter().all(|&tested| {
                let ratio = (load / tested).max(tested / load);
                ratio > 1.0 && (planned || ratio >= APART_RATIO)
            })
    }

    pub(super) fn is_affordable(&self, cost: f64) -> bool {
        self.search.budget_s.is_none_or(|left| cost <= left)
    }

    /// Neighbouring tested loads, and what lies below the lowest.
    fn gaps(&self) -> impl Iterator<Item = (f64, f64)> {
        let mut loads = self.tested.to_vec();
        loads.sort_by(f64::total_cmp);
        let below = loads.first().map(|&lowest| (0.0, lowest));
        let pairs: Vec<(f64, f64)> = loads.windows(2).map(|pair| (pair[0], pair[1])).collect();
        below.into_iter().chain(pairs)
    }
}
