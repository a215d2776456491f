//! Plain prompts, one a line: `{"prompt": …}`, `{"text": …}` or `{"messages": […]}`, with `output_tokens` (exactly) or
//! `max_tokens` (at most).
//!
//! Of messages, the last is the question and must be the user's; those before it are sent along as they are. Other
//! keys are other people's, and mean nothing here.

use std::sync::Arc;

use serde::Deserialize;

use super::{Reading, Source, lines};
use crate::summary::Warning;
use crate::workload::recorded::{Content, Dialogue, Record, Said};
use crate::workload::{Message, OutputLength, Role, WorkloadError};

#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    text: Option<String>,
    messages: Option<Vec<Spoken>>,
    output_tokens: Option<f64>,
    max_tokens: Option<f64>,
}

#[derive(Deserialize)]
struct Spoken {
    role: String,
    content: String,
}

pub(super) fn read(source: Source<'_>) -> Result<Reading, WorkloadError> {
    let mut records = Vec::new();
    let mut num_unlimited = 0_u64;
    lines::each(source, |number, line: Line| {
        let num_output = num_output(source, number, &line)?;
        num_unlimited += u64::from(num_output.is_none());
        let mut dialogue = match (line.prompt, line.text, line.messages) {
            (Some(text), None, None) | (None, Some(text), None) => question(text),
            (None, None, Some(messages)) => of_messages(source, number, messages)?,
            _ => {
                let reason = "must have exactly one of prompt, text and messages";
                return Err(source.record_fault(number, reason));
            }
        };
        let said = &mut dialogue.turns[0];
        if said.question.trim().is_empty() {
            return Err(source.record_fault(number, "the prompt is empty"));
        }
        said.num_output = num_output;
        let record = Record {
            due_s: None,
            content: Content::Dialogue(dialogue),
        };
        source.push(&mut records, record)
    })?;
    let warnings = (num_unlimited > 0).then(|| Warning {
        code: "no_output_length".to_owned(),
        text: format!(
            "{num_unlimited} prompts do not say how long their answer may be; the server decides"
        ),
        advice: "give output_tokens or max_tokens, or an output length for the class".to_owned(),
    });
    Ok(Reading {
        records,
        warnings: warnings.into_iter().collect(),
        description: String::new(),
    })
}

fn num_output(
    source: Source<'_>,
    number: u64,
    line: &Line,
) -> Result<Option<(u64, OutputLength)>, WorkloadError> {
    let (name, value, meant) = match (line.output_tokens, line.max_tokens) {
        (None, None) => return Ok(None),
        (Some(value), _) => ("output_tokens", value, OutputLength::Exact),
        (None, Some(value)) => ("max_tokens", value, OutputLength::AtMost),
    };
    match source.length(number, name, value)? {
        0 => Err(source.record_fault(number, format!("{name} is 0; it must be 1 or more"))),
        num => Ok(Some((num, meant))),
    }
}

fn question(text: String) -> Dialogue {
    Dialogue {
        system: None,
        opening: Vec::new(),
        turns: vec![Said {
            question: text.into(),
            answer: None,
            num_output: None,
        }],
    }
}

fn of_messages(
    source: Source<'_>,
    number: u64,
    messages: Vec<Spoken>,
) -> Result<Dialogue, WorkloadError> {
    let mut opening = Vec::with_capacity(messages.len());
    let mut system = None;
    for (idx, message) in messages.into_iter().enumerate() {
        let text: Arc<str> = message.content.into();
        let role = match message.role.as_str() {
            "system" | "developer" if idx == 0 => {
                system = Some(text);
                continue;
            }
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            other => {
                let reason = format!(
                    "message {idx} has role {other:?}; known are system, user and assistant"
                );
                return Err(source.record_fault(number, reason));
            }
        };
        opening.push(Message { role, text });
    }
    match opening.pop() {
        Some(Message {
            role: Role::User,
            text,
        }) => Ok(Dialogue {
            system,
            opening,
            ..question(text.to_string())
        }),
        _ => Err(source.record_fault(number, "the last message must be the user's")),
    }
}
