//! Conversations drawn from distributions.
//!
//! The one idea: lengths come from one generator per conversation, in a fixed order, before a word is written. So
//! they are the same whatever the vocabulary, and two servers with different tokenizers are asked alike.
//!
//! Not here: the words (`prompt`).

use super::chance::{Purpose, next_below, next_unit};
use super::distribution::{Distribution, Unit};
use super::prompt::{Ask, Size};
use super::{Conversation, History, OutputLength, Turn, Vocabulary};

/// How conversations of a class are drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) prompt: Length,
    /// Of turns after the first.
    pub(super) follow_up: Length,
    pub(super) output: Output,
    pub(super) prefix: Option<Prefix>,
    pub(super) turns: Distribution,
    pub(super) think: Distribution,
}

/// How long a user's text is.
#[derive(Clone, Debug)]
pub(super) struct Length {
    pub(super) distribution: Distribution,
    pub(super) unit: Unit,
}

/// How long an answer is, in tokens.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) distribution: Distribution,
    pub(super) meant: OutputLength,
}

/// A system text that several conversations have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) num_words: u64,
    /// How many different ones there are.
    pub(super) groups: u32,
    /// The share of conversations that have one.
    pub(super) share: f64,
}

impl Drawn {
    pub(super) fn conversation(&self, ask: &Ask<'_>) -> Conversation {
        let mut lengths = ask.chance.generator(Purpose::Lengths, [ask.number, 0]);
        // Drawn even where there is nothing to decide, so that the rest does not depend on it.
        let (has_prefix, group) = (
            next_unit(&mut lengths),
            lengths_group(self.prefix, &mut lengths),
        );
        let prefix = self.prefix.filter(|prefix| has_prefix < prefix.share);
        let num_turns = self.turns.whole(next_unit(&mut lengths)).max(1);
        let mut sent = Sent::nothing(ask, prefix);
        let turns = (0..num_turns)
            .map(|idx| {
                let length = if idx == 0 {
                    &self.prompt
                } else {
                    &self.follow_up
                };
                let num_wanted = length.distribution.whole(next_unit(&mut lengths));
                let num_output = self.output.distribution.whole(next_unit(&mut lengths));
                let think_s = self.think.quantile(next_unit(&mut lengths));
                let size = Size::of(num_wanted, length.unit, sent.overhead(ask));
                let num_shared_tokens = sent.num_tokens;
                let num_prompt_tokens = sent.ask(size);
                sent.answer(ask, num_output, self.output.meant);
                Turn {
                    text: ask.unique_text(idx as u32, size.num_words),
                    answer: None,
                    num_prompt_tokens: num_prompt_tokens.filter(|_| ask.vocabulary.is_exact()),
                    num_shared_tokens,
                    num_output_tokens: Some(num_output.max(1)),
                    output: self.output.meant,
                    think_s: if idx == 0 { 0.0 } else { think_s },
                }
            })
            .collect();
        Conversation {
            number: ask.number,
            class: ask.class,
            system: prefix.map(|prefix| ask.prefix_text(group, prefix.num_words)),
            opening: Vec::new(),
            turns,
            history: ask.history,
            due_s: None,
            headers: Vec::new(),
            body: serde_json::Map::new(),
        }
    }

    /// The share of prompt tokens that are common to several requests, by the means of what is declared; none if it
    /// depends on the server's answers.
    pub(super) fn shared_share(&self, history: History) -> Option<f64> {
        let prefix = self
            .prefix
            .map_or(0.0, |prefix| prefix.share * prefix.num_words as f64);
        let prompt = self.prompt.distribution.mean_of(|num| num as f64);
        let follow_up = self.follow_up.distribution.mean_of(|num| num as f64);
        let answer = self.output.distribution.mean_of(|num| num as f64);
        let (_, turns_max) = self.turns.bounds();
        let repeats = history != History::None && turns_max > 1.0;
        if repeats && self.output.meant == OutputLength::AtMost {
            return None;
        }
        let of_turns =
            |value: &dyn Fn(f64) -> f64| self.turns.mean_of(|turns| value(turns.max(1) as f64));
        let new = prompt + follow_up * of_turns(&|turns| turns - 1.0);
        let mut shared = prefix * of_turns(&|turns| turns);
        if repeats {
            shared += prompt * of_turns(&|turns| turns - 1.0)
                + follow_up * of_turns(&|turns| (turns - 1.0) * (turns - 2.0) / 2.0)
                + answer * of_turns(&|turns| turns * (turns - 1.0) / 2.0);
        }
        // Turn t (from 1) repeats the prompt, t - 2 follow-ups and t - 1 answers; the sums over turns are above. Answers
        // were never part of a prompt before, but the server has made them itself, so they are in its cache all the same.
        Some(shared / (shared + new))
    }

    /// The share of first turns whose prompt is meant to be shorter than any can be.
    pub(super) fn share_too_short(&self, vocabulary: &Vocabulary) -> f64 {
        if self.prompt.unit == Unit::Words {
            return 0.0;
        }
        let overhead = match self.prefix {
            Some(_) => vocabulary.overhead().system_and_user,
            None => vocabulary.overhead().user,
        };
        let is_too_short = |num| f64::from(u8::from(num <= overhead));
        self.prompt.distribution.mean_of(is_too_short)
    }
}

/// Which prefix a conversation has, if it has one.
fn lengths_group(prefix: Option<Prefix>, lengths: &mut rand_chacha::ChaCha8Rng) -> u64 {
    let groups = prefix.map_or(1, |prefix| prefix.groups.max(1));
    next_below(lengths, groups as usize) as u64
}

/// What a conversation has told the server so far.
struct Sent {
    /// Tokens that the next turn repeats.
    num_tokens: u64,
    /// Of those, the system text, which comes with every turn.
    num_prefix: u64,
    has_system: bool,
    history: History,
    is_first: bool,
}

impl Sent {
    fn nothing(ask: &Ask<'_>, prefix: Option<Prefix>) -> Sent {
        let num_prefix = prefix.map_or(0, |prefix| prefix.num_words);
        Sent {
            num_tokens: num_prefix,
            num_prefix,
            has_system: prefix.is_some(),
            history: ask.history,
            is_first: true,
        }
    }

    /// What the template adds to the next turn.
    fn overhead(&self, ask: &Ask<'_>) -> u64 {
        let overhead = ask.vocabulary.overhead();
        match (
            self.is_first || self.history == History::None,
            self.has_system,
        ) {
            (true, true) => overhead.system_and_user,
            (true, false) => overhead.user,
            (false, _) => overhead.next_turn,
        }
    }

    /// Sends a turn; its prompt tokens, if they do not depend on the server's answers.
    fn ask(&mut self, size: Size) -> Option<u64> {
        let is_known = self.is_first || self.history == History::None;
        self.num_tokens += size.num_tokens;
        self.is_first = false;
        is_known.then_some(self.num_tokens)
    }

    fn answer(&mut self, ask: &Ask<'_>, num_output: u64, meant: OutputLength) {
        match (ask.history, meant) {
            (History::None, _) => self.num_tokens = self.num_prefix,
            (_, OutputLength::Exact) => self.num_tokens += num_output,
            (_, OutputLength::AtMost) => {}
        }
    }
}
