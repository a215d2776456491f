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
//! Source: `tokenizer.json` of the models named; llama.cpp's `llama_vocab::impl::load` for the names. Where the two differ
//! (llama.cpp's engine knows no `\p{Lu}`, and it never composes), the former count: the vocabulary was trained with them.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use super::{BosRule, TokenizerError};

pub(super) const PRE_KEY: &str = "tokenizer.ggml.pre";

/// How one family of vocabularies cuts text.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    /// Values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Whether text is composed before all else.
    pub(super) composition: Composition,
    /// Expressions whose matches are cut out before words are looked for, one after the other. What one has cut out
    /// is a text of its own for the next: a look-ahead sees the end of the text there.
    cuts: &'static [&'static str],
    /// The alternatives before `\s+(?!\S)|\s+`.
    words: &'static str,
    /// Whether a word that is in the vocabulary as it stands is taken whole, merges or not.
    pub(super) whole_words: WholeWords,
    /// What prompts begin with if the file does not say.
    pub(super) bos_rule: BosRule,
}

/// A GGUF file does not say which; the `tokenizer.json` that it was made from does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Composition {
    /// Canonical composition (NFC): `e` and an accent are read as `é`.
    Composed,
    AsTyped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WholeWords {
    Taken,
    Merged,
}

/// What most vocabularies have in common.
const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    composition: Composition::AsTyped,
    cuts: &[],
    words: GPT_2_WORDS,
    whole_words: WholeWords::Merged,
    bos_rule: BosRule::Leave,
};

const GPT_2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";

const LLAMA_3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

const QWEN_2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

const QWEN_35_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Mistral's: a capital letter begins a word, and there are no contractions.
const TEKKEN_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";

/// `o200k`: as Mistral's, but contractions stay with their word, and digits are grouped.
const GPT_4O_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";

/// DeepSeek's letters, most with a case, as its `tokenizer.json` lists them.
const DEEPSEEK_LETTERS: &str = r"(?x)\s?[
    \u{41}-\u{5a}\u{61}-\u{7a}\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}
    \u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}
    \u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}
    \u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}
    \u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}
    \u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}
    \u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}
    \u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}
    \u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}
    \u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}
    \u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}
    \u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}
    \u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}
]+";

const PRE_TOKENIZERS: [PreTokenizer; 11] = [
    PreTokenizer {
        names: &["gpt-2"],
        ..PLAIN
    },
    PreTokenizer {
        names: &["olmo"],
        composition: Composition::Composed,
        ..PLAIN
    },
    // SmolLM, StarCoder 2 and Granite.
    PreTokenizer {
        names: &["smollm", "starcoder", "refact"],
        cuts: &[r"\p{N}"],
        ..PLAIN
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        words: LLAMA_3_WORDS,
        whole_words: WholeWords::Taken,
        bos_rule: BosRule::Add,
        ..PLAIN
    },
    // Among them OLMo 2 and Phi 4.
    PreTokenizer {
        names: &["dbrx", "smaug-bpe"],
        words: LLAMA_3_WORDS,
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen2"],
        composition: Composition::Composed,
        words: QWEN_2_WORDS,
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-r1-qwen", "stablelm2"],
        words: QWEN_2_WORDS,
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen35"],
        composition: Composition::Composed,
        words: QWEN_35_WORDS,
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        words: TEKKEN_WORDS,
        whole_words: WholeWords::Taken,
        bos_rule: BosRule::Add,
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4"],
        words: GPT_4O_WORDS,
        ..PLAIN
    },
    // No words of its own: what the cuts leave is one, but for digits.
    PreTokenizer {
        names: &["deepseek-llm"],
        cuts: &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
            r"\s+$",
            r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
        ],
        words: r"\p{N}|\P{N}+",
        ..PLAIN
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
    cuts: Vec<Regex>,
}

const WHITE_SPACE_PATTERN: usize = 1;

impl Splitter {
    pub(super) fn new(pre: &PreTokenizer) -> Splitter {
        let compiled = "the expressions of the table compile";
        Splitter {
            words: Regex::new_many(&[pre.words, r"\s+"]).expect(compiled),
            cuts: pre
                .cuts
                .iter()
                .map(|cut| Regex::new(cut).expect(compiled))
                .collect(),
        }
    }

    /// Calls `each` with every word of `text` in order; together they are the text.
    ///
    /// Cost: linear. No match looks further than white space that the next two matches take.
    pub(super) fn for_each_word<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) {
        self.cut(&self.cuts, text, &mut each);
    }

    /// Every part goes through the `cuts` that are left, matches, too.
    fn cut<'t>(&self, cuts: &[Regex], text: &'t str, each: &mut impl FnMut(&'t str)) {
        let Some((cut, left)) = cuts.split_first() else {
            return self.split_words(text, each);
        };
        let mut start = 0;
        for found in cut.find_iter(text) {
            self.cut(left, &text[start..found.start()], each);
            self.cut(left, &text[found.range()], each);
            start = found.end();
        }
        self.cut(left, &text[start..], each);
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

    /// `default` is llama.cpp's guess for files that do not say.
    #[test]
    fn an_unknown_pre_tokenizer_is_an_error_that_lists_the_known_ones() {
        let error = PreTokenizer::named("default").unwrap_err().to_string();
        assert_eq!(
            error,
            "tokenizer.ggml.pre = \"default\" is not supported (known: gpt-2, olmo, smollm, starcoder, refact, \
             llama-bpe, llama3, llama-v3, dbrx, smaug-bpe, qwen2, deepseek-r1-qwen, stablelm2, qwen35, tekken, \
             gpt-4o, llama4, deepseek-llm)"
        );
    }

    #[test]
    fn capital_letters_and_marks_cut_where_the_vocabulary_was_trained_so() {
        assert_eq!(words("tekken", "getURLs it's"), "get|URLs| it|'s");
        assert_eq!(words("gpt-4o", "getURLs it's"), "get|URLs| it's");
        assert_eq!(words("qwen2", "getURLs e\u{301}a"), "getURLs| e|\u{301}a");
        assert_eq!(words("qwen35", "getURLs e\u{301}a"), "getURLs| e\u{301}a");
    }

    /// Case F10.
    #[test]
    fn unbroken_text_is_one_word_however_long() {
        for pre in PRE_TOKENIZERS {
            let name = pre.names[0];
            for unit in ["A", " ", "\n", ".", "語"] {
                let text = unit.repeat(200_000);
                let mut num_words = 0;
                let splitter = Splitter::new(PreTokenizer::named(name).unwrap());
                splitter.for_each_word(&text, |_| num_words += 1);
                // A line end is a word of its own here.
                let expected = match (name, unit) {
                    ("deepseek-llm", "\n") => 200_000,
                    _ => 1,
                };
                assert_eq!(num_words, expected, "{name} {unit:?}");
            }
        }
    }
}
