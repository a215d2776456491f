//! A uniform sample of a stream of unknown length, in bounded memory.
//!
//! Source: Vitter 1985, "Random sampling with a reservoir", algorithm R.

use crate::stats::Resampler;

#[derive(Clone, Debug)]
pub(super) struct Reservoir<T> {
    kept: Vec<T>,
    num_seen: u64,
    num_max: usize,
}

impl<T> Reservoir<T> {
    pub fn new(num_max: usize) -> Reservoir<T> {
        Reservoir {
            kept: Vec::new(),
            num_seen: 0,
            num_max,
        }
    }

    pub fn offer(&mut self, value: T, chance: &mut Resampler) {
        self.num_seen += 1;
        if self.kept.len() < self.num_max {
            self.kept.push(value);
            return;
        }
        let at = chance.below(self.num_seen);
        if let Some(place) = usize::try_from(at)
            .ok()
            .and_then(|at| self.kept.get_mut(at))
        {
            *place = value;
        }
    }

    /// Keeps at most `num_max` from now on.
    pub fn shrink(&mut self, num_max: usize, chance: &mut Resampler) {
        while self.kept.len() > num_max {
            let at = chance.below(self.kept.len() as u64);
            self.kept.swap_remove(at as usize);
        }
        self.kept.shrink_to_fit();
        self.num_max = self.num_max.min(num_max);
    }

    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    /// How many of the stream each kept one stands for.
    pub fn weight(&self) -> f64 {
        self.num_seen as f64 / self.kept.len().max(1) as f64
    }

    pub fn is_sampled(&self) -> bool {
        self.num_seen > self.kept.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_stream_is_kept_as_likely_as_any_other() {
        let mut chance = Resampler::new(7);
        let mut early = 0;
        for _ in 0..200 {
            let mut reservoir = Reservoir::new(50);
            (0..1_000).for_each(|value| reservoir.offer(value, &mut chance));
            assert_eq!((reservoir.kept().len(), reservoir.weight()), (50, 20.0));
            early += reservoir
                .kept()
                .iter()
                .filter(|&&value| value < 500)
                .count();
        }
        // Half of 10,000, within four standard deviations.
        assert!((4_800..5_200).contains(&early), "{early}");
    }

    #[test]
    fn a_shrunk_sample_stays_uniform() {
        let mut chance = Resampler::new(7);
        let mut early = 0;
        for _ in 0..200 {
            let mut reservoir = Reservoir::new(100);
            (0..500).for_each(|value| reservoir.offer(value, &mut chance));
            reservoir.shrink(50, &mut chance);
            (500..1_000).for_each(|value| reservoir.offer(value, &mut chance));
            assert_eq!(reservoir.kept().len(), 50);
            early += reservoir
                .kept()
                .iter()
                .filter(|&&value| value < 500)
                .count();
        }
        assert!((4_800..5_200).contains(&early), "{early}");
    }
}
