//! What is asked: conversations, drawn from a workload file or read from a trace.
//!
//! The one idea: a workload is a pure function of its file, a seed and a vocabulary. Conversation `i` is the same
//! whoever asks for it and in whatever order, so runs pair request by request, and nothing is kept.
//!
//! ```text
//! workloads/mixed.toml --file--> Workload --conversation(number, seed, vocabulary)--> Conversation
//!        data, traces --readers--^                                                      turns of exact length
//! ```
//!
//! Not here: when things are asked (`arrival`, `load`), and over what (`client`).

// The file format, and what is made of it.
mod file;
// How long things are.
mod distribution;
// Words of one token each.
mod vocabulary;
// Texts of exact length.
mod prompt;
// Conversations drawn from distributions.
mod drawn;
// Conversations out of data files.
mod recorded;
// Data files of other people.
mod readers;
// One generator per decision.
mod chance;
// What can be wrong.
mod error;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use crate::arrival::Process;
use crate::slo::Slo;
use crate::summary::Warning;

pub use distribution::Distribution;
pub use error::WorkloadError;
pub use readers::{Format, Timestamps, TraceOptions};
pub use vocabulary::{Message, Overhead, Role, Source, Vocabulary, VocabularyError};

use chance::{Chance, Purpose};

/// Bounds on what files may ask for.
pub(crate) struct Limits {
    /// Bytes of a workload file.
    pub(crate) file_bytes_max: u64,
    /// Bytes of a data file. The largest dataset of conversations in common use has 700 million.
    pub(crate) data_bytes_max: u64,
    /// Records of a data file.
    pub(crate) records_max: usize,
    /// Bytes of one line of a data file.
    pub(crate) line_bytes_max: usize,
    /// Classes of a workload.
    pub(crate) classes_max: usize,
    /// Bursts of a workload.
    pub(crate) bursts_max: usize,
    /// Tokens of one text: longer than any context, short enough to be held by every user at once.
    pub(crate) text_tokens_max: u64,
    /// Turns of a conversation. With it, a turn and a conversation's number fit into the nonce.
    pub(crate) turns_max: u64,
    /// Seconds of thinking.
    pub(crate) think_s_max: f64,
    /// Values of an empirical distribution.
    pub(crate) values_max: usize,
    /// Headers of a class.
    pub(crate) headers_max: usize,
}

pub(crate) const LIMITS: Limits = Limits {
    file_bytes_max: 4 << 20,
    data_bytes_max: 1 << 30,
    records_max: 4_000_000,
    line_bytes_max: 16 << 20,
    classes_max: 64,
    bursts_max: 64,
    text_tokens_max: 4 << 20,
    turns_max: 1024,
    think_s_max: 86_400.0,
    values_max: 100_000,
    headers_max: 64,
};

/// Conversation numbers from here on name their class: see [`Workload::own_number`].
const OWN_NUMBERS: u64 = 1 << 40;

/// What one run asks.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As in its file.
    pub name: String,
    /// A sentence for people.
    pub description: String,
    /// 16 hexadecimal digits over its file and the data that it names: the same digits, the same questions.
    pub hash: String,
    /// Its kinds of traffic, in the order of the file.
    pub classes: Vec<Class>,
    /// What a reader of the results should know about the data.
    pub warnings: Vec<Warning>,
    /// One for each class.
    plans: Vec<Plan>,
    bursts: Vec<Burst>,
    hash_bits: u64,
    due_s: Option<Arc<[f64]>>,
}

/// A kind of traffic within a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As in the file, for example `interactive`.
    pub name: String,
    /// What its users were promised; empty if nothing.
    pub slo: Slo,
    /// The share of prompt tokens that are common to several requests by declaration, in [0, 1]; none if unknown.
    ///
    /// In a conversation of several turns, everything that an earlier turn has sent or received counts. What the
    /// server's chat template adds is not part of it.
    pub shared_share: Option<f64>,
    /// Its share of conversations, in [0, 1]; 0 if it has its own arrivals, or comes in bursts only.
    pub share: f64,
    /// When its conversations begin, if it does not follow the run: numbers from [`Workload::own_number`].
    pub arrivals: Option<Process>,
}

/// Questions of one user that follow each other, and wait for the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Its number in the workload.
    pub number: u64,
    /// An index into the workload's classes.
    pub class: usize,
    /// What every turn begins with, often shared between conversations.
    pub system: Option<Arc<str>>,
    /// Messages between `system` and the first turn: what was said before, by a dataset's account.
    pub opening: Vec<Message>,
    /// At least one.
    pub turns: Vec<Turn>,
    /// What a turn repeats of the turns before it.
    pub history: History,
    /// When a trace says that it begins: seconds since the trace's first. None but for traces.
    pub due_s: Option<f64>,
    /// Headers of each request, besides those of the run.
    pub headers: Vec<(String, String)>,
    /// Body fields of each request, besides those of the run (for example `priority`).
    pub body: serde_json::Map<String, serde_json::Value>,
}

/// What a turn sends along of the turns before it. `system` and the opening come with every turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Every earlier question with the answer that the server gave.
    Answers,
    /// Every earlier question with the answer of the dataset ([`Turn::answer`]): prompts do not depend on the server.
    Recorded,
    /// Nothing: one user's separate questions.
    None,
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The user's text.
    pub text: String,
    /// What a dataset says was answered; used with [`History::Recorded`].
    pub answer: Option<Arc<str>>,
    /// Tokens of the whole prompt of this turn as meant: what the server should report as `usage.prompt_tokens`,
    /// its template included.
    ///
    /// None if the workload cannot know: real texts, a vocabulary that is an estimate, and turns that repeat the
    /// server's answers (an answer of exactly N tokens need not be N tokens when its text is encoded again).
    pub num_prompt_tokens: Option<u64>,
    /// Of those, common to several requests by declaration: the shared prefix, and all that earlier turns have sent
    /// or, where outputs are exact, received.
    pub num_shared_tokens: u64,
    /// `max_tokens`; none leaves it to the server.
    pub num_output_tokens: Option<u64>,
    /// Whether the answer should have exactly that many tokens, end tokens or not.
    pub output: OutputLength,
    /// Seconds that the user thinks before asking; 0 for the first turn.
    pub think_s: f64,
}

/// How `num_output_tokens` is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputLength {
    /// Exactly (`ignore_eos`).
    Exact,
    /// The model may end earlier.
    AtMost,
}

/// How conversations of one class come to be.
#[derive(Clone, Debug)]
struct Plan {
    origin: Origin,
    history: History,
    headers: Vec<(String, String)>,
    body: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug)]
enum Origin {
    Drawn(Box<drawn::Drawn>),
    Recorded(Arc<recorded::Recorded>),
}

/// Conversations in a row that all belong to one class.
#[derive(Clone, Debug)]
struct Burst {
    class: usize,
    size: u64,
    when: BurstWhen,
}

#[derive(Clone, Copy, Debug)]
enum BurstWhen {
    /// The last `size` of every so many conversations.
    Every(u64),
    /// Conversations come in groups of `size`; each group is a burst with this probability.
    Probability(f64),
}

#[cfg(test)]
pub(crate) use self::file::parse;

impl Workload {
    /// The workloads that come with the program, by name.
    pub fn names() -> impl Iterator<Item = &'static str> {
        file::SHIPPED.iter().map(|&(name, _)| name)
    }

    /// A workload that comes with the program.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::UnknownName`], with the names there are.
    pub fn named(name: &str) -> Result<Workload, WorkloadError> {
        file::named(name)
    }

    /// Reads a workload file, and the data files that it names (relative to its own folder). A file that is no TOML
    /// by its name is taken as data, as by [`Workload::from_data`].
    ///
    /// # Errors
    ///
    /// What [`WorkloadError`] lists.
    pub fn load(path: &Path) -> Result<Workload, WorkloadError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json" | "jsonl" | "ndjson" | "csv") => {
                Workload::from_data(path, &TraceOptions::default())
            }
            _ => file::load(path),
        }
    }

    /// One class of conversations out of a data file whose format is recognised by its content; `description` says
    /// which.
    ///
    /// # Errors
    ///
    /// What [`WorkloadError`] lists.
    pub fn from_data(path: &Path, options: &TraceOptions) -> Result<Workload, WorkloadError> {
        file::from_data(path, options)
    }

    /// As [`Workload::from_data`], for a file that also says when things were asked.
    ///
    /// # Errors
    ///
    /// Besides: [`WorkloadError::NoTimes`].
    pub fn from_trace(path: &Path, options: &TraceOptions) -> Result<Workload, WorkloadError> {
        let workload = Workload::from_data(path, options)?;
        match workload.due_s {
            Some(_) => Ok(workload),
            None => Err(WorkloadError::NoTimes {
                path: path.to_owned(),
            }),
        }
    }

    /// Whether texts are made to a length in tokens, which takes a vocabulary to hit.
    pub fn needs_vocabulary(&self) -> bool {
        self.plans.iter().any(|plan| match &plan.origin {
            Origin::Drawn(_) => true,
            Origin::Recorded(recorded) => recorded.is_synthetic(),
        })
    }

    /// When a trace's conversations begin: seconds since its first, ascending, conversation `i` at place `i`. None if
    /// the workload is no trace.
    pub fn due_times(&self) -> Option<Arc<[f64]>> {
        self.due_s.clone()
    }

    /// How many conversations there are; none if they never end.
    pub fn num_conversations(&self) -> Option<u64> {
        let mut followers =
            (0..self.classes.len()).filter(|&class| self.classes[class].share > 0.0);
        let (class, others) = (followers.next()?, followers.count());
        match &self.plans[class].origin {
            Origin::Recorded(recorded) if others == 0 => recorded.num_conversations(),
            _ => None,
        }
    }

    /// The number of the `idx`th conversation of a class with its own arrivals.
    pub fn own_number(class: usize, idx: u64) -> u64 {
        (class as u64 + 1) * OWN_NUMBERS + idx % OWN_NUMBERS
    }

    /// Conversation `number`: the same for the same arguments, in whatever order they are asked for.
    ///
    /// Lengths depend on `seed` alone; words also on the salt of `vocabulary`. No two prompts of a run begin alike
    /// unless the workload says so, as long as each number is used once.
    ///
    /// None past the end of data, and for a number that belongs to no class.
    ///
    /// # Cost
    ///
    /// Linear in the text, the shared prefix included.
    pub fn conversation(
        &self,
        number: u64,
        seed: u64,
        vocabulary: &Vocabulary,
    ) -> Option<Conversation> {
        let chance = Chance {
            workload: self.hash_bits,
            seed,
        };
        let class = self.class_of(number, chance)?;
        let plan = &self.plans[class];
        let ask = prompt::Ask {
            chance,
            class,
            number,
            history: plan.history,
            vocabulary,
        };
        let mut conversation = match &plan.origin {
            Origin::Drawn(drawn) => drawn.conversation(&ask),
            Origin::Recorded(recorded) => recorded.conversation(&ask, number % OWN_NUMBERS)?,
        };
        conversation.headers.clone_from(&plan.headers);
        conversation.body.clone_from(&plan.body);
        Some(conversation)
    }

    /// The class of conversation `number`, without the conversation; none for a number that belongs to no class.
    pub fn class_at(&self, number: u64, seed: u64) -> Option<usize> {
        let workload = self.hash_bits;
        self.class_of(number, Chance { workload, seed })
    }

    /// What a reader should know about prompts made with `vocabulary`: lengths that are estimates, and lengths that
    /// no prompt can have because the server's template is longer.
    pub fn warnings_with(&self, vocabulary: &Vocabulary) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.needs_vocabulary() && !vocabulary.is_exact() {
            warnings.push(Warning {
                code: "lengths_estimated".to_owned(),
                text: "prompt lengths are estimates: the server does not say how it counts tokens"
                    .to_owned(),
                advice: "give the model's tokenizer with --tokenizer".to_owned(),
            });
        }
        for (class, plan) in self.classes.iter().zip(&self.plans) {
            let Origin::Drawn(drawn) = &plan.origin else {
                continue;
            };
            let share = drawn.share_too_short(vocabulary);
            if share > 0.0 {
                warnings.push(Warning {
                    code: "prompt_shorter_than_template".to_owned(),
                    text: format!(
                        "class {:?}: {:.0} % of prompts are meant to be shorter than the server's chat template \
                         allows; they have one word, and that is what is counted as meant",
                        class.name,
                        (share * 100.0).max(1.0),
                    ),
                    advice: "ask for longer prompts, or give their length with unit = \"words\"".to_owned(),
                });
            }
        }
        warnings
    }

    fn class_of(&self, number: u64, chance: Chance) -> Option<usize> {
        if number >= OWN_NUMBERS {
            let class = usize::try_from(number / OWN_NUMBERS - 1).ok()?;
            return (class < self.plans.len()).then_some(class);
        }
        let in_burst = |(idx, burst): (usize, &Burst)| {
            burst.covers(number, idx, chance).then_some(burst.class)
        };
        if let Some(class) = self.bursts.iter().enumerate().find_map(in_burst) {
            return Some(class);
        }
        let mut rest = chance.uniform(Purpose::Class, [number, 0]);
        let mut last = None;
        for (idx, class) in self
            .classes
            .iter()
            .enumerate()
            .filter(|(_, class)| class.share > 0.0)
        {
            last = Some(idx);
            rest -= class.share;
            if rest < 0.0 {
                break;
            }
        }
        // Shares that add up to a little less than 1 leave the rest to the last class.
        last
    }
}

impl Burst {
    fn covers(&self, number: u64, idx: usize, chance: Chance) -> bool {
        match self.when {
            // Last, so that a run does not begin with a burst.
            BurstWhen::Every(every) => number % every >= every - self.size,
            BurstWhen::Probability(probability) => {
                let group = [number / self.size, idx as u64];
                chance.uniform(Purpose::Burst, group) < probability
            }
        }
    }
}
