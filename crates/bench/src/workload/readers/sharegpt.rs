//! ShareGPT: `[{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}]`.
//!
//! The one idea: a conversation is taken as far as user and assistant take turns. What people share begins and ends
//! anywhere, so what does not fit is left out and counted; what is no conversation at all is refused.
//!
//! Role names differ between collections; `role`/`content` in place of `from`/`value` and `messages` in place of
//! `conversations` are read, too.

use std::sync::Arc;

use serde::Deserialize;

use super::{Reading, Source, skipped};
use crate::workload::recorded::{Content, Dialogue, Record, Said};
use crate::workload::{OutputLength, WorkloadError};

/// Characters of English text to a token.
const CHARS_PER_TOKEN: usize = 4;

#[derive(Deserialize)]
struct Shared {
    #[serde(alias = "messages", alias = "items")]
    conversations: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(alias = "role")]
    from: String,
    #[serde(alias = "content")]
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    System,
    User,
    Assistant,
    Other,
}

pub(super) fn read(source: Source<'_>, turns_max: u64) -> Result<Reading, WorkloadError> {
    let shared: Vec<Shared> = serde_json::from_slice(source.bytes)
        .map_err(|error| source.record_fault(error.line() as u64, error.to_string()))?;
    let mut records = Vec::with_capacity(shared.len());
    let mut num_skipped = 0;
    for conversation in shared {
        match dialogue(conversation.conversations, turns_max as usize) {
            Some(dialogue) => source.push(
                &mut records,
                Record {
                    due_s: None,
                    content: Content::Dialogue(dialogue),
                },
            )?,
            None => num_skipped += 1,
        }
    }
    Ok(Reading {
        records,
        warnings: skipped(num_skipped, "they hold no question of a user")
            .into_iter()
            .collect(),
        description: String::new(),
    })
}

/// A conversation from the user's first text on, as far as it goes to and fro.
fn dialogue(lines: Vec<Line>, turns_max: usize) -> Option<Dialogue> {
    let mut lines = lines
        .into_iter()
        .map(|line| (speaker(&line.from), line.value))
        .peekable();
    let system = lines
        .next_if(|(speaker, _)| *speaker == Speaker::System)
        .map(|(_, text)| text)
        .filter(|text| !text.trim().is_empty());
    let mut lines = lines
        .skip_while(|(speaker, _)| *speaker == Speaker::Assistant)
        .peekable();
    let mut turns: Vec<Said> = Vec::new();
    while turns.len() < turns_max {
        let is_question =
            |line: &(Speaker, String)| line.0 == Speaker::User && !line.1.trim().is_empty();
        let Some((_, question)) = lines.next_if(is_question) else {
            break;
        };
        let answer = lines
            .next_if(|(speaker, _)| *speaker == Speaker::Assistant)
            .map(|(_, text)| text);
        let goes_on = answer.is_some();
        turns.push(Said {
            question: question.into(),
            num_output: answer
                .as_deref()
                .map(|answer| (tokens_of(answer), OutputLength::AtMost)),
            answer: answer.map(Arc::from),
        });
        if !goes_on {
            break;
        }
    }
    (!turns.is_empty()).then(|| Dialogue {
        system: system.map(Arc::from),
        opening: Vec::new(),
        turns,
    })
}

/// About how many tokens an answer has: a limit for the new one, not a claim.
fn tokens_of(answer: &str) -> u64 {
    (answer.chars().count().div_ceil(CHARS_PER_TOKEN) as u64).max(1)
}

fn speaker(from: &str) -> Speaker {
    match from {
        "system" => Speaker::System,
        "human" | "user" => Speaker::User,
        "gpt" | "chatgpt" | "bing" | "bard" | "assistant" | "model" => Speaker::Assistant,
        _ => Speaker::Other,
    }
}
