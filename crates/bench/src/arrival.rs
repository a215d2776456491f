//! When conversations begin, if they wait for nobody: due times in seconds from the beginning of a level.
//!
//! The one idea: arrivals are one sequence from one generator, made before anything is sent. What the server does, and
//! how many threads send, cannot change it; and no sequence is stretched to make an exact total, which would take
//! away the very variance that a Poisson process is chosen for.
//!
//! | process | gaps |
//! |---|---|
//! | `constant` | all `1 / rate` |
//! | `poisson` | exponential |
//! | `gamma` | gamma with shape `burstiness`, mean `1 / rate`: 1 is Poisson, below 1 burstier, above 1 more regular |
//! | `ramp` | Poisson with a rate that goes in a straight line from one to another, and stays there |
//! | `replay` | a trace's own, divided by a speed |
//!
//! Not here: what is asked (`workload`), and waiting for a due time (`load`).
//!
//! Source: burstiness as in vLLM's `--burstiness`; the ramp by time change (Çinlar 1975, inversion of the
//! cumulative rate).

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Gamma};

use crate::sample::{ClassId, LevelId};

/// What kind of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Process {
    /// One every `1 / rate` seconds, the first at 0.
    Constant {
        /// A second.
        rate: f64,
    },
    /// Independent users.
    Poisson {
        /// A second, on average.
        rate: f64,
    },
    /// Users who come in bunches, or keep their distance.
    Gamma {
        /// A second, on average.
        rate: f64,
        /// The shape of the gaps: their variance is `mean² / burstiness`.
        burstiness: f64,
    },
    /// Independent users who become more, or fewer.
    Ramp {
        /// A second, at the beginning.
        from: f64,
        /// A second, after `seconds` and from then on.
        to: f64,
        /// How long it takes.
        seconds: f64,
    },
    /// As it was.
    Replay {
        /// Seconds since the first, ascending.
        times: Arc<[f64]>,
        /// 2 is twice as fast.
        speed: f64,
    },
}

/// A process that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArrivalError {
    /// A number that makes no sense.
    #[error("{name} is {value}; it must be {must}")]
    Value {
        /// Which.
        name: &'static str,
        /// As given.
        value: f64,
        /// What is possible.
        must: &'static str,
    },
    /// A ramp from nothing to nothing.
    #[error("a ramp from 0 to 0 has no arrivals")]
    NoArrivals,
    /// Times of a replay that go backwards, or are none.
    #[error(
        "time {idx} of the replay is {value}: times must be finite, ascending and not negative"
    )]
    Times {
        /// The place.
        idx: usize,
        /// What is there.
        value: f64,
    },
}

/// Which sequence of a run: its own for each level, and for each class that has arrivals of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The run's.
    pub seed: u64,
    /// Which level.
    pub level: LevelId,
    /// Of one class only.
    pub class: Option<ClassId>,
}

/// Due times, ascending. Ends where a trace or a ramp to 0 does; all others go on for ever.
#[derive(Clone, Debug)]
pub struct Arrivals {
    process: Process,
    generator: ChaCha8Rng,
    gaps: Option<Gamma<f64>>,
    /// How many there were.
    num: u64,
    /// Of gaps: the last due time. Of a ramp: the same in units of its cumulative rate.
    clock: f64,
}

impl Process {
    /// Whether there can be such arrivals.
    ///
    /// # Errors
    ///
    /// What [`ArrivalError`] lists.
    pub fn check(&self) -> Result<(), ArrivalError> {
        match self {
            Process::Constant { rate } | Process::Poisson { rate } => positive("rate", *rate),
            Process::Gamma { rate, burstiness } => {
                positive("rate", *rate)?;
                positive("burstiness", *burstiness)
            }
            Process::Ramp { from, to, seconds } => {
                not_negative("from", *from)?;
                not_negative("to", *to)?;
                positive("seconds", *seconds)?;
                match *from + *to > 0.0 {
                    true => Ok(()),
                    false => Err(ArrivalError::NoArrivals),
                }
            }
            Process::Replay { times, speed } => {
                positive("speed", *speed)?;
                let mut last = 0.0;
                for (idx, &value) in times.iter().enumerate() {
                    if !value.is_finite() || value < last {
                        return Err(ArrivalError::Times { idx, value });
                    }
                    last = value;
                }
                Ok(())
            }
        }
    }

    /// Arrivals a second in the long run; none for a replay without a span.
    pub fn mean_rate(&self) -> Option<f64> {
        match self {
            Process::Constant { rate }
            | Process::Poisson { rate }
            | Process::Gamma { rate, .. } => Some(*rate),
            Process::Ramp { to, .. } => Some(*to),
            Process::Replay { times, speed } => {
                let span = times.last()? - times.first()?;
                (span > 0.0).then(|| (times.len() - 1) as f64 / span * speed)
            }
        }
    }
}

impl Process {
    /// Arrivals a second when there are most of them, bunches left aside; none for a replay without a span.
    pub fn peak_rate(&self) -> Option<f64> {
        match self {
            Process::Ramp { from, to, .. } => Some(from.max(*to)),
            other => other.mean_rate(),
        }
    }
}

impl Arrivals {
    /// The arrivals of one level.
    ///
    /// # Errors
    ///
    /// See [`Process::check`].
    pub fn new(process: Process, sequence: Sequence) -> Result<Arrivals, ArrivalError> {
        process.check()?;
        let mut generator = ChaCha8Rng::seed_from_u64(sequence.seed);
        // One seed for the run: ChaCha's streams are the sequences within it.
        let class = sequence.class.map_or(0, |class| u64::from(class.0) + 1);
        generator.set_stream((class << 32) | u64::from(sequence.level.0));
        let gaps = match process {
            Process::Gamma { rate, burstiness } => {
                let gamma = Gamma::new(burstiness, 1.0 / (rate * burstiness));
                Some(gamma.map_err(|_| ArrivalError::Value {
                    name: "burstiness",
                    value: burstiness,
                    must: "of ordinary size",
                })?)
            }
            _ => None,
        };
        Ok(Arrivals {
            process,
            generator,
            gaps,
            num: 0,
            clock: 0.0,
        })
    }

    /// An exponential gap of mean 1.
    fn unit_gap(&mut self) -> f64 {
        // In (0, 1]: the logarithm is finite.
        let unit = ((self.generator.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -unit.ln()
    }
}

impl Iterator for Arrivals {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let idx = self.num;
        self.num += 1;
        match &self.process {
            // Multiplied, not added up: the millionth is where it should be.
            Process::Constant { rate } => Some(idx as f64 / rate),
            Process::Poisson { rate } => {
                let rate = *rate;
                self.clock += self.unit_gap() / rate;
                Some(self.clock)
            }
            Process::Gamma { .. } => {
                self.clock += self.gaps?.sample(&mut self.generator);
                Some(self.clock)
            }
            &Process::Ramp { from, to, seconds } => {
                self.clock += self.unit_gap();
                when_ramp_reaches(self.clock, from, to, seconds)
            }
            Process::Replay { times, speed } => {
                let first = *times.first()?;
                Some((times.get(usize::try_from(idx).ok()?)? - first) / speed)
            }
        }
    }
}

/// When `num` arrivals were to be expected: the `t` with `from * t + (to - from) * t² / (2 * seconds) = num`, and beyond
/// `seconds` at the rate `to`. None if never.
fn when_ramp_reaches(num: f64, from: f64, to: f64, seconds: f64) -> Option<f64> {
    let in_ramp = (from + to) / 2.0 * seconds;
    if num > in_ramp {
        return (to > 0.0).then(|| seconds + (num - in_ramp) / to);
    }
    let slope = (to - from) / seconds;
    // This form of the root does not lose digits where the slope is small, and holds for a slope of 0.
    let root = (from * from + 2.0 * slope * num).max(0.0).sqrt();
    Some((2.0 * num / (from + root)).min(seconds))
}

fn positive(name: &'static str, value: f64) -> Result<(), ArrivalError> {
    match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(ArrivalError::Value {
            name,
            value,
            must: "a finite number above 0",
        }),
    }
}

fn not_negative(name: &'static str, value: f64) -> Result<(), ArrivalError> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(()),
        false => Err(ArrivalError::Value {
            name,
            value,
            must: "a finite number, not negative",
        }),
    }
}

#[cfg(test)]
mod tests;
