//! What a request allows at all: `allowed` and `bad_words`.
//!
//! The one idea: these are rules and not wishes, so unlike a bias they come after everything that makes
//! tokens likelier, and yield to nothing. If they leave no token, the request is refused where that can
//! be known beforehand ([`leave_nothing`]), and else ends without one.
//!
//! A bad word counts where its first tokens are the end of the answer so far; the prompt is no part of
//! it, so a word that began there is not prevented.

use super::mask;
use crate::request::{Sampling, TokenId};

/// The rules of one request. Exists only if there is one.
#[derive(Debug)]
pub(super) struct Bans {
    /// One bit an id.
    allowed: Option<Vec<u32>>,
    bad_words: Vec<Vec<TokenId>>,
    /// The end of the answer, as long as a bad word reaches back.
    recent: Vec<TokenId>,
    num_recent_max: usize,
}

impl Bans {
    pub(super) fn new(sampling: &Sampling, vocab: usize) -> Option<Bans> {
        if sampling.allowed.is_none() && sampling.bad_words.is_empty() {
            return None;
        }
        let longest = sampling.bad_words.iter().map(Vec::len).max().unwrap_or(0);
        Some(Bans {
            allowed: sampling.allowed.as_ref().map(|ids| bits_of(ids, vocab)),
            bad_words: sampling.bad_words.clone(),
            recent: Vec::new(),
            num_recent_max: longest.saturating_sub(1),
        })
    }

    /// Rules out what may not come next.
    pub(super) fn apply(&self, row: &mut [f32]) {
        if let Some(allowed) = &self.allowed {
            mask::keep(row, allowed);
        }
        for word in &self.bad_words {
            if let Some((last, before)) = word.split_last()
                && self.recent.ends_with(before)
                && let Some(logit) = row.get_mut(last.0 as usize)
            {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    /// Notes that `token` is now part of the answer.
    pub(super) fn record(&mut self, token: TokenId) {
        if self.num_recent_max == 0 {
            return;
        }
        if self.recent.len() == self.num_recent_max {
            self.recent.remove(0);
        }
        self.recent.push(token);
    }
}

fn bits_of(ids: &[TokenId], vocab: usize) -> Vec<u32> {
    let mut bits = vec![0; vocab.div_ceil(32)];
    for id in ids.iter().filter(|id| (id.0 as usize) < vocab) {
        bits[id.0 as usize / 32] |= 1 << (id.0 % 32);
    }
    bits
}

/// Ids below `vocab` that `sampling` lets through whatever the answer is, if it has rules at all.
/// Cost: proportional to the vocabulary.
fn possible(sampling: &Sampling, vocab: usize) -> Option<Vec<bool>> {
    let has_short_words = sampling.bad_words.iter().any(|word| word.len() == 1);
    if sampling.allowed.is_none() && !has_short_words {
        return None;
    }
    let mut possible = vec![sampling.allowed.is_none(); vocab];
    let mut set = |token: TokenId, is_possible: bool| {
        if let Some(entry) = possible.get_mut(token.0 as usize) {
            *entry = is_possible;
        }
    };
    sampling
        .allowed
        .iter()
        .flatten()
        .for_each(|&id| set(id, true));
    for word in &sampling.bad_words {
        if let [token] = word[..] {
            set(token, false);
        }
    }
    let biases = || sampling.logit_bias.iter();
    for &(token, _) in biases().filter(|(_, bias)| *bias <= mask::BAN) {
        set(token, false);
    }
    if biases().any(|&(_, bias)| bias >= mask::FORCE) {
        let is_forced = |id: usize| {
            biases().any(|&(token, bias)| token.0 as usize == id && bias >= mask::FORCE)
        };
        for (id, entry) in possible.iter_mut().enumerate() {
            *entry = *entry && is_forced(id);
        }
    }
    Some(possible)
}

/// Whether the rules of `sampling`, with its bias, leave no token to choose, ever.
pub(crate) fn leave_nothing(sampling: &Sampling, vocab: usize) -> bool {
    possible(sampling, vocab).is_some_and(|possible| !possible.contains(&true))
}

/// Whether nothing is left if `token_ids` may not be chosen either.
pub(super) fn leave_only(sampling: &Sampling, token_ids: &[TokenId], vocab: usize) -> bool {
    let is_other = |(id, &is_possible): (usize, &bool)| {
        is_possible && !token_ids.contains(&TokenId(id as u32))
    };
    possible(sampling, vocab).is_some_and(|possible| !possible.iter().enumerate().any(is_other))
}
