//! Which tokens may be chosen at all: `logit_bias`, and the ban of end tokens while an
//! answer is shorter than `min_tokens`.
//!
//! A bias of -100 is a ban and +100 a force, exactly and not by its size, because nothing
//! bounds a model's logits. What contradicts itself is settled once, when the request
//! arrives, so that a choice always has something to choose from (case D5):
//!
//! - bans that leave nothing ban nothing;
//! - bans of the caller win over `min_tokens`, and those over a force.
//!
//! A constraint's mask is another matter ([`keep`]): it yields to nothing.

use std::collections::BTreeMap;

use crate::request::TokenId;

pub(super) const BAN: f32 = -100.0;
pub(super) const FORCE: f32 = 100.0;
/// Low enough for any model, and far enough from overflow that penalties keep it a number.
const LEAST_FORCED: f32 = -1e30;

/// Tokens that may not be chosen while the answer is short.
#[derive(Clone, Debug, Default)]
pub(crate) struct EarlyBan {
    /// Stop ids and end tokens.
    pub(crate) token_ids: Vec<TokenId>,
    /// They are banned while the answer has fewer tokens than this.
    pub(crate) min_tokens: u32,
}

/// The compiled `logit_bias` and early ban of one request. All ids are below the vocabulary size.
#[derive(Debug)]
pub(super) struct Mask {
    biases: Vec<(usize, f32)>,
    banned: Vec<usize>,
    forced: Vec<usize>,
    /// Sorted, without repeats.
    banned_early: Vec<usize>,
    min_tokens: u32,
}

impl Mask {
    /// Ids at or above `vocab` are left out: the front refuses them, and here they must do no harm.
    pub(super) fn new(logit_bias: &[(TokenId, f32)], early_ban: EarlyBan, vocab: usize) -> Mask {
        let in_vocab = |token: TokenId| Some(token.0 as usize).filter(|&id| id < vocab);
        // By id, so that of two biases for one id the last counts.
        let by_id: BTreeMap<usize, f32> = logit_bias
            .iter()
            .filter_map(|&(token, bias)| Some((in_vocab(token)?, bias)))
            .collect();
        let mut banned_early: Vec<usize> = early_ban
            .token_ids
            .iter()
            .copied()
            .filter_map(in_vocab)
            .collect();
        banned_early.sort_unstable();
        banned_early.dedup();

        let ids_where = |wanted: fn(f32) -> bool| -> Vec<usize> {
            by_id
                .iter()
                .filter(|&(_, &bias)| wanted(bias))
                .map(|(&id, _)| id)
                .collect()
        };
        let mut banned = ids_where(|bias| bias <= BAN);
        if banned.len() == vocab {
            banned.clear();
        }
        let num_only_early = banned_early
            .iter()
            .filter(|id| banned.binary_search(id).is_err())
            .count();
        if banned.len() + num_only_early == vocab {
            banned_early.clear();
        }
        Mask {
            biases: by_id
                .iter()
                .map(|(&id, &bias)| (id, bias))
                .filter(|&(_, b)| b > BAN && b < FORCE)
                .collect(),
            banned,
            forced: ids_where(|bias| bias >= FORCE),
            banned_early,
            min_tokens: early_ban.min_tokens,
        }
    }

    /// Rewrites `row` for the choice of the answer's token `answer_idx`.
    pub(super) fn apply(&self, row: &mut [f32], answer_idx: u32) {
        for &(id, bias) in &self.biases {
            row[id] += bias;
        }
        for &id in &self.banned {
            row[id] = f32::NEG_INFINITY;
        }
        let banned_early = if answer_idx < self.min_tokens {
            &self.banned_early[..]
        } else {
            &[]
        };
        for &id in banned_early {
            row[id] = f32::NEG_INFINITY;
        }
        if self.forced.is_empty() {
            return;
        }
        // A forced token is chosen even if the model rules it out, hence `max`, which drops NaN as well.
        let forced: Vec<(usize, f32)> = self
            .forced
            .iter()
            .filter(|id| banned_early.binary_search(id).is_err())
            .map(|&id| (id, row[id].max(LEAST_FORCED)))
            .collect();
        if !forced.is_empty() {
            row.fill(f32::NEG_INFINITY);
            for (id, logit) in forced {
                row[id] = logit;
            }
        }
    }
}

/// Rules out every id of `row` whose bit of `allowed` is clear or missing.
pub(super) fn keep(row: &mut [f32], allowed: &[u32]) {
    let (chunks, words) = (
        row.chunks_mut(32),
        allowed.iter().chain(std::iter::repeat(&0)),
    );
    for (logits, &word) in chunks.zip(words) {
        match word {
            0 => logits.fill(f32::NEG_INFINITY),
            u32::MAX => (),
            _ => {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
