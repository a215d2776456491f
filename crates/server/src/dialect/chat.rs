//! `/v1/chat/completions`.
//!
//! ```text
//! role chunk      at once, one per choice: the client sees headers and life
//! content chunks  as they come, whole characters, finish_reason null
//! terminal chunk  exactly one per choice, empty delta, finish_reason set
//! usage chunk     only if asked for, choices []
//! [DONE]
//! ```
//!
//! A stream that the server ends has a terminal chunk per choice too (`finish_reason`
//! `abort`), then an error, then `[DONE]`.
//!
//! Source: the OpenAI API reference, "Chat".

use api::answer::{
    ChatChoice, ChatChunkChoice, ChatMessage, Delta, Document, FinishReason, Never, Object,
    StopReason, Usage, UsageField,
};
use api::chat::ChatRequest;
use api::params::StreamUsage;

use crate::answer::{Ask, Desk, Identity, Mode, Prepared};
use crate::choices::{Ended, News};
use crate::dialect::{Dialect, choice_index, to_json, usage_so_far};
use crate::errors::Refusal;
use crate::parse::{OutputParser, Part};
use crate::stream::Out;
use crate::whole::Collected;

/// Reads and checks a chat request.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let shared = &desk.shared;
    let request = ChatRequest::parse(body, &shared.config.limits.request)?;
    shared.note_unknown(&request.unknown);
    let model = shared.served_name(request.generation.model.as_deref())?;
    let requests = vec![desk.admission().chat(&request)?];
    let (mode, usage) = Mode::of(request.generation.delivery);
    let dialect = Chat {
        identity: Identity::new("chatcmpl", model, &desk.serving),
        usage,
        num_choices: requests.len(),
    };
    Ok(Prepared {
        ask: Ask {
            requests,
            parser: OutputParser,
            matched_stop: request.generation.ending.matched_stop,
        },
        dialect: Box::new(dialect),
        mode,
    })
}

/// One chat answer.
struct Chat {
    identity: Identity,
    usage: StreamUsage,
    num_choices: usize,
}

type Ending = (FinishReason, Option<StopReason>);

impl Chat {
    fn chunk(
        &self,
        idx: usize,
        delta: Delta<'_>,
        ending: Option<Ending>,
        (usage, out): (Usage, &mut Out),
    ) {
        let (finish_reason, stop_reason) = match ending {
            Some((reason, stop_reason)) => (Some(reason), stop_reason),
            None => (None, None),
        };
        let choice = ChatChunkChoice {
            index: choice_index(idx),
            delta,
            logprobs: Never,
            finish_reason,
            stop_reason,
        };
        out.frame(&Document {
            head: self.identity.head(Object::ChatChunk),
            choices: &[choice],
            usage: usage_so_far(self.usage, usage),
        });
    }
}

impl Dialect for Chat {
    fn open(&mut self, usage: Usage, out: &mut Out) {
        let delta = Delta {
            role: Some("assistant"),
            content: Some(""),
        };
        for idx in 0..self.num_choices {
            self.chunk(idx, delta, None, (usage, out));
        }
    }

    fn news(&mut self, idx: usize, news: News, usage: Usage, out: &mut Out) {
        for part in &news.parts {
            let Part::Content(text) = part;
            let delta = Delta {
                role: None,
                content: Some(text),
            };
            self.chunk(idx, delta, None, (usage, out));
        }
    }

    fn ended(&mut self, idx: usize, ended: Ended, usage: Usage, out: &mut Out) {
        let ending = (ended.reason, ended.stop_reason);
        self.chunk(idx, Delta::default(), Some(ending), (usage, out));
    }

    fn broken(&mut self, running: &[usize], refusal: &Refusal, usage: Usage, out: &mut Out) {
        for &idx in running {
            let ending = (FinishReason::Abort, None);
            self.chunk(idx, Delta::default(), Some(ending), (usage, out));
        }
        refusal.with_body(|body| out.frame(body));
        out.done();
    }

    fn close(&mut self, usage: Usage, out: &mut Out) {
        if self.usage != StreamUsage::Never {
            let choices: [Never; 0] = [];
            out.frame(&Document {
                head: self.identity.head(Object::ChatChunk),
                choices: &choices,
                usage: UsageField::Told(usage),
            });
        }
        out.done();
    }

    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8> {
        let texts: Vec<String> = choices.iter().map(Collected::content).collect();
        let choice = |(idx, choice): (usize, &Collected)| ChatChoice {
            index: choice_index(idx),
            message: ChatMessage {
                role: "assistant",
                content: &texts[idx],
                refusal: Never,
            },
            logprobs: Never,
            finish_reason: choice.ended().reason,
            stop_reason: choice.ended().stop_reason.clone(),
        };
        let choices: Vec<ChatChoice<'_>> = choices.iter().enumerate().map(choice).collect();
        to_json(&Document {
            head: self.identity.head(Object::Chat),
            choices: &choices,
            usage: UsageField::Told(usage),
        })
    }
}
