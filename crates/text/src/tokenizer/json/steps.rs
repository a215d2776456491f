//! Normalizers and pre-tokenizers of the file as steps.

use super::super::normalize::{Needle, NormalStep};
use super::super::pattern::Pattern;
use super::super::pre::{Behavior, PreStep, SpacePrefix};
use super::file::{BehaviorFile, Normalizer, PatternFile, PreTokenizer, PrependScheme};
use super::{INSERTED_BYTES_MAX, STEPS_MAX, TokenizerError};

/// GPT-2's words, which the kind `ByteLevel` cuts out.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// ASCII's punctuation and symbols, and Unicode's punctuation.
const PUNCTUATION: &str = r"[!-/:-@\[-`{-~\p{P}]";

/// The steps of a file's normalizer.
pub(super) fn normalizers(file: Option<Normalizer>) -> Result<Vec<NormalStep>, TokenizerError> {
    let mut steps = Vec::new();
    if let Some(file) = file {
        push_normalizer(file, &mut steps)?;
    }
    expect_few("normalizer", steps.len())?;
    Ok(steps)
}

fn push_normalizer(file: Normalizer, steps: &mut Vec<NormalStep>) -> Result<(), TokenizerError> {
    const KEY: &str = "normalizer";
    steps.push(match file {
        Normalizer::Nfc => NormalStep::Nfc,
        Normalizer::Nfd => NormalStep::Nfd,
        Normalizer::Nfkc => NormalStep::Nfkc,
        Normalizer::Nfkd => NormalStep::Nfkd,
        Normalizer::Lowercase => NormalStep::Lowercase,
        Normalizer::Prepend { prepend } => NormalStep::Prepend(inserted(KEY, prepend)?),
        Normalizer::Replace { pattern, content } => {
            let needle = match pattern {
                // Found nowhere, as there.
                PatternFile::String(text) if text.is_empty() => return Ok(()),
                PatternFile::String(text) => Needle::Text(text),
                PatternFile::Regex(source) => Needle::Pattern(regex(KEY, &source)?),
            };
            NormalStep::Replace(needle, inserted(KEY, content)?)
        }
        Normalizer::Strip {
            strip_left: left,
            strip_right: right,
        } => NormalStep::Strip { left, right },
        Normalizer::Sequence { normalizers } => {
            for normalizer in normalizers {
                push_normalizer(normalizer, steps)?;
            }
            return Ok(());
        }
    });
    Ok(())
}

/// The steps of a file's pre-tokenizer.
pub(super) struct PreSteps {
    pub(super) steps: Vec<PreStep>,
    /// Whether words are then written with a letter for each byte.
    pub(super) ends_in_letters: bool,
    /// Whether that is done there or in a step before.
    pub(super) has_letters: bool,
}

pub(super) fn pre_tokenizers(file: Option<PreTokenizer>) -> Result<PreSteps, TokenizerError> {
    let mut steps = Vec::new();
    if let Some(file) = file {
        push_pre_tokenizer(file, &mut steps)?;
    }
    expect_few("pre_tokenizer", steps.len())?;
    let letters = |step: &PreStep| matches!(step, PreStep::Letters);
    let has_letters = steps.iter().any(letters);
    // The last step can be left to the model, which is faster.
    let ends_in_letters = steps.last().is_some_and(letters);
    if ends_in_letters {
        steps.pop();
    }
    Ok(PreSteps {
        steps,
        ends_in_letters,
        has_letters,
    })
}

fn push_pre_tokenizer(file: PreTokenizer, steps: &mut Vec<PreStep>) -> Result<(), TokenizerError> {
    const KEY: &str = "pre_tokenizer";
    let split = |source: &str, behavior| -> Result<PreStep, TokenizerError> {
        Ok(PreStep::Split {
            pattern: regex(KEY, source)?,
            behavior,
            invert: false,
        })
    };
    match file {
        PreTokenizer::ByteLevel {
            add_prefix_space,
            use_regex,
        } => {
            if add_prefix_space {
                steps.push(PreStep::SpaceBefore);
            }
            if use_regex {
                steps.push(split(GPT_2, Behavior::Isolated)?);
            }
            steps.push(PreStep::Letters);
        }
        PreTokenizer::Split {
            pattern,
            behavior,
            invert,
        } => {
            let source = match pattern {
                PatternFile::String(text) if text.is_empty() => return Ok(()),
                PatternFile::String(text) => escaped(&text),
                PatternFile::Regex(source) => source,
            };
            steps.push(PreStep::Split {
                pattern: regex(KEY, &source)?,
                behavior: behavior.into(),
                invert,
            });
        }
        PreTokenizer::Digits {
            individual_digits: true,
        } => steps.push(split(r"\p{N}", Behavior::Isolated)?),
        PreTokenizer::Digits {
            individual_digits: false,
        } => steps.push(split(r"\p{N}", Behavior::Contiguous)?),
        PreTokenizer::Punctuation { behavior } => {
            steps.push(split(PUNCTUATION, behavior.into())?);
        }
        PreTokenizer::Metaspace {
            replacement,
            add_prefix_space,
            prepend_scheme,
            split: splits,
        } => {
            steps.push(PreStep::Metaspace {
                replacement: replacement.to_string(),
                prefix: space_prefix(prepend_scheme, add_prefix_space)?,
            });
            if splits != Some(false) {
                let source = escaped(&replacement.to_string());
                steps.push(split(&source, Behavior::MergedWithNext)?);
            }
        }
        PreTokenizer::Whitespace => steps.push(PreStep::Split {
            pattern: regex(KEY, r"\w+|[^\w\s]+")?,
            behavior: Behavior::Removed,
            invert: true,
        }),
        PreTokenizer::WhitespaceSplit => steps.push(split(r"\s", Behavior::Removed)?),
        PreTokenizer::Bert => {
            steps.push(split(r"\s", Behavior::Removed)?);
            steps.push(split(PUNCTUATION, Behavior::Isolated)?);
        }
        PreTokenizer::CharDelimiterSplit { delimiter } => {
            steps.push(split(&escaped(&delimiter.to_string()), Behavior::Removed)?);
        }
        PreTokenizer::Sequence { pretokenizers } => {
            for pre_tokenizer in pretokenizers {
                push_pre_tokenizer(pre_tokenizer, steps)?;
            }
        }
    }
    Ok(())
}

/// The newer field wins; the older one means all or nothing.
pub(super) fn space_prefix(
    scheme: Option<PrependScheme>,
    add_prefix_space: Option<bool>,
) -> Result<SpacePrefix, TokenizerError> {
    Ok(match (scheme, add_prefix_space) {
        (Some(PrependScheme::First), Some(false)) | (Some(PrependScheme::Always), Some(false)) => {
            let reason = "add_prefix_space is false, but prepend_scheme is not never";
            return Err(TokenizerError::bad_key("pre_tokenizer", reason));
        }
        (Some(PrependScheme::First), _) => SpacePrefix::First,
        (Some(PrependScheme::Never), _) | (None, Some(false)) => SpacePrefix::Never,
        (Some(PrependScheme::Always), _) | (None, _) => SpacePrefix::Always,
    })
}

impl From<BehaviorFile> for Behavior {
    fn from(file: BehaviorFile) -> Behavior {
        match file {
            BehaviorFile::Removed => Behavior::Removed,
            BehaviorFile::Isolated => Behavior::Isolated,
            BehaviorFile::MergedWithPrevious => Behavior::MergedWithPrevious,
            BehaviorFile::MergedWithNext => Behavior::MergedWithNext,
            BehaviorFile::Contiguous => Behavior::Contiguous,
        }
    }
}

fn regex(key: &str, source: &str) -> Result<Pattern, TokenizerError> {
    Pattern::compile(source)
        .map_err(|reason| TokenizerError::bad_key(key, format!("regex {source:?}: {reason}")))
}

/// An expression that matches just `text`.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|character| format!(r"\x{{{:x}}}", u32::from(character)))
        .collect()
}

/// A text that a step inserts again and again, so it has a bound.
fn inserted(key: &str, text: String) -> Result<String, TokenizerError> {
    if text.len() > INSERTED_BYTES_MAX {
        let num_bytes = text.len();
        let reason = format!(
            "inserts a text of {num_bytes} bytes, at most {INSERTED_BYTES_MAX} are supported"
        );
        return Err(TokenizerError::bad_key(key, reason));
    }
    Ok(text)
}

fn expect_few(key: &str, num_steps: usize) -> Result<(), TokenizerError> {
    if num_steps <= STEPS_MAX {
        return Ok(());
    }
    let reason = format!("has {num_steps} steps, at most {STEPS_MAX} are supported");
    Err(TokenizerError::bad_key(key, reason))
}
