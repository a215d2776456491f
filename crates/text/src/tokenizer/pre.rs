//! Pre-tokenizers of a `tokenizer.json`: a piece of text to words.
//!
//! The one idea: nearly all of them are one thing, a pattern and what becomes of its matches. The rest put a space or
//! its letter in front. A sequence is applied depth first, so that words need no list.
//!
//! Not here: the letters that byte-level vocabularies write bytes with; those come last and are `byte_pair.rs`'s.
//!
//! Source: `tokenizers` (`pre_tokenizers/`, `tokenizer/normalizer.rs`).

use std::ops::Range;

use super::pattern::Pattern;

/// One step from a piece to words.
pub(super) enum PreStep {
    /// Cuts.
    Split {
        pattern: Pattern,
        behavior: Behavior,
        /// Whether matches and the text between them change places.
        invert: bool,
    },
    /// Puts a space before a word that does not begin with one.
    SpaceBefore,
    /// Writes spaces as another text, and perhaps puts one in front.
    Metaspace {
        replacement: String,
        prefix: SpacePrefix,
    },
    /// Writes every byte as its letter.
    Letters,
}

/// What becomes of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    /// Neighbouring matches are one word.
    Contiguous,
}

/// Whether a text is read as if it began with a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpacePrefix {
    /// It and every text behind a special token.
    Always,
    /// Only at the very beginning.
    First,
    Never,
}

/// Where a piece stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Beginning,
    Later,
}

/// Calls `each` with the words that `steps` make of `piece`; none is empty.
pub(super) fn for_each_word(
    steps: &[PreStep],
    piece: &str,
    position: Position,
    each: &mut dyn FnMut(&str),
) {
    let (step, rest) = match steps.split_first() {
        // A step must not put a space before nothing.
        _ if piece.is_empty() => return,
        Some(first_and_rest) => first_and_rest,
        None => return each(piece),
    };
    match step {
        PreStep::Split {
            pattern,
            behavior,
            invert,
        } => {
            for part in parts(pattern, *behavior, *invert, piece) {
                let at = match part.start {
                    0 => position,
                    _ => Position::Later,
                };
                for_each_word(rest, &piece[part], at, each);
            }
        }
        PreStep::SpaceBefore => {
            if piece.starts_with(' ') {
                for_each_word(rest, piece, position, each);
            } else {
                for_each_word(rest, &format!(" {piece}"), position, each);
            }
        }
        PreStep::Metaspace {
            replacement,
            prefix,
        } => {
            let mut written = piece.replace(' ', replacement);
            let wanted = match prefix {
                SpacePrefix::Always => true,
                SpacePrefix::First => position == Position::Beginning,
                SpacePrefix::Never => false,
            };
            if wanted && !written.starts_with(replacement.as_str()) {
                written.insert_str(0, replacement);
            }
            for_each_word(rest, &written, position, each);
        }
        PreStep::Letters => {
            let written: String = piece.bytes().map(super::bpe::char_of_byte).collect();
            for_each_word(rest, &written, position, each);
        }
    }
}

fn parts(pattern: &Pattern, behavior: Behavior, invert: bool, piece: &str) -> Vec<Range<usize>> {
    let mut pieces: Vec<(Range<usize>, bool)> = Vec::new();
    let mut end = 0;
    pattern.for_each_match(piece, |found| {
        if found.start > end {
            pieces.push((end..found.start, invert));
        }
        end = found.end;
        pieces.push((found, !invert));
    });
    if end < piece.len() {
        pieces.push((end..piece.len(), invert));
    }
    joined(behavior, pieces)
}

/// The words of a text whose parts are matches or lie between them.
fn joined(behavior: Behavior, pieces: Vec<(Range<usize>, bool)>) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::with_capacity(pieces.len());
    // Whether the piece before it, in the direction of travel, was a match.
    let mut after_match = None;
    let mut visit = |words: &mut Vec<Range<usize>>, (piece, is_match): (Range<usize>, bool)| {
        let joins = match behavior {
            Behavior::Removed | Behavior::Isolated => false,
            Behavior::Contiguous => after_match == Some(is_match),
            Behavior::MergedWithPrevious | Behavior::MergedWithNext => {
                is_match && after_match == Some(false)
            }
        };
        after_match = Some(is_match);
        match words.last_mut() {
            Some(last) if joins => {
                last.start = last.start.min(piece.start);
                last.end = last.end.max(piece.end);
            }
            _ if behavior == Behavior::Removed && is_match => (),
            _ => words.push(piece),
        }
    };
    if behavior == Behavior::MergedWithNext {
        pieces
            .into_iter()
            .rev()
            .for_each(|piece| visit(&mut words, piece));
        words.reverse();
    } else {
        pieces
            .into_iter()
            .for_each(|piece| visit(&mut words, piece));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the documentation of `tokenizers` (`SplitDelimiterBehavior`).
    #[test]
    fn each_behavior_does_with_delimiters_what_its_name_says() {
        for (behavior, expected) in [
            (Behavior::Removed, "the|final|countdown"),
            (Behavior::Isolated, "the|-|final|-|-|countdown"),
            (Behavior::MergedWithPrevious, "the-|final-|-|countdown"),
            (Behavior::MergedWithNext, "the|-final|-|-countdown"),
            (Behavior::Contiguous, "the|-|final|--|countdown"),
        ] {
            let step = PreStep::Split {
                pattern: Pattern::compile("-").unwrap(),
                behavior,
                invert: false,
            };
            let mut words = Vec::new();
            for_each_word(
                &[step],
                "the-final--countdown",
                Position::Beginning,
                &mut |word| words.push(word.to_owned()),
            );
            assert_eq!(words.join("|"), expected);
        }
    }
}
