//! Byte-level BPE: the `gpt2` tokenizer model.
//!
//! Tokens are byte strings. The vocabulary writes them with one printable character per byte (a space is `Ġ`), so that
//! merges can be listed as text. Words from [`Splitter`] start as single bytes; pairs join in the order of
//! `tokenizer.ggml.merges`.
//!
//! Source: Radford et al. 2019, GPT-2's `encoder.py` (`bytes_to_unicode`).

use formats::gguf::{Gguf, Strings};
use hashbrown::HashMap;

use super::merge::{Join, JoinRules, Merger, Symbol};
use super::normalize::{NormalStep, normalized};
use super::split::{Composition, PRE_KEY, PreTokenizer, Splitter, WholeWords};
use super::vocabulary::{Pieces, TokenKind, Vocabulary};
use super::{BosRule, TokenId, TokenizerError, require};

const MERGES_KEY: &str = "tokenizer.ggml.merges";

/// Rules of a byte-level vocabulary.
pub(super) struct Bpe {
    pre: &'static PreTokenizer,
    normalizers: Vec<NormalStep>,
    splitter: Splitter,
    /// The token of each byte, where there is one.
    byte_tokens: [Option<TokenId>; 256],
    merges: Merges,
    unknown: Option<TokenId>,
}

/// Pairs that join, and what they become.
pub(super) struct Merges(HashMap<(TokenId, TokenId), Merge>);

struct Merge {
    rank: u32,
    token: TokenId,
}

impl Bpe {
    pub(super) fn from_gguf(
        file: &Gguf,
        vocabulary: &Vocabulary,
        unknown: Option<TokenId>,
    ) -> Result<Bpe, TokenizerError> {
        let pre = PreTokenizer::named(require(file, PRE_KEY)?)?;
        let byte_token = |byte: usize| {
            let text = char_of_byte(byte as u8);
            vocabulary.find_typed(text.encode_utf8(&mut [0; 4]))
        };
        Ok(Bpe {
            pre,
            normalizers: match pre.composition {
                Composition::Composed => vec![NormalStep::Nfc],
                Composition::AsTyped => Vec::new(),
            },
            splitter: Splitter::new(pre),
            byte_tokens: std::array::from_fn(byte_token),
            merges: Merges::from_gguf(file, vocabulary)?,
            unknown,
        })
    }

    pub(super) fn default_bos_rule(&self) -> BosRule {
        self.pre.bos_rule
    }

    /// Appends the tokens of `text`. A byte without a token becomes the unknown token or, if
    /// there is none, nothing.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, tokens: &mut Vec<TokenId>) {
        let mut merger = Merger::default();
        let mut spelled = String::new();
        let text = normalized(&self.normalizers, text);
        self.splitter.for_each_word(&text, |word| {
            if self.pre.whole_words == WholeWords::Taken {
                spelled.clear();
                spelled.extend(word.bytes().map(char_of_byte));
                if let Some(token) = vocabulary.find_typed(&spelled) {
                    tokens.push(token);
                    return;
                }
            }
            merger.clear();
            for byte in word.bytes() {
                merger.push(self.byte_tokens[usize::from(byte)], 1);
            }
            let symbols = merger.merge(&self.merges);
            tokens.extend(symbols.filter_map(|symbol| symbol.token.or(self.unknown)));
        });
    }
}

impl Merges {
    fn from_gguf(file: &Gguf, vocabulary: &Vocabulary) -> Result<Merges, TokenizerError> {
        let lines: Strings<'_> = require(file, MERGES_KEY)?;
        let mut merges = MergesBuilder::new(MERGES_KEY, vocabulary, lines.len());
        for line in lines {
            let pair = std::str::from_utf8(line)
                .ok()
                .and_then(|line| line.split_once(' '));
            let pair = pair.ok_or_else(|| merges.not_a_pair(&String::from_utf8_lossy(line)))?;
            merges.push(pair)?;
        }
        Ok(merges.done())
    }
}

/// Reads merges in the order of their ranks.
pub(super) struct MergesBuilder<'a> {
    key: &'static str,
    vocabulary: &'a Vocabulary,
    merges: HashMap<(TokenId, TokenId), Merge>,
    num_merges: u32,
    joined: String,
}

impl<'a> MergesBuilder<'a> {
    pub(super) fn new(
        key: &'static str,
        vocabulary: &'a Vocabulary,
        num_merges: usize,
    ) -> MergesBuilder<'a> {
        MergesBuilder {
            key,
            vocabulary,
            merges: HashMap::with_capacity(num_merges),
            num_merges: 0,
            joined: String::new(),
        }
    }

    /// Adds the next pair. The first of equal ones counts.
    pub(super) fn push(&mut self, (left, right): (&str, &str)) -> Result<(), TokenizerError> {
        let find = |text: &str| {
            self.vocabulary.find(text).ok_or_else(|| {
                let reason = format!("names {text:?}, which is no token");
                self.bad(&format!("{left} {right}"), &reason)
            })
        };
        let pair = (find(left)?, find(right)?);
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let is_known = self.vocabulary.find(&joined).is_some();
        let typed = self.vocabulary.find_typed(&joined);
        if !is_known {
            let reason = format!("names {joined:?}, which is no token");
            return Err(self.bad(&format!("{left} {right}"), &reason));
        }
        self.joined = joined;
        // A merge that spells a control token would let anybody type one.
        if let Some(token) = typed {
            let rank = self.num_merges;
            self.merges.entry(pair).or_insert(Merge { rank, token });
        }
        self.num_merges += 1;
        Ok(())
    }

    pub(super) fn not_a_pair(&self, line: &str) -> TokenizerError {
        self.bad(line, "is not two texts and a space")
    }

    fn bad(&self, line: &str, reason: &str) -> TokenizerError {
        let rank = self.num_merges;
        TokenizerError::bad_key(self.key, format!("merge {rank} ({line:?}) {reason}"))
    }

    pub(super) fn done(self) -> Merges {
        Merges(self.merges)
    }
}

impl JoinRules for Merges {
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join> {
        let merge = self.0.get(&(left.token?, right.token?))?;
        Some(Join {
            rank: merge.rank,
            token: merge.token,
        })
    }
}

/// The bytes every token stands for.
pub(super) fn pieces(vocabulary: &Vocabulary) -> Pieces {
    let mut pieces = Pieces::with_capacity(vocabulary.len());
    let mut bytes = Vec::new();
    for (_, kind, text) in vocabulary.tokens() {
        bytes.clear();
        match kind {
            TokenKind::Normal | TokenKind::Byte => {
                for character in text.chars() {
                    match byte_of_char(character) {
                        Some(byte) => bytes.push(byte),
                        // Not written in the byte alphabet, so it stands for itself.
                        None => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
                    }
                }
            }
            TokenKind::UserDefined => bytes.extend(text.bytes()),
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => (),
        }
        pieces.push(&bytes);
    }
    pieces
}

/// Bytes that are printable in Latin-1 are written as they are, the other 68 as U+0100 and following.
pub(super) fn char_of_byte(byte: u8) -> char {
    let number = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0..=b' ' => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte - 0x7f),
        0xad => 0x143,
    };
    char::from_u32(number).expect("below the surrogates")
}

pub(super) fn byte_of_char(character: char) -> Option<u8> {
    let number = u32::from(character);
    let byte = match number {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => number,
        0x100..=0x120 => number - 0x100,
        0x121..=0x142 => number - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        for byte in 0..=255 {
            assert_eq!(byte_of_char(char_of_byte(byte)), Some(byte));
        }
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
    }
}
