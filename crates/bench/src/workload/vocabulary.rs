//! Words that are one token each for the model at hand, and what its chat template adds.
//!
//! The one idea: a text of such words, separated by single spaces, has as many tokens as words, whatever the
//! tokenizer is called. A text made of random token *ids* has not: written down and read again, ids merge.
//! How a text begins is another matter (a template's line break before it, a space that some tokenizers put there,
//! a BOS token), so every text begins with the same word, [`Vocabulary::OPENER`], and what that costs is measured
//! together with the template.
//!
//! ```text
//! <|im_start|>user\nNote river stone ...  quiet<|im_end|>\n<|im_start|>assistant\n
//! `------ overhead ----'`-- words: 1 each -----'`---------- overhead ------------'
//! ```
//!
//! Not here: asking a server for counts (`client`).

use std::sync::{Arc, LazyLock};

use serde_json::json;
use text::{ChatTemplate, SpecialText, TemplateError, Tokenizer};

/// English words of five to nine letters, sorted; each is one token behind a space for the vocabularies of SmolLM2
/// and Gemma 3, and so for most others.
static CANDIDATES: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("words.txt").split_ascii_whitespace().collect());

/// Words of a probe besides the opener.
const GROUP_WORDS: usize = 8;

/// With fewer words, prompts would repeat what they say, and the nonce grow long.
const NUM_WORDS_MIN: usize = 256;

/// Words to write prompts with.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    words: Arc<[&'static str]>,
    source: Source,
    overhead: Overhead,
    salt: u64,
}

/// Who says that a word is one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server that is measured.
    Server,
    /// A tokenizer at hand.
    Tokenizer,
    /// Nobody: it is so for most tokenizers.
    Estimate,
}

/// Tokens of a prompt besides its words: BOS, the template, and the opener of each text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Of one user message.
    pub user: u64,
    /// Of a system message and a user message.
    pub system_and_user: u64,
    /// Added by an answer and the user message behind it, the answer's own tokens aside.
    pub next_turn: u64,
}

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whose.
    pub role: Role,
    /// What it says.
    pub text: Arc<str>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// As in a request.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// Why counts make no vocabulary. [`Vocabulary::estimate`] is what is left.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// Not one count for each probe.
    #[error("{num_counts} counts for {num_probes} probes")]
    NumCounts {
        /// Counts given.
        num_counts: usize,
        /// Probes there are.
        num_probes: usize,
    },
    /// Hardly any word is one token: a tokenizer of bytes or characters, or of another language.
    #[error("only {num_words} English words are one token each; prompts take {NUM_WORDS_MIN}")]
    TooFewWords {
        /// Words found.
        num_words: usize,
    },
    /// A longer chat has fewer tokens.
    #[error("the template's tokens make no sense: {counts:?} for one message, two and three")]
    Template {
        /// As counted.
        counts: [u64; 3],
    },
    /// The template cannot render a plain chat.
    #[error("the chat template")]
    Render(#[from] TemplateError),
}

impl Vocabulary {
    /// What every text begins with.
    pub const OPENER: &str = "Note";

    /// Words that a tokenizer may know as one token each.
    pub fn candidates() -> &'static [&'static str] {
        &CANDIDATES
    }

    /// Texts whose numbers of tokens say which candidates are one token: the first is the opener alone, each other
    /// one adds some words. Some 320 short texts; counts may include BOS, as long as all of them do.
    pub fn probes() -> Vec<String> {
        let groups = CANDIDATES.chunks(GROUP_WORDS).map(sentence);
        std::iter::once(Vocabulary::OPENER.to_owned())
            .chain(groups)
            .collect()
    }

    /// The vocabulary that follows from the counts of [`Vocabulary::probes`], in order, with the overhead of plain
    /// text; for chats see [`Vocabulary::with_overhead`].
    ///
    /// A group of words is taken if it has as many tokens as words: a word has at least one, so then each has one.
    ///
    /// # Errors
    ///
    /// [`VocabularyError::NumCounts`], [`VocabularyError::TooFewWords`].
    pub fn from_counts(counts: &[u64], source: Source) -> Result<Vocabulary, VocabularyError> {
        let groups = CANDIDATES.chunks(GROUP_WORDS);
        let num_probes = groups.len() + 1;
        if counts.len() != num_probes {
            return Err(VocabularyError::NumCounts {
                num_counts: counts.len(),
                num_probes,
            });
        }
        let opener = counts[0];
        let words: Vec<&str> = groups
            .zip(&counts[1..])
            .filter(|(words, count)| **count == opener + words.len() as u64)
            .flat_map(|(words, _)| words.iter().copied())
            .collect();
        if words.len() < NUM_WORDS_MIN {
            return Err(VocabularyError::TooFewWords {
                num_words: words.len(),
            });
        }
        Ok(Vocabulary {
            words: words.into(),
            source,
            overhead: Overhead::of_plain_text(opener),
            salt: 0,
        })
    }

    /// The vocabulary of a tokenizer, and the overhead of its chat template; without one, of plain text.
    ///
    /// # Errors
    ///
    /// [`VocabularyError::TooFewWords`], [`VocabularyError::Template`], [`VocabularyError::Render`].
    ///
    /// # Cost
    ///
    /// Encodes some 20 kB.
    pub fn from_tokenizer(
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
    ) -> Result<Vocabulary, VocabularyError> {
        let count =
            |text: &String| tokenizer.encode_with_bos(text, SpecialText::AsText).len() as u64;
        let counts: Vec<u64> = Vocabulary::probes().iter().map(count).collect();
        let vocabulary = Vocabulary::from_counts(&counts, Source::Tokenizer)?;
        let Some(template) = template else {
            return Ok(vocabulary);
        };
        let mut counts = [0; 3];
        for (count, messages) in counts.iter_mut().zip(vocabulary.chat_probes()) {
            let messages: Vec<_> = messages
                .iter()
                .map(|message| json!({"role": message.role.name(), "content": *message.text}))
                .collect();
            let rendered = template.render(&messages, true, &serde_json::Map::new())?;
            *count = tokenizer.encode_chat(&rendered).len() as u64;
        }
        vocabulary.with_chat_counts(counts)
    }

    /// Words that are most likely one token each, and a template of ordinary size. Lengths are not claimed.
    pub fn estimate() -> Vocabulary {
        Vocabulary {
            words: CANDIDATES.as_slice().into(),
            source: Source::Estimate,
            overhead: Overhead {
                user: 12,
                system_and_user: 18,
                next_turn: 8,
            },
            salt: 0,
        }
    }

    /// Three chats whose numbers of prompt tokens say what the template adds, for [`Vocabulary::with_chat_counts`]:
    /// a user message; system and user; user, answer, user.
    pub fn chat_probes(&self) -> [Vec<Message>; 3] {
        let text: Arc<str> = sentence(&self.words[..GROUP_WORDS]).into();
        let message = |role| Message {
            role,
            text: Arc::clone(&text),
        };
        [
            vec![message(Role::User)],
            vec![message(Role::System), message(Role::User)],
            vec![
                message(Role::User),
                message(Role::Assistant),
                message(Role::User),
            ],
        ]
    }

    /// The same words, with the overhead that follows from the prompt tokens of [`Vocabulary::chat_probes`].
    ///
    /// # Errors
    ///
    /// [`VocabularyError::Template`].
    pub fn with_chat_counts(self, counts: [u64; 3]) -> Result<Vocabulary, VocabularyError> {
        let words = GROUP_WORDS as u64;
        let impossible = || VocabularyError::Template { counts };
        let user = counts[0].checked_sub(words).ok_or_else(impossible)?;
        let overhead = Overhead {
            user,
            system_and_user: counts[1].checked_sub(2 * words).ok_or_else(impossible)?,
            // The answer of the probe begins with the opener, as none of the model's does; what that costs there is
            // not known apart. No length is claimed that rests on this.
            next_turn: counts[2]
                .checked_sub(3 * words + user)
                .ok_or_else(impossible)?,
        };
        Ok(self.with_overhead(overhead))
    }

    /// The same words, with another overhead.
    pub fn with_overhead(mut self, overhead: Overhead) -> Vocabulary {
        self.overhead = overhead;
        self
    }

    /// The same lengths in other words. A run that repeats another one's seed against the same server would find
    /// its own prompts in the cache; another salt for each run prevents that, and leaves pairs of requests alike.
    pub fn with_salt(mut self, salt: u64) -> Vocabulary {
        self.salt = salt;
        self
    }

    /// Who says that words are one token each.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Whether lengths are claims.
    pub fn is_exact(&self) -> bool {
        self.source != Source::Estimate
    }

    /// What comes on top of words.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }

    /// What makes this run's words differ from another's.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// The words, at least 256.
    pub fn words(&self) -> &[&'static str] {
        &self.words
    }
}

impl Overhead {
    /// Where texts are sent as they are (completions): `opener` tokens for the opener and BOS. A system text, a line
    /// break and the question: the opener once more, behind a line break of one token.
    pub fn of_plain_text(opener: u64) -> Overhead {
        Overhead {
            user: opener,
            system_and_user: 2 * opener + 1,
            next_turn: opener + 1,
        }
    }
}

fn sentence(words: &[&str]) -> String {
    let mut text = Vocabulary::OPENER.to_owned();
    for word in words {
        text.push(' ');
        text.push_str(word);
    }
    text
}
