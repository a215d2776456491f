//! Conversations out of data files: real texts, or the lengths of real requests.
//!
//! The one idea: conversation `i` is record `i`, of the file's order or of one that the seed decides. Nothing is
//! drawn from a pool, so a run that ends has asked each record once.
//!
//! Not here: the formats (`readers`).

use std::fmt;
use std::sync::Arc;

use super::chance::{Purpose, next_unit};
use super::distribution::{Distribution, Unit};
use super::drawn::Output;
use super::prompt::{Ask, Blocks, Size};
use super::{Conversation, History, Message, OutputLength, Turn};

/// The records of a data file, and how they are asked.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) records: Vec<Record>,
    pub(super) order: Order,
    pub(super) repeat: Repeat,
    /// Tokens of a block of a trace.
    pub(super) block_tokens: u64,
    /// In place of what records say.
    pub(super) output: Option<Output>,
    pub(super) think: Distribution,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// As in the file.
    File,
    /// As the seed decides: every so many records, round and round until each was there.
    Shuffled,
}

/// What comes after the last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Nothing.
    Never,
    /// The first again, with a nonce before its text.
    Always,
}

/// One request or conversation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    /// Seconds since the first record.
    pub(super) due_s: Option<f64>,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// How long a request was.
    Lengths(Lengths),
    /// What was said.
    Dialogue(Dialogue),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lengths {
    pub(super) num_prompt: u64,
    pub(super) num_output: u64,
    /// What the prompt is made of; empty if it is not known to have anything in common with others.
    pub(super) blocks: Box<[u64]>,
    /// Blocks at its beginning that an earlier record began with, too.
    pub(super) num_blocks_seen: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dialogue {
    pub(super) system: Option<Arc<str>>,
    pub(super) opening: Vec<Message>,
    /// At least one.
    pub(super) turns: Vec<Said>,
}

/// A question, and what was answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) question: Arc<str>,
    pub(super) answer: Option<Arc<str>>,
    pub(super) num_output: Option<(u64, OutputLength)>,
}

impl fmt::Debug for Recorded {
    /// Without the records, which may be millions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("num_records", &self.records.len())
            .field("order", &self.order)
            .field("repeat", &self.repeat)
            .finish_non_exhaustive()
    }
}

impl Recorded {
    /// Whether texts are made to a length.
    pub(super) fn is_synthetic(&self) -> bool {
        self.records
            .iter()
            .any(|record| matches!(record.content, Content::Lengths(_)))
    }

    /// How many conversations there are; none if they never end.
    pub(super) fn num_conversations(&self) -> Option<u64> {
        (self.repeat == Repeat::Never).then_some(self.records.len() as u64)
    }

    /// When each begins, if all records say so.
    pub(super) fn due_times(&self) -> Option<Arc<[f64]>> {
        self.records.iter().map(|record| record.due_s).collect()
    }

    /// The share of prompt tokens in blocks that an earlier request began with; none for texts.
    pub(super) fn shared_share(&self) -> Option<f64> {
        let (mut shared, mut all) = (0.0, 0.0);
        for record in &self.records {
            let Content::Lengths(lengths) = &record.content else {
                return None;
            };
            shared += lengths.num_shared(self.block_tokens) as f64;
            all += lengths.num_prompt as f64;
        }
        (all > 0.0).then_some(shared / all)
    }

    /// Conversation `idx` of this class; none past the end.
    pub(super) fn conversation(&self, ask: &Ask<'_>, idx: u64) -> Option<Conversation> {
        let num = self.records.len() as u64;
        let lap = idx / num;
        if lap > 0 && self.repeat == Repeat::Never {
            return None;
        }
        let record = &self.records[self.place(ask, idx % num) as usize];
        let mut conversation = match &record.content {
            Content::Lengths(lengths) => self.synthetic(ask, lengths, lap),
            Content::Dialogue(dialogue) => self.said(ask, dialogue, lap),
        };
        conversation.due_s = record.due_s;
        Some(conversation)
    }

    /// Which record is asked `idx`th.
    fn place(&self, ask: &Ask<'_>, idx: u64) -> u64 {
        let num = self.records.len() as u64;
        match self.order {
            Order::File => idx,
            Order::Shuffled => {
                let bits = |which| ask.chance.bits(Purpose::Order, [ask.class as u64, which]);
                // A stride that has no factor in common with their number meets every record once.
                let mut stride = bits(0) % num;
                while gcd(stride, num) != 1 {
                    stride = (stride + 1) % num.max(2);
                }
                let product = u128::from(stride) * u128::from(idx) + u128::from(bits(1));
                (product % u128::from(num)) as u64
            }
        }
    }

    fn synthetic(&self, ask: &Ask<'_>, lengths: &Lengths, lap: u64) -> Conversation {
        let size = Size::of(
            lengths.num_prompt,
            Unit::Tokens,
            ask.vocabulary.overhead().user,
        );
        let text = match lengths.blocks.is_empty() {
            true => ask.unique_text(0, size.num_words),
            false => {
                let blocks = Blocks {
                    ids: &lengths.blocks,
                    num_words: self.block_tokens,
                    lap,
                };
                ask.text_of_blocks(&blocks, size.num_words)
            }
        };
        let turn = Turn {
            text,
            answer: None,
            num_prompt_tokens: Some(size.num_tokens).filter(|_| ask.vocabulary.is_exact()),
            num_shared_tokens: lengths.num_shared(self.block_tokens).min(size.num_words),
            num_output_tokens: Some(lengths.num_output),
            output: OutputLength::Exact,
            think_s: 0.0,
        };
        self.with_output(ask, None, Vec::new(), vec![turn])
    }

    fn said(&self, ask: &Ask<'_>, dialogue: &Dialogue, lap: u64) -> Conversation {
        let turns = dialogue.turns.iter().enumerate();
        let turns = turns
            .map(|(idx, said)| Turn {
                text: match (idx, lap) {
                    (0, 1..) => format!("{}.\n\n{}", ask.unique_text(0, 6), said.question),
                    _ => said.question.to_string(),
                },
                answer: said.answer.clone(),
                num_prompt_tokens: None,
                num_shared_tokens: 0,
                num_output_tokens: said.num_output.map(|(num, _)| num),
                output: said
                    .num_output
                    .map_or(OutputLength::AtMost, |(_, meant)| meant),
                think_s: 0.0,
            })
            .collect();
        self.with_output(
            ask,
            dialogue.system.clone(),
            dialogue.opening.clone(),
            turns,
        )
    }

    /// Puts the class's own answer lengths and pauses in.
    fn with_output(
        &self,
        ask: &Ask<'_>,
        system: Option<Arc<str>>,
        opening: Vec<Message>,
        mut turns: Vec<Turn>,
    ) -> Conversation {
        let mut lengths = ask.chance.generator(Purpose::Lengths, [ask.number, 0]);
        for (idx, turn) in turns.iter_mut().enumerate() {
            let (output_unit, think_unit) = (next_unit(&mut lengths), next_unit(&mut lengths));
            if let Some(output) = &self.output {
                turn.num_output_tokens = Some(output.distribution.whole(output_unit).max(1));
                turn.output = output.meant;
            }
            if idx > 0 {
                turn.think_s = self.think.quantile(think_unit);
            }
        }
        Conversation {
            number: ask.number,
            class: ask.class,
            system,
            opening,
            turns,
            history: ask.history,
            due_s: None,
            headers: Vec::new(),
            body: serde_json::Map::new(),
        }
    }

    /// Whether the data tells what was answered wherever a later turn repeats it.
    pub(super) fn supports(&self, history: History) -> bool {
        history != History::Recorded
            || self.records.iter().all(|record| match &record.content {
                Content::Lengths(_) => false,
                Content::Dialogue(dialogue) => {
                    let repeated = dialogue.turns.iter().rev().skip(1);
                    repeated.into_iter().all(|said| said.answer.is_some())
                }
            })
    }
}

impl Lengths {
    /// Tokens in blocks that an earlier request began with.
    fn num_shared(&self, block_tokens: u64) -> u64 {
        self.num_blocks_seen
            .saturating_mul(block_tokens)
            .min(self.num_prompt)
    }
}

fn gcd(left: u64, right: u64) -> u64 {
    match right {
        0 => left,
        _ => gcd(right, left % right),
    }
}
