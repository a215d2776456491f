//! Accounting of KV blocks: who holds them and what can be found in them.
//!
//! The one idea: accounting and bytes are apart. This module gives out block *ids*; which bytes a
//! block has is crate `model`'s business. Two halves, joined here because evicting touches both:
//! `pool.rs` counts holders, `prefix.rs` remembers content.

pub(crate) mod hash; // Names of blocks.
pub(crate) mod pool; // Holders, free and idle blocks.
pub(crate) mod prefix; // Content of cached blocks.

use crate::BlockId;
use crate::limits::Limits;
use crate::sequence::Sequence;
use pool::{BlockPool, Content};
use prefix::{Place, PrefixCache, Published};

/// All blocks of one KV store.
#[derive(Debug)]
pub(crate) struct KvBlocks {
    pool: BlockPool,
    prefix: PrefixCache,
    block_tokens: usize,
    num_evicted: usize,
}

/// What a waiting sequence would find in the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedPrefix {
    /// Leading blocks that are cached.
    pub num_blocks: usize,
    /// Of those, how many nobody holds: using them takes from what is available.
    pub num_idle: usize,
}

impl KvBlocks {
    pub(crate) fn new(limits: &Limits) -> KvBlocks {
        KvBlocks {
            pool: BlockPool::new(limits.num_blocks),
            prefix: PrefixCache::new(limits.num_blocks, limits.block_tokens),
            block_tokens: limits.block_tokens,
            num_evicted: 0,
        }
    }

    /// Blocks that can be had now: free, or cached but idle.
    pub(crate) fn num_available(&self) -> usize {
        self.pool.num_free() + self.pool.num_idle()
    }

    /// The longest cached beginning of a sequence that holds no blocks yet.
    pub(crate) fn cached_prefix(&self, seq: &Sequence) -> CachedPrefix {
        assert!(seq.table.is_empty(), "asked before blocks are reserved");
        let mut found = CachedPrefix {
            num_blocks: 0,
            num_idle: 0,
        };
        let mut parent = None;
        while let Some(block) = self.find(seq, found.num_blocks, parent) {
            found.num_blocks += 1;
            found.num_idle += usize::from(self.pool.num_holders(block) == 0);
            parent = Some(block);
        }
        found
    }

    /// Uses what others have published of the blocks this sequence would compute next, instead of
    /// its own reserved ones (or beyond its table, while that is being built).
    pub(crate) fn adopt_cached(&mut self, seq: &mut Sequence) {
        // In the middle of a block its own half is as good as another's whole; behind a block that
        // could not be published nothing can be found.
        while seq.num_computed == seq.num_published * self.block_tokens {
            let idx = seq.num_published;
            let parent = idx.checked_sub(1).map(|parent| seq.table[parent]);
            let Some(cached) = self.find(seq, idx, parent) else {
                break;
            };
            self.pool.hold(cached);
            match seq.table.get_mut(idx) {
                Some(own) => {
                    let unused = std::mem::replace(own, cached);
                    assert!(
                        !self.prefix.contains(unused),
                        "a block to be computed is not cached"
                    );
                    self.pool.release(unused, Content::Worthless);
                }
                None => seq.table.push(cached),
            }
            seq.num_published += 1;
            seq.num_computed += self.block_tokens;
        }
        assert!(
            seq.num_computed < seq.tokens.len(),
            "the last position is always computed"
        );
    }

    /// The cached block that could serve as the `idx`th of a sequence. Never one with a position whose
    /// logits are wanted, as those of the last known one always are.
    fn find(&self, seq: &Sequence, idx: usize, parent: Option<BlockId>) -> Option<BlockId> {
        let reusable = (idx + 1) * self.block_tokens <= seq.num_reusable();
        let &hash = seq.hashes.get(idx).filter(|_| reusable)?;
        self.prefix.find(Place {
            parent,
            hash,
            tokens: seq.block(idx, self.block_tokens),
        })
    }

    /// Gives `follower` what `leader`, an older sequence with the same prompt, has computed of the full
    /// blocks they have in common. Both then hold them; nobody writes them again.
    pub(crate) fn share(&mut self, leader: &Sequence, follower: &mut Sequence) {
        assert_eq!(leader.group, follower.group, "only a group has one prompt");
        let num_computed = leader.num_computed / self.block_tokens;
        let num_shared = follower.num_shareable.min(num_computed);
        while follower.table.len() < num_shared {
            let idx = follower.table.len();
            assert_eq!(follower.num_computed, idx * self.block_tokens);
            self.pool.hold(leader.table[idx]);
            follower.table.push(leader.table[idx]);
            follower.num_computed += self.block_tokens;
            follower.num_published += usize::from(idx < leader.num_published);
            follower.shares = true;
        }
        follower.follows = follower.table.len() < follower.num_shareable;
    }

    /// Gives a sequence blocks for all the tokens it knows; all or nothing.
    pub(crate) fn try_extend(&mut self, seq: &mut Sequence) -> bool {
        let num_blocks = seq.tokens.len().div_ceil(self.block_tokens);
        assert!(num_blocks >= seq.table.len(), "sequences only grow");
        if num_blocks - seq.table.len() > self.num_available() {
            return false;
        }
        while seq.table.len() < num_blocks {
            let block = self.take();
            seq.table.push(block);
        }
        true
    }

    /// A block without content; evicts the longest idle one if none is free.
    fn take(&mut self) -> BlockId {
        if self.pool.num_free() == 0 {
            let evicted = self
                .pool
                .evict()
                .expect("try_extend counted the blocks available");
            self.prefix.forget(evicted);
            self.num_evicted += 1;
        }
        let block = self
            .pool
            .take_free()
            .expect("one is free or was just evicted");
        assert!(!self.prefix.contains(block), "a free block is not cached");
        block
    }

    /// Makes a sequence's full, computed blocks findable.
    ///
    /// If another sequence was first, its block takes the place of ours, which becomes free: the
    /// contents are the same to the bit, and only so does every holder of a block hold all its
    /// ancestors (see `prefix.rs`). Tables therefore change between steps, never within one.
    pub(crate) fn publish(&mut self, seq: &mut Sequence) {
        let num_full = (seq.num_computed / self.block_tokens).min(seq.hashes.len());
        while seq.num_published < num_full {
            let idx = seq.num_published;
            let own = seq.table[idx];
            if self.pool.num_holders(own) > 1 {
                // Shared while a collision kept it from the cache. It stays private, as the others
                // who hold it would not know.
                break;
            }
            let place = Place {
                parent: idx.checked_sub(1).map(|parent| seq.table[parent]),
                hash: seq.hashes[idx],
                tokens: seq.block(idx, self.block_tokens),
            };
            match self.prefix.publish(own, place) {
                Published::New => (),
                Published::Duplicate(first) => {
                    self.pool.hold(first);
                    self.pool.release(own, Content::Worthless);
                    seq.table[idx] = first;
                }
                Published::Collision => break,
            }
            seq.num_published += 1;
        }
    }

    /// Takes all blocks from a sequence, the last first, so that leaves are evicted before the
    /// prefixes they continue.
    pub(crate) fn release(&mut self, seq: &mut Sequence) {
        for (idx, block) in seq.table.drain(..).enumerate().rev() {
            let content = match idx < seq.num_published {
                true => Content::Cached,
                false => Content::Worthless,
            };
            self.pool.release(block, content);
        }
        seq.num_published = 0;
        seq.num_computed = 0;
        seq.follows = false;
    }

    /// Evictions since last asked.
    pub(crate) fn take_num_evicted(&mut self) -> usize {
        std::mem::take(&mut self.num_evicted)
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// The conservation law, from counters.
    pub(crate) fn assert_conserved(&self) {
        let pool = &self.pool;
        assert_eq!(
            pool.num_held() + pool.num_idle() + pool.num_free(),
            pool.num_blocks(),
            "held + cached + free must be all blocks"
        );
        assert!(
            self.prefix.num_nodes() >= pool.num_idle(),
            "idle blocks are cached"
        );
    }

    /// Recounts everything from the sequences that hold blocks.
    ///
    /// # Cost
    ///
    /// Proportional to the pool and all tables.
    pub(crate) fn check_integrity<'a>(&self, sequences: impl Iterator<Item = &'a Sequence>) {
        let mut num_holders = vec![0u32; self.pool.num_blocks()];
        for seq in sequences {
            self.check_table(seq);
            for block in &seq.table {
                num_holders[block.idx()] += 1;
            }
        }
        let mut num_seen = num_holders.iter().filter(|&&n| n > 0).count();
        for (idx, &counted) in num_holders.iter().enumerate() {
            assert_eq!(
                self.pool.num_holders(BlockId(idx as u32)),
                counted,
                "holders of block {idx}"
            );
        }
        for &block in self.pool.free() {
            assert!(
                num_holders[block.idx()] == 0 && !self.prefix.contains(block),
                "{block:?} is not free"
            );
            num_seen += 1;
        }
        let mut was_idle = vec![false; self.pool.num_blocks()];
        for block in self.pool.idle() {
            assert!(
                num_holders[block.idx()] == 0 && self.prefix.contains(block),
                "{block:?} is not idle"
            );
            let parent = self.prefix.parent(block);
            assert!(
                parent.is_none_or(|parent| !was_idle[parent.idx()]),
                "{block:?} outlives its parent"
            );
            was_idle[block.idx()] = true;
            num_seen += 1;
        }
        assert_eq!(
            num_seen,
            self.pool.num_blocks(),
            "every block is in one state"
        );
        self.assert_conserved();
    }

    /// A table covers what is known, and its published part is a path of the tree with its tokens.
    fn check_table(&self, seq: &Sequence) {
        assert!(seq.table.is_empty() || seq.table.len() * self.block_tokens >= seq.num_computed);
        assert!(
            seq.num_published * self.block_tokens <= seq.num_computed,
            "published before computed"
        );
        let mut parent = None;
        for (idx, &block) in seq.table.iter().enumerate() {
            if idx < seq.num_published {
                let place = Place {
                    parent,
                    hash: seq.hashes[idx],
                    tokens: seq.block(idx, self.block_tokens),
                };
                assert!(
                    self.prefix.is_at(block, place),
                    "{block:?} of {:?} is elsewhere",
                    seq.id
                );
            } else {
                assert!(
                    !self.prefix.contains(block),
                    "{block:?} of {:?} is cached but private",
                    seq.id
                );
                assert!(
                    self.pool.num_holders(block) == 1 || idx < seq.num_shareable,
                    "private blocks have one holder, except within a group"
                );
            }
            parent = Some(block);
        }
    }
}
