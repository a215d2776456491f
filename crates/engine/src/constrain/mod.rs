//! Schemas, regular expressions, lists and grammars made into [`Constraint`]s.
//!
//! The one idea: everything becomes one kind of automaton (llguidance's Earley parser over a lexer of
//! derivatives), made off the engine thread, within bounds, and **strictly**: what it cannot enforce
//! is refused by name and never approximated. The automaton runs on bytes; a trie of the vocabulary
//! carries it over to tokens.
//!
//! ```text
//! Form ── check, tidy ── cache? ── compile (own thread, in time) ── pristine ── copy per answer
//!         schema.rs      cache.rs  mod.rs                                       matcher.rs
//!         pattern.rs
//!         gbnf.rs
//! ```
//!
//! Compiling is hostile input's favourite target (case F2), and a thread cannot be killed. So sizes are
//! bounded before anything is built, llguidance counts its work, a fixed number of compiles run at
//! once on threads with deep stacks, and one that is overdue is abandoned: it keeps its place until it
//! ends by itself, so abandoned work is bounded too.
//!
//! Not here: what the engine does with a constraint (`constraint.rs`, `masks.rs`).
//!
//! Source: Moskal et al., llguidance, <https://github.com/guidance-ai/llguidance>.

// Why something does not compile.
mod error;

// JSON schemas: strict, bounded, tidied.
mod schema;

// Whether the branches of a `oneOf` exclude each other.
mod exclusive;

// References that come back to themselves.
mod grounded;

// Regular expressions and lists of choices.
mod pattern;

// llama.cpp's grammars as Lark.
mod gbnf;

// The vocabulary as a trie, and the automaton at work.
mod matcher;

// Compiled forms, least recently used last.
mod cache;

#[cfg(test)]
mod tests;

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llguidance::ParserFactory;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::Value;

use crate::Vocabulary;
use crate::constraint::Constraint;
use cache::Cache;
pub use error::CompileError;
use matcher::Automaton;

/// Bounds of compiling, with units.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values (objects, lists, texts, numbers) of one schema.
    pub schema_values_max: usize,
    /// Schemas within schemas.
    pub schema_depth_max: usize,
    /// Bytes of all keys and texts of one schema.
    pub schema_bytes_max: usize,
    /// Values of one `enum`, and choices of one list.
    pub num_choices_max: usize,
    /// Bytes of all choices of a list.
    pub choices_bytes_max: usize,
    /// Bytes of a regular expression.
    pub regex_bytes_max: usize,
    /// Bytes of a grammar.
    pub grammar_bytes_max: usize,
    /// Brackets within brackets, of expressions and grammars.
    pub nesting_max: usize,
    /// Counts such as `minItems`, `maxLength` and `{m,n}`.
    pub count_max: u64,
    /// Product of all different steps of `multipleOf` in one schema, without their powers of ten.
    pub steps_max: u64,
    /// Comparisons of the branches of all `oneOf`s of one schema, some 100 ns each.
    pub comparisons_max: usize,
    /// How long one compile may take, from when it has a place.
    pub compile: Duration,
    /// How long a compile may wait for a place.
    pub wait: Duration,
    /// Compiles at once, abandoned ones included.
    pub num_compiling_max: usize,
    /// Stack of a compile: what recurses does so by nesting, which is bounded, but generously.
    pub stack_bytes: usize,
    /// Bytes of compiled forms that are kept.
    pub cache_bytes_max: usize,
    /// States of the lexer of one answer, about 2 kB each; the answer ends beyond.
    pub lexer_states_max: usize,
    /// Work for one mask, in llguidance's units: about 14 000 a millisecond.
    pub mask_fuel: u64,
    /// Parser items for one mask: about 20 000 a millisecond.
    pub mask_items_max: usize,
}

impl Limits {
    /// What a server starts from.
    pub const STANDARD: Limits = Limits {
        schema_values_max: 20_000,
        schema_depth_max: 64,
        schema_bytes_max: 256 * 1024,
        num_choices_max: 5_000,
        choices_bytes_max: 256 * 1024,
        regex_bytes_max: 16 * 1024,
        grammar_bytes_max: 64 * 1024,
        nesting_max: 100,
        count_max: 100_000,
        steps_max: 50_000,
        comparisons_max: 250_000,
        compile: Duration::from_millis(1500),
        wait: Duration::from_secs(5),
        num_compiling_max: 2,
        stack_bytes: 64 * 1024 * 1024,
        cache_bytes_max: 64 * 1024 * 1024,
        lexer_states_max: 20_000,
        mask_fuel: 200_000,
        mask_items_max: 50_000,
    };
}

/// What an answer must look like, all of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// A JSON object, any.
    JsonObject,
    /// A JSON document that a schema accepts.
    JsonSchema(Value),
    /// What a regular expression matches from its first to its last character.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in llguidance's dialect of Lark, from its rule `start`.
    Lark(String),
    /// A grammar in llama.cpp's GBNF, from its rule `root`.
    Gbnf(String),
    /// As [`Grammar::Lark`], made by the caller itself around schemas that went through [`part_schema`].
    Parts(String),
}

impl Grammar {
    /// A grammar text in whichever of the two notations it is written.
    pub fn of_text(text: String) -> Grammar {
        if gbnf::is_likely(&text) {
            Grammar::Gbnf(text)
        } else {
            Grammar::Lark(text)
        }
    }
}

/// White space between the tokens of a JSON document. Either way there is never more than a reader
/// wants: a model that may write blanks for ever does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhiteSpace {
    /// At most one blank, or one line break and the next line's indentation.
    #[default]
    Short,
    /// None.
    None,
}

/// A grammar and where in the answer it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// The form of the answer, or of its part behind `after`.
    pub grammar: Grammar,
    /// How JSON documents are spaced.
    pub white_space: WhiteSpace,
    /// What may stand before it.
    pub lead: Lead,
}

/// What may stand before a grammar's part of an answer. Markers are texts or names of control tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lead {
    /// Nothing.
    #[default]
    Nothing,
    /// Free text, up to and including this marker (`</think>`), and then some white space.
    Through(String),
    /// The same between two markers, or nothing: the model decides.
    Block {
        /// `<think>`.
        open: String,
        /// `</think>`.
        close: String,
    },
    /// Free text. Where this marker is in it the grammar must follow; without it the answer is free to its end.
    Unless(String),
}

/// Makes constraints for one vocabulary. Cheap to build: the trie of the vocabulary is made when it is
/// first needed, or by [`Compiler::warm_up`].
#[derive(Clone)]
pub struct Compiler {
    shared: Arc<Shared>,
}

struct Shared {
    vocabulary: Arc<dyn Vocabulary>,
    limits: Limits,
    /// An error in words if the vocabulary cannot be used.
    factory: OnceLock<Result<ParserFactory, String>>,
    cache: Mutex<Cache>,
    /// Compiles under way.
    num_compiling: Mutex<usize>,
    place_free: Condvar,
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limits = &self.shared.limits;
        formatter
            .debug_struct("Compiler")
            .field("limits", limits)
            .finish()
    }
}

/// No code that could panic half-way through a change runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Compiler {
    /// A compiler for `vocabulary`.
    pub fn new(vocabulary: Arc<dyn Vocabulary>, limits: Limits) -> Compiler {
        Compiler {
            shared: Arc::new(Shared {
                vocabulary,
                limits,
                factory: OnceLock::new(),
                cache: Mutex::new(Cache::new(limits.cache_bytes_max)),
                num_compiling: Mutex::new(0),
                place_free: Condvar::new(),
            }),
        }
    }

    /// Makes the trie of the vocabulary on a thread of its own, so that the first compile need not.
    pub fn warm_up(&self) {
        let shared = Arc::clone(&self.shared);
        // Without a thread the first compile does it.
        drop(
            std::thread::Builder::new()
                .name("vocabulary".to_owned())
                .spawn(move || drop(shared.factory().map(|_| ()))),
        );
    }

    /// Makes a constraint, from what is kept or anew. Blocks for at most [`Limits::wait`] and
    /// [`Limits::compile`] together (and once for the trie of the vocabulary), so it is no work for an
    /// async thread or the engine's.
    ///
    /// # Errors
    ///
    /// What [`CompileError`] lists.
    pub fn compile(&self, form: &Form) -> Result<Box<dyn Constraint>, CompileError> {
        // Before the clock of a compile runs.
        let factory = self.shared.factory()?;
        let source = Source::of(form, &self.shared.limits, factory)?;
        if let Some(automaton) = lock(&self.shared.cache).get(&source.key) {
            return Ok(automaton.constraint());
        }
        let place = Place::take(&self.shared)?;
        let compiled = self.compile_in_time(source.grammars, place);
        let automaton = compiled.map_err(|error| match (&form.grammar, error) {
            // What its compiler alone finds has no path.
            (Grammar::JsonSchema(_), CompileError::Grammar { reason }) => CompileError::Schema {
                path: String::new(),
                reason: format!("cannot be enforced: {reason}"),
            },
            (_, error) => error,
        })?;
        let constraint = automaton.constraint();
        lock(&self.shared.cache).insert(source.key, automaton);
        Ok(constraint)
    }

    fn compile_in_time(
        &self,
        grammars: Vec<GrammarWithLexer>,
        place: Place,
    ) -> Result<Automaton, CompileError> {
        let limits = &self.shared.limits;
        let shared = Arc::clone(&self.shared);
        let (done, compiled) = sync_channel(1);
        let work = move || {
            let compile = |factory| Automaton::compile(factory, top_level(grammars));
            let automaton = shared.factory().and_then(compile);
            // Nobody hears it if it comes too late.
            drop(done.send(automaton));
            drop(place);
        };
        let thread = std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(limits.stack_bytes)
            .spawn(work);
        thread.map_err(|error| CompileError::Unavailable {
            reason: error.to_string(),
        })?;
        match compiled.recv_timeout(limits.compile) {
            Ok(automaton) => automaton,
            Err(RecvTimeoutError::Timeout) => Err(CompileError::TooSlow {
                limit: limits.compile,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(CompileError::TooComplex {
                reason: "its compiler gave up".to_owned(),
            }),
        }
    }
}

impl Shared {
    fn factory(&self) -> Result<&ParserFactory, CompileError> {
        let made = self
            .factory
            .get_or_init(|| matcher::factory(&*self.vocabulary, &self.limits));
        made.as_ref().map_err(|reason| CompileError::Unavailable {
            reason: reason.clone(),
        })
    }
}

/// A place among the compiles under way, until dropped.
struct Place {
    shared: Arc<Shared>,
}

impl Place {
    fn take(shared: &Arc<Shared>) -> Result<Place, CompileError> {
        let limits = &shared.limits;
        let deadline = Instant::now() + limits.wait;
        let mut num_compiling = lock(&shared.num_compiling);
        while *num_compiling >= limits.num_compiling_max {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CompileError::Busy {
                    num_compiling: *num_compiling,
                });
            }
            let woken = shared.place_free.wait_timeout(num_compiling, left);
            num_compiling = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *num_compiling += 1;
        Ok(Place {
            shared: Arc::clone(shared),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *lock(&self.shared.num_compiling) -= 1;
        self.shared.place_free.notify_one();
    }
}

/// A form in llguidance's words, checked.
struct Source {
    /// The first is where it starts; others are referred to by name.
    grammars: Vec<GrammarWithLexer>,
    /// All of it as one text.
    key: String,
}

impl Source {
    fn of(form: &Form, limits: &Limits, factory: &ParserFactory) -> Result<Source, CompileError> {
        let mut grammars = vec![grammar_of(form, limits)?];
        let control_token = |marker: &str| factory.tok_env().tok_trie().get_special_token(marker);
        if let Some(lark) = lead_in(&form.lead, control_token) {
            grammars[0].name = Some("answer".to_owned());
            grammars.insert(0, GrammarWithLexer::from_lark(lark));
        }
        let key = serde_json::to_string(&grammars).expect("texts and JSON values are JSON");
        Ok(Source { grammars, key })
    }
}

fn top_level(grammars: Vec<GrammarWithLexer>) -> TopLevelGrammar {
    TopLevelGrammar {
        grammars,
        max_tokens: None,
    }
}

fn grammar_of(form: &Form, limits: &Limits) -> Result<GrammarWithLexer, CompileError> {
    let schema = |schema: Value| {
        GrammarWithLexer::from_json_schema(schema::with_options(schema, form.white_space))
    };
    Ok(match &form.grammar {
        Grammar::JsonObject => schema(serde_json::json!({"type": "object"})),
        Grammar::JsonSchema(source) => schema(schema::tidy(source, limits)?),
        Grammar::Regex(regex) => GrammarWithLexer::from_lark(pattern::regex(regex, limits)?),
        Grammar::Choice(choices) => GrammarWithLexer::from_lark(pattern::choice(choices, limits)?),
        Grammar::Lark(text) => {
            pattern::expect_sound(text, limits)?;
            GrammarWithLexer::from_lark(text.clone())
        }
        Grammar::Parts(text) if text.len() > limits.schema_bytes_max => {
            let max = limits.schema_bytes_max;
            return Err(CompileError::TooComplex {
                reason: format!(
                    "all schemas together have {} bytes, at most {max} are allowed",
                    text.len()
                ),
            });
        }
        Grammar::Parts(text) => GrammarWithLexer::from_lark(text.clone()),
        Grammar::Gbnf(text) => {
            pattern::expect_bounded(text, limits)?;
            GrammarWithLexer::from_lark(gbnf::to_lark(text, limits)?)
        }
    })
}

/// A text as a regular expression that matches it.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if letter.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// The schema of a part of a grammar (`%json`): checked, tidied, and spaced as [`WhiteSpace::Short`].
///
/// # Errors
///
/// [`CompileError::Schema`], naming the path of what cannot be enforced; [`CompileError::TooComplex`].
pub fn part_schema(schema: &Value, limits: &Limits) -> Result<Value, CompileError> {
    let tidied = schema::tidy(schema, limits)?;
    Ok(schema::with_options(tidied, WhiteSpace::Short))
}

/// What stands before the grammar `answer`, as a grammar of its own.
fn lead_in(lead: &Lead, control_token: impl Fn(&str) -> Option<u32>) -> Option<String> {
    let start = match lead {
        Lead::Nothing => return None,
        Lead::Through(_) => "start: lead SPACE @answer",
        Lead::Block { open, .. } => {
            let open = match control_token(open) {
                Some(id) => format!("<[{id}]>"),
                None => Value::from(open.as_str()).to_string(),
            };
            &format!("start: ({open} lead SPACE)? @answer")
        }
        Lead::Unless(_) => "start: lead SPACE @answer | FREE",
    };
    let (Lead::Through(end) | Lead::Block { close: end, .. } | Lead::Unless(end)) = lead else {
        return None;
    };
    // A control token is never part of free text, so only a text has to be kept out of it.
    let rules = match control_token(end) {
        Some(id) => format!("lead: /(?s:.*)/ <[{id}]>\nFREE: /(?s:.*)/\n"),
        None => {
            let text = Value::from(end.as_str());
            let escaped = escaped(end);
            format!(
                "lead[suffix={text}]: /(?s:.*)/\nFREE: /(?s:.*)/ & ~/(?s:.*){escaped}(?s:.*)/\n"
            )
        }
    };
    let rules = match lead {
        Lead::Unless(_) => rules,
        // A rule that nothing refers to is an error in some versions.
        _ => rules.lines().next().unwrap_or_default().to_owned() + "\n",
    };
    Some(format!("{start}\n{rules}SPACE: /[ \\n]{{0,8}}/\n"))
}
