//! The activations of a step: memory that is kept from step to step.
//!
//! The one idea: a step of the size of an earlier one allocates nothing. Not here: what
//! survives a step (that is the KV cache's).

use tensor::ops::rope::Rotations;
use tensor::rows::Rows;

use crate::experts::ExpertSpace;
use crate::spec::DecoderSpec;

/// Activations of all rows of a step, `[num_rows, width]` each.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The residual stream, `x` of the papers.
    pub stream: Vec<f32>,
    /// The stream, normalised for the matrices that read it.
    pub normed: Rows,
    pub queries: Vec<f32>,
    pub keys: Vec<f32>,
    pub values: Vec<f32>,
    pub attended: Rows,
    pub gates: Vec<f32>,
    pub ups: Vec<f32>,
    pub gated: Rows,
    /// Result of half a block, where something happens to it before it is added.
    pub branch: Vec<f32>,
    /// Of layers with experts.
    pub experts: ExpertSpace,
    /// Sines and cosines of the rows' positions, per rope of the spec.
    pub rotations: Vec<Rotations>,
    /// The rows of the stream that logits are wanted for.
    pub wanted: Vec<f32>,
    /// `[rows whose states are wanted, hidden]`, after the final norm.
    pub states: Rows,
    /// `[wanted rows, vocab]`.
    pub logits: Vec<f32>,
}

impl Workspace {
    /// Makes every part as long as the step needs; old contents are void.
    pub(crate) fn resize(&mut self, spec: &DecoderSpec, num_rows: usize, num_wanted: usize) {
        let is_direct = !spec.norm.placement.is_after() && spec.residual_scale == 1.0;
        let branch_width = match is_direct && spec.experts.is_none() {
            true => 0,
            false => spec.hidden,
        };
        for (part, len) in [
            (&mut self.stream, num_rows * spec.hidden),
            (&mut self.queries, num_rows * spec.attention.query_width()),
            (&mut self.keys, num_rows * spec.attention.kv_width()),
            (&mut self.values, num_rows * spec.attention.kv_width()),
            (&mut self.gates, num_rows * spec.feed_forward.width),
            (&mut self.ups, num_rows * spec.feed_forward.width),
            (&mut self.branch, num_rows * branch_width),
            (&mut self.wanted, num_wanted * spec.hidden),
            (&mut self.logits, num_wanted * spec.vocab),
        ] {
            part.resize(len, 0.0);
        }
        self.rotations
            .resize_with(spec.ropes.len(), Rotations::default);
    }
}
