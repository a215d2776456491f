//! `/v1/responses`.
//!
//! ```text
//! response.created, response.in_progress     at once
//! response.output_item.added                 per item
//!   response.content_part.added              per text
//!   response.output_text.delta …             as it comes
//!   response.output_text.done
//!   response.content_part.done
//! response.output_item.done
//! response.completed                         or .incomplete, or .failed
//! ```
//!
//! The one idea: a response is put together the same way whoever listens. A document is what
//! the stream's last event tells, with nobody having heard the others.
//!
//! Source: the OpenAI API reference, "Responses" and "Streaming".

pub(crate) mod background; // nobody listens

use std::sync::Arc;

use api::answer::{Empty, FinishReason, Never, Usage};
use api::responses::answer::{
    ContentPart, Event, Happened, IncompleteDetails, OutputItem, Response, ResponseError, Status,
    Subject,
};
use api::responses::{Attendance, ResponsesRequest, Storage, Terms};
use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

use crate::answer::{Ask, Desk, Mode};
use crate::choices::{Ended, News};
use crate::dialect::{Dialect, to_json};
use crate::errors::Refusal;
use crate::kept::{Conversation, NotFinished};
use crate::parse::Part;
use crate::state::{Shared, unix_seconds};
use crate::stream::Out;
use crate::whole::Collected;

/// A request with everything decided, and whether anybody waits for its answer.
pub(crate) struct Prepared {
    pub ask: Ask,
    pub dialect: Responses,
    pub mode: Mode,
    pub attendance: Attendance,
}

/// Reads and checks a request.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let shared = &desk.shared;
    let limits = &shared.config.limits.request;
    let request = ResponsesRequest::parse(body, limits)?;
    let mut items = match &request.terms.previous_response_id {
        Some(id) => earlier(shared, id)?,
        None => Vec::new(),
    };
    let (chat, terms) = request.into_chat(&items, limits)?;
    shared.note_unknown(&chat.unknown);
    let model = shared.served_name(chat.generation.model.as_deref())?;
    let placed = desk.place(chat.generation.urgency, chat.generation.delivery);
    placed.expect_no_timeline()?;
    let admitted = desk.admission_of(&placed).chat(&chat)?;
    let num_earlier = items.len();
    items.extend(terms.input.iter().cloned().map(with_id));
    let subject = Subject {
        id: new_id("resp"),
        created_at: unix_seconds(),
        model: model.to_owned(),
        temperature: told(admitted.request.sampling.temperature),
        top_p: told(admitted.request.sampling.top_p),
        service_tier: placed.tier.unwrap_or("default"),
    };
    let status = match terms.attendance {
        Attendance::Attended => Status::InProgress,
        Attendance::Background => Status::Queued,
    };
    let dialect = Responses {
        input: num_earlier..items.len(),
        items,
        response: Response::new(subject, &terms, status),
        num_events: 0,
        open: None,
        ended: None,
        shared: Arc::clone(shared),
        terms,
    };
    let (mode, _usage) = Mode::of(chat.generation.delivery);
    Ok(Prepared {
        attendance: dialect.terms.attendance,
        ask: Ask {
            requests: vec![admitted.request],
            answers: chat.generation.answers,
            parser: admitted.parser,
            matched_stop: chat.generation.ending.matched_stop,
            demand: admitted.demand,
            placed,
        },
        dialect,
        mode,
    })
}

/// What was said up to a kept response.
fn earlier(shared: &Shared, id: &str) -> Result<Vec<Value>, Refusal> {
    match shared.kept.finished_conversation(id) {
        Ok(conversation) => Ok(conversation.items()),
        Err(NotFinished::Unknown) => Err(Refusal::UnknownPreviousResponse),
        Err(NotFinished::Running) => Err(Refusal::ForModel {
            param: "previous_response_id".to_owned(),
            reason: "names a response that still runs".to_owned(),
        }),
    }
}

/// A number as it was asked for: `0.7`, not the 32-bit number next to it.
fn told(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}

/// Listed items all have an id.
fn with_id(mut item: Value) -> Value {
    if let Some(object) = item.as_object_mut()
        && !object.get("id").is_some_and(Value::is_string)
    {
        object.insert("id".to_owned(), new_id("item").into());
    }
    item
}

/// One response while it is made.
pub(crate) struct Responses {
    shared: Arc<Shared>,
    terms: Terms,
    /// What was said before the response: `input` of it by the request itself.
    items: Vec<Value>,
    input: std::ops::Range<usize>,
    response: Response,
    num_events: u64,
    /// What the last item is, while more of it may come.
    open: Option<Open>,
    ended: Option<FinishReason>,
}

/// What more of an item would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Text,
    Reasoning,
    Call,
}

impl Responses {
    /// An event about the whole response.
    fn tell(&mut self, kind: &'static str, out: &mut Out) {
        let happened = Happened::Whole {
            response: &self.response,
        };
        tell(&mut self.num_events, kind, happened, out);
    }

    /// More text for the reader.
    fn add_text(&mut self, delta: &str, out: &mut Out) {
        if self.open != Some(Open::Text) {
            self.close_item(Status::Completed, out);
            self.open_message(out);
        }
        let (output_index, item) = last(&mut self.response.output);
        let OutputItem::Message { id, content, .. } = item else {
            unreachable!("a message was opened")
        };
        let Some(ContentPart::OutputText { text, .. }) = content.first_mut() else {
            unreachable!("with its text")
        };
        text.push_str(delta);
        let happened = Happened::TextDelta {
            item_id: id,
            output_index,
            content_index: 0,
            delta,
            logprobs: Empty,
        };
        tell(
            &mut self.num_events,
            "response.output_text.delta",
            happened,
            out,
        );
    }

    fn open_message(&mut self, out: &mut Out) {
        self.response.output.push(OutputItem::Message {
            id: new_id("msg"),
            role: "assistant",
            status: Status::InProgress,
            content: Vec::new(),
        });
        self.tell_item("response.output_item.added", out);
        let (_, item) = last(&mut self.response.output);
        let OutputItem::Message { content, .. } = item else {
            unreachable!("it was just pushed")
        };
        content.push(ContentPart::OutputText {
            text: String::new(),
            annotations: Empty,
            logprobs: Empty,
        });
        self.tell_part("response.content_part.added", out);
        self.open = Some(Open::Text);
    }

    /// More of what is thought.
    fn add_reasoning(&mut self, delta: &str, out: &mut Out) {
        if self.open != Some(Open::Reasoning) {
            self.close_item(Status::Completed, out);
            self.response.output.push(OutputItem::Reasoning {
                id: new_id("rs"),
                summary: Empty,
                content: Vec::new(),
                encrypted_content: Never,
                status: Status::InProgress,
            });
            self.tell_item("response.output_item.added", out);
            let (_, item) = last(&mut self.response.output);
            let OutputItem::Reasoning { content, .. } = item else {
                unreachable!("it was just pushed")
            };
            let text = String::new();
            content.push(ContentPart::ReasoningText { text });
            self.tell_part("response.content_part.added", out);
            self.open = Some(Open::Reasoning);
        }
        let (output_index, item) = last(&mut self.response.output);
        let OutputItem::Reasoning { id, content, .. } = item else {
            unreachable!("reasoning was opened")
        };
        let Some(ContentPart::ReasoningText { text }) = content.first_mut() else {
            unreachable!("with its text")
        };
        text.push_str(delta);
        let happened = Happened::ReasoningDelta {
            item_id: id,
            output_index,
            content_index: 0,
            delta,
        };
        let kind = "response.reasoning_text.delta";
        tell(&mut self.num_events, kind, happened, out);
    }

    fn open_call(&mut self, name: &str, out: &mut Out) {
        self.close_item(Status::Completed, out);
        self.response.output.push(OutputItem::FunctionCall {
            id: new_id("fc"),
            call_id: new_id("call"),
            name: name.to_owned(),
            arguments: String::new(),
            status: Status::InProgress,
        });
        self.tell_item("response.output_item.added", out);
        self.open = Some(Open::Call);
    }

    /// More of a call's arguments.
    fn add_arguments(&mut self, delta: &str, out: &mut Out) {
        let (output_index, item) = last(&mut self.response.output);
        let OutputItem::FunctionCall { id, arguments, .. } = item else {
            unreachable!("a call was opened")
        };
        arguments.push_str(delta);
        let happened = Happened::ArgumentsDelta {
            item_id: id,
            output_index,
            delta,
        };
        let kind = "response.function_call_arguments.delta";
        tell(&mut self.num_events, kind, happened, out);
    }

    /// Nothing more of the last item comes.
    fn close_item(&mut self, end: Status, out: &mut Out) {
        if self.open.take().is_none() {
            return;
        }
        let (output_index, item) = last(&mut self.response.output);
        match item {
            OutputItem::Message {
                id,
                status,
                content,
                ..
            } => {
                *status = end;
                let Some(ContentPart::OutputText { text, .. }) = content.first() else {
                    unreachable!("an open message has its text")
                };
                let happened = Happened::TextDone {
                    item_id: id,
                    output_index,
                    content_index: 0,
                    text,
                    logprobs: Empty,
                };
                tell(
                    &mut self.num_events,
                    "response.output_text.done",
                    happened,
                    out,
                );
                self.tell_part("response.content_part.done", out);
            }
            OutputItem::Reasoning {
                id,
                content,
                status,
                ..
            } => {
                *status = end;
                let Some(ContentPart::ReasoningText { text }) = content.first() else {
                    unreachable!("open reasoning has its text")
                };
                let happened = Happened::ReasoningDone {
                    item_id: id,
                    output_index,
                    content_index: 0,
                    text,
                };
                let kind = "response.reasoning_text.done";
                tell(&mut self.num_events, kind, happened, out);
                self.tell_part("response.content_part.done", out);
            }
            OutputItem::FunctionCall {
                id,
                name,
                arguments,
                status,
                ..
            } => {
                *status = end;
                let happened = Happened::ArgumentsDone {
                    item_id: id,
                    output_index,
                    name,
                    arguments,
                };
                let kind = "response.function_call_arguments.done";
                tell(&mut self.num_events, kind, happened, out);
            }
        }
        self.tell_item("response.output_item.done", out);
    }

    fn tell_item(&mut self, kind: &'static str, out: &mut Out) {
        let (output_index, item) = last(&mut self.response.output);
        let happened = Happened::Item { output_index, item };
        tell(&mut self.num_events, kind, happened, out);
    }

    fn tell_part(&mut self, kind: &'static str, out: &mut Out) {
        let (output_index, item) = last(&mut self.response.output);
        let (OutputItem::Message { id, content, .. } | OutputItem::Reasoning { id, content, .. }) =
            item
        else {
            unreachable!("calls have no parts")
        };
        let part = content.last().expect("a part was added");
        let happened = Happened::Part {
            item_id: id,
            output_index,
            content_index: 0,
            part,
        };
        tell(&mut self.num_events, kind, happened, out);
    }

    /// The response is over: what it comes to, kept if asked, and the last event.
    fn finish(&mut self, usage: Usage, out: &mut Out) {
        let response = &mut self.response;
        response.usage = Some(usage.into());
        let kind = match self.ended {
            _ if response.error.is_some() => {
                response.status = Status::Failed;
                "response.failed"
            }
            Some(FinishReason::Length) => {
                response.status = Status::Incomplete;
                response.incomplete_details = Some(IncompleteDetails {
                    reason: "max_output_tokens",
                });
                "response.incomplete"
            }
            _ => {
                response.status = Status::Completed;
                response.completed_at = Some(unix_seconds());
                "response.completed"
            }
        };
        if self.terms.storage == Storage::Kept {
            let conversation = self.conversation();
            self.shared.kept.finish(&self.response, conversation);
        }
        self.tell(kind, out);
    }

    /// Everything said so far, the response included.
    fn conversation(&self) -> Conversation {
        let said = self.response.output.iter();
        let said = said.map(|item| serde_json::to_value(item).expect("items are strings"));
        let items: Vec<Value> = self.items.iter().cloned().chain(said).collect();
        Conversation {
            items: Bytes::from(to_json(&items)),
            input: self.input.clone(),
        }
    }
}

fn last(output: &mut [OutputItem]) -> (usize, &mut OutputItem) {
    let idx = output.len() - 1;
    (idx, &mut output[idx])
}

fn tell(num_events: &mut u64, kind: &'static str, happened: Happened<'_>, out: &mut Out) {
    let event = Event {
        kind,
        sequence_number: *num_events,
        happened,
    };
    *num_events += 1;
    out.event(kind, &event);
}

impl Dialect for Responses {
    fn open(&mut self, _usage: Usage, out: &mut Out) {
        self.tell("response.created", out);
        self.tell("response.in_progress", out);
    }

    fn news(&mut self, _idx: usize, news: News, _usage: Usage, out: &mut Out) {
        for part in &news.parts {
            match part {
                Part::Content(text) => self.add_text(text, out),
                Part::Reasoning(text) => self.add_reasoning(text, out),
                Part::CallBegin { name, .. } => self.open_call(name, out),
                Part::CallArguments { json, .. } => self.add_arguments(json, out),
                Part::CallEnd { .. } => self.close_item(Status::Completed, out),
            }
        }
    }

    fn ended(&mut self, _idx: usize, ended: Ended, _usage: Usage, out: &mut Out) {
        if self.response.output.is_empty() {
            // Clients look for a message, even one that says nothing.
            self.open_message(out);
        }
        let end = match ended.reason {
            FinishReason::Length | FinishReason::Abort => Status::Incomplete,
            FinishReason::Stop | FinishReason::ToolCalls => Status::Completed,
        };
        self.close_item(end, out);
        self.ended = Some(ended.reason);
    }

    fn broken(&mut self, _running: &[usize], refusal: &Refusal, usage: Usage, out: &mut Out) {
        self.close_item(Status::Incomplete, out);
        self.response.error = Some(ResponseError {
            // The one code of OpenAI's list that is about neither the prompt nor a tenant.
            code: "server_error",
            message: refusal.to_string(),
        });
        self.finish(usage, out);
    }

    fn close(&mut self, usage: Usage, out: &mut Out) {
        self.finish(usage, out);
    }

    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8> {
        let mut unheard = Out::default();
        for choice in choices {
            let ended = choice.ended().clone();
            let news = News {
                parts: choice.parts,
                tokens: Vec::new(),
                logprobs: Vec::new(),
            };
            self.news(0, news, usage, &mut unheard);
            self.ended(0, ended, usage, &mut unheard);
        }
        self.finish(usage, &mut unheard);
        to_json(&self.response)
    }
}
