//! Decoders of the file: what bytes each token stands for.
//!
//! A decoder works on all tokens of a text; an answer arrives token by token. The one idea: every kind that is supported
//! works on each token alone, but for one, which takes a space from the beginning of the text.

use super::super::bpe;
use super::super::normalize::NormalStep;
use super::super::pre::{PreStep, SpacePrefix};
use super::super::spm::byte_of_text;
use super::super::vocabulary::{Pieces, TokenKind, Vocabulary};
use super::file::{Decoder, PatternFile, PrependScheme};
use super::steps::PreSteps;
use super::{INSERTED_BYTES_MAX, TokenizerError, unsupported};

/// How tokens become bytes.
#[derive(Default)]
pub(super) struct DecodeRules {
    /// Texts are written with a letter for each byte.
    letters: bool,
    /// Texts that are replaced.
    replacements: Vec<(String, String)>,
    /// `<0x0A>` is a byte.
    byte_fallback: bool,
    /// A space at the beginning of the text is taken away.
    strips_space: bool,
}

/// The rules of `file`; without one, those that `pre` implies.
pub(super) fn rules(file: Option<Decoder>, pre: &PreSteps) -> Result<DecodeRules, TokenizerError> {
    let mut rules = DecodeRules::default();
    match file {
        Some(file) => rules.extend(file)?,
        None => rules.letters = pre.has_letters,
    }
    if rules.letters != pre.has_letters {
        let reason = "is ByteLevel without the pre-tokenizer, or the other way round";
        return Err(TokenizerError::bad_key("decoder", reason));
    }
    Ok(rules)
}

impl DecodeRules {
    fn extend(&mut self, file: Decoder) -> Result<(), TokenizerError> {
        match file {
            Decoder::ByteLevel {} => self.letters = true,
            Decoder::ByteFallback {} => self.byte_fallback = true,
            Decoder::Fuse {} => (),
            Decoder::Metaspace {
                replacement,
                add_prefix_space,
                prepend_scheme,
            } => {
                self.replacements
                    .push((replacement.to_string(), " ".to_owned()));
                self.strips_space =
                    prepend_scheme != Some(PrependScheme::Never) && add_prefix_space != Some(false);
            }
            Decoder::Replace {
                pattern: PatternFile::String(text),
                content,
            } if !text.is_empty() && content.len() <= INSERTED_BYTES_MAX => {
                self.replacements.push((text, content));
            }
            Decoder::Replace { .. } => {
                return Err(unsupported("decoder", "Replace", "Replace of a short text"));
            }
            Decoder::Strip {
                start: 0, stop: 0, ..
            } => (),
            Decoder::Strip {
                content: ' ',
                start: 1,
                stop: 0,
            } => self.strips_space = true,
            Decoder::Strip { .. } => {
                return Err(unsupported(
                    "decoder",
                    "Strip",
                    "Strip of one space at the start",
                ));
            }
            Decoder::Sequence { decoders } => {
                for decoder in decoders {
                    self.extend(decoder)?;
                }
            }
        }
        Ok(())
    }

    /// Where a space was put before the text that is to be taken away again: only where encoding does it.
    pub(super) fn space_prefix(&self, normalizers: &[NormalStep], pre: &PreSteps) -> SpacePrefix {
        if !self.strips_space {
            return SpacePrefix::Never;
        }
        let of_pre = pre.steps.iter().find_map(|step| match step {
            PreStep::Metaspace { prefix, .. } => Some(*prefix),
            _ => None,
        });
        let prepends = normalizers
            .iter()
            .any(|step| matches!(step, NormalStep::Prepend(_)));
        match (of_pre, prepends) {
            (_, true) => SpacePrefix::Always,
            (Some(prefix), false) => prefix,
            (None, false) => SpacePrefix::First,
        }
    }

    /// The bytes of every token.
    pub(super) fn pieces(&self, vocabulary: &Vocabulary) -> Result<Pieces, TokenizerError> {
        if self.letters {
            return Ok(bpe::pieces(vocabulary));
        }
        let mut pieces = Pieces::with_capacity(vocabulary.len());
        for (_, kind, text) in vocabulary.tokens() {
            match (kind, byte_of_text(text)) {
                (TokenKind::Byte, Some(byte)) if self.byte_fallback => pieces.push(&[byte]),
                (TokenKind::Normal | TokenKind::Byte, _) => {
                    let mut text = text.to_owned();
                    for (from, to) in &self.replacements {
                        if text.contains(from.as_str()) {
                            text = text.replace(from.as_str(), to);
                        }
                    }
                    pieces.push(text.as_bytes());
                }
                (TokenKind::UserDefined, _) => pieces.push(text.as_bytes()),
                (TokenKind::Control | TokenKind::Unknown | TokenKind::Unused, _) => {
                    pieces.push(&[]);
                }
            }
        }
        Ok(pieces)
    }
}
