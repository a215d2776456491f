//! The gaps of many requests, pooled.
//!
//! Gaps of one answer resemble each other, so a hundred gaps of one request are not a hundred facts. How many they are
//! worth follows from how unevenly the gaps above a percentile fall on requests: the variance of that share between
//! requests against what it would be if gaps were independent (the design effect of cluster sampling). A percentile
//! is supported if the pool is worth as many gaps as it would need values. Intervals draw whole requests again.
//!
//! Source: Kish 1965, "Survey Sampling", chapter 5; Davison and Hinkley 1997, section 3.8.

use crate::sample::{GapSketch, quantile_of_counts};
use crate::stats::{CONFIDENCE, Resampler, needed_for, quantile};
use crate::summary::Figure;

use super::figure::{Missing, QUANTILES, ms, place_of};

/// Requests with gaps below which their variation cannot be told.
const REQUESTS_MIN: usize = 20;
/// Requests that are drawn from; an interval from a part of them is narrowed accordingly.
const REQUESTS_DRAWN_MAX: usize = 2_000;
const RESAMPLES: usize = 200;

/// The gaps of some requests.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    sketches: Vec<&'a GapSketch>,
    counts: Vec<u64>,
    total: u64,
}

impl<'a> Pool<'a> {
    pub fn of(sketches: impl Iterator<Item = &'a GapSketch>) -> Pool<'a> {
        let sketches: Vec<_> = sketches.filter(|sketch| !sketch.is_empty()).collect();
        let mut counts = vec![0; GapSketch::BUCKETS];
        for sketch in &sketches {
            sketch.count_into(&mut counts, 1);
        }
        let total = counts.iter().sum();
        Pool {
            sketches,
            counts,
            total,
        }
    }

    pub fn quantile(&self, q: f64) -> Option<f64> {
        quantile_of(&self.counts, self.total, q)
    }

    /// How many requests it would take for a percentile; none if these are enough.
    pub fn needed(&self, q: f64) -> Option<u64> {
        let num_requests = self.sketches.len();
        let needed = needed_for(q, CONFIDENCE) as f64;
        let worth = self.worth(q);
        let times = if worth > 0.0 { needed / worth } else { needed };
        let num = (num_requests as f64 * times)
            .ceil()
            .max(REQUESTS_MIN as f64) as u64;
        let is_enough = num_requests >= REQUESTS_MIN && worth >= needed;
        // An extrapolation from few may fall short of what there is.
        (!is_enough).then(|| num.max(num_requests as u64 + 1))
    }

    /// How many independent gaps the pool is worth at a percentile: by the gaps beyond it, or with those that equal it,
    /// whichever fall less evenly on requests.
    fn worth(&self, q: f64) -> f64 {
        let rank = (q * self.total as f64).ceil() as u64;
        let mut seen = 0;
        let edge = self.counts.iter().position(|num| {
            seen += num;
            seen >= rank
        });
        let Some(edge) = edge.filter(|_| self.sketches.len() > 1) else {
            return 0.0;
        };
        self.worth_from(edge).min(self.worth_from(edge + 1))
    }

    /// By the gaps in `edge` and the buckets above it.
    fn worth_from(&self, edge: usize) -> f64 {
        let num = self.sketches.len() as f64;
        let all = self.total as f64;
        let counted = |sketch: &GapSketch| -> f64 {
            let buckets = sketch.buckets();
            let counted = buckets.filter(|&(idx, _)| idx >= edge);
            counted.map(|(_, num)| num as f64).sum()
        };
        let of_requests: Vec<(f64, f64)> = self
            .sketches
            .iter()
            .map(|sketch| (counted(sketch), sketch.len() as f64))
            .collect();
        let share = of_requests.iter().map(|(num, _)| num).sum::<f64>() / all;
        let deviations = of_requests
            .iter()
            .map(|(num, len)| (num - share * len).powi(2));
        let variance = deviations.sum::<f64>() / (all * all) * num / (num - 1.0);
        if variance > 0.0 {
            (share * (1.0 - share) / variance).min(all)
        } else {
            all
        }
    }

    /// Intervals of the mean and of quantiles, in this order: whole requests are drawn again.
    pub fn intervals(&self, quantiles: &[f64], seed: u64) -> Option<Vec<[f64; 2]>> {
        if self.sketches.len() < REQUESTS_MIN {
            return None;
        }
        let mut resampler = Resampler::new(seed);
        let chosen = resampler.some_of(REQUESTS_DRAWN_MAX, self.sketches.len());
        let mut told = vec![Vec::with_capacity(RESAMPLES); quantiles.len() + 1];
        let mut counts = vec![0; GapSketch::BUCKETS];
        for _ in 0..RESAMPLES {
            counts.fill(0);
            let times = resampler.cluster_times(chosen.len());
            for (&idx, &times) in chosen.iter().zip(&times).filter(|&(_, &times)| times > 0) {
                self.sketches[idx].count_into(&mut counts, u64::from(times));
            }
            let total = counts.iter().sum();
            told[0].push(mean_of(&counts, total)?);
            for (place, &q) in told[1..].iter_mut().zip(quantiles) {
                place.push(quantile_of(&counts, total, q)?);
            }
        }
        let narrower = (chosen.len() as f64 / self.sketches.len() as f64).sqrt();
        let mut seen = vec![mean_of(&self.counts, self.total)?];
        for &q in quantiles {
            seen.push(self.quantile(q)?);
        }
        let intervals = told.iter_mut().zip(seen).map(|(values, seen)| {
            values.sort_by(f64::total_cmp);
            let tail = (1.0 - CONFIDENCE) / 2.0;
            let ends = [quantile(values, tail)?, quantile(values, 1.0 - tail)?];
            Some(ends.map(|end| seen + (end - seen) * narrower))
        });
        intervals.collect()
    }

    /// Milliseconds; with a seed, with intervals.
    pub fn figure(&self, missing: Missing, seed: Option<u64>) -> Figure {
        let mut figure = Figure {
            n: self.total,
            mean: mean_of(&self.counts, self.total).map(ms),
            max: self.quantile(1.0).map(ms),
            ..Figure::default()
        };
        let intervals = seed.and_then(|seed| self.intervals(&QUANTILES.map(|(_, q)| q), seed));
        if let Some(intervals) = &intervals {
            figure.ci95.insert("mean".to_owned(), intervals[0].map(ms));
        }
        for (idx, (name, q)) in QUANTILES.into_iter().enumerate() {
            if let Some(num) = self.needed(q) {
                figure.needs.insert(name.to_owned(), num);
                continue;
            }
            if !missing.spares(q) {
                continue;
            }
            *place_of(&mut figure, name) = self.quantile(q).map(ms);
            if let Some(intervals) = &intervals {
                let interval = intervals[idx + 1].map(ms);
                figure.ci95.insert(name.to_owned(), interval);
            }
        }
        figure
    }
}

fn quantile_of(counts: &[u64], total: u64, q: f64) -> Option<f64> {
    quantile_of_counts(counts.iter().copied().enumerate(), total, q)
}

fn mean_of(counts: &[u64], total: u64) -> Option<f64> {
    let sum: f64 = counts
        .iter()
        .enumerate()
        .filter(|&(_, &num)| num > 0)
        .map(|(idx, &num)| GapSketch::middle(idx) * num as f64)
        .sum();
    (total > 0).then(|| sum / total as f64)
}
