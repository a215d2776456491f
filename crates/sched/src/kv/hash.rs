//! The name of a block of tokens *and everything before it*: a chain of hashes.
//!
//! The one idea: a hash only says where to look. Equality is decided by comparing tokens
//! (`prefix.rs`), so a collision costs a cache miss, never another prompt's content.

use crate::Token;

/// Hashes a full block given the hash of the blocks before it (`None` for the first).
///
/// Must be a pure function. Quality is a matter of speed only.
pub type BlockHash = fn(parent: Option<u64>, tokens: &[Token]) -> u64;

/// Odd, with its bits well mixed: the fractional part of the golden ratio in 64 bits.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash used unless another is given: multiply and fold, one token at a time.
///
/// # Cost
///
/// About one nanosecond a token.
pub fn hash_block(parent: Option<u64>, tokens: &[Token]) -> u64 {
    // A first block must differ from a block whose parent happens to hash to 0.
    let mut hash = match parent {
        Some(parent) => fold(parent ^ MULTIPLIER),
        None => MULTIPLIER,
    };
    for &token in tokens {
        hash = fold(hash ^ u64::from(token));
    }
    fold(hash ^ tokens.len() as u64)
}

/// Multiplies to 128 bits and lays the halves over each other, so that every bit in moves every bit out.
fn fold(value: u64) -> u64 {
    let product = u128::from(value ^ MULTIPLIER.rotate_left(32)) * u128::from(MULTIPLIER);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_hash_depends_on_every_token_their_order_and_what_came_before() {
        let base = hash_block(None, &[1, 2, 3, 4]);
        let others = [
            hash_block(None, &[0, 2, 3, 4]),
            hash_block(None, &[1, 2, 3, 5]),
            hash_block(None, &[2, 1, 3, 4]),
            hash_block(None, &[1, 2, 3]),
            hash_block(Some(0), &[1, 2, 3, 4]),
            hash_block(Some(base), &[1, 2, 3, 4]),
        ];
        assert!(others.iter().all(|&other| other != base));
        assert_eq!(base, hash_block(None, &[1, 2, 3, 4]), "pure");
    }

    #[test]
    fn a_hundred_thousand_similar_blocks_do_not_collide() {
        let hashes: std::collections::HashSet<u64> = (0..100_000)
            .map(|token| hash_block(Some(7), &[0, 0, token, 0]))
            .collect();
        assert_eq!(hashes.len(), 100_000);
    }
}
