//! The definitions, written to be read, and the loops of a machine without vectors that we know.

use std::hint::black_box;

use super::{Operands, TURNS, Tile};

/// What [`codes`] is measured with: 16 sums of 64 products.
pub(super) const CODES: Tile = Tile {
    num_weights: 4,
    num_activations: 4,
    width: 64,
};

/// What [`floats`] is measured with.
pub(super) const FLOATS: Tile = Tile {
    num_weights: 4,
    num_activations: 4,
    width: 16,
};

/// Values side by side: operands are whole multiples of it. Without it the compiler would not use what vectors
/// every machine of this kind has.
const LANES: usize = 8;

/// The sum of the products of every weight operand of the tile with every activation operand, as often as
/// there are turns.
pub(super) fn codes(tile: Tile, operands: &Operands, num_rounds: usize) -> i32 {
    let mut sums = [0_i32; LANES];
    for _ in 0..num_rounds * TURNS {
        // Or the compiler would multiply once.
        let operands = black_box(operands);
        for (weight_idx, activation_idx) in pairs_of(tile) {
            let weights = operand(&operands.codes, tile, weight_idx);
            let activations = operand(&operands.bytes, tile, activation_idx);
            for (weights, activations) in weights.iter().zip(activations) {
                for (sum, (&weight, &activation)) in
                    sums.iter_mut().zip(weights.iter().zip(activations))
                {
                    *sum = sum.wrapping_add(i32::from(i16::from(weight) * i16::from(activation)));
                }
            }
        }
    }
    sums.into_iter().fold(0, i32::wrapping_add)
}

/// The same in single precision.
pub(super) fn floats(tile: Tile, operands: &Operands, num_rounds: usize) -> f32 {
    let mut sums = [0.0_f32; LANES];
    for _ in 0..num_rounds * TURNS {
        let operands = black_box(operands);
        for (weight_idx, activation_idx) in pairs_of(tile) {
            let weights = operand(&operands.weights, tile, weight_idx);
            let activations = operand(&operands.activations, tile, activation_idx);
            for (weights, activations) in weights.iter().zip(activations) {
                for (sum, (weight, activation)) in
                    sums.iter_mut().zip(weights.iter().zip(activations))
                {
                    *sum += weight * activation;
                }
            }
        }
    }
    sums.into_iter().sum()
}

fn pairs_of(tile: Tile) -> impl Iterator<Item = (usize, usize)> {
    let activations = 0..tile.num_activations;
    (0..tile.num_weights)
        .flat_map(move |weight_idx| activations.clone().map(move |idx| (weight_idx, idx)))
}

fn operand<T>(values: &[T], tile: Tile, idx: usize) -> &[[T; LANES]] {
    values[idx * tile.width..][..tile.width].as_chunks().0
}

/// The sum of all words.
pub(super) fn read(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, &word| sum.wrapping_add(word))
}
