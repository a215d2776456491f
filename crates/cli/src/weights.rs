//! In which type weights are held, and why: what `--quantize` says, or else what fits.
//!
//! The one idea: floats are kept at 16 bits while they take at most half of memory, because fewer bits cost quality and
//! nobody asked for that; the other half is for the KV cache, the system and its page cache. Weights that are quantised
//! in the file stay as they are.

use anyhow::bail;
use model::{Precision, Source, WeightPlan, WeightType};

use crate::args::{ComputeArgs, Quantize};
use crate::open::memory_bytes;
use crate::words::{WithHint as _, megabytes};

/// How weights will be held.
#[derive(Debug)]
pub struct Choice {
    /// For the loader.
    pub precision: Precision,
    /// How many matrices become what.
    pub plan: WeightPlan,
    /// Why: a clause that goes on from "weights take …".
    pub reason: String,
}

impl Choice {
    /// `weights take 143.2 MB (Q8_0: 22 matrices) because …`, to be told on stderr.
    pub fn line(&self) -> String {
        let size = megabytes(self.plan.num_bytes());
        format!("weights take {size} ({}) {}", self.plan, self.reason)
    }
}

/// Chooses by the flags, and without one by memory.
///
/// # Errors
///
/// If the model is refused, or quantised already, or too large in any type.
pub fn choose(source: &Source, compute: &ComputeArgs) -> anyhow::Result<Choice> {
    if let Some(asked) = compute.quantize {
        let precision = Precision::Quantised(weight_type(asked));
        let plan = model::plan(source, precision)
            .hint(|| "leave --quantize out to load the weights as they are".to_owned())?;
        let reason = "as --quantize asks".to_owned();
        return Ok(Choice {
            precision,
            plan,
            reason,
        });
    }
    let stored = model::plan(source, Precision::Packed)?;
    if stored.num_quantised > 0 {
        let reason = "as the file has them".to_owned();
        return Ok(Choice {
            precision: Precision::Packed,
            plan: stored,
            reason,
        });
    }
    largest_that_fits(source, stored, memory_bytes().unwrap_or(u64::MAX))
}

/// Single precision for all weights, whatever memory there is: what `--exact` asks for.
///
/// # Errors
///
/// If the model is refused.
pub fn exact(source: &Source) -> anyhow::Result<Choice> {
    Ok(Choice {
        precision: Precision::Exact,
        plan: model::plan(source, Precision::Exact)?,
        reason: "as --exact asks".to_owned(),
    })
}

/// The first of 16, 8, 5 and 4.5 bits that takes at most half of `memory`.
fn largest_that_fits(source: &Source, stored: WeightPlan, memory: u64) -> anyhow::Result<Choice> {
    let share = memory / 2;
    // Matrices of 16 bits stay as they are; single precision becomes bf16, which loses nothing that matters and half
    // of the size. A GGUF file was made for its types.
    let is_wide = stored.types.contains_key("F32") && source.folder().is_some();
    let widest = match is_wide {
        true => Precision::Quantised(WeightType::Bf16),
        false => Precision::Packed,
    };
    let rest = [WeightType::Q8_0, WeightType::Q4_1, WeightType::Q4_0].map(Precision::Quantised);
    let mut too_large = None;
    for precision in std::iter::once(widest).chain(rest) {
        let plan = match precision {
            Precision::Packed => stored.clone(),
            precision => model::plan(source, precision)?,
        };
        let num_bytes = plan.num_bytes();
        if num_bytes > share {
            too_large.get_or_insert(num_bytes);
            continue;
        }
        let reason = match too_large {
            None => format!(
                "because they fit in half of {} of memory",
                megabytes(memory)
            ),
            Some(wanted) => format!(
                "because in 16 bits they would take {} of {} of memory",
                megabytes(wanted),
                megabytes(memory)
            ),
        };
        return Ok(Choice {
            precision,
            plan,
            reason,
        });
    }
    bail!(
        "the weights take more than half of {} of memory even in 4 bits; --quantize q4_0 loads them nevertheless",
        megabytes(memory)
    )
}

fn weight_type(asked: Quantize) -> WeightType {
    match asked {
        Quantize::Bf16 => WeightType::Bf16,
        Quantize::Q8_0 => WeightType::Q8_0,
        Quantize::Q4_1 => WeightType::Q4_1,
        Quantize::Q4_0 => WeightType::Q4_0,
    }
}

#[cfg(test)]
mod tests {
    use formats::gguf::Gguf;
    use testkit::encode::Encoding;

    use super::*;

    fn tiny(encoding: Encoding) -> Source {
        let file = testkit::tiny::llama(encoding).build();
        Source::Gguf(Gguf::parse(file.bytes).expect("the tiny model is sound"))
    }

    fn with_memory(memory: u64) -> anyhow::Result<Choice> {
        let source = tiny(Encoding::BF16);
        let stored = model::plan(&source, Precision::Packed).expect("a sound model");
        largest_that_fits(&source, stored, memory)
    }

    #[test]
    fn the_widest_type_that_takes_half_of_memory_is_chosen() {
        let whole = with_memory(u64::MAX).unwrap();
        assert_eq!(whole.precision, Precision::Packed);
        let num_bytes = whole.plan.num_bytes();
        let chosen = |memory| with_memory(memory).unwrap().precision;
        assert_eq!(chosen(2 * num_bytes), Precision::Packed);
        let eight = Precision::Quantised(WeightType::Q8_0);
        assert_eq!(chosen(2 * num_bytes - 1), eight);
        assert_eq!(chosen(num_bytes * 11 / 10), eight);
        let refusal = with_memory(num_bytes / 10).unwrap_err().to_string();
        assert!(refusal.contains("more than half"), "{refusal}");
    }

    #[test]
    fn the_reason_tells_what_the_widest_type_would_have_taken() {
        let whole = with_memory(u64::MAX).unwrap();
        let smaller = with_memory(whole.plan.num_bytes()).unwrap();
        let wanted = megabytes(whole.plan.num_bytes());
        assert!(smaller.reason.contains(&wanted), "{}", smaller.reason);
        assert!(smaller.line().contains("Q8_0"), "{}", smaller.line());
    }

    #[test]
    fn a_quantised_file_stays_so_and_is_not_quantised_again() {
        let source = tiny(Encoding::Q4_1);
        let mut compute = ComputeArgs {
            threads: None,
            kv_type: crate::args::KvType::F16,
            quantize: None,
        };
        assert_eq!(
            choose(&source, &compute).unwrap().precision,
            Precision::Packed
        );
        compute.quantize = Some(Quantize::Q8_0);
        let refusal = format!("{:#}", choose(&source, &compute).unwrap_err());
        assert!(refusal.contains("Q4_1 already"), "{refusal}");
    }
}
