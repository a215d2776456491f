//! A mixture of experts: each row goes through the few feed-forward layers that a router chooses for it.
//!
//! The one idea: rows are grouped by expert, so that an expert's weights are read once for all of its rows; and a row's
//! result is a sum in the order of the experts' numbers, whoever else went to them. So it keeps to
//! batch invariance like everything else.
//!
//! ```text
//! router(n) ── softmax, the largest few ──> rows by expert ── gate, up, down ──> branch[row] += weight * result
//! ```
//!
//! Source: Jiang et al. 2024, <https://arxiv.org/abs/2401.04088>.

use tensor::matrix::Matrix;
use tensor::ops::glu::glu;
use tensor::ops::matmul::matmul;
use tensor::rows::Rows;

use crate::decoder::{Layer, gate_of, product};
use crate::spec::{ExpertShares, ExpertsSpec};
use crate::weights::ExpertWeights;
use crate::workspace::Workspace;

/// What a mixture computes in, kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct ExpertSpace {
    /// `[num_rows, experts]`.
    router: Vec<f32>,
    /// Which rows go to each expert, with what weight.
    assigned: Vec<Vec<(usize, f32)>>,
    /// The rows of one expert.
    inputs: Rows,
    gates: Vec<f32>,
    ups: Vec<f32>,
    gated: Rows,
    outputs: Vec<f32>,
}

impl Layer<'_> {
    /// `branch = sum over the chosen experts of weight * expert(normed)`.
    pub(crate) fn mix_experts(
        &self,
        router: &Matrix,
        experts: &[ExpertWeights],
        work: &mut Workspace,
    ) {
        let spec = self
            .spec
            .experts
            .expect("a layer has experts only where the spec has");
        let hidden = self.spec.hidden;
        let Workspace {
            normed,
            branch,
            experts: space,
            ..
        } = work;
        space
            .router
            .resize(normed.num_rows() * spec.num_experts, 0.0);
        matmul(self.pool, normed, &mut [product(router, &mut space.router)]);
        space.assign(&spec);
        branch.fill(0.0);
        for (expert_idx, expert) in experts.iter().enumerate() {
            let assigned = std::mem::take(&mut space.assigned[expert_idx]);
            if !assigned.is_empty() {
                self.compute(expert, &assigned, normed, space);
                for (output, &(row_idx, weight)) in
                    space.outputs.chunks_exact(hidden).zip(&assigned)
                {
                    let row = &mut branch[row_idx * hidden..][..hidden];
                    row.iter_mut()
                        .zip(output)
                        .for_each(|(sum, value)| *sum += weight * value);
                }
            }
            space.assigned[expert_idx] = assigned;
        }
    }

    /// `outputs = down(activation(gate(n)) * up(n))` of the rows assigned.
    fn compute(
        &self,
        expert: &ExpertWeights,
        assigned: &[(usize, f32)],
        normed: &Rows,
        space: &mut ExpertSpace,
    ) {
        let (num_rows, width) = (assigned.len(), expert.gate.rows());
        let forms = expert.gate.form().and(expert.up.form());
        space.inputs.reset(num_rows, self.spec.hidden, forms);
        space.inputs.fill(self.pool, |idx, row| {
            row.copy_from_slice(normed.row(assigned[idx].0))
        });
        space.gates.resize(num_rows * width, 0.0);
        space.ups.resize(num_rows * width, 0.0);
        let mut jobs = [
            product(&expert.gate, &mut space.gates),
            product(&expert.up, &mut space.ups),
        ];
        matmul(self.pool, &space.inputs, &mut jobs);
        space.gated.reset(num_rows, width, expert.down.form());
        let activation = self.spec.experts.map(|experts| gate_of(experts.activation));
        let activation = activation.expect("a layer has experts only where the spec has");
        glu(
            self.pool,
            activation,
            &space.gates,
            &space.ups,
            &mut space.gated,
        );
        space.outputs.resize(num_rows * self.spec.hidden, 0.0);
        matmul(
            self.pool,
            &space.gated,
            &mut [product(&expert.down, &mut space.outputs)],
        );
    }
}

impl ExpertSpace {
    /// Fills `assigned` from the router's values.
    fn assign(&mut self, spec: &ExpertsSpec) {
        self.assigned.resize_with(spec.num_experts, Vec::new);
        self.assigned.iter_mut().for_each(Vec::clear);
        for (row_idx, values) in self.router.chunks_exact(spec.num_experts).enumerate() {
            for (expert_idx, weight) in choose(values, spec) {
                self.assigned[expert_idx].push((row_idx, weight));
            }
        }
    }
}

/// The experts of one row and their weights: the largest values, the lowest number among equals.
fn choose(values: &[f32], spec: &ExpertsSpec) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    let largest = values[order[0]];
    let share = |idx: usize| (values[idx] - largest).exp();
    let num_counted = match spec.shares {
        ExpertShares::OfAll => values.len(),
        ExpertShares::OfChosen => spec.num_used,
    };
    let sum: f32 = order[..num_counted].iter().map(|&idx| share(idx)).sum();
    order.truncate(spec.num_used);
    order
        .into_iter()
        .map(|idx| (idx, share(idx) / sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Activation;

    fn spec(num_used: usize, shares: ExpertShares) -> ExpertsSpec {
        ExpertsSpec {
            num_experts: 4,
            num_used,
            width: 32,
            activation: Activation::Silu,
            shares,
        }
    }

    #[test]
    fn the_largest_are_chosen_and_share_the_weight_among_themselves_or_with_all() {
        let values = [0.0, 2.0f32.ln(), 0.0, 4.0f32.ln()];
        let chosen = choose(&values, &spec(2, ExpertShares::OfChosen));
        let (first, second) = (chosen[0], chosen[1]);
        assert_eq!((first.0, second.0), (3, 1));
        assert!((first.1 - 4.0 / 6.0).abs() < 1e-6 && (second.1 - 2.0 / 6.0).abs() < 1e-6);
        let chosen = choose(&values, &spec(2, ExpertShares::OfAll));
        assert!((chosen[0].1 - 0.5).abs() < 1e-6 && (chosen[1].1 - 0.25).abs() < 1e-6);
    }

    #[test]
    fn among_equals_the_lowest_number_is_chosen() {
        let chosen = choose(&[1.0; 4], &spec(2, ExpertShares::OfChosen));
        assert_eq!(chosen, [(0, 0.5), (1, 0.5)]);
    }
}
