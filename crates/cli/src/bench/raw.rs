//! `fulcrum bench raw`: a model on this machine, from the scheduler down to the kernels, without HTTP.
//!
//! The one idea: a figure alone says little, so each is told beside the limit that the machine sets it. Both are measured
//! in turn, round by round, and the median of the rounds counts: machines drift, and what is divided should have drifted
//! together.
//!
//! Not here: what users feel (`fulcrum bench URL`), and the loops that measure the machine (`tensor::limits`).

// The engine at a steady number of answers.
mod stand;
// What the machine would allow.
mod bound;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tensor::isa::Isa;
use tensor::limits::{BUFFER_BYTES, MachineLimits, Probe, processor_name};
use tensor::pool::Pool;

use self::bound::{Bound, Bounds};
use self::stand::Stand;
use super::args::RawArgs;
use crate::open::{self, Wanted};
use crate::words::{print, printable};

/// Prompt tokens whose prefill is timed.
const PREFILL_TOKENS: usize = 512;
/// Answers that are decoded side by side.
const DECODE_LEVELS: [usize; 4] = [1, 8, 32, 64];
/// The limits of the machine, in each round.
const LIMITS_TIME: Duration = Duration::from_millis(800);

/// Measures and reports.
pub fn raw(args: RawArgs) -> anyhow::Result<ExitCode> {
    let name = Wanted::parse(&args.model)?.name();
    let threads = threads(&args);
    // The model first: what cannot be served should be known at once.
    let stand = Stand::open(&args)?;
    stand.warm_up()?;
    let pool = Pool::new(threads);
    let probe = Probe::new(&pool, Isa::current(), buffer_bytes());
    let mut rounds = Vec::new();
    for round_idx in 1..=args.rounds {
        eprintln!("round {round_idx} of {}", args.rounds);
        let limits = probe.measure(LIMITS_TIME);
        rounds.push((limits, Speeds::measure(&stand)?));
    }
    let work = stand.work().clone();
    let (weights, kv_type) = (stand.weights().to_owned(), stand.kv_type());
    stand.close();

    let limits = median_limits(&rounds);
    let outcome = Outcome {
        name,
        weights,
        kv_type,
        machine: format!(
            "{}, {threads} threads, {}",
            processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            Isa::current()
        ),
        num_rounds: args.rounds,
        bounds: Bounds::new(&work, &limits),
        speeds: Speeds::median(&rounds),
        limits,
    };
    print(&match args.json {
        true => format!("{}\n", outcome.json()),
        false => outcome.table(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn threads(args: &RawArgs) -> NonZeroUsize {
    let asked = args.compute.threads;
    asked
        .and_then(|threads| NonZeroUsize::new(threads.into()))
        .unwrap_or_else(open::usable_processors)
}

/// An eighth of memory must do where that is less than one would like.
fn buffer_bytes() -> usize {
    let eighth = open::memory_bytes().map_or(u64::MAX, |memory| memory / 8);
    BUFFER_BYTES.min(usize::try_from(eighth).unwrap_or(usize::MAX))
}

/// Tokens a second.
#[derive(Clone, Debug, PartialEq)]
struct Speeds {
    prefill: f64,
    /// By level.
    decode: [f64; DECODE_LEVELS.len()],
}

impl Speeds {
    fn measure(stand: &Stand) -> anyhow::Result<Speeds> {
        let prefill = stand.prefill()?;
        let mut decode = [0.0; DECODE_LEVELS.len()];
        for (speed, num_answers) in decode.iter_mut().zip(DECODE_LEVELS) {
            *speed = stand.decode(num_answers)?;
        }
        Ok(Speeds { prefill, decode })
    }

    fn median(rounds: &[(MachineLimits, Speeds)]) -> Speeds {
        Speeds {
            prefill: median(rounds.iter().map(|(_, speeds)| speeds.prefill)),
            decode: std::array::from_fn(|level| {
                median(rounds.iter().map(|(_, speeds)| speeds.decode[level]))
            }),
        }
    }
}

fn median_limits(rounds: &[(MachineLimits, Speeds)]) -> MachineLimits {
    let of =
        |rate: fn(&MachineLimits) -> f64| median(rounds.iter().map(|(limits, _)| rate(limits)));
    MachineLimits {
        int8_gmac_s: of(|limits| limits.int8_gmac_s),
        bf16_gmac_s: rounds[0]
            .0
            .bf16_gmac_s
            .map(|_| of(|limits| limits.bf16_gmac_s.unwrap_or(limits.f32_gmac_s))),
        f32_gmac_s: of(|limits| limits.f32_gmac_s),
        read_gb_s: of(|limits| limits.read_gb_s),
    }
}

/// The one in the middle; of two, the lower.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

/// All that is told.
struct Outcome {
    name: String,
    /// How they are held.
    weights: String,
    /// How keys and values are held.
    kv_type: &'static str,
    machine: String,
    num_rounds: u32,
    limits: MachineLimits,
    bounds: Bounds,
    speeds: Speeds,
}

impl Outcome {
    /// The contract for scripts; keys are only ever added.
    fn json(&self) -> Value {
        let by_level = |value: &dyn Fn(usize) -> f64| {
            let entry =
                |(idx, num_answers): (usize, &usize)| (num_answers.to_string(), json!(value(idx)));
            let entries: Map<String, Value> = DECODE_LEVELS.iter().enumerate().map(entry).collect();
            entries
        };
        let share = |speed: f64, bound: &Bound| significant(speed / bound.tokens_per_s);
        json!({
            "prefill_512": significant(self.speeds.prefill),
            "decode": by_level(&|idx| significant(self.speeds.decode[idx])),
            "limits": {
                "int8_gmac_s": significant(self.limits.int8_gmac_s),
                "bf16_gmac_s": self.limits.bf16_gmac_s.map(significant),
                "f32_gmac_s": significant(self.limits.f32_gmac_s),
                "read_gb_s": significant(self.limits.read_gb_s),
            },
            "share": {
                "prefill_512": share(self.speeds.prefill, &self.bounds.prefill),
                "decode": by_level(&|idx| share(self.speeds.decode[idx], &self.bounds.decode[idx])),
            },
            "model": self.name,
            "weights": self.weights,
            "kv_type": self.kv_type,
            "machine": self.machine,
            "rounds": self.num_rounds,
        })
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let limits = &self.limits;
        let bf16 = limits
            .bf16_gmac_s
            .map_or(String::new(), |rate| format!("bf16 {rate:.0}, "));
        writeln!(
            text,
            "{}: {}\n{}; KV cache in {}; median of {} rounds\n\
             limits: int8 {:.0}, {bf16}f32 {:.0} billion multiply-adds a second; {:.1} GB read a second\n\n\
             {:<14}{:>12}{:>12}{:>8}  bound by",
            printable(&self.name),
            self.weights,
            self.machine,
            self.kv_type,
            self.num_rounds,
            limits.int8_gmac_s,
            limits.f32_gmac_s,
            limits.read_gb_s,
            "",
            "tokens/s",
            "limit",
            "share",
        )
        .expect("a string takes all");
        let mut line = |name: String, speed: f64, bound: &Bound| {
            let (limit, share) = (bound.tokens_per_s, 100.0 * speed / bound.tokens_per_s);
            let cause = bound.cause.words();
            writeln!(
                text,
                "{name:<14}{speed:>12.1}{limit:>12.1}{share:>7.1}%  {cause}"
            )
            .expect("a string takes all");
        };
        line(
            format!("prefill {PREFILL_TOKENS}"),
            self.speeds.prefill,
            &self.bounds.prefill,
        );
        for (idx, num_answers) in DECODE_LEVELS.iter().enumerate() {
            line(
                format!("decode {num_answers}"),
                self.speeds.decode[idx],
                &self.bounds.decode[idx],
            );
        }
        text
    }
}

/// Four digits: more would claim more than was measured.
fn significant(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.0);
        assert_eq!(median([5.0].into_iter()), 5.0);
    }

    #[test]
    fn figures_have_four_digits_however_small() {
        assert_eq!(significant(3712.46), 3712.0);
        assert_eq!(significant(0.000_123_456), 0.000_123_5);
    }
}
