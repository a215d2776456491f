//! What else the same server could have shown: the levels resampled, fitted again.
//!
//! Blocks of time are resampled one by one; requests in runs of neighbours (moving-block bootstrap, Künsch 1989), for
//! a slow request is followed by slow ones.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Criteria;
use super::curve::quantile;
use super::levels::{Condensed, Level};
use super::place::{Draw, Figures, Place};

/// Enough that the percentiles of an interval are steady to a few hundredths of its width.
const NUM_REPLICATES: usize = 400;

pub(super) struct Replicates {
    places: Vec<Place>,
}

impl Replicates {
    pub(super) fn draw(levels: &Condensed, criteria: &Criteria, seed: u64) -> Replicates {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let origin = levels.origin();
        let mut places = Vec::with_capacity(NUM_REPLICATES);
        for _ in 0..NUM_REPLICATES {
            let figures: Vec<Figures> = levels
                .levels()
                .iter()
                .map(|level| resampled(level, &mut rng))
                .collect();
            let draw = Draw {
                flattened: uniform(&mut rng),
                left: uniform(&mut rng),
            };
            // Where few blocks hold all the work, a draw may miss it.
            if figures.iter().any(|level| level.throughput > 0.0) {
                places.push(Place::of(&figures, origin, criteria, draw));
            }
        }
        if places.is_empty() {
            places.push(levels.place(criteria));
        }
        Replicates { places }
    }

    /// The percentile 2.5 of the earliest point and 97.5 of the latest: noise, and what the gaps between levels hide.
    pub(super) fn interval(&self) -> (f64, f64) {
        let low = self.percentile_of(0.025, |place| place.bounds().earliest);
        (
            low,
            self.percentile_of(0.975, |place| place.bounds().latest),
        )
    }

    pub(super) fn median_of(&self, value: impl Fn(&Place) -> f64) -> f64 {
        self.percentile_of(0.5, value)
    }

    fn percentile_of(&self, q: f64, value: impl Fn(&Place) -> f64) -> f64 {
        let mut values: Vec<f64> = self.places.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        quantile(&values, q).expect("there is at least one replicate")
    }

    /// The share of replicates of which `holds` is true.
    pub(super) fn share(&self, holds: impl Fn(&Place) -> bool) -> f64 {
        let num = self.places.iter().filter(|place| holds(place)).count();
        num as f64 / self.places.len() as f64
    }
}

fn resampled(level: &Level, rng: &mut ChaCha8Rng) -> Figures {
    let num_blocks = level.throughput.len();
    let sum: f64 = (0..num_blocks)
        .map(|_| level.throughput[below(rng, num_blocks)])
        .sum();
    Figures {
        load: level.load,
        throughput: sum / num_blocks as f64,
        num_blocks,
        ttft_p95: resampled_p95(&level.ttft, rng),
        num_requests: level.ttft.len(),
    }
}

fn resampled_p95(values: &[f64], rng: &mut ChaCha8Rng) -> Option<f64> {
    let num = values.len();
    let run = (num as f64).cbrt().ceil() as usize;
    let mut drawn = Vec::with_capacity(num + run);
    while drawn.len() < num {
        let from = below(rng, num);
        // Around the end, so that every request is drawn equally often.
        drawn.extend((from..from + run).map(|idx| values[idx % num]));
    }
    drawn.truncate(num);
    drawn.sort_unstable_by(f64::total_cmp);
    quantile(&drawn, 0.95)
}

/// In [0, 1).
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// In [0, num).
fn below(rng: &mut ChaCha8Rng, num: usize) -> usize {
    // The high word of a product: without a division, and even to one in 2^64 / num.
    ((u128::from(rng.next_u64()) * num as u128) >> 64) as usize
}
