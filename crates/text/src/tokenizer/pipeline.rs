//! The tokenizer of a `tokenizer.json`: normalize, cut, merge.
//!
//! ```text
//! "Héllo wörld"  normalize   Héllo·wörld      NFC, spaces written as ▁, …      normalize.rs
//!                tokens      user-defined ones that are matched behind normalizing
//!                words       Héllo|·wörld                                      pre.rs
//!                symbols     bytes or characters, and bytes for those unknown
//!                ids         by merging                                        merge.rs
//! ```
//!
//! The one idea: byte-level and SentencePiece-like vocabularies differ only in their steps and in what a symbol is. Both
//! list ranked pairs.
//!
//! Not here: control tokens, which are found in the text as it was typed; reading the file (`json`).
//!
//! Source: `tokenizers` (`models/bpe/model.rs`).

use super::TokenId;
use super::bpe::{Merges, char_of_byte};
use super::merge::Merger;
use super::normalize::{NormalStep, normalized};
use super::pre::{Position, PreStep, SpacePrefix, for_each_word};
use super::specials::SpecialFinder;
use super::vocabulary::Vocabulary;
use hashbrown::HashSet;

/// How ordinary text becomes tokens.
pub(super) struct Pipeline {
    pub(super) normalizers: Vec<NormalStep>,
    /// Added tokens that are looked for in normalized text.
    pub(super) added: SpecialFinder,
    pub(super) pre: Vec<PreStep>,
    pub(super) pairs: BytePairs,
    /// Where decoding takes a space away again that encoding has put before the text.
    pub(super) space_prefix: SpacePrefix,
}

/// Byte-pair encoding of one word.
pub(super) struct BytePairs {
    pub(super) alphabet: Alphabet,
    pub(super) merges: Merges,
    /// Whether a word that is in the vocabulary as it stands is taken whole, merges or not.
    pub(super) takes_whole_words: bool,
    pub(super) unknown: Option<TokenId>,
    /// Whether unknown characters in a row share one token.
    pub(super) fuses_unknown: bool,
    /// Added tokens that the model does not know: they come out of their finder, and never out of words.
    pub(super) outside: HashSet<TokenId>,
}

/// What words start as.
pub(super) enum Alphabet {
    /// Bytes, each written as a letter.
    Letters(Box<[Option<TokenId>; 256]>),
    /// Characters; one without a token may be spelled with tokens of bytes.
    Characters {
        bytes: Option<Box<[Option<TokenId>; 256]>>,
    },
}

impl Pipeline {
    /// Appends the tokens of `text`, which holds no control tokens.
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        position: Position,
        tokens: &mut Vec<TokenId>,
    ) {
        let text = normalized(&self.normalizers, text);
        let mut writer = WordWriter {
            pairs: &self.pairs,
            vocabulary,
            merger: Merger::default(),
            spelled: String::new(),
        };
        let mut ordinary = 0;
        for (range, token) in self.added.find_in(&text) {
            let at = if ordinary == 0 {
                position
            } else {
                Position::Later
            };
            for_each_word(&self.pre, &text[ordinary..range.start], at, &mut |word| {
                writer.encode(word, tokens);
            });
            tokens.push(token);
            ordinary = range.end;
        }
        let at = if ordinary == 0 {
            position
        } else {
            Position::Later
        };
        for_each_word(&self.pre, &text[ordinary..], at, &mut |word| {
            writer.encode(word, tokens);
        });
    }
}

impl BytePairs {
    pub(super) fn letters(vocabulary: &Vocabulary) -> Alphabet {
        let letter =
            |byte: usize| vocabulary.find_typed(char_of_byte(byte as u8).encode_utf8(&mut [0; 4]));
        Alphabet::Letters(Box::new(std::array::from_fn(letter)))
    }
}

impl BytePairs {
    /// The token of a text that anybody may have typed.
    fn find(&self, vocabulary: &Vocabulary, text: &str) -> Option<TokenId> {
        let token = vocabulary.find_typed(text)?;
        (!self.outside.contains(&token)).then_some(token)
    }
}

/// Encodes word after word with the same working memory.
struct WordWriter<'a> {
    pairs: &'a BytePairs,
    vocabulary: &'a Vocabulary,
    merger: Merger,
    /// The word in the vocabulary's letters.
    spelled: String,
}

impl WordWriter<'_> {
    fn encode(&mut self, word: &str, tokens: &mut Vec<TokenId>) {
        if self.pairs.takes_whole_words {
            let whole = match &self.pairs.alphabet {
                Alphabet::Letters(_) => {
                    self.spelled.clear();
                    self.spelled.extend(word.bytes().map(char_of_byte));
                    self.spelled.as_str()
                }
                Alphabet::Characters { .. } => word,
            };
            if let Some(token) = self.pairs.find(self.vocabulary, whole) {
                tokens.push(token);
                return;
            }
        }
        self.merger.clear();
        match &self.pairs.alphabet {
            Alphabet::Letters(letters) => {
                for byte in word.bytes() {
                    self.push(letters[usize::from(byte)], 1);
                }
            }
            Alphabet::Characters { bytes } => self.push_characters(word, bytes.as_deref()),
        }
        let symbols = self.merger.merge(&self.pairs.merges);
        let mut after_unknown = false;
        for token in symbols.filter_map(|symbol| symbol.token) {
            let is_unknown = Some(token) == self.pairs.unknown;
            if !(is_unknown && after_unknown && self.pairs.fuses_unknown) {
                tokens.push(token);
            }
            after_unknown = is_unknown;
        }
    }

    fn push_characters(&mut self, word: &str, bytes: Option<&[Option<TokenId>; 256]>) {
        for (start, character) in word.char_indices() {
            let written = &word[start..start + character.len_utf8()];
            if let Some(token) = self.pairs.find(self.vocabulary, written) {
                self.push(Some(token), written.len());
                continue;
            }
            let spelled = bytes.map(|bytes| written.bytes().map(|byte| bytes[usize::from(byte)]));
            match spelled.and_then(Iterator::collect::<Option<Vec<TokenId>>>) {
                Some(spelled) => spelled
                    .into_iter()
                    .for_each(|token| self.push(Some(token), 1)),
                None => self.push(None, written.len()),
            }
        }
    }

    /// A symbol that the vocabulary does not know is the unknown token or, if there is none, left out.
    fn push(&mut self, token: Option<TokenId>, num_bytes: usize) {
        if let Some(token) = token.or(self.pairs.unknown) {
            self.merger.push(Some(token), num_bytes);
        }
    }
}
