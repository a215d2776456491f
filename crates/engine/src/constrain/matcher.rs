//! The vocabulary as a trie, and an automaton at work on one answer.
//!
//! llguidance tells control tokens from text by a first byte that no UTF-8 text has. So a control
//! token is in the trie under its name behind that byte (a grammar can ask for `<tool_call>`, and text
//! never matches it), and a token whose own bytes begin with it is left out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use text::TokenId;
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use super::Limits;
use super::error::{CompileError, in_short};
use crate::Vocabulary;
use crate::constraint::{Constraint, ConstraintError};
use crate::engine::panic_message;

/// The factory of all automata over `vocabulary`. Takes a while: a second or so for 262 144 tokens.
pub(super) fn factory(
    vocabulary: &dyn Vocabulary,
    limits: &Limits,
) -> Result<ParserFactory, String> {
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie(vocabulary)));
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| in_short(&error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            step_lexer_fuel: limits.mask_fuel,
            step_max_items: limits.mask_items_max,
            max_lexer_states: limits.lexer_states_max,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(factory)
    }));
    attempt.unwrap_or_else(|panic| Err(panic_message(&*panic)))
}

fn trie(vocabulary: &dyn Vocabulary) -> TokTrie {
    let words: Vec<Vec<u8>> = (0..vocabulary.vocab())
        .map(|id| word(vocabulary, TokenId(id as u32)))
        .collect();
    let end_tokens: Vec<u32> = vocabulary
        .end_tokens()
        .iter()
        .map(|token| token.0)
        .collect();
    let no_token = toktrie::INVALID_TOKEN;
    let info = TokRxInfo::new(words.len() as u32, no_token);
    let trie = TokTrie::from(&info, &words);
    if end_tokens.is_empty() {
        trie
    } else {
        trie.with_eos_tokens(&end_tokens)
    }
}

/// What a token is in the trie; nothing if no grammar can ask for it.
fn word(vocabulary: &dyn Vocabulary, token: TokenId) -> Vec<u8> {
    const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
    if let Some(name) = vocabulary.control_text(token) {
        return [&[MARKER], name.as_bytes()].concat();
    }
    match vocabulary.token_bytes(token) {
        Some(bytes) if bytes.first() != Some(&MARKER) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

fn refused(reason: String) -> CompileError {
    let words = [
        "too large",
        "too big",
        "too complex",
        "fuel",
        "precomputation",
        "too many",
    ];
    match words.iter().any(|word| reason.contains(word)) {
        true => CompileError::TooComplex { reason },
        // Its own fault, in words that say nothing to the caller.
        false if reason.contains("panic") => {
            tracing::error!(reason, "a grammar made its compiler panic");
            CompileError::TooComplex {
                reason: "its compiler gave up".to_owned(),
            }
        }
        false => CompileError::Grammar { reason },
    }
}

/// A compiled form before its first token.
pub(super) struct Automaton {
    pristine: Matcher,
    num_bytes: usize,
}

impl Automaton {
    pub(super) fn compile(
        factory: &ParserFactory,
        grammar: TopLevelGrammar,
    ) -> Result<Automaton, CompileError> {
        let parser = factory
            .create_parser(grammar)
            .map_err(|error| refused(in_short(&error.to_string())))?;
        let num_bytes = parser.parser.lexer_stats().num_bytes;
        let pristine = Matcher::new(Ok(parser));
        // The first token, tried: a grammar may let nothing through, or cost too much to follow.
        let mut trial = pristine.deep_clone();
        let Err(error) = trial.compute_mask() else {
            return Ok(Automaton {
                pristine,
                num_bytes,
            });
        };
        Err(match in_short(&error.to_string()) {
            reason if reason.contains("NoExtension") => CompileError::Grammar {
                reason: "lets no text through".to_owned(),
            },
            reason => CompileError::TooComplex { reason },
        })
    }

    /// About how much memory it takes.
    pub(super) fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// The constraint of a new answer.
    pub(super) fn constraint(&self) -> Box<dyn Constraint> {
        Box::new(Matched {
            // With lexer tables of its own: what one answer makes of them is no trouble of others.
            matcher: self.pristine.deep_clone(),
        })
    }
}

/// An automaton somewhere in an answer.
struct Matched {
    matcher: Matcher,
}

impl std::fmt::Debug for Matched {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = self.matcher.stop_reason();
        formatter
            .debug_struct("Matched")
            .field("stopped", &reason)
            .finish()
    }
}

impl Constraint for Matched {
    fn fill(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
        let mask = self
            .matcher
            .compute_mask_or_eos()
            .map_err(|error| failed(&error))?;
        let words = mask.as_slice();
        let num_words = words.len().min(allowed.len());
        allowed[..num_words].copy_from_slice(&words[..num_words]);
        allowed[num_words..].fill(0);
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        self.matcher
            .consume_token(token.0)
            .map_err(|error| failed(&error))
    }

    fn is_complete(&mut self) -> bool {
        self.is_exhausted() || self.matcher.is_accepting().unwrap_or(false)
    }

    fn is_exhausted(&mut self) -> bool {
        matches!(
            self.matcher.stop_reason(),
            StopReason::NoExtension | StopReason::EndOfSentence
        )
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Matched {
            matcher: self.matcher.deep_clone(),
        })
    }
}

fn failed(error: &dyn std::fmt::Display) -> ConstraintError {
    ConstraintError {
        reason: in_short(&error.to_string()),
    }
}
