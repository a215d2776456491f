//! Normalizers: text rewritten before it is cut into words.
//!
//! Source: `tokenizers` (`normalizers/`), Unicode Standard Annex 15.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

use super::pattern::Pattern;

/// One rewriting.
pub(super) enum NormalStep {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    /// Puts a text before a text that is not empty.
    Prepend(String),
    Replace(Needle, String),
    Strip {
        left: bool,
        right: bool,
    },
}

/// What is replaced.
pub(super) enum Needle {
    Text(String),
    Pattern(Pattern),
}

/// Applies `steps` in order.
pub(super) fn normalized<'t>(steps: &[NormalStep], text: &'t str) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for step in steps {
        if let Some(rewritten) = step.rewritten(&text) {
            text = Cow::Owned(rewritten);
        }
    }
    text
}

impl NormalStep {
    /// `None` if the text stays as it is.
    fn rewritten(&self, text: &str) -> Option<String> {
        match self {
            // Nothing in ASCII composes or decomposes.
            NormalStep::Nfc | NormalStep::Nfd | NormalStep::Nfkc | NormalStep::Nfkd
                if text.is_ascii() =>
            {
                None
            }
            NormalStep::Nfc => Some(text.nfc().collect()),
            NormalStep::Nfd => Some(text.nfd().collect()),
            NormalStep::Nfkc => Some(text.nfkc().collect()),
            NormalStep::Nfkd => Some(text.nfkd().collect()),
            // Letter by letter: a final sigma is not special here.
            NormalStep::Lowercase => Some(text.chars().flat_map(char::to_lowercase).collect()),
            NormalStep::Prepend(prefix) => (!text.is_empty()).then(|| format!("{prefix}{text}")),
            NormalStep::Replace(Needle::Text(needle), replacement) => text
                .contains(needle)
                .then(|| text.replace(needle, replacement)),
            NormalStep::Replace(Needle::Pattern(pattern), replacement) => {
                let mut rewritten = String::with_capacity(text.len());
                let mut end = 0;
                pattern.for_each_match(text, |found| {
                    rewritten.push_str(&text[end..found.start]);
                    rewritten.push_str(replacement);
                    end = found.end;
                });
                rewritten.push_str(&text[end..]);
                Some(rewritten)
            }
            NormalStep::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                let text = if *right { text.trim_end() } else { text };
                Some(text.to_owned())
            }
        }
    }
}
