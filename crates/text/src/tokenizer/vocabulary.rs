//! The tokens: their texts, kinds, and the way from a text back to its token.
//!
//! A vocabulary has up to a few hundred thousand short strings. They lie end to end in one allocation, and the table
//! from text to id holds ids only, so that loading costs milliseconds, not an allocation per token.

use std::hash::BuildHasher;
use std::ops::Index;

use formats::gguf::{Gguf, Strings};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::specials::is_end_text;
use super::{TokenId, TokenizerError, require};

const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
pub(super) const TOKEN_TYPE_KEY: &str = "tokenizer.ggml.token_type";

/// Bytes of a control token's text; those we know have at most 40. The end of every message is compared with the
/// beginnings of control texts, which takes time in the square of their length.
const CONTROL_BYTES_MAX: usize = 512;

/// What a token is for: `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Normal,
    /// Stands for text the vocabulary cannot write. Handled like a control token.
    Unknown,
    Control,
    /// Text that always becomes this one token.
    UserDefined,
    Unused,
    /// One byte of a character that has no token of its own.
    Byte,
}

impl TokenKind {
    fn from_number(number: i32) -> Option<TokenKind> {
        Some(match number {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return None,
        })
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, TokenKind::Control | TokenKind::Unknown)
    }

    /// Whether text that anybody may have typed can become such a token.
    fn is_text(self) -> bool {
        matches!(
            self,
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte
        )
    }

    pub(super) fn is_user_defined(self) -> bool {
        self == TokenKind::UserDefined
    }
}

/// All tokens of a model.
pub(super) struct Vocabulary {
    texts: Pieces,
    kinds: Vec<TokenKind>,
    ids_by_text: HashTable<TokenId>,
    hasher: DefaultHashBuilder,
    text_bytes_max: usize,
}

impl Vocabulary {
    pub(super) fn from_gguf(file: &Gguf) -> Result<Vocabulary, TokenizerError> {
        let texts: Strings<'_> = require(file, TOKENS_KEY)?;
        let kinds = read_kinds(file, texts.len())?;
        let mut vocabulary = Vocabulary::empty(texts.len());
        if texts.len() == 0 {
            return Err(TokenizerError::bad_key(TOKENS_KEY, "is empty"));
        }
        for (idx, text) in texts.enumerate() {
            let text = std::str::from_utf8(text).map_err(|_| {
                TokenizerError::bad_key(TOKENS_KEY, format!("token {idx} is not UTF-8"))
            })?;
            vocabulary.push(TOKENS_KEY, text, kinds[idx])?;
        }
        vocabulary.expect_text(TOKEN_TYPE_KEY)?;
        Ok(vocabulary)
    }

    /// No tokens yet, and room for some.
    pub(super) fn empty(num_tokens: usize) -> Vocabulary {
        Vocabulary {
            texts: Pieces::with_capacity(num_tokens),
            kinds: Vec::with_capacity(num_tokens),
            ids_by_text: HashTable::with_capacity(num_tokens),
            hasher: DefaultHashBuilder::default(),
            text_bytes_max: 0,
        }
    }

    /// Tokens that stand for nothing.
    pub(super) fn textless(num_tokens: usize) -> Vocabulary {
        let mut vocabulary = Vocabulary::empty(num_tokens);
        (0..num_tokens).for_each(|_| vocabulary.texts.push(b""));
        vocabulary.kinds.resize(num_tokens, TokenKind::Unused);
        vocabulary
    }

    /// Checks that something stands for what people type.
    pub(super) fn expect_text(&self, key: &str) -> Result<(), TokenizerError> {
        if self.kinds.iter().any(|kind| kind.is_text()) {
            return Ok(());
        }
        let reason = "no token stands for ordinary text: all are control, unknown or unused";
        Err(TokenizerError::bad_key(key, reason))
    }

    /// Leaves an id out.
    pub(super) fn push_hole(&mut self) {
        self.kinds.push(TokenKind::Unused);
        self.texts.push(b"");
    }

    /// Adds the token of the next id.
    ///
    /// # Errors
    ///
    /// If there is one of the same text already; `key` is what to blame.
    pub(super) fn push(
        &mut self,
        key: &str,
        text: &str,
        mut kind: TokenKind,
    ) -> Result<(), TokenizerError> {
        // An array is limited to 2^24 elements by `formats`.
        let token = TokenId(u32::try_from(self.texts.len()).expect("arrays are shorter"));
        if let Some(twin) = self.find(text) {
            let reason = format!("tokens {} and {} are both {text:?}", twin.0, token.0);
            return Err(TokenizerError::bad_key(key, reason));
        }
        if kind.is_user_defined() && is_end_text(text) {
            kind = TokenKind::Control;
        }
        if kind.is_control() && text.len() > CONTROL_BYTES_MAX {
            let (id, num_bytes) = (token.0, text.len());
            let reason = format!(
                "token {id} is a control token of {num_bytes} bytes, at most {CONTROL_BYTES_MAX} are supported"
            );
            return Err(TokenizerError::bad_key(key, reason));
        }
        self.kinds.push(kind);
        self.texts.push(text.as_bytes());
        self.text_bytes_max = self.text_bytes_max.max(text.len());
        let Vocabulary { texts, hasher, .. } = self;
        let hash = hasher.hash_one(text.as_bytes());
        let rehash = |&token: &TokenId| hasher.hash_one(&texts[token]);
        self.ids_by_text.insert_unique(hash, token, rehash);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// `None` if there is no such token.
    pub(super) fn kind(&self, token: TokenId) -> Option<TokenKind> {
        self.kinds.get(token.0 as usize).copied()
    }

    /// # Panics
    ///
    /// If there is no such token.
    pub(super) fn text(&self, token: TokenId) -> &str {
        std::str::from_utf8(&self.texts[token]).expect("checked when it was read")
    }

    /// The token whose text is `text`, of whatever kind.
    pub(super) fn find(&self, text: &str) -> Option<TokenId> {
        if text.len() > self.text_bytes_max {
            return None;
        }
        let hash = self.hasher.hash_one(text.as_bytes());
        let is_it = |&token: &TokenId| &self.texts[token] == text.as_bytes();
        self.ids_by_text.find(hash, is_it).copied()
    }

    /// The token of text that anybody may have typed: never a control token.
    pub(super) fn find_typed(&self, text: &str) -> Option<TokenId> {
        let token = self.find(text)?;
        let kind = self.kinds[token.0 as usize];
        matches!(kind, TokenKind::Normal | TokenKind::UserDefined).then_some(token)
    }

    /// All tokens, in order.
    pub(super) fn tokens(&self) -> impl Iterator<Item = (TokenId, TokenKind, &str)> {
        let tokens = self.kinds.iter().zip(0..);
        tokens.map(|(&kind, id)| (TokenId(id), kind, self.text(TokenId(id))))
    }

    /// The tokens of some kinds, in order.
    pub(super) fn tokens_of(
        &self,
        wanted: impl Fn(TokenKind) -> bool,
    ) -> impl Iterator<Item = TokenId> {
        let tokens = self.kinds.iter().zip(0..);
        tokens.filter_map(move |(&kind, id)| wanted(kind).then_some(TokenId(id)))
    }
}

fn read_kinds(file: &Gguf, num_tokens: usize) -> Result<Vec<TokenKind>, TokenizerError> {
    let numbers: Vec<i32> = require(file, TOKEN_TYPE_KEY)?;
    check_len(TOKEN_TYPE_KEY, numbers.len(), num_tokens)?;
    let kinds = numbers.iter().enumerate().map(|(idx, &number)| {
        TokenKind::from_number(number).ok_or_else(|| {
            TokenizerError::bad_key(
                TOKEN_TYPE_KEY,
                format!("token {idx} has type {number}, which is not 1 to 6"),
            )
        })
    });
    kinds.collect()
}

/// Checks an array that must have one element for each token.
pub(super) fn check_len(key: &str, len: usize, num_tokens: usize) -> Result<(), TokenizerError> {
    if len == num_tokens {
        return Ok(());
    }
    let reason = format!("has {len} elements for {num_tokens} tokens");
    Err(TokenizerError::bad_key(key, reason))
}

/// A byte string for each token, end to end in one allocation.
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Where each piece ends; it begins where the one before it ends.
    ends: Vec<usize>,
}

impl Pieces {
    pub(super) fn with_capacity(num_pieces: usize) -> Pieces {
        const BYTES_TYPICAL: usize = 8;
        Pieces {
            bytes: Vec::with_capacity(num_pieces * BYTES_TYPICAL),
            ends: Vec::with_capacity(num_pieces),
        }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }
}

impl Index<TokenId> for Pieces {
    type Output = [u8];

    fn index(&self, token: TokenId) -> &[u8] {
        let idx = token.0 as usize;
        let start = match idx {
            0 => 0,
            _ => self.ends[idx - 1],
        };
        &self.bytes[start..self.ends[idx]]
    }
}
