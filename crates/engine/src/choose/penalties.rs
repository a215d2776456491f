//! Penalties on tokens already used.
//!
//! ```text
//! repetition  tokens of prompt or answer    logit > 0 ? logit / r : logit * r
//! presence    tokens of the answer          logit - p
//! frequency   tokens of the answer          logit - f * occurrences
//! ```
//!
//! The counts belong to the sequence and grow by one token a step; nothing recounts. Only
//! generated tokens count for presence and frequency (case D3).
//!
//! Source: repetition penalty, Keskar et al. 2019, <https://arxiv.org/abs/1909.05858>; the
//! other two, the OpenAI API reference.

use std::collections::HashMap;

use crate::request::{Sampling, TokenId};

/// The penalties of one sequence. Exists only if at least one is on.
#[derive(Debug)]
pub(super) struct Penalties {
    repetition: f32,
    presence: f32,
    frequency: f32,
    /// How often the answer has each token; 0 for one that only the prompt has.
    num_in_answer: HashMap<u32, u32>,
}

impl Penalties {
    /// `None` if every penalty is at its neutral value.
    pub(super) fn new(sampling: &Sampling, prompt: &[TokenId]) -> Option<Penalties> {
        let repeats = sampling.repetition_penalty != 1.0;
        if !repeats && sampling.presence_penalty == 0.0 && sampling.frequency_penalty == 0.0 {
            return None;
        }
        let num_in_answer = if repeats {
            prompt.iter().map(|token| (token.0, 0)).collect()
        } else {
            HashMap::new()
        };
        Some(Penalties {
            repetition: sampling.repetition_penalty,
            presence: sampling.presence_penalty,
            frequency: sampling.frequency_penalty,
            num_in_answer,
        })
    }

    /// Rewrites the logits of used tokens. Each id by itself, so the map's order is no matter.
    pub(super) fn apply(&self, row: &mut [f32]) {
        for (&id, &num) in &self.num_in_answer {
            let Some(logit) = row.get_mut(id as usize) else {
                continue;
            };
            if *logit > 0.0 {
                *logit /= self.repetition;
            } else {
                *logit *= self.repetition;
            }
            if num > 0 {
                *logit -= self.presence + self.frequency * num as f32;
            }
        }
    }

    /// Counts one more token of the answer.
    pub(super) fn record(&mut self, token: TokenId) {
        *self.num_in_answer.entry(token.0).or_insert(0) += 1;
    }
}
