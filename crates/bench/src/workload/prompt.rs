//! Texts of exact length out of a vocabulary.
//!
//! The one idea: a text begins with its number, written in words. So no two begin alike, a prefix cache finds nothing
//! by accident, and the text is still words of one token each. Behind the number come random words.
//!
//! ```text
//! Note  w3 w0 w0 w0 w0 w0  w17 w4 w990 ...
//! opener `---- nonce ----' `-- random ---'     the nonce: number and turn in base |words|, lowest digit first,
//!                                              each digit turned by an amount that depends on the seed
//! ```
//!
//! Not here: how long a text should be (`drawn`, `recorded`).

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use super::chance::{Chance, Purpose, next_below};
use super::distribution::Unit;
use super::{History, Vocabulary};

/// What a conversation is made from, besides the plan of its class.
pub(super) struct Ask<'a> {
    pub(super) chance: Chance,
    pub(super) class: usize,
    pub(super) number: u64,
    pub(super) history: History,
    pub(super) vocabulary: &'a Vocabulary,
}

/// Which text of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) turn: u32,
}

/// How many words a text has, and how many tokens the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) num_words: u64,
    pub(super) num_tokens: u64,
}

/// What a trace says a text is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks<'a> {
    /// Equal ids, equal words.
    pub(super) ids: &'a [u64],
    /// Words of each but the last.
    pub(super) num_words: u64,
    /// How often the trace was asked before: its blocks are new each time.
    pub(super) lap: u64,
}

impl Size {
    /// Of a text of `length` where the template takes `overhead` tokens. A text has at least one word; if the
    /// template alone is longer than `length`, the prompt is as long as it must be.
    pub(super) fn of(length: u64, unit: Unit, overhead: u64) -> Size {
        let num_words = match unit {
            Unit::Words => length,
            Unit::Tokens => length.saturating_sub(overhead),
        }
        .max(1);
        Size {
            num_words,
            num_tokens: num_words + overhead,
        }
    }
}

impl Ask<'_> {
    /// A text that nobody else has: opener, nonce, random words. One of fewer words than the nonce has is still
    /// unlike those of its neighbours.
    pub(super) fn unique_text(&self, turn: u32, num_words: u64) -> String {
        let place = Place {
            number: self.number,
            turn,
        };
        let mut text = self.text(num_words);
        let nonce = self.nonce(place);
        let in_nonce = num_words.min(nonce.len() as u64);
        for idx in nonce.into_iter().take(in_nonce as usize) {
            self.push(&mut text, idx);
        }
        let mut generator = self.words_generator(Purpose::Words, [place.number, u64::from(turn)]);
        self.push_random(&mut text, &mut generator, num_words - in_nonce);
        text
    }

    /// The text that all requests of a group share.
    pub(super) fn prefix_text(&self, group: u64, num_words: u64) -> Arc<str> {
        let mut text = self.text(num_words);
        let mut generator = self.words_generator(Purpose::Prefix, [self.class as u64, group]);
        self.push_random(&mut text, &mut generator, num_words);
        text.into()
    }

    /// A text of blocks that others have, too, filled up with words that nobody has.
    pub(super) fn text_of_blocks(&self, blocks: &Blocks<'_>, num_words: u64) -> String {
        let mut text = self.text(num_words);
        let mut rest = num_words;
        for &id in blocks.ids {
            let mut generator = self.words_generator(Purpose::Block, [id, blocks.lap]);
            let here = blocks.num_words.min(rest);
            self.push_random(&mut text, &mut generator, here);
            rest -= here;
        }
        let mut generator = self.words_generator(Purpose::Words, [self.number, 0]);
        self.push_random(&mut text, &mut generator, rest);
        text
    }

    /// The number of a text as indices of words: enough digits that no two places have the same.
    fn nonce(&self, place: Place) -> Vec<usize> {
        let base = self.vocabulary.words().len() as u128;
        // Conversation numbers stay below 2^47: 64 classes with 2^40 each, and those of the run.
        let mut rest = (u128::from(place.turn) << 47) | u128::from(place.number);
        let mut bound = 1_u128 << 57;
        let mut turns = self.words_generator(Purpose::Nonce, [0, 0]);
        let mut digits = Vec::with_capacity(8);
        while bound > 0 {
            let turned = rest % base + next_below(&mut turns, base as usize) as u128;
            digits.push((turned % base) as usize);
            rest /= base;
            bound /= base;
        }
        digits
    }

    fn words_generator(&self, purpose: Purpose, numbers: [u64; 2]) -> ChaCha8Rng {
        self.chance
            .salted(self.vocabulary.salt())
            .generator(purpose, numbers)
    }

    fn text(&self, num_words: u64) -> String {
        // Words have up to nine letters and a space.
        let mut text = String::with_capacity(8 + num_words as usize * 10);
        text.push_str(Vocabulary::OPENER);
        text
    }

    fn push_random(&self, text: &mut String, generator: &mut ChaCha8Rng, num_words: u64) {
        let bound = self.vocabulary.words().len();
        for _ in 0..num_words {
            let idx = next_below(generator, bound);
            self.push(text, idx);
        }
    }

    fn push(&self, text: &mut String, idx: usize) {
        text.push(' ');
        text.push_str(self.vocabulary.words()[idx]);
    }
}
