//! SentencePiece BPE: the `llama` tokenizer model.
//!
//! Text is not cut into words: a space is the letter `▁`, and pairs join whose joint text is a token, the best score
//! first. A character without a token falls back to its UTF-8 bytes, which have tokens of their own (`<0x0A>`).
//!
//! Source: Kudo and Richardson 2018, `sentencepiece` (`bpe_model.cc`); llama.cpp's `llm_tokenizer_spm`.

use formats::gguf::Gguf;

use super::merge::{Join, JoinRules, Merger, Symbol};
use super::pre::SpacePrefix;
use super::vocabulary::{Pieces, TOKEN_TYPE_KEY, TokenKind, Vocabulary, check_len};
use super::{TokenId, TokenizerError, UNKNOWN_KEY, find, require};

const SCORES_KEY: &str = "tokenizer.ggml.scores";
const ADD_SPACE_PREFIX_KEY: &str = "tokenizer.ggml.add_space_prefix";

/// How the vocabulary writes a space.
const SPACE: &str = "▁";

/// Rules of a SentencePiece vocabulary.
pub(super) struct SentencePiece {
    /// Of each token: its place in the order of joins, lower first.
    ranks: Vec<u32>,
    byte_tokens: [Option<TokenId>; 256],
    unknown: Option<TokenId>,
    space_prefix: SpacePrefix,
}

impl SentencePiece {
    pub(super) fn from_gguf(
        file: &Gguf,
        vocabulary: &Vocabulary,
        unknown: Option<TokenId>,
    ) -> Result<SentencePiece, TokenizerError> {
        let scores: Vec<f32> = require(file, SCORES_KEY)?;
        check_len(SCORES_KEY, scores.len(), vocabulary.len())?;
        if let Some(idx) = scores.iter().position(|score| score.is_nan()) {
            let reason = format!("the score of token {idx} is not a number");
            return Err(TokenizerError::bad_key(SCORES_KEY, reason));
        }
        let byte_tokens = byte_tokens(vocabulary)?;
        if unknown.is_none() && byte_tokens.contains(&None) {
            let reason = "missing, and there is not a token for each byte either";
            return Err(TokenizerError::bad_key(UNKNOWN_KEY, reason));
        }
        let space_prefix = match find::<bool>(file, ADD_SPACE_PREFIX_KEY)? {
            Some(true) | None => SpacePrefix::Always,
            Some(false) => SpacePrefix::Never,
        };
        Ok(SentencePiece {
            ranks: scores.into_iter().map(rank_of_score).collect(),
            byte_tokens,
            unknown,
            space_prefix,
        })
    }

    pub(super) fn space_prefix(&self) -> SpacePrefix {
        self.space_prefix
    }

    /// Appends the tokens of `text`, which follows a special token or is the first.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, tokens: &mut Vec<TokenId>) {
        let mut escaped = text.replace(' ', SPACE);
        if self.space_prefix == SpacePrefix::Always {
            escaped.insert_str(0, SPACE);
        }
        let mut merger = Merger::default();
        for (start, character) in escaped.char_indices() {
            let num_bytes = character.len_utf8();
            let token = find_normal(vocabulary, &escaped[start..start + num_bytes]);
            merger.push(token, num_bytes);
        }
        let rules = ScoredTexts {
            vocabulary,
            ranks: &self.ranks,
            text: &escaped,
        };
        let mut after_unknown = false;
        for symbol in merger.merge(&rules) {
            if let Some(token) = symbol.token {
                tokens.push(token);
                after_unknown = false;
            } else if let Some(bytes) = self.spell(&escaped.as_bytes()[symbol.range()]) {
                tokens.extend(bytes);
                after_unknown = false;
            } else if !after_unknown {
                // Unknown characters in a row share one token.
                tokens.extend(self.unknown);
                after_unknown = true;
            }
        }
    }

    /// A character byte by byte, if all its bytes have tokens.
    fn spell(&self, bytes: &[u8]) -> Option<Vec<TokenId>> {
        let tokens = bytes
            .iter()
            .map(|&byte| self.byte_tokens[usize::from(byte)]);
        tokens.collect()
    }
}

/// Two neighbours join if their text is a token.
struct ScoredTexts<'a> {
    vocabulary: &'a Vocabulary,
    ranks: &'a [u32],
    text: &'a str,
}

impl JoinRules for ScoredTexts<'_> {
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join> {
        let text = &self.text[left.range().start..right.range().end];
        let token = find_normal(self.vocabulary, text)?;
        Some(Join {
            rank: self.ranks[token.0 as usize],
            token,
        })
    }
}

fn find_normal(vocabulary: &Vocabulary, text: &str) -> Option<TokenId> {
    let token = vocabulary.find(text)?;
    (vocabulary.kind(token) == Some(TokenKind::Normal)).then_some(token)
}

/// The bits of a float, arranged so that a higher score is a lower number.
fn rank_of_score(score: f32) -> u32 {
    let bits = score.to_bits();
    let ascending = match score.is_sign_negative() {
        true => !bits,
        false => bits | 1 << 31,
    };
    !ascending
}

pub(super) fn byte_tokens(
    vocabulary: &Vocabulary,
) -> Result<[Option<TokenId>; 256], TokenizerError> {
    let mut byte_tokens = [None; 256];
    for token in vocabulary.tokens_of(|kind| kind == TokenKind::Byte) {
        byte_tokens[usize::from(byte_of(vocabulary, token)?)] = Some(token);
    }
    Ok(byte_tokens)
}

fn byte_of(vocabulary: &Vocabulary, token: TokenId) -> Result<u8, TokenizerError> {
    let text = vocabulary.text(token);
    byte_of_text(text).ok_or_else(|| {
        let reason = format!(
            "token {} is of type byte, but its text is {text:?}",
            token.0
        );
        TokenizerError::bad_key(TOKEN_TYPE_KEY, reason)
    })
}

/// The byte that a token like `<0x0A>` stands for.
pub(super) fn byte_of_text(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digits = Some(digits)
        .filter(|digits| digits.len() == 2)
        .filter(is_hex)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes every token stands for.
pub(super) fn pieces(vocabulary: &Vocabulary) -> Result<Pieces, TokenizerError> {
    let mut pieces = Pieces::with_capacity(vocabulary.len());
    for (token, kind, text) in vocabulary.tokens() {
        match kind {
            TokenKind::Normal if text.contains(SPACE) => {
                pieces.push(text.replace(SPACE, " ").as_bytes());
            }
            TokenKind::Normal | TokenKind::UserDefined => pieces.push(text.as_bytes()),
            TokenKind::Byte => pieces.push(&[byte_of(vocabulary, token)?]),
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => pieces.push(&[]),
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_come_first() {
        let scores = [
            f32::INFINITY,
            2.5,
            1.0,
            0.0,
            -0.5,
            -1000.0,
            f32::NEG_INFINITY,
        ];
        assert!(scores.map(rank_of_score).is_sorted());
    }
}
