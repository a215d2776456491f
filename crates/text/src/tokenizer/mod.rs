//! Text to token ids and ids to bytes.
//!
//! Encoding is three cuts, each leaving less ordinary text to the next:
//!
//! ```text
//! <|im_start|>user\nHi <think> 42        control tokens, only where they may be parsed   specials.rs
//! └───── 1 ──┘└user\nHi <think> 42       user-defined tokens, always                     specials.rs
//!              user·\n·Hi· · 42          words (BPE only)                                split.rs
//!              ids, by merging the best neighbours first                                 merge.rs, bpe.rs, spm.rs
//! ```
//!
//! Everything is built from the `tokenizer.ggml.*` arrays of a GGUF file. A kind of tokenizer we do not know is an
//! error: a near miss would cost quality without a sign of it.
//!
//! Not here: chat templates and the order of messages.
//!
//! Source: llama.cpp's `src/llama-vocab.cpp` for what the arrays mean; the `tokenizers` and `sentencepiece`
//! libraries for the ids.

mod bpe;
mod merge;
mod specials;
mod split;
mod spm;
mod vocabulary;

mod json;
mod normalize;
mod pattern;
mod pipeline;
mod pre;

use std::fmt;
use std::ops::Range;

use formats::gguf::{FromValue, Gguf, GgufError};

use bpe::Bpe;
pub use json::TextEnds;
use pipeline::Pipeline;
use pre::{Position, SpacePrefix};
use specials::{Customs, SpecialFinder};
use spm::SentencePiece;
use vocabulary::{Pieces, TokenKind, Vocabulary};

/// A token's index in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub u32);

/// What to do with control-token text such as `<|im_end|>` inside the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialText {
    /// It is ordinary text: a user typed it.
    AsText,
    /// It is the control token: a template or an operator wrote it.
    Parse,
}

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A metadata key is absent or has the wrong type or size.
    #[error("tokenizer key {key}: {reason}")]
    BadKey {
        /// The metadata key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A kind of tokenizer or pre-tokenizer we do not know; never approximated.
    #[error("{key} = {value:?} is not supported (known: {known})")]
    Unsupported {
        /// The metadata key.
        key: String,
        /// Its value.
        value: String,
        /// What is supported.
        known: String,
    },
}

impl TokenizerError {
    fn bad_key(key: &str, reason: impl Into<String>) -> TokenizerError {
        TokenizerError::BadKey {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }
}

/// A vocabulary with its splitting and merging rules.
///
/// Shared freely between threads: encoding takes `&self` and keeps its working memory to itself.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    /// What each token stands for in the answer's bytes.
    pieces: Pieces,
    model: Model,
    controls: SpecialFinder,
    user_defined: SpecialFinder,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    /// What prompts begin with.
    prefix: Vec<TokenId>,
    /// What finished texts end with.
    suffix: Vec<TokenId>,
    end_tokens: Vec<TokenId>,
}

/// A summary: a whole vocabulary would fill a screen for every message that shows one.
impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("num_tokens", &self.vocab())
            .field("bos", &self.bos)
            .field("prefix", &self.prefix)
            .field("end_tokens", &self.end_tokens)
            .finish_non_exhaustive()
    }
}

/// How ordinary text becomes tokens.
enum Model {
    Bpe(Bpe),
    SentencePiece(SentencePiece),
    Pipeline(Box<Pipeline>),
    /// Nobody knows what the tokens stand for.
    Absent,
}

/// Whether the model was trained on texts that begin with the BOS token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BosRule {
    Add,
    Leave,
}

const MODEL_KEY: &str = "tokenizer.ggml.model";
const BYTE_LEVEL_KIND: &str = "gpt2";
const SENTENCE_PIECE_KIND: &str = "llama";
/// Values of [`MODEL_KEY`].
const KINDS: [&str; 2] = [BYTE_LEVEL_KIND, SENTENCE_PIECE_KIND];
const ADD_BOS_KEY: &str = "tokenizer.ggml.add_bos_token";
const BOS_KEY: &str = "tokenizer.ggml.bos_token_id";
const EOS_KEY: &str = "tokenizer.ggml.eos_token_id";
const UNKNOWN_KEY: &str = "tokenizer.ggml.unknown_token_id";

impl Tokenizer {
    /// Builds the tokenizer that a GGUF file's `tokenizer.ggml.*` arrays describe.
    ///
    /// Control tokens never come out of ordinary text: a merge that would spell one is left out.
    ///
    /// # Errors
    ///
    /// What [`TokenizerError`] lists.
    ///
    /// # Cost
    ///
    /// Linear in the vocabulary: a few tens of milliseconds for 262 144 tokens.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer, TokenizerError> {
        let kind: &str = require(file, MODEL_KEY)?;
        // Other kinds have other arrays, whose absence would hide what is wrong.
        if !KINDS.contains(&kind) {
            return Err(TokenizerError::Unsupported {
                key: MODEL_KEY.to_owned(),
                value: kind.to_owned(),
                known: KINDS.join(", "),
            });
        }
        let vocabulary = Vocabulary::from_gguf(file)?;
        let unknown = token_id(file, UNKNOWN_KEY, &vocabulary)?;
        let (model, pieces, default_rule) = match kind {
            BYTE_LEVEL_KIND => {
                let bpe = Bpe::from_gguf(file, &vocabulary, unknown)?;
                let (pieces, rule) = (bpe::pieces(&vocabulary), bpe.default_bos_rule());
                (Model::Bpe(bpe), pieces, rule)
            }
            _ => {
                let spm = SentencePiece::from_gguf(file, &vocabulary, unknown)?;
                let pieces = spm::pieces(&vocabulary)?;
                (Model::SentencePiece(spm), pieces, BosRule::Add)
            }
        };
        let bos = token_id(file, BOS_KEY, &vocabulary)?;
        let eos = token_id(file, EOS_KEY, &vocabulary)?;
        let bos_rule = match find::<bool>(file, ADD_BOS_KEY)? {
            Some(true) if bos.is_none() => {
                return Err(TokenizerError::bad_key(
                    BOS_KEY,
                    "missing, but BOS is to be added",
                ));
            }
            Some(true) => BosRule::Add,
            Some(false) => BosRule::Leave,
            None => default_rule,
        };
        let customs = Customs::of(file, kind)?;
        Ok(Tokenizer {
            controls: SpecialFinder::new(&vocabulary, TokenKind::is_control, customs),
            user_defined: SpecialFinder::new(&vocabulary, TokenKind::is_user_defined, customs),
            end_tokens: specials::end_tokens(file, &vocabulary, eos)?,
            vocabulary,
            pieces,
            model,
            prefix: match bos_rule {
                BosRule::Add => bos.into_iter().collect(),
                BosRule::Leave => Vec::new(),
            },
            suffix: Vec::new(),
            bos,
            eos,
        })
    }

    /// The vocabulary of a model that came without a tokenizer: `num_tokens` tokens that stand for no text, of which
    /// some end an answer. Every text encodes to nothing, so ask [`Tokenizer::has_text`] first.
    ///
    /// End tokens out of range are left out.
    pub fn without_text(num_tokens: usize, end_tokens: &[TokenId]) -> Tokenizer {
        let vocabulary = Vocabulary::textless(num_tokens);
        let mut pieces = Pieces::with_capacity(num_tokens);
        (0..num_tokens).for_each(|_| pieces.push(b""));
        let is_known = |token: &TokenId| vocabulary.kind(*token).is_some();
        let end_tokens: Vec<TokenId> = end_tokens.iter().copied().filter(is_known).collect();
        Tokenizer {
            controls: SpecialFinder::new(&vocabulary, TokenKind::is_control, Customs::Plain),
            user_defined: SpecialFinder::new(
                &vocabulary,
                TokenKind::is_user_defined,
                Customs::Plain,
            ),
            pieces,
            model: Model::Absent,
            bos: None,
            eos: end_tokens.first().copied(),
            prefix: Vec::new(),
            suffix: Vec::new(),
            end_tokens,
            vocabulary,
        }
    }

    /// Whether it is known what tokens stand for. If not, prompts must be token ids, and answers have no text.
    pub fn has_text(&self) -> bool {
        !matches!(self.model, Model::Absent)
    }

    /// Tokens of `text`, without BOS. Linear in `text.len()` (up to a logarithm).
    pub fn encode(&self, text: &str, special: SpecialText) -> Vec<TokenId> {
        match special {
            SpecialText::AsText => {
                self.encode_outside(text, std::slice::from_ref(&(0..text.len())))
            }
            SpecialText::Parse => self.encode_outside(text, &[]),
        }
    }

    /// As [`Tokenizer::encode`], with the model's own BOS rule, never doubled.
    pub fn encode_with_bos(&self, text: &str, special: SpecialText) -> Vec<TokenId> {
        self.with_bos(self.encode(text, special))
    }

    /// The chat prompt of a rendered template: scaffolding parsed for control tokens,
    /// message content as ordinary text, exactly one BOS if the model uses one.
    ///
    /// # Panics
    ///
    /// If `rendered.plain` is not made of ascending ranges of characters of `rendered.text`.
    pub fn encode_chat(&self, rendered: &crate::Rendered) -> Vec<TokenId> {
        self.with_bos(self.encode_outside(&rendered.text, &rendered.plain))
    }

    /// Text of `tokens`; invalid UTF-8 becomes U+FFFD; control tokens are left out unless asked for (`Parse`).
    /// Ids out of range are left out.
    ///
    /// Where encoding puts a space before the text, this takes it away again, so that decoding what was encoded gives
    /// the same text.
    pub fn decode(&self, tokens: &[TokenId], special: SpecialText) -> String {
        let mut bytes = Vec::new();
        let mut after_special = true;
        let space_prefix = self.space_prefix();
        for &token in tokens {
            let Some(kind) = self.vocabulary.kind(token) else {
                continue;
            };
            let mut piece = &self.pieces[token];
            if kind.is_control() {
                if special == SpecialText::Parse {
                    bytes.extend_from_slice(self.vocabulary.text(token).as_bytes());
                }
            } else {
                if after_special && space_prefix != SpacePrefix::Never && !kind.is_user_defined() {
                    piece = piece.strip_prefix(b" ").unwrap_or(piece);
                }
                bytes.extend_from_slice(piece);
            }
            after_special = match space_prefix {
                // A beginning stays one behind BOS.
                SpacePrefix::First => after_special && kind.is_control(),
                SpacePrefix::Always | SpacePrefix::Never => {
                    kind.is_control() || kind.is_user_defined()
                }
            };
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes a token stands for; empty for control tokens. `None` if out of range.
    pub fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.vocabulary.kind(token)?;
        Some(&self.pieces[token])
    }

    /// The token's own text as the vocabulary writes it (for `/tokenize` pieces). `None` if out of range.
    pub fn token_text(&self, token: TokenId) -> Option<&str> {
        self.vocabulary.kind(token)?;
        Some(self.vocabulary.text(token))
    }

    /// Whether the token is a control token. False if out of range.
    pub fn is_control(&self, token: TokenId) -> bool {
        self.vocabulary
            .kind(token)
            .is_some_and(TokenKind::is_control)
    }

    /// The texts of all control tokens, as [`crate::ChatTemplate::compile`] wants them.
    pub fn control_texts(&self) -> Vec<String> {
        self.vocabulary
            .tokens_of(TokenKind::is_control)
            .map(|token| self.vocabulary.text(token).to_owned())
            .collect()
    }

    /// Tokens that end an answer (`eos`, `eot`, and the well-known end-of-turn texts), each once.
    pub fn end_tokens(&self) -> &[TokenId] {
        &self.end_tokens
    }

    /// The BOS token, whether or not prompts start with it.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// The main end token.
    pub fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// What a prompt of its own begins with: mostly BOS, or nothing.
    pub fn prompt_prefix(&self) -> &[TokenId] {
        &self.prefix
    }

    /// What the tokenizer puts behind a *finished* text, for models that were trained to see the end of one, such as
    /// those that embed. A prompt is to be continued, so no function here adds it.
    pub fn finished_suffix(&self) -> &[TokenId] {
        &self.suffix
    }

    /// Number of tokens.
    pub fn vocab(&self) -> usize {
        self.vocabulary.len()
    }

    fn space_prefix(&self) -> SpacePrefix {
        match &self.model {
            Model::Bpe(_) | Model::Absent => SpacePrefix::Never,
            Model::SentencePiece(spm) => spm.space_prefix(),
            Model::Pipeline(pipeline) => pipeline.space_prefix,
        }
    }

    fn with_bos(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        if !tokens.starts_with(&self.prefix) {
            tokens.splice(0..0, self.prefix.iter().copied());
        }
        tokens
    }

    /// Encodes `text`, looking for control tokens everywhere but in the ranges `plain`.
    fn encode_outside(&self, text: &str, plain: &[Range<usize>]) -> Vec<TokenId> {
        let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
        // Where the ordinary text begins that is not yet encoded.
        let mut ordinary = 0;
        let ends = plain.iter().map(|range| range.end);
        let starts = plain.iter().map(|range| range.start);
        let gaps = std::iter::once(0)
            .chain(ends)
            .zip(starts.chain(std::iter::once(text.len())));
        for (gap_start, gap_end) in gaps {
            for (range, control) in self.controls.find_in(&text[gap_start..gap_end]) {
                self.encode_ordinary(text, ordinary..gap_start + range.start, &mut tokens);
                tokens.push(control);
                ordinary = gap_start + range.end;
            }
        }
        self.encode_ordinary(text, ordinary..text.len(), &mut tokens);
        tokens
    }

    /// Encodes a part of `text` without control tokens.
    fn encode_ordinary(&self, text: &str, part: Range<usize>, tokens: &mut Vec<TokenId>) {
        let Range { start, end } = part;
        let mut ordinary = start;
        for (range, user_defined) in self.user_defined.find_in(&text[start..end]) {
            self.encode_plain(text, ordinary..start + range.start, tokens);
            tokens.push(user_defined);
            ordinary = start + range.end;
        }
        self.encode_plain(text, ordinary..end, tokens);
    }

    /// Encodes a part of `text` without any special tokens.
    fn encode_plain(&self, text: &str, part: Range<usize>, tokens: &mut Vec<TokenId>) {
        if part.is_empty() {
            return;
        }
        let position = match part.start {
            0 => Position::Beginning,
            _ => Position::Later,
        };
        let text = &text[part];
        match &self.model {
            Model::Bpe(bpe) => bpe.encode(&self.vocabulary, text, tokens),
            Model::SentencePiece(spm) => spm.encode(&self.vocabulary, text, tokens),
            Model::Pipeline(pipeline) => pipeline.encode(&self.vocabulary, text, position, tokens),
            Model::Absent => (),
        }
    }
}

fn gguf_error(key: &str, error: &GgufError) -> TokenizerError {
    TokenizerError::bad_key(key, error.to_string())
}

/// The value of an optional key.
fn find<'a, T: FromValue<'a>>(file: &'a Gguf, key: &str) -> Result<Option<T>, TokenizerError> {
    file.find(key).map_err(|error| gguf_error(key, &error))
}

/// The value of a key that must be there.
fn require<'a, T: FromValue<'a>>(file: &'a Gguf, key: &str) -> Result<T, TokenizerError> {
    find(file, key)?.ok_or_else(|| TokenizerError::bad_key(key, "missing"))
}

/// The token that a key names, if the key is there.
fn token_id(
    file: &Gguf,
    key: &str,
    vocabulary: &Vocabulary,
) -> Result<Option<TokenId>, TokenizerError> {
    let Some(id) = find::<i64>(file, key)? else {
        return Ok(None);
    };
    let token = u32::try_from(id).ok().map(TokenId);
    match token.filter(|&token| vocabulary.kind(token).is_some()) {
        Some(token) => Ok(Some(token)),
        None => {
            let num_tokens = vocabulary.len();
            let reason = format!("{id} is not an index into {num_tokens} tokens");
            Err(TokenizerError::bad_key(key, reason))
        }
    }
}
