//! In which type each matrix is held in memory, when weights are quantised while they are loaded.
//!
//! The one idea: the choice follows from a matrix's role and width alone, so what will be held, and how much of it, is
//! known before a weight is read. Only matrices of floats are quantised; norms, biases, positions and routers are a
//! thousandth of a model and decide everything, so they stay floats.
//!
//! ```text
//! asked for        layers     embedding and head    rows not a multiple of 32
//! bf16             bf16       bf16                  bf16
//! q8_0             q8_0       q8_0                  bf16
//! q4_1, q4_0       that       q8_0                  bf16
//! ```
//!
//! Embedding and head stay at 8 bits because errors of the head go into the logits as they are, with no layer behind
//! to make up for them, and because the two are one matrix in the models that are small enough to suffer most.
//!
//! Not here: how a row is quantised (`formats::quant`), memory of the machine.

use std::collections::BTreeMap;
use std::fmt;

use formats::GgmlType;
use formats::quant::CodeLayout;

use crate::arch::Described;
use crate::inventory::{LayerRole, Part, Role, roles};
use crate::load::{LoadError, Precision};
use crate::source::SourceRef;

/// Values that share a scale; a row must be a whole number of them.
const BLOCK: usize = 32;

/// What floats can be quantised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum WeightType {
    /// bfloat16: 16 bits a value.
    Bf16,
    /// 8 bits and a scale for each 32 values: 8.5 bits.
    Q8_0,
    /// 4 bits, a scale and a minimum for each 32 values: 5 bits.
    Q4_1,
    /// 4 bits and a scale for each 32 values: 4.5 bits.
    Q4_0,
}

impl WeightType {
    /// As it is written in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::Bf16 => "bf16",
            WeightType::Q8_0 => "q8_0",
            WeightType::Q4_1 => "q4_1",
            WeightType::Q4_0 => "q4_0",
        }
    }

    /// The type in which the matrix of `role` is held, with `row_len` inputs.
    pub(crate) fn held(self, role: Role, row_len: usize) -> WeightType {
        let wanted = match (role, self) {
            (Role::Embedding | Role::Head, WeightType::Q4_0 | WeightType::Q4_1) => WeightType::Q8_0,
            _ => self,
        };
        if row_len.is_multiple_of(BLOCK) {
            wanted
        } else {
            WeightType::Bf16
        }
    }

    /// The same type as files name it.
    pub(crate) fn stored(self) -> GgmlType {
        match self {
            WeightType::Bf16 => GgmlType::BF16,
            WeightType::Q8_0 => GgmlType::Q8_0,
            WeightType::Q4_1 => GgmlType::Q4_1,
            WeightType::Q4_0 => GgmlType::Q4_0,
        }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a model's matrices will be held in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightPlan {
    /// By type as GGML names it, `Q8_0`: how many matrices, and their bytes in memory.
    pub types: BTreeMap<&'static str, PlannedShare>,
    /// Matrices that are quantised in the file.
    pub num_quantised: usize,
}

/// The matrices that are held in one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedShare {
    /// How many.
    pub num_matrices: usize,
    /// Bytes of their values and scales.
    pub num_bytes: u64,
}

impl WeightPlan {
    /// Bytes of all matrices.
    pub fn num_bytes(&self) -> u64 {
        self.types.values().map(|share| share.num_bytes).sum()
    }
}

/// `Q4_0: 21 matrices, Q8_0: 1 matrix`.
impl fmt::Display for WeightPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, (name, share)) in self.types.iter().enumerate() {
            let separator = if idx == 0 { "" } else { ", " };
            let noun = if share.num_matrices == 1 {
                "matrix"
            } else {
                "matrices"
            };
            write!(f, "{separator}{name}: {} {noun}", share.num_matrices)?;
        }
        Ok(())
    }
}

/// What the matrices of a sound source will be held in.
///
/// # Errors
///
/// [`LoadError::AlreadyQuantised`] if `precision` asks to quantise a matrix that is quantised already, and what loading
/// would say of an unreadable tensor.
pub(crate) fn plan(
    described: &Described,
    source: SourceRef<'_>,
    precision: Precision,
) -> Result<WeightPlan, LoadError> {
    let mut plan = WeightPlan::default();
    let spec = &described.spec;
    for role in roles(spec) {
        let Part::Matrix { inputs, outputs } = role.part(spec) else {
            continue;
        };
        let place = described.naming.place(role, spec);
        let stored = source.raw(&place.tensor)?.ty;
        let is_quantised = CodeLayout::of(stored).is_some();
        plan.num_quantised += usize::from(is_quantised);
        let held = match precision {
            // Always whole: the one is a table of vectors, the other decides between experts.
            _ if is_kept(role) => GgmlType::F32,
            Precision::Exact => GgmlType::F32,
            Precision::Packed => stored,
            Precision::Quantised(_) if is_quantised => {
                return Err(LoadError::AlreadyQuantised {
                    tensor: place.tensor,
                    stored: stored.name(),
                });
            }
            Precision::Quantised(wanted) => wanted.held(role, inputs).stored(),
        };
        let num_values = inputs as u64 * outputs as u64;
        let share = plan.types.entry(held.name()).or_default();
        share.num_matrices += 1;
        share.num_bytes += num_values / held.block_len() as u64 * held.block_bytes() as u64;
    }
    Ok(plan)
}

fn is_kept(role: Role) -> bool {
    matches!(role, Role::Positions | Role::Layer(_, LayerRole::Router))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedding_and_head_keep_eight_bits_where_layers_have_four() {
        let query = Role::Layer(3, LayerRole::Query);
        for wanted in [WeightType::Q4_0, WeightType::Q4_1] {
            assert_eq!(wanted.held(query, 64), wanted);
            assert_eq!(wanted.held(Role::Embedding, 64), WeightType::Q8_0);
            assert_eq!(wanted.held(Role::Head, 64), WeightType::Q8_0);
        }
        assert_eq!(WeightType::Bf16.held(Role::Head, 64), WeightType::Bf16);
    }

    #[test]
    fn rows_that_are_not_whole_blocks_stay_bf16() {
        let down = Role::Layer(0, LayerRole::Down);
        for wanted in [WeightType::Q8_0, WeightType::Q4_1, WeightType::Q4_0] {
            assert_eq!(wanted.held(down, 48), WeightType::Bf16);
            assert_eq!(wanted.held(Role::Embedding, 100), WeightType::Bf16);
        }
    }
}
