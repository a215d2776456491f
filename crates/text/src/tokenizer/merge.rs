//! Byte-pair merging: join the best pair of neighbours until no pair can be joined.
//!
//! The one idea: a heap of possible joins over a linked list of symbols. A join makes at most two new candidates and is
//! never undone, so `n` symbols cost `O(n log n)` however long the text is, and nothing recurses.
//!
//! ```text
//! symbols   h ⇄ e ⇄ l ⇄ l ⇄ o        heap  (rank 3: l+l at 2) (rank 7: h+e at 0) …
//!           h ⇄ e ⇄ ll ⇄ · ⇄ o       a candidate whose symbols have changed since is stale: its
//!                                    length no longer fits, since symbols only grow
//! ```
//!
//! Which pairs can be joined is the vocabulary's business ([`JoinRules`]): ranked pairs for BPE, scored texts for
//! SentencePiece.
//!
//! Source: Sennrich et al. 2016, <https://arxiv.org/abs/1508.07909>; order of joins as in `tokenizers` (`models/bpe/word.rs`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::TokenId;

/// A stretch of the text that is one token, or a character that is none yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// `None` if the vocabulary has no token for this character or byte alone.
    pub(super) token: Option<TokenId>,
    /// Byte offset in the word.
    start: u32,
    /// 0 once it was joined to its left neighbour.
    num_bytes: u32,
    previous: Option<u32>,
    next: Option<u32>,
}

impl Symbol {
    /// The bytes of the word that it stands for.
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.num_bytes as usize
    }
}

/// What two neighbours become.
pub(super) struct Join {
    /// Lower ranks come first; equal ones from left to right.
    pub(super) rank: u32,
    pub(super) token: TokenId,
}

/// Which neighbours can be joined.
pub(super) trait JoinRules {
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join>;
}

/// Working memory of merging, reused from word to word.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
    /// Candidates looked at since the merger was made: the work done.
    num_candidates: usize,
}

/// A possible join. The order of the fields is the order in which joins happen. Small, because a long word fills
/// the caches with them.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left_idx: u32,
    /// Of both symbols together.
    num_bytes: u32,
    token: TokenId,
}

impl Merger {
    /// Forgets the last word.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
    }

    /// Adds a symbol at the end of the word.
    ///
    /// # Panics
    ///
    /// If the word grows beyond 4 GiB.
    pub(super) fn push(&mut self, token: Option<TokenId>, num_bytes: usize) {
        let idx = u32::try_from(self.symbols.len()).expect("below the number of bytes");
        let previous = idx.checked_sub(1);
        let start = match self.symbols.last_mut() {
            Some(last) => {
                last.next = Some(idx);
                last.range().end
            }
            None => 0,
        };
        assert!(
            start + num_bytes <= u32::MAX as usize,
            "a word of over 4 GiB"
        );
        self.symbols.push(Symbol {
            token,
            start: start as u32,
            num_bytes: num_bytes as u32,
            previous,
            next: None,
        });
    }

    /// Joins what can be joined and gives the symbols that are left.
    pub(super) fn merge(&mut self, rules: &impl JoinRules) -> impl Iterator<Item = &Symbol> {
        let mut candidates = std::mem::take(&mut self.heap).into_vec();
        candidates.clear();
        let lefts = 0..self.symbols.len().saturating_sub(1) as u32;
        candidates.extend(lefts.filter_map(|left| self.candidate(rules, left, left + 1)));
        self.heap = BinaryHeap::from(candidates);
        while let Some(Reverse(candidate)) = self.heap.pop() {
            self.num_candidates += 1;
            if let Some((previous, next)) = self.apply(&candidate) {
                let joined = candidate.left_idx;
                let left = previous.and_then(|previous| self.candidate(rules, previous, joined));
                let right = next.and_then(|next| self.candidate(rules, joined, next));
                self.heap.extend(left.into_iter().chain(right));
            }
        }
        self.symbols.iter().filter(|symbol| symbol.num_bytes > 0)
    }

    fn candidate(
        &self,
        rules: &impl JoinRules,
        left_idx: u32,
        right_idx: u32,
    ) -> Option<Reverse<Candidate>> {
        let left = &self.symbols[left_idx as usize];
        let right = &self.symbols[right_idx as usize];
        let join = rules.join(left, right)?;
        Some(Reverse(Candidate {
            rank: join.rank,
            left_idx,
            num_bytes: left.num_bytes + right.num_bytes,
            token: join.token,
        }))
    }

    /// Makes the join and gives the new symbol's neighbours, or `None` if the candidate is stale.
    fn apply(&mut self, candidate: &Candidate) -> Option<(Option<u32>, Option<u32>)> {
        let left = self.symbols[candidate.left_idx as usize];
        let right_idx = left.next? as usize;
        let right = self.symbols[right_idx];
        if left.num_bytes == 0 || left.num_bytes + right.num_bytes != candidate.num_bytes {
            return None;
        }
        self.symbols[right_idx].num_bytes = 0;
        if let Some(next) = right.next {
            self.symbols[next as usize].previous = Some(candidate.left_idx);
        }
        let joined = &mut self.symbols[candidate.left_idx as usize];
        joined.token = Some(candidate.token);
        joined.num_bytes = candidate.num_bytes;
        joined.next = right.next;
        Some((left.previous, right.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any two symbols of equal length join, the shortest first: the most joins there can be.
    struct Doubling;

    impl JoinRules for Doubling {
        fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join> {
            (left.num_bytes == right.num_bytes).then(|| Join {
                rank: left.num_bytes,
                token: TokenId(left.num_bytes * 2),
            })
        }
    }

    fn lengths(num_symbols: usize) -> (Vec<usize>, usize) {
        let mut merger = Merger::default();
        for _ in 0..num_symbols {
            merger.push(Some(TokenId(1)), 1);
        }
        let lengths = merger.merge(&Doubling).map(|symbol| symbol.range().len());
        (lengths.collect(), merger.num_candidates)
    }

    #[test]
    fn the_lowest_rank_is_joined_first_and_equal_ranks_from_the_left() {
        assert_eq!(lengths(7).0, [4, 2, 1]);
    }

    /// Case F10.
    #[test]
    fn the_work_for_an_unbroken_word_is_at_most_three_candidates_a_symbol() {
        for num_symbols in [1_000, 2_000, 200_000] {
            assert!(lengths(num_symbols).1 <= 3 * num_symbols);
        }
    }

    #[test]
    fn an_empty_word_has_no_symbols() {
        assert_eq!(lengths(0).0, [0_usize; 0]);
    }
}
