//! The definition: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`.

use super::{RopeStyle, Turn};

/// One head.
#[inline(always)]
pub(super) fn apply(style: RopeStyle, turn: Turn<'_>, head: &mut [f32]) {
    let num_pairs = turn.cosines.len();
    let turned = &mut head[..2 * num_pairs];
    match style {
        RopeStyle::Interleaved => {
            let (pairs, _) = turned.as_chunks_mut::<2>();
            for ((pair, &cosine), &sine) in pairs.iter_mut().zip(turn.cosines).zip(turn.sines) {
                *pair = turn_pair(*pair, cosine, sine).into();
            }
        }
        RopeStyle::Halves => {
            let (first, second) = turned.split_at_mut(num_pairs);
            let pairs = first.iter_mut().zip(second);
            for (((a, b), &cosine), &sine) in pairs.zip(turn.cosines).zip(turn.sines) {
                (*a, *b) = turn_pair([*a, *b], cosine, sine);
            }
        }
    }
}

#[inline(always)]
fn turn_pair([a, b]: [f32; 2], cosine: f32, sine: f32) -> (f32, f32) {
    (a * cosine - b * sine, b * cosine + a * sine)
}
