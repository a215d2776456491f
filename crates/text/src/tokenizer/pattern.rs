//! Regular expressions of foreign tokenizers, matched in linear time.
//!
//! Vocabularies are trained with expressions for backtracking engines. Of what only those can do, nearly all use one
//! thing: the alternative `\s+(?!\S)`, white space but for the last one before a word. The one idea, as in `split.rs`: cut
//! it out, and apply it by hand where the automaton finds `\s+` in its place.
//!
//! ```text
//! \p{L}+|\s+(?!\S)|\s+        patterns of one automaton, the first that matches counts
//! \p{L}+ ┆  \s+   ┆ \s+       if the middle one matches, it gives back its last character, or fails
//! ```
//!
//! If it fails (a single white space before a word), only the alternatives behind it are tried at that place.
//! Any other look-around, back reference or possessive quantifier is refused, never approximated.
//!
//! Source: <https://docs.rs/regex-automata> for the automaton; Oniguruma's syntax for what is refused.

use std::ops::Range;

use regex_automata::meta::{Config, Regex};
use regex_automata::{Anchored, Input, Span};

/// An expression that can be searched for.
pub(super) struct Pattern {
    /// The alternatives, in groups: before, instead of, and behind `\s+(?!\S)`.
    all: Regex,
    look_ahead: Option<LookAhead>,
}

struct LookAhead {
    /// Which pattern of `all` stands for `\s+(?!\S)`.
    pattern: usize,
    /// The alternatives behind it.
    behind: Option<Regex>,
}

/// Bytes of an expression. The longest we know has 400.
const SOURCE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a compiled expression.
const COMPILED_BYTES_MAX: usize = 16 << 20;

const LOOK_AHEAD: &str = r"\s+(?!\S)";

/// Possessive quantifiers behind which nothing can match that they would give back: there they are as good as greedy.
const HARMLESS_POSSESSIVES: [(&str, &str); 5] = [
    (r"[^\r\n\p{L}\p{N}]?+\p{L}", r"[^\r\n\p{L}\p{N}]?\p{L}"),
    (r"[^\s\p{L}\p{N}]++[\r\n]", r"[^\s\p{L}\p{N}]+[\r\n]"),
    (r"[\r\n]*+|", r"[\r\n]*|"),
    (r"\p{L}++|", r"\p{L}+|"),
    (r"\p{N}{1,3}+|", r"\p{N}{1,3}|"),
];

impl Pattern {
    /// # Errors
    ///
    /// What is wrong with the expression, or which part of it is not supported.
    pub(super) fn compile(source: &str) -> Result<Pattern, String> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!("has more than {SOURCE_BYTES_MAX} bytes"));
        }
        let mut greedy = source.to_owned();
        for (possessive, same) in HARMLESS_POSSESSIVES {
            greedy = greedy.replace(possessive, same);
        }
        let alternatives = alternatives(&greedy);
        let (before, behind) = match alternatives.iter().position(|it| *it == LOOK_AHEAD) {
            Some(idx) => (&alternatives[..idx], Some(&alternatives[idx + 1..])),
            None => (&alternatives[..], None),
        };
        for part in before.iter().chain(behind.unwrap_or_default()) {
            if let Some(what) = backtracking_part(part) {
                return Err(format!("{what} in {part:?} needs a backtracking engine"));
            }
        }
        let mut patterns = Vec::new();
        if !before.is_empty() {
            patterns.push(before.join("|"));
        }
        let Some(behind) = behind else {
            return Ok(Pattern {
                all: compile(&patterns)?,
                look_ahead: None,
            });
        };
        let pattern = patterns.len();
        patterns.push(r"\s+".to_owned());
        let behind = (!behind.is_empty()).then(|| behind.join("|"));
        patterns.extend(behind.clone());
        Ok(Pattern {
            all: compile(&patterns)?,
            look_ahead: Some(LookAhead {
                pattern,
                behind: behind.map(|behind| compile(&[behind])).transpose()?,
            }),
        })
    }

    /// Calls `each` with every match in `text`, from left to right; empty ones are left out.
    pub(super) fn for_each_match(&self, text: &str, mut each: impl FnMut(Range<usize>)) {
        let mut start = 0;
        while let Some(found) = self.next_match(text, start) {
            let next = match found.end > found.start {
                true => found.end,
                // Nothing was matched: on with the next character.
                false => found.end + char_bytes(text, found.end),
            };
            if found.end > found.start {
                each(found.start..found.end);
            }
            start = next;
        }
    }

    fn next_match(&self, text: &str, mut start: usize) -> Option<Span> {
        while start < text.len() {
            let found = self.all.search(&Input::new(text).span(start..text.len()))?;
            let mut span = found.span();
            let Some(look_ahead) = &self.look_ahead else {
                return Some(span);
            };
            if found.pattern().as_usize() != look_ahead.pattern || span.end == text.len() {
                return Some(span);
            }
            // `\s+(?!\S)`: something follows, so the last white space is given back.
            let last = text[span.start..span.end].char_indices().next_back();
            if let Some((given_back @ 1.., _)) = last {
                span.end = span.start + given_back;
                return Some(span);
            }
            // It was the only one.
            let anchored = Input::new(text)
                .span(span.start..text.len())
                .anchored(Anchored::Yes);
            let behind = look_ahead.behind.as_ref();
            if let Some(found) = behind.and_then(|behind| behind.search(&anchored)) {
                return Some(found.span());
            }
            start = span.end;
        }
        None
    }
}

fn char_bytes(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

fn compile(patterns: &[String]) -> Result<Regex, String> {
    let config = Config::new()
        .nfa_size_limit(Some(COMPILED_BYTES_MAX))
        .onepass_size_limit(Some(COMPILED_BYTES_MAX));
    Regex::builder()
        .configure(config)
        .build_many(patterns)
        .map_err(|error| match (error.syntax_error(), error.size_limit()) {
            (Some(syntax), _) => syntax.to_string(),
            (None, Some(num_bytes)) => format!("exceeds the limit of {num_bytes} bytes compiled"),
            (None, None) => error.to_string(),
        })
}

/// The alternatives outside all groups and classes.
fn alternatives(source: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for_each_symbol(source, |at, symbol, depth| {
        if symbol == '|' && depth == 0 {
            parts.push(&source[start..at]);
            start = at + 1;
        }
    });
    parts.push(&source[start..]);
    parts
}

/// What in `part`, if anything, a finite automaton cannot do or understands differently.
fn backtracking_part(part: &str) -> Option<&'static str> {
    for (syntax, what) in [
        ("(?=", "look-ahead"),
        ("(?!", "look-ahead"),
        ("(?<=", "look-behind"),
        ("(?<!", "look-behind"),
        ("(?>", "an atomic group"),
    ] {
        let mut found = false;
        for_each_symbol(part, |at, symbol, _| {
            found |= symbol == '(' && part[at..].starts_with(syntax);
        });
        if found {
            return Some(what);
        }
    }
    let mut possessive = false;
    for_each_symbol(part, |at, symbol, _| {
        let quantified = matches!(symbol, '?' | '*' | '+') && !part[..at].ends_with(['(', '\\']);
        possessive |= quantified && part[at + 1..].starts_with('+');
    });
    possessive.then_some("a possessive quantifier")
}

/// Calls `each` with place, character and depth of groups for all that is neither escaped nor in a class.
fn for_each_symbol(source: &str, mut each: impl FnMut(usize, char, usize)) {
    let (mut depth, mut class_depth) = (0_usize, 0_usize);
    let mut characters = source.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '[' => class_depth += 1,
            ']' => class_depth = class_depth.saturating_sub(1),
            _ if class_depth > 0 => (),
            '(' => {
                each(at, character, depth);
                depth += 1;
            }
            ')' => depth = depth.saturating_sub(1),
            _ => each(at, character, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(source: &str, text: &str) -> String {
        let mut found = Vec::new();
        let pattern = Pattern::compile(source).unwrap();
        pattern.for_each_match(text, |range| found.push(&text[range]));
        found.join("|")
    }

    #[test]
    fn the_last_white_space_before_a_word_is_given_back() {
        let source = r"[^\r\n\p{L}]?\p{L}+|\s+(?!\S)|\s+";
        assert_eq!(matches(source, "a   b  "), "a|  | b|  ");
        assert_eq!(matches(r"\p{L}+|\s+(?!\S)", "a b  c"), "a|b| |c");
        assert_eq!(matches(r"\s+(?!\S)|.", "a b"), "a| |b");
    }

    #[test]
    fn what_needs_backtracking_is_refused_by_name() {
        for (source, words) in [
            (r"a(?=b)|\s+(?!\S)", "look-ahead"),
            (r"(a|\s+(?!\S))", "look-ahead"),
            (r"(?<!a)b", "look-behind"),
            ("(?>a)", "an atomic group"),
            ("a++b", "a possessive quantifier"),
            (r"(a)\1", "backreferences are not supported"),
            ("(", "unclosed group"),
            (r"(?:\p{L}{1000}){1000}", "limit"),
        ] {
            let error = Pattern::compile(source).err().unwrap();
            assert!(error.contains(words), "{source}: {error}");
        }
        assert!(Pattern::compile(r"\(?=[(?!]|\++").is_ok());
    }

    /// F10.
    #[test]
    fn a_long_run_of_white_space_is_one_match() {
        let text = format!("{}a", " ".repeat(200_000));
        let mut num_matches = 0;
        let pattern = Pattern::compile(r"\s*[\r\n]+|\s+(?!\S)|\s+|\S").unwrap();
        pattern.for_each_match(&text, |_| num_matches += 1);
        assert_eq!(num_matches, 3);
    }
}
