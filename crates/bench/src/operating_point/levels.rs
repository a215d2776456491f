//! The measured levels in order of load, one for each load, with what cannot be used left out.

use super::curve::quantile;
use super::place::{Draw, Figures, Place};
use super::{Criteria, LoadPoint};
use crate::sample::Pacing;

/// Two loads or more, ascending; the lowest has throughput.
pub(super) struct Condensed {
    pacing: Pacing,
    counts_tokens: bool,
    levels: Vec<Level>,
}

/// The samples of one load.
pub(super) struct Level {
    pub(super) load: f64,
    /// Tokens/s of each block, or requests/s if some level does not count tokens. Never empty.
    pub(super) throughput: Vec<f64>,
    /// Requests/s of each block.
    requests: Vec<f64>,
    pub(super) ttft: Vec<f64>,
    e2e: Vec<f64>,
}

impl Condensed {
    pub(super) fn of(points: &[LoadPoint]) -> Option<Condensed> {
        let pacing = points.first()?.pacing;
        if points.iter().any(|point| point.pacing != pacing) {
            return None;
        }
        let counts_tokens = points
            .iter()
            .flat_map(|point| &point.blocks)
            .all(|block| block.tokens_per_s.is_some());
        let mut usable: Vec<&LoadPoint> = points
            .iter()
            .filter(|point| point.load > 0.0 && point.load.is_finite())
            .collect();
        usable.sort_by(|left, right| left.load.total_cmp(&right.load));
        let mut levels: Vec<Level> = Vec::new();
        for point in usable {
            let level = Level::of(point, counts_tokens);
            match levels.last_mut() {
                Some(last) if last.load == level.load => last.append(level),
                _ => levels.push(level),
            }
        }
        levels.retain(|level| !level.throughput.is_empty());
        let silent = levels
            .iter()
            .take_while(|level| mean(&level.throughput) <= 0.0);
        let levels = levels.split_off(silent.count());
        (levels.len() >= 2).then_some(Condensed {
            pacing,
            counts_tokens,
            levels,
        })
    }

    pub(super) fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// Whether throughput is in tokens a second; requests a second otherwise.
    pub(super) fn counts_tokens(&self) -> bool {
        self.counts_tokens
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    pub(super) fn smallest(&self) -> f64 {
        self.levels[0].load
    }

    pub(super) fn largest(&self) -> f64 {
        self.levels[self.levels.len() - 1].load
    }

    /// The load below which nothing can be flat: one user, or the requests that the lowest level served.
    pub(super) fn origin(&self) -> f64 {
        let lowest = &self.levels[0];
        match self.pacing {
            Pacing::Closed => lowest.load.min(1.0),
            Pacing::Open => lowest.load.min(mean(&lowest.requests)),
        }
    }

    /// Without resampling, and half-way between the earliest and the latest.
    pub(super) fn place(&self, criteria: &Criteria) -> Place {
        let figures: Vec<Figures> = self.levels.iter().map(Level::figures).collect();
        Place::of(&figures, self.origin(), criteria, Draw::HALF_WAY)
    }

    /// `X_max R_0`.
    pub(super) fn n_star(&self) -> Option<f64> {
        let lowest = &self.levels[0];
        if lowest.e2e.is_empty() {
            return None;
        }
        let requests_max = self
            .levels
            .iter()
            .map(|level| mean(&level.requests))
            .fold(0.0, f64::max);
        Some(requests_max * mean(&lowest.e2e))
    }

    /// Mean E2E in seconds at each load at which an answer came.
    pub(super) fn residence(&self) -> (Vec<f64>, Vec<f64>) {
        self.levels
            .iter()
            .filter(|level| !level.e2e.is_empty())
            .map(|level| (level.load, mean(&level.e2e)))
            .unzip()
    }
}

impl Level {
    fn of(point: &LoadPoint, counts_tokens: bool) -> Level {
        let requests = point.blocks.iter().map(|block| block.requests_per_s);
        let throughput = point.blocks.iter().filter_map(|block| match counts_tokens {
            true => block.tokens_per_s,
            false => Some(block.requests_per_s),
        });
        Level {
            load: point.load,
            throughput: finite(throughput),
            requests: finite(requests),
            ttft: finite(point.ttft.iter().copied()),
            e2e: finite(point.e2e.iter().copied()),
        }
    }

    fn append(&mut self, other: Level) {
        self.throughput.extend(other.throughput);
        self.requests.extend(other.requests);
        self.ttft.extend(other.ttft);
        self.e2e.extend(other.e2e);
    }

    fn figures(&self) -> Figures {
        let mut sorted = self.ttft.clone();
        sorted.sort_by(f64::total_cmp);
        Figures {
            load: self.load,
            throughput: mean(&self.throughput),
            num_blocks: self.throughput.len(),
            ttft_p95: quantile(&sorted, 0.95),
            num_requests: self.ttft.len(),
        }
    }
}

fn finite(values: impl Iterator<Item = f64>) -> Vec<f64> {
    values
        .filter(|value| value.is_finite() && *value >= 0.0)
        .collect()
}

/// Zero of nothing.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
