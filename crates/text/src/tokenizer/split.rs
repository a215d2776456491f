//! Pre-tokenizers: where byte-level BPE cuts text into words before merging.
//!
//! Each vocabulary was trained with one regular expression, and the ids are right only with the same one. All known
//! ones end in `\s+(?!\S)|\s+`: white space, but the last one stays with the word it precedes. That look-ahead is the only
//! part that needs a backtracking engine, whose cost and stack grow with the text (and which gives up on long runs). So the
//! expressions here leave it out, and [`Splitter`] applies it by hand:
//!
//! ```text
//! "a   b"   \s+ matches "   "; a word follows, so the last space is given back:  a|··|·b
//! ```
//!
//! What remains is a regular language, matched by a finite automaton in linear time.
//!
//! Source: `tokenizer.json` of the models named; llama.cpp's `llama_vocab::impl::load` for the names.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use super::{BosRule, TokenizerError};

pub(super) const PRE_KEY: &str = "tokenizer.ggml.pre";

/// How one family of vocabularies cuts text.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    /// Values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Whether each digit is cut out before anything else.
    digits: Digits,
    /// The alternatives before `\s+(?!\S)|\s+`.
    words: &'static str,
    /// Whether a word that is in the vocabulary as it stands is taken whole, merges or not.
    pub(super) whole_words: WholeWords,
    /// What prompts begin with if the file does not say.
    pub(super) bos_rule: BosRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    /// `12` is two words, and a look-ahead before a digit sees the end of the text.
    CutFirst,
    AsWords,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WholeWords {
    Taken,
    Merged,
}

const GPT_2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";

const PRE_TOKENIZERS: [PreTokenizer; 4] = [
    PreTokenizer {
        names: &["gpt-2"],
        digits: Digits::AsWords,
        words: GPT_2_WORDS,
        whole_words: WholeWords::Merged,
        bos_rule: BosRule::Leave,
    },
    PreTokenizer {
        names: &["smollm"],
        digits: Digits::CutFirst,
        words: GPT_2_WORDS,
        whole_words: WholeWords::Merged,
        bos_rule: BosRule::Leave,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        digits: Digits::AsWords,
        words: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        whole_words: WholeWords::Taken,
        bos_rule: BosRule::Add,
    },
    PreTokenizer {
        names: &["qwen2"],
        digits: Digits::AsWords,
        words: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        whole_words: WholeWords::Merged,
        bos_rule: BosRule::Leave,
    },
];

impl PreTokenizer {
    /// # Errors
    ///
    /// If no vocabulary we know has that name. There is no default: a wrong expression goes unnoticed.
    pub(super) fn named(name: &str) -> Result<&'static PreTokenizer, TokenizerError> {
        let known = PRE_TOKENIZERS.iter().find(|pre| pre.names.contains(&name));
        known.ok_or_else(|| TokenizerError::Unsupported {
            key: PRE_KEY.to_owned(),
            value: name.to_owned(),
            known: PRE_TOKENIZERS.map(|pre| pre.names.join(", ")).join(", "),
        })
    }
}

/// A compiled pre-tokenizer.
pub(super) struct Splitter {
    /// Pattern 0 is the words, pattern 1 white space.
    words: Regex,
    digit: Option<Regex>,
}

const WHITE_SPACE_PATTERN: usize = 1;

impl Splitter {
    pub(super) fn new(pre: &PreTokenizer) -> Splitter {
        let compiled = "the expressions of the table compile";
        Splitter {
            words: Regex::new_many(&[pre.words, r"\s+"]).expect(compiled),
            digit: match pre.digits {
                Digits::CutFirst => Some(Regex::new(r"\p{N}").expect(compiled)),
                Digits::AsWords => None,
            },
        }
    }

    /// Calls `each` with every word of `text` in order; together they are the text.
    ///
    /// Cost: linear. No match looks further than white space that the next two matches take.
    pub(super) fn for_each_word<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) {
        let Some(digit) = &self.digit else {
            return self.split_words(text, &mut each);
        };
        let mut start = 0;
        for found in digit.find_iter(text) {
            self.split_words(&text[start..found.start()], &mut each);
            each(&text[found.range()]);
            start = found.end();
        }
        self.split_words(&text[start..], &mut each);
    }

    fn split_words<'t>(&self, text: &'t str, each: &mut impl FnMut(&'t str)) {
        let mut start = 0;
        while start < text.len() {
            let end = self.word_end(text, start);
            each(&text[start..end]);
            start = end;
        }
    }

    fn word_end(&self, text: &str, start: usize) -> usize {
        let input = Input::new(text)
            .span(start..text.len())
            .anchored(Anchored::Yes);
        // Letters, digits, white space and the rest: some alternative takes any character.
        let found = self.words.search(&input).expect("every character matches");
        let end = found.end();
        if found.pattern().as_usize() != WHITE_SPACE_PATTERN || end == text.len() {
            return end;
        }
        // `\s+(?!\S)`: something follows, so the last white space is given back, unless it is the only one.
        let last = text[start..end].char_indices().next_back();
        match last {
            Some((given_back, _)) if given_back > 0 => start + given_back,
            _ => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> String {
        let splitter = Splitter::new(PreTokenizer::named(name).unwrap());
        let mut drawn = Vec::new();
        splitter.for_each_word(text, |word| drawn.push(word.to_owned()));
        drawn.join("|")
    }

    /// B10.
    #[test]
    fn each_vocabulary_groups_digits_its_own_way() {
        assert_eq!(words("gpt-2", "a 12345"), "a| 12345");
        assert_eq!(words("smollm", "a 12345"), "a| |1|2|3|4|5");
        assert_eq!(words("llama-bpe", "a 12345"), "a| |123|45");
        assert_eq!(words("qwen2", "a 12345"), "a| |1|2|3|4|5");
    }

    /// B10.
    #[test]
    fn the_last_white_space_stays_with_the_word_it_precedes() {
        assert_eq!(words("gpt-2", "a   b  "), "a|  | b|  ");
        assert_eq!(words("gpt-2", "a\t\tb \n"), "a|\t|\t|b| \n");
        assert_eq!(words("llama-bpe", "a   b \n\n  c"), "a|  | b| \n\n| | c");
        assert_eq!(words("smollm", "a   1"), "a|   |1");
    }

    /// B10.
    #[test]
    fn each_vocabulary_cuts_punctuation_and_contractions_its_own_way() {
        assert_eq!(words("gpt-2", "DON'T (x):\n"), "DON|'|T| (|x|):|\n");
        assert_eq!(words("qwen2", "DON'T (x):\n"), "DON|'T| (|x|):\n");
        assert_eq!(words("llama3", "don't->"), "don|'t|->");
    }

    #[test]
    fn an_unknown_pre_tokenizer_is_an_error_that_lists_the_known_ones() {
        let error = PreTokenizer::named("default").unwrap_err().to_string();
        assert_eq!(
            error,
            "tokenizer.ggml.pre = \"default\" is not supported \
             (known: gpt-2, smollm, llama-bpe, llama3, llama-v3, qwen2)"
        );
    }

    /// F10.
    #[test]
    fn unbroken_text_is_one_word_however_long() {
        for name in ["gpt-2", "llama-bpe", "qwen2", "smollm"] {
            for unit in ["A", " ", "\n", ".", "語"] {
                let text = unit.repeat(200_000);
                let mut num_words = 0;
                let splitter = Splitter::new(PreTokenizer::named(name).unwrap());
                splitter.for_each_word(&text, |_| num_words += 1);
                assert_eq!(num_words, 1, "{name} {unit:?}");
            }
        }
    }
}
