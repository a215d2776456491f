//! Tokens that text is searched for before it is split: control and user-defined ones.
//!
//! The earliest occurrence counts, and the longest of those that begin there, as in `tokenizers` and `sentencepiece`.
//! The search is one Aho-Corasick automaton: its cost does not depend on the number of special tokens.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use formats::gguf::Gguf;
use regex_automata::meta::Regex;

use super::vocabulary::{TokenKind, Vocabulary};
use super::{SENTENCE_PIECE_KIND, TokenId, TokenizerError, find, token_id};

/// Finds the tokens of one kind in text.
pub(super) struct SpecialFinder {
    /// `None` if there are no such tokens.
    automaton: Option<AhoCorasick>,
    /// Token of each pattern.
    tokens: Vec<(TokenId, Habits)>,
    /// `\w`, if a token asks for it.
    word: Option<Regex>,
}

/// What a token does to the text around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Habits {
    /// Takes the white space before it.
    pub(super) takes_left: bool,
    /// Takes the white space behind it.
    pub(super) takes_right: bool,
    /// Is none within a word.
    pub(super) stands_alone: bool,
}

impl Habits {
    pub(super) const NONE: Habits = Habits {
        takes_left: false,
        takes_right: false,
        stands_alone: false,
    };

    /// Takes the white space behind it, and does nothing else.
    const TAKES_RIGHT: Habits = Habits {
        takes_right: true,
        ..Habits::NONE
    };
}

impl SpecialFinder {
    /// Finds the tokens of a vocabulary by their own texts.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(TokenKind) -> bool,
        customs: Customs,
    ) -> SpecialFinder {
        let tokens = vocabulary.tokens_of(wanted);
        SpecialFinder::of(tokens.map(|token| {
            let text = vocabulary.text(token);
            (text, token, customs.habits(text))
        }))
    }

    /// Finds each token by the text beside it; empty texts are never found.
    pub(super) fn of<T: AsRef<str>>(
        tokens: impl Iterator<Item = (T, TokenId, Habits)>,
    ) -> SpecialFinder {
        let tokens = tokens.filter(|(text, ..)| !text.as_ref().is_empty());
        let (texts, tokens): (Vec<T>, Vec<(TokenId, Habits)>) = tokens
            .map(|(text, token, habits)| (text, (token, habits)))
            .unzip();
        let automaton = (!tokens.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(texts.iter().map(AsRef::as_ref))
                .expect("a vocabulary is far below 2^31 states")
        });
        let asks = tokens.iter().any(|(_, habits)| habits.stands_alone);
        let word = asks.then(|| Regex::new(r"\w").expect("it compiles"));
        SpecialFinder {
            automaton,
            tokens,
            word,
        }
    }

    /// Occurrences from left to right that do not overlap.
    pub(super) fn find_in(&self, text: &str) -> impl Iterator<Item = (Range<usize>, TokenId)> {
        let matches = self.automaton.iter().flat_map(move |it| it.find_iter(text));
        // Where the occurrence before ends, with the white space it took.
        let mut end = 0;
        matches.filter_map(move |found| {
            let (token, habits) = self.tokens[found.pattern().as_usize()];
            let (before, behind) = (&text[..found.start()], &text[found.end()..]);
            let neighbours = [before.chars().next_back(), behind.chars().next()];
            if habits.stands_alone && neighbours.into_iter().flatten().any(|it| self.is_word(it)) {
                return None;
            }
            let mut range = found.range();
            if habits.takes_left {
                range.start = before.trim_end().len();
            }
            if habits.takes_right {
                range.end = text.len() - behind.trim_start().len();
            }
            range.start = range.start.max(end);
            range.end = range.end.max(range.start);
            end = range.end;
            Some((range, token))
        })
    }

    /// Letters, marks, digits and connectors.
    fn is_word(&self, character: char) -> bool {
        let word = self.word.as_ref();
        word.is_some_and(|word| word.is_match(&*character.encode_utf8(&mut [0; 4])))
    }
}

/// What the special tokens of a GGUF file do to the text around them.
///
/// `tokenizer.json` says so of each token; a GGUF file says nothing, and which family it is has to do. The wrong guess
/// costs quality without a sign of it: a model that never saw the line break behind `<|user|>` gets three tokens of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Customs {
    /// They leave it alone.
    Plain,
    /// They take the white space behind them, all but [`PHI3_PLAIN`].
    Phi3,
}

/// Tokens of a Phi-3 vocabulary that leave the text around them alone.
const PHI3_PLAIN: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

impl Customs {
    /// By the name of the model, as llama.cpp goes; and by the architecture of a SentencePiece vocabulary, since files
    /// are renamed, and no other vocabulary of that kind comes with it (Phi-4 is byte-level, with other customs).
    pub(super) fn of(file: &Gguf, kind: &str) -> Result<Customs, TokenizerError> {
        let architecture: Option<&str> = find(file, "general.architecture")?;
        let name: Option<&str> = find(file, "general.name")?;
        let name = name.unwrap_or_default().to_lowercase();
        let is_named = ["phi-3", "phi3"].iter().any(|part| name.contains(part));
        let is_built = architecture == Some("phi3") && kind == SENTENCE_PIECE_KIND;
        Ok(match is_named || is_built {
            true => Customs::Phi3,
            false => Customs::Plain,
        })
    }

    fn habits(self, text: &str) -> Habits {
        match self {
            Customs::Phi3 if !PHI3_PLAIN.contains(&text) => Habits::TAKES_RIGHT,
            Customs::Phi3 | Customs::Plain => Habits::NONE,
        }
    }
}

/// Keys that name tokens which end an answer.
const END_KEYS: [&str; 2] = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Texts of tokens that end an answer in some family of models. Files often name only one end
/// token, and a chat model that says another would go on talking to itself.
const END_TEXTS: [&str; 16] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "</s>",
    "<eos>",
];

/// Whether a token that a file calls user-defined is really a control token: some files mark all added tokens
/// alike, and then a user could type the end of a turn. llama.cpp overrides them, too.
pub(super) fn is_end_text(text: &str) -> bool {
    END_TEXTS.contains(&text)
}

/// In gpt-oss vocabularies `<|end|>` ends one message of several in an answer; `<|return|>` ends the answer.
const NOT_AN_END_BESIDE: (&str, &str) = ("<|end|>", "<|return|>");

/// Tokens that end an answer, each once, `eos` first.
pub(super) fn end_tokens(
    file: &Gguf,
    vocabulary: &Vocabulary,
    eos: Option<TokenId>,
) -> Result<Vec<TokenId>, TokenizerError> {
    let mut ends: Vec<TokenId> = eos.into_iter().collect();
    for key in END_KEYS {
        ends.extend(token_id(file, key, vocabulary)?);
    }
    Ok(with_known_ends(ends, vocabulary))
}

/// The tokens `named`, and those that end answers by their texts, each once.
pub(super) fn with_known_ends(named: Vec<TokenId>, vocabulary: &Vocabulary) -> Vec<TokenId> {
    let mut ends = named;
    let control = |text: &str| {
        let token = vocabulary.find(text)?;
        vocabulary.kind(token)?.is_control().then_some(token)
    };
    let (not_end, beside) = NOT_AN_END_BESIDE;
    let is_end = |text: &&str| *text != not_end || control(beside).is_none();
    ends.extend(END_TEXTS.iter().copied().filter(is_end).filter_map(control));
    let mut distinct = Vec::with_capacity(ends.len());
    for token in ends {
        if !distinct.contains(&token) {
            distinct.push(token);
        }
    }
    distinct
}
