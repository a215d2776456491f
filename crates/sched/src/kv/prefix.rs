//! Finding again what was computed before: a tree of full blocks.
//!
//! The one idea: a node *is* a block of the pool, its edges are the tokens in it, and its parent
//! is the block before it. Two sequences share a path as far as their tokens agree:
//!
//! ```text
//!   root ── b7 "You are a helpful…" ──┬── b2 "…What is Rust?" ── b9 "…A language…"
//!                                     └── b4 "…Tell me a joke"
//! ```
//!
//! A node is looked up by the hash of its whole path, then checked: same parent *and* same tokens.
//! By induction from the root the whole path is the same, so a colliding hash cannot serve another
//! prompt's content; the newcomer merely stays uncached.
//!
//! The parent is named by its block, which is sound because a parent outlives its children: who
//! holds a node holds all its ancestors, and releases them from the leaf up, so an ancestor is
//! always idle later than its descendants and evicted later ([`PrefixCache::forget`] asserts it).
//! Eviction by age alone is therefore leaf-first.
//!
//! Not here: how long a block stays (`pool.rs`).

use std::collections::HashMap;

use crate::{BlockId, Token};

/// All cached blocks.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    by_hash: HashMap<u64, BlockId>,
    /// One slot per block of the pool.
    nodes: Vec<Option<Node>>,
    /// `[num_blocks, block_tokens]`: the content of each cached block.
    tokens: Vec<Token>,
    block_tokens: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    parent: Option<BlockId>,
    num_children: u32,
}

/// A full block and its place: enough to find or to publish it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The cached block before it; `None` at the start of a sequence.
    pub parent: Option<BlockId>,
    /// Chain hash up to and including this block.
    pub hash: u64,
    pub tokens: &'a [Token],
}

/// What came of publishing a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// It is now a node.
    New,
    /// Another block with the same path is a node already.
    Duplicate(BlockId),
    /// Another path has the same hash. This one stays out.
    Collision,
}

impl PrefixCache {
    pub(crate) fn new(num_blocks: usize, block_tokens: usize) -> PrefixCache {
        PrefixCache {
            by_hash: HashMap::with_capacity(num_blocks),
            nodes: vec![None; num_blocks],
            tokens: vec![0; num_blocks * block_tokens],
            block_tokens,
        }
    }

    /// The cached block at a place.
    pub(crate) fn find(&self, place: Place<'_>) -> Option<BlockId> {
        let &block = self.by_hash.get(&place.hash)?;
        self.is_at(block, place).then_some(block)
    }

    /// Makes a computed block findable.
    pub(crate) fn publish(&mut self, block: BlockId, place: Place<'_>) -> Published {
        assert!(
            self.nodes[block.idx()].is_none(),
            "block {block:?} is published already"
        );
        assert_eq!(
            place.tokens.len(),
            self.block_tokens,
            "only full blocks are published"
        );
        if let Some(&other) = self.by_hash.get(&place.hash) {
            return match self.is_at(other, place) {
                true => Published::Duplicate(other),
                false => Published::Collision,
            };
        }
        if let Some(parent) = place.parent {
            self.node_mut(parent).num_children += 1;
        }
        self.nodes[block.idx()] = Some(Node {
            hash: place.hash,
            parent: place.parent,
            num_children: 0,
        });
        self.by_hash.insert(place.hash, block);
        let first = block.idx() * self.block_tokens;
        self.tokens[first..first + self.block_tokens].copy_from_slice(place.tokens);
        Published::New
    }

    /// Takes a leaf out.
    pub(crate) fn forget(&mut self, block: BlockId) {
        let node = self.nodes[block.idx()]
            .take()
            .expect("only cached blocks are forgotten");
        assert_eq!(
            node.num_children, 0,
            "block {block:?} is forgotten before its children"
        );
        let removed = self.by_hash.remove(&node.hash);
        assert_eq!(removed, Some(block), "one block per hash");
        if let Some(parent) = node.parent {
            self.node_mut(parent).num_children -= 1;
        }
    }

    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.nodes[block.idx()].is_some()
    }

    /// The parent of a cached block.
    pub(crate) fn parent(&self, block: BlockId) -> Option<BlockId> {
        self.nodes[block.idx()]
            .expect("asked of a cached block")
            .parent
    }

    /// Whether a cached block lies at a place.
    pub(crate) fn is_at(&self, block: BlockId, place: Place<'_>) -> bool {
        let first = block.idx() * self.block_tokens;
        self.parent(block) == place.parent
            && self.tokens[first..first + self.block_tokens] == *place.tokens
    }

    /// Cached blocks, held or idle.
    pub(crate) fn num_nodes(&self) -> usize {
        self.by_hash.len()
    }

    fn node_mut(&mut self, block: BlockId) -> &mut Node {
        self.nodes[block.idx()]
            .as_mut()
            .expect("a parent is cached as long as its children")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: BlockId = BlockId(0);
    const SECOND: BlockId = BlockId(1);
    const THIRD: BlockId = BlockId(2);

    fn place(parent: Option<BlockId>, hash: u64, tokens: &[Token]) -> Place<'_> {
        Place {
            parent,
            hash,
            tokens,
        }
    }

    fn cache() -> PrefixCache {
        PrefixCache::new(4, 2)
    }

    #[test]
    fn a_block_is_found_only_by_its_tokens_behind_its_parent() {
        let mut cache = cache();
        assert_eq!(
            cache.publish(FIRST, place(None, 10, &[1, 2])),
            Published::New
        );
        assert_eq!(
            cache.publish(SECOND, place(Some(FIRST), 11, &[3, 4])),
            Published::New
        );
        assert_eq!(cache.find(place(None, 10, &[1, 2])), Some(FIRST));
        assert_eq!(cache.find(place(Some(FIRST), 11, &[3, 4])), Some(SECOND));
        // The hash is right each time, what it stands for is not.
        assert_eq!(cache.find(place(None, 10, &[1, 3])), None);
        assert_eq!(cache.find(place(None, 11, &[3, 4])), None);
        assert_eq!(cache.find(place(Some(SECOND), 11, &[3, 4])), None);
    }

    #[test]
    fn the_second_of_equal_blocks_is_a_duplicate_and_of_colliding_ones_stays_out() {
        let mut cache = cache();
        assert_eq!(
            cache.publish(FIRST, place(None, 10, &[1, 2])),
            Published::New
        );
        assert_eq!(
            cache.publish(SECOND, place(None, 10, &[1, 2])),
            Published::Duplicate(FIRST)
        );
        assert_eq!(
            cache.publish(THIRD, place(None, 10, &[2, 1])),
            Published::Collision
        );
        assert!(!cache.contains(SECOND) && !cache.contains(THIRD));
        assert_eq!(cache.num_nodes(), 1);
    }

    #[test]
    fn what_is_forgotten_is_not_found_and_makes_room_for_a_collider() {
        let mut cache = cache();
        cache.publish(FIRST, place(None, 10, &[1, 2]));
        cache.forget(FIRST);
        assert_eq!(cache.find(place(None, 10, &[1, 2])), None);
        assert_eq!(
            cache.publish(THIRD, place(None, 10, &[2, 1])),
            Published::New
        );
    }

    #[test]
    #[should_panic(expected = "is forgotten before its children")]
    fn forgetting_a_parent_before_its_child_is_caught() {
        let mut cache = cache();
        cache.publish(FIRST, place(None, 10, &[1, 2]));
        cache.publish(SECOND, place(Some(FIRST), 11, &[3, 4]));
        cache.forget(FIRST);
    }
}
