//! Chooses the next token of one sequence from its row of logits.
//!
//! The one idea: a choice depends on the row, the request and the index of the token in
//! the answer, and on nothing else. There is no generator state to carry along, so a
//! sequence chooses the same tokens alone or among others, in any batch row, preempted
//! or not. Every stage is linear in the vocabulary; nothing sorts all of it.
//!
//! ```text
//! row ──mask──penalties──rules───────┬─ temperature 0 ───────────────── largest, lowest id
//!                                    └─ top-k ─ weigh ─ top-p ─ min-p ─ draw(seed, answer index)
//! ```
//!
//! Rules are what the request allows, then what its constraint does.
//!
//! Not here: when an answer ends (`answer.rs`). Source of the plain definition that tests
//! compare with: `definition.rs`.

// Logit bias, bans, force.
mod mask;

// Only these tokens, and not those words.
mod bans;

// Repetition, presence, frequency.
mod penalties;

// Top-k, weights, top-p, min-p.
mod filter;

// The counter-based uniform number, and the pick.
mod draw;

// Log-probabilities of raw logits.
mod likelihood;

#[cfg(test)]
mod definition;
#[cfg(test)]
mod tests;

use crate::request::{Sampling, TokenId};
use bans::Bans;
pub(crate) use bans::leave_nothing;
pub(crate) use mask::EarlyBan;
use mask::Mask;
use penalties::Penalties;

/// Below this a temperature is 0: what remains of the runner-up is beyond the resolution of a
/// draw anyway, and the division would overflow (case D4).
const GREEDY_BELOW: f32 = 1e-5;

/// Why no token could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChooseError {
    /// Every logit that the request allows is NaN or minus infinity.
    #[error("none of the {vocab} logits is a number")]
    NoNumber { vocab: usize },
    /// The request's bias, bans and model leave nothing of what it or its constraint allows.
    #[error("no token is left that the request and its constraint allow")]
    NothingAllowed,
}

/// How one request chooses its tokens. Lives as long as the request.
#[derive(Debug)]
pub(crate) struct Chooser {
    mask: Mask,
    /// `None` if all of them are off.
    penalties: Option<Penalties>,
    /// `None` if everything is allowed.
    bans: Option<Bans>,
    pick: Pick,
}

#[derive(Clone, Copy, Debug)]
enum Pick {
    Greedy,
    Draw(Draw),
}

#[derive(Clone, Copy, Debug)]
struct Draw {
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    min_p: f32,
    seed: u64,
}

/// Buffers that all requests of an engine share, so that a choice allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    filter: filter::Buffers,
    block_sums: Vec<f64>,
    /// The logits as the model gave them, of a request that wants log-probabilities.
    pub(crate) raw: Vec<f32>,
}

impl Chooser {
    /// The chooser of a request whose answer may use ids below `vocab`.
    pub(crate) fn new(
        sampling: &Sampling,
        prompt: &[TokenId],
        mut early_ban: EarlyBan,
        vocab: usize,
        seed: u64,
    ) -> Chooser {
        if bans::leave_only(sampling, &early_ban.token_ids, vocab) {
            // Nothing else may be chosen at any time: `min_tokens` gives way.
            early_ban = EarlyBan::default();
        }
        let pick = if sampling.temperature < GREEDY_BELOW {
            Pick::Greedy
        } else {
            Pick::Draw(Draw {
                temperature: sampling.temperature,
                top_k: sampling.top_k.filter(|&k| k > 0).map(|k| k as usize),
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                seed,
            })
        };
        Chooser {
            mask: Mask::new(&sampling.logit_bias, early_ban, vocab),
            penalties: Penalties::new(sampling, prompt),
            bans: Bans::new(sampling, vocab),
            pick,
        }
    }

    /// Chooses the token at `answer_idx` (0 is the first) of the answer. `row` holds the
    /// logits of ids `0..row.len()` and is used up. `allowed` has a bit for each id that a constraint
    /// lets through; it has the last word, so that no bias, force or penalty gets past it.
    ///
    /// NaN counts as minus infinity, plus infinity as the largest number.
    ///
    /// # Errors
    ///
    /// [`ChooseError::NoNumber`]; with rules or a constraint [`ChooseError::NothingAllowed`].
    ///
    /// # Cost
    ///
    /// Two passes over the row when greedy, about eight when drawing. For 49152 logits about 15 µs
    /// greedy, 60 µs with a temperature only, 140 µs with top-p (one core, 128-bit vectors).
    pub(crate) fn choose(
        &self,
        row: &mut [f32],
        answer_idx: u32,
        allowed: Option<&[u32]>,
        scratch: &mut Scratch,
    ) -> Result<TokenId, ChooseError> {
        self.mask.apply(row, answer_idx);
        if let Some(penalties) = &self.penalties {
            penalties.apply(row);
        }
        if let Some(bans) = &self.bans {
            bans.apply(row);
        }
        if let Some(allowed) = allowed {
            mask::keep(row, allowed);
        }
        let max = filter::max_finite(row).ok_or(match (allowed, &self.bans) {
            (None, None) => ChooseError::NoNumber { vocab: row.len() },
            _ => ChooseError::NothingAllowed,
        })?;
        match self.pick {
            Pick::Greedy => Ok(filter::first_of(row, max)),
            Pick::Draw(settings) => {
                settings.weigh(row, max, &mut scratch.filter);
                let uniform = draw::uniform(settings.seed, answer_idx);
                Ok(draw::pick(row, uniform, &mut scratch.block_sums))
            }
        }
    }

    /// Notes that `token` is now part of the answer.
    pub(crate) fn record(&mut self, token: TokenId) {
        if let Some(penalties) = &mut self.penalties {
            penalties.record(token);
        }
        if let Some(bans) = &mut self.bans {
            bans.record(token);
        }
    }
}

impl Draw {
    /// Rewrites the logits in `row`, whose largest is `max`, as weights in proportion to the
    /// probabilities of the tokens; 0 for those that may not be drawn.
    fn weigh(&self, row: &mut [f32], max: f32, buffers: &mut filter::Buffers) {
        if let Some(k) = self.top_k.filter(|&k| k < row.len()) {
            filter::top_k(row, k, buffers);
        }
        filter::weigh(row, max, self.temperature);
        if self.top_p < 1.0 {
            filter::top_p(row, self.top_p, buffers);
        }
        if self.min_p > 0.0 {
            filter::min_p(row, self.min_p);
        }
    }
}
