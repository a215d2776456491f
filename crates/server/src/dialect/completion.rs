//! `/v1/completions`: raw prompts, several at once.
//!
//! As chat, but for the opening: there is none. Source: the OpenAI API reference,
//! "Completions" (legacy).

use api::answer::{
    CompletionChoice, Document, FinishReason, Never, Object, StopReason, Usage, UsageField,
};
use api::completion::CompletionRequest;
use api::params::StreamUsage;

use crate::answer::{Ask, Desk, Identity, Mode, Prepared};
use crate::choices::{Ended, News};
use crate::dialect::{Dialect, choice_index, to_json, usage_so_far};
use crate::errors::Refusal;
use crate::parse::{OutputParser, Part};
use crate::stream::Out;
use crate::whole::Collected;

/// Reads and checks a completion request.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let shared = &desk.shared;
    let request = CompletionRequest::parse(body, &shared.config.limits.request)?;
    shared.note_unknown(&request.unknown);
    let model = shared.served_name(request.generation.model.as_deref())?;
    let requests = desk.admission().completion(&request)?;
    let (mode, usage) = Mode::of(request.generation.delivery);
    let dialect = Completion {
        identity: Identity::new("cmpl", model, &desk.serving),
        usage,
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

/// One completion answer.
struct Completion {
    identity: Identity,
    usage: StreamUsage,
}

type Ending = (FinishReason, Option<StopReason>);

impl Completion {
    fn chunk(
        &self,
        idx: usize,
        text: &str,
        ending: Option<Ending>,
        (usage, out): (Usage, &mut Out),
    ) {
        let (finish_reason, stop_reason) = match ending {
            Some((reason, stop_reason)) => (Some(reason), stop_reason),
            None => (None, None),
        };
        let choice = CompletionChoice {
            index: choice_index(idx),
            text,
            logprobs: Never,
            finish_reason,
            stop_reason,
        };
        out.frame(&Document {
            head: self.identity.head(Object::Completion),
            choices: &[choice],
            usage: usage_so_far(self.usage, usage),
        });
    }
}

impl Dialect for Completion {
    fn open(&mut self, _usage: Usage, _out: &mut Out) {}

    fn news(&mut self, idx: usize, news: News, usage: Usage, out: &mut Out) {
        for part in &news.parts {
            let Part::Content(text) = part;
            self.chunk(idx, text, None, (usage, out));
        }
    }

    fn ended(&mut self, idx: usize, ended: Ended, usage: Usage, out: &mut Out) {
        let ending = (ended.reason, ended.stop_reason);
        self.chunk(idx, "", Some(ending), (usage, out));
    }

    fn broken(&mut self, running: &[usize], refusal: &Refusal, usage: Usage, out: &mut Out) {
        for &idx in running {
            self.chunk(idx, "", Some((FinishReason::Abort, None)), (usage, out));
        }
        refusal.with_body(|body| out.frame(body));
        out.done();
    }

    fn close(&mut self, usage: Usage, out: &mut Out) {
        if self.usage != StreamUsage::Never {
            let choices: [Never; 0] = [];
            out.frame(&Document {
                head: self.identity.head(Object::Completion),
                choices: &choices,
                usage: UsageField::Told(usage),
            });
        }
        out.done();
    }

    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8> {
        let texts: Vec<String> = choices.iter().map(Collected::content).collect();
        let choice = |(idx, choice): (usize, &Collected)| CompletionChoice {
            index: choice_index(idx),
            text: &texts[idx],
            logprobs: Never,
            finish_reason: Some(choice.ended().reason),
            stop_reason: choice.ended().stop_reason.clone(),
        };
        let choices: Vec<CompletionChoice<'_>> = choices.iter().enumerate().map(choice).collect();
        to_json(&Document {
            head: self.identity.head(Object::Completion),
            choices: &choices,
            usage: UsageField::Told(usage),
        })
    }
}
