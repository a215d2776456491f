//! Who holds which block: reference counts, the free list, and idle cached blocks by age.
//!
//! The one idea: a block is in exactly one of three states, and only the three moves below exist.
//!
//! ```text
//!            take                    release, not cached
//!   free ───────────▶ held (n ≥ 1) ─────────────────────▶ free
//!                      ▲        │
//!                 hold │        │ release, cached
//!                      │        ▼
//!                      idle (n = 0): oldest first ─ evict ─▶ free
//! ```
//!
//! Not here: what a block contains (`prefix.rs`). Every operation is O(1).

use crate::BlockId;

/// Marks the end of the list of idle blocks. Not an id: pools are smaller than this.
const END: u32 = u32::MAX;

/// Reference counts over a fixed number of blocks.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// Holders of each block.
    num_holders: Vec<u32>,
    /// Blocks that contain nothing worth keeping; the last is used next.
    free: Vec<BlockId>,
    idle: IdleList,
    num_held: usize,
}

/// Whether a released block's content is still of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Cached,
    Worthless,
}

impl BlockPool {
    /// All blocks free.
    pub(crate) fn new(num_blocks: usize) -> BlockPool {
        let num_blocks =
            u32::try_from(num_blocks).expect("Limits::assert_usable checked the range");
        BlockPool {
            num_holders: vec![0; num_blocks as usize],
            free: (0..num_blocks).rev().map(BlockId).collect(),
            idle: IdleList::new(num_blocks as usize),
            num_held: 0,
        }
    }

    /// A free block, now held once.
    pub(crate) fn take_free(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        assert_eq!(
            self.num_holders[block.idx()],
            0,
            "a free block has no holder"
        );
        self.num_holders[block.idx()] = 1;
        self.num_held += 1;
        Some(block)
    }

    /// Holds a block once more; it must be held or idle.
    pub(crate) fn hold(&mut self, block: BlockId) {
        let num_holders = &mut self.num_holders[block.idx()];
        if *num_holders == 0 {
            self.idle.remove(block);
            self.num_held += 1;
        }
        *num_holders = num_holders
            .checked_add(1)
            .expect("fewer holders than u32::MAX sequences");
    }

    /// Gives up one hold.
    pub(crate) fn release(&mut self, block: BlockId, content: Content) {
        let num_holders = &mut self.num_holders[block.idx()];
        assert!(
            *num_holders > 0,
            "block {block:?} is released more often than held"
        );
        *num_holders -= 1;
        if *num_holders == 0 {
            self.num_held -= 1;
            match content {
                Content::Cached => self.idle.push_newest(block),
                Content::Worthless => self.free.push(block),
            }
        }
    }

    /// Frees the block that has been idle longest.
    pub(crate) fn evict(&mut self) -> Option<BlockId> {
        let block = self.idle.oldest()?;
        assert_eq!(
            self.num_holders[block.idx()],
            0,
            "an idle block has no holder"
        );
        self.idle.remove(block);
        self.free.push(block);
        Some(block)
    }

    pub(crate) fn num_holders(&self, block: BlockId) -> u32 {
        self.num_holders[block.idx()]
    }

    pub(crate) fn num_held(&self) -> usize {
        self.num_held
    }

    pub(crate) fn num_idle(&self) -> usize {
        self.idle.len
    }

    pub(crate) fn num_free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn num_blocks(&self) -> usize {
        self.num_holders.len()
    }

    /// Idle blocks, the one to be evicted first.
    pub(crate) fn idle(&self) -> impl Iterator<Item = BlockId> {
        std::iter::successors(self.idle.oldest(), |&block| self.idle.newer(block))
    }

    /// Free blocks, in no order worth naming.
    pub(crate) fn free(&self) -> &[BlockId] {
        &self.free
    }
}

/// A list threaded through arrays, so that any member leaves in O(1).
#[derive(Debug)]
struct IdleList {
    /// For each block its (older, newer) neighbour while it is in the list.
    neighbours: Vec<(u32, u32)>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl IdleList {
    fn new(num_blocks: usize) -> IdleList {
        IdleList {
            neighbours: vec![(END, END); num_blocks],
            oldest: END,
            newest: END,
            len: 0,
        }
    }

    fn oldest(&self) -> Option<BlockId> {
        (self.oldest != END).then_some(BlockId(self.oldest))
    }

    fn newer(&self, block: BlockId) -> Option<BlockId> {
        let (_, newer) = self.neighbours[block.idx()];
        (newer != END).then_some(BlockId(newer))
    }

    fn push_newest(&mut self, block: BlockId) {
        self.neighbours[block.idx()] = (self.newest, END);
        match self.newest {
            END => self.oldest = block.0,
            newest => self.neighbours[newest as usize].1 = block.0,
        }
        self.newest = block.0;
        self.len += 1;
    }

    fn remove(&mut self, block: BlockId) {
        assert!(self.len > 0, "block {block:?} is not idle");
        let (older, newer) = std::mem::replace(&mut self.neighbours[block.idx()], (END, END));
        match older {
            END => {
                assert_eq!(self.oldest, block.0, "block {block:?} is not idle");
                self.oldest = newer;
            }
            older => self.neighbours[older as usize].1 = newer,
        }
        match newer {
            END => self.newest = older,
            newer => self.neighbours[newer as usize].0 = older,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle_ids(pool: &BlockPool) -> Vec<u32> {
        pool.idle().map(|block| block.0).collect()
    }

    #[test]
    fn blocks_leave_the_idle_list_from_any_place_and_rejoin_as_newest() {
        let mut pool = BlockPool::new(4);
        let blocks: Vec<BlockId> = std::iter::from_fn(|| pool.take_free()).collect();
        assert_eq!(blocks, [0, 1, 2, 3].map(BlockId));
        for &block in &blocks {
            pool.release(block, Content::Cached);
        }
        assert_eq!(idle_ids(&pool), [0, 1, 2, 3]);
        for (reused, left) in [(1, [0, 2, 3, 1]), (0, [2, 3, 1, 0]), (0, [2, 3, 1, 0])] {
            pool.hold(BlockId(reused));
            pool.release(BlockId(reused), Content::Cached);
            assert_eq!(idle_ids(&pool), left);
        }
        assert_eq!(pool.evict(), Some(BlockId(2)));
        assert_eq!(
            (pool.num_free(), pool.num_idle(), pool.num_held()),
            (1, 3, 0)
        );
    }

    #[test]
    fn a_block_held_twice_is_idle_only_after_the_second_release() {
        let mut pool = BlockPool::new(1);
        let block = pool.take_free().unwrap();
        pool.hold(block);
        pool.release(block, Content::Cached);
        assert_eq!((pool.num_held(), pool.num_idle()), (1, 0));
        assert_eq!(pool.evict(), None);
        pool.release(block, Content::Cached);
        assert_eq!((pool.num_held(), pool.num_idle()), (0, 1));
    }

    #[test]
    #[should_panic(expected = "released more often than held")]
    fn releasing_twice_is_caught() {
        let mut pool = BlockPool::new(2);
        let block = pool.take_free().unwrap();
        pool.release(block, Content::Worthless);
        pool.release(block, Content::Worthless);
    }

    #[test]
    #[should_panic(expected = "is not idle")]
    fn holding_a_free_block_is_caught() {
        let mut pool = BlockPool::new(2);
        let cached = pool.take_free().unwrap();
        pool.release(cached, Content::Cached);
        pool.hold(BlockId(1));
    }
}
