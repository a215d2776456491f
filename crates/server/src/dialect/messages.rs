//! `/v1/messages`: Anthropic's dialect.
//!
//! ```text
//! message_start            at once
//! content_block_start      per block
//!   content_block_delta …  as it comes
//! content_block_stop
//! message_delta            why it ended, all counts
//! message_stop             or error, if the server ends it
//! ```
//!
//! Source: Anthropic's API reference, "Messages" and "Streaming messages".

use api::answer::{FinishReason, Never, StopReason as Matched, Usage};
use api::messages::answer::{
    Block, BlockDelta, ErrorObject, Event, Message, MessageDelta, StopReason,
};
use api::messages::{Purpose, parse};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::answer::{Ask, Desk, Mode, Prepared};
use crate::choices::{Ended, News};
use crate::dialect::{Dialect, to_json};
use crate::errors::Refusal;
use crate::parse::Part;
use crate::stream::Out;
use crate::whole::Collected;

/// Reads and checks a request.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let shared = &desk.shared;
    let request = parse(body, Purpose::Answer, &shared.config.limits.request)?;
    shared.note_unknown(&request.unknown);
    let model = shared.served_name(request.generation.model.as_deref())?;
    let generation = &request.generation;
    let placed = desk.place(generation.urgency, generation.delivery);
    placed.expect_no_timeline()?;
    let admitted = desk.admission_of(&placed).chat(&request)?;
    let (mode, _usage) = Mode::of(request.generation.delivery);
    let dialect = Messages {
        id: format!("msg_{}", Uuid::new_v4().simple()),
        model: model.to_owned(),
        num_blocks: 0,
        open: None,
        ended: None,
    };
    Ok(Prepared {
        ask: Ask {
            requests: vec![admitted.request],
            answers: request.generation.answers,
            parser: admitted.parser,
            matched_stop: request.generation.ending.matched_stop,
            demand: admitted.demand,
            placed,
        },
        dialect: Box::new(dialect),
        mode,
    })
}

/// One message while it is told.
struct Messages {
    id: String,
    model: String,
    /// Blocks that were opened.
    num_blocks: usize,
    /// What the last block is, while more of it may come.
    open: Option<Open>,
    ended: Option<Ended>,
}

/// What more of a block would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
    /// Which call.
    Call(usize),
}

impl Messages {
    fn message<'a>(
        &'a self,
        content: Vec<Block<'a>>,
        ended: Option<&'a Ended>,
        usage: Usage,
    ) -> Message<'a> {
        Message {
            id: &self.id,
            kind: "message",
            role: "assistant",
            model: &self.model,
            content,
            stop_reason: ended.map(stop_reason),
            stop_sequence: ended.and_then(stop_sequence),
            usage: usage.into(),
        }
    }

    fn open(&mut self, open: Open, empty: Block<'_>, out: &mut Out) {
        if self.open == Some(open) {
            return;
        }
        self.close_block(out);
        tell(
            &Event::ContentBlockStart {
                index: self.num_blocks,
                content_block: empty,
            },
            out,
        );
        self.num_blocks += 1;
        self.open = Some(open);
    }

    fn close_block(&mut self, out: &mut Out) {
        if self.open.take().is_some() {
            let index = self.num_blocks - 1;
            tell(&Event::ContentBlockStop { index }, out);
        }
    }

    fn delta(&self, delta: BlockDelta<'_>, out: &mut Out) {
        let index = self.num_blocks - 1;
        tell(&Event::ContentBlockDelta { index, delta }, out);
    }
}

fn stop_reason(ended: &Ended) -> StopReason {
    match (ended.reason, &ended.stop_reason) {
        (FinishReason::Length, _) => StopReason::MaxTokens,
        (FinishReason::ToolCalls, _) => StopReason::ToolUse,
        (_, Some(Matched::Text(_))) => StopReason::StopSequence,
        (_, _) => StopReason::EndTurn,
    }
}

fn stop_sequence(ended: &Ended) -> Option<&str> {
    match &ended.stop_reason {
        Some(Matched::Text(text)) => Some(text),
        _ => None,
    }
}

fn text_block(text: &str) -> Block<'_> {
    Block::Text {
        text,
        citations: Never,
    }
}

fn thinking_block(thinking: &str) -> Block<'_> {
    Block::Thinking {
        thinking,
        signature: "",
    }
}

fn call_block<'a>(id: &'a str, name: &'a str, input: Value) -> Block<'a> {
    Block::ToolUse { id, name, input }
}

fn new_call_id() -> String {
    format!("toolu_{}", Uuid::new_v4().simple())
}

fn tell(event: &Event<'_>, out: &mut Out) {
    out.event(event.name(), event);
}

impl Dialect for Messages {
    fn open(&mut self, usage: Usage, out: &mut Out) {
        let message = self.message(Vec::new(), None, usage);
        tell(&Event::MessageStart { message }, out);
    }

    fn news(&mut self, _idx: usize, news: News, _usage: Usage, out: &mut Out) {
        for part in &news.parts {
            match part {
                Part::Content(text) => {
                    Messages::open(self, Open::Text, text_block(""), out);
                    self.delta(BlockDelta::TextDelta { text }, out);
                }
                Part::Reasoning(thinking) => {
                    Messages::open(self, Open::Thinking, thinking_block(""), out);
                    self.delta(BlockDelta::ThinkingDelta { thinking }, out);
                }
                Part::CallBegin { index, name } => {
                    let id = new_call_id();
                    let block = call_block(&id, name, Value::Object(Map::new()));
                    Messages::open(self, Open::Call(*index), block, out);
                }
                Part::CallArguments { json, .. } => {
                    self.delta(BlockDelta::InputJsonDelta { partial_json: json }, out);
                }
                Part::CallEnd { .. } => self.close_block(out),
            }
        }
    }

    fn ended(&mut self, _idx: usize, ended: Ended, _usage: Usage, out: &mut Out) {
        self.close_block(out);
        self.ended = Some(ended);
    }

    fn broken(&mut self, _running: &[usize], refusal: &Refusal, _usage: Usage, out: &mut Out) {
        let message = refusal.to_string();
        let error = ErrorObject {
            kind: refusal.anthropic_kind(),
            message: &message,
        };
        tell(&Event::Error { error }, out);
    }

    fn close(&mut self, usage: Usage, out: &mut Out) {
        let ended = self.ended.take();
        let ended = ended.expect("the one choice ended before the stream does");
        let delta = MessageDelta {
            stop_reason: stop_reason(&ended),
            stop_sequence: stop_sequence(&ended),
        };
        let usage = usage.into();
        tell(&Event::MessageDelta { delta, usage }, out);
        tell(&Event::MessageStop, out);
    }

    fn ping(&mut self, out: &mut Out) {
        tell(&Event::Ping, out);
    }

    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8> {
        let choice = choices.first().expect("a message is one choice");
        let calls = choice.calls();
        let ids: Vec<String> = calls.iter().map(|_| new_call_id()).collect();
        let mut called = calls.iter().zip(&ids);
        let mut blocks = Vec::new();
        for part in &choice.parts {
            match part {
                Part::Content(text) => blocks.push(text_block(text)),
                Part::Reasoning(thinking) => blocks.push(thinking_block(thinking)),
                Part::CallBegin { .. } => {
                    let (&(name, arguments), id) = called.next().expect("one for each");
                    // As a stream's block begins, if they break off.
                    let input = serde_json::from_str(arguments);
                    let input = input.unwrap_or_else(|_| Value::Object(Map::new()));
                    blocks.push(call_block(id, name, input));
                }
                Part::CallArguments { .. } | Part::CallEnd { .. } => {}
            }
        }
        let message = self.message(blocks, choice.ended.as_ref(), usage);
        to_json(&message)
    }
}
