//! Drawing again what was seen: the bootstrap, over whole requests and over stretches of time.
//!
//! Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993; Künsch 1989 for blocks.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::order::quantile;

/// A seeded source of resamples.
#[derive(Clone, Debug)]
pub struct Resampler {
    rng: ChaCha8Rng,
}

impl Resampler {
    /// The same seed draws the same.
    pub fn new(seed: u64) -> Resampler {
        Resampler {
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// How many times each of `num` clusters is drawn when as many are drawn with replacement.
    pub fn cluster_times(&mut self, num: usize) -> Vec<u32> {
        let mut times = vec![0; num];
        for _ in 0..num {
            times[self.rng.random_range(0..num)] += 1;
        }
        times
    }

    /// Indices of `num` values drawn in runs of `block_len` neighbours, each beginning anywhere and wrapping round.
    ///
    /// # Panics
    ///
    /// If `block_len` is 0.
    pub fn block_indices(&mut self, num: usize, block_len: usize) -> Vec<usize> {
        assert!(block_len > 0, "a block holds something");
        let mut indices = Vec::with_capacity(num);
        while indices.len() < num {
            let start = self.rng.random_range(0..num);
            let len = block_len.min(num - indices.len());
            indices.extend((0..len).map(|step| (start + step) % num));
        }
        indices
    }

    /// `num` different indices below `total` in rising order; all of them if there are not more.
    pub fn some_of(&mut self, num: usize, total: usize) -> Vec<usize> {
        let mut chosen: Vec<usize> = (0..total).collect();
        if num < total {
            for at in 0..num {
                let other = self.rng.random_range(at..total);
                chosen.swap(at, other);
            }
            chosen.truncate(num);
            chosen.sort_unstable();
        }
        chosen
    }

    /// The middle `confidence` of what `statistic` tells of `num_resamples` resamples; none unless all of them tell.
    pub fn interval(
        &mut self,
        num_resamples: usize,
        confidence: f64,
        mut statistic: impl FnMut(&mut Resampler) -> Option<f64>,
    ) -> Option<[f64; 2]> {
        let mut told = (0..num_resamples)
            .map(|_| statistic(self))
            .collect::<Option<Vec<f64>>>()?;
        middle_of(&mut told, confidence)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.rng.random_range(0..bound)
    }
}

/// The middle `confidence` of values; sorts them.
pub(crate) fn middle_of(values: &mut [f64], confidence: f64) -> Option<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Some([quantile(values, tail)?, quantile(values, 1.0 - tail)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{CONFIDENCE, mean};

    #[test]
    fn as_many_clusters_are_drawn_as_there_are() {
        let mut resampler = Resampler::new(3);
        let times = resampler.cluster_times(100);
        assert_eq!(times.iter().sum::<u32>(), 100);
        // About 1/e of them are not drawn.
        let num_absent = times.iter().filter(|&&num| num == 0).count();
        assert!((25..50).contains(&num_absent), "{num_absent}");
    }

    #[test]
    fn blocks_keep_neighbours_together() {
        let indices = Resampler::new(3).block_indices(100, 10);
        assert_eq!(indices.len(), 100);
        let num_neighbours = indices
            .windows(2)
            .filter(|pair| (pair[0] + 1) % 100 == pair[1])
            .count();
        assert!(num_neighbours >= 90, "{num_neighbours}");
    }

    #[test]
    fn a_choice_has_no_index_twice() {
        let chosen = Resampler::new(3).some_of(20, 50);
        assert_eq!(chosen.len(), 20);
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]) && chosen[19] < 50);
        assert_eq!(Resampler::new(3).some_of(20, 5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_block_bootstrap_knows_that_neighbours_agree() {
        // Ten plateaus of 20 equal values: 200 values, but only ten facts.
        let values: Vec<f64> = (0..200).map(|idx| f64::from(idx / 20 * 7 % 10)).collect();
        let width = |block_len| {
            let [low, high] = Resampler::new(5)
                .interval(400, CONFIDENCE, |resampler| {
                    let drawn: Vec<f64> = resampler
                        .block_indices(values.len(), block_len)
                        .into_iter()
                        .map(|idx| values[idx])
                        .collect();
                    mean(&drawn)
                })
                .expect("values");
            high - low
        };
        assert!(width(20) > 2.5 * width(1), "{} {}", width(20), width(1));
    }
}
