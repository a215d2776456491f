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
//! Log-probabilities and ids go with the tokens they belong to, also where a token has no
//! text (yet): a chunk may have an empty content, but no token is left out or told twice.
//! A stream that the server ends has a terminal chunk per choice too (`finish_reason`
//! `abort`), then an error, then `[DONE]`.
//!
//! Source: the OpenAI API reference, "Chat"; vLLM and llama.cpp for what can be asked for
//! besides.

use std::sync::Arc;
use std::time::Instant;

use api::answer::{
    CalledFunction, ChatChoice, ChatChunkChoice, ChatMessage, Delta, Document, DocumentExtras,
    FinishReason, Never, Object, StopReason, ToolCall, ToolCallDelta, Usage, UsageField,
};
use api::chat::ChatRequest;
use api::logprobs::ChatLogprobs;
use api::params::StreamUsage;
use api::report::{Report, Told};
use uuid::Uuid;

use crate::admit::Admitted;
use crate::answer::{Ask, Desk, Identity, Mode, Prepared};
use crate::choices::{Ended, News};
use crate::dialect::prompt::{PromptFacts, told_tokens};
use crate::dialect::timeline::Timelines;
use crate::dialect::timings::Meter;
use crate::dialect::{Dialect, choice_index, to_json, usage_so_far};
use crate::errors::Refusal;
use crate::naming::Naming;
use crate::parse::Part;
use crate::stream::Out;
use crate::whole::Collected;

/// Reads and checks a chat request.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let (shared, serving) = (&desk.shared, &desk.serving);
    let request = ChatRequest::parse(body, &shared.config.limits.request)?;
    shared.note_unknown(&request.unknown);
    let generation = &request.generation;
    let model = shared.served_name(generation.model.as_deref())?;
    let placed = desk.place(generation.urgency, generation.delivery);
    let Admitted {
        request: sequence,
        parser,
        demand,
    } = desk.admission_of(&placed).chat(&request)?;
    let (mode, usage) = Mode::of(generation.delivery);
    let report = generation.report;
    let dialect = Chat {
        identity: Identity::new("chatcmpl", generation.request_id.as_deref(), model, serving)
            .with_tier(placed.tier),
        usage,
        num_choices: generation.answers.num_kept,
        num_running: generation.answers.num_kept,
        prompt: PromptFacts::of(&sequence.prompt, None, &report, serving),
        naming: Naming {
            serving: Arc::clone(serving),
            names: report.names,
            control_names: generation.ending.control_names,
        },
        report,
        meter: Meter::default(),
        timelines: Timelines::of(&placed),
    };
    Ok(Prepared {
        ask: Ask {
            requests: vec![sequence],
            answers: generation.answers,
            parser,
            matched_stop: generation.ending.matched_stop,
            demand,
            placed,
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
    /// Choices that have not ended.
    num_running: usize,
    prompt: PromptFacts,
    naming: Naming,
    report: Report,
    meter: Meter,
    timelines: Timelines,
}

/// What a chunk says of its choice.
#[derive(Default)]
struct Said<'a> {
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    token_ids: Option<Vec<u32>>,
    ending: Option<(FinishReason, Option<StopReason>)>,
}

impl Chat {
    /// Writes a chunk about one choice.
    fn chunk(&self, idx: usize, said: Said<'_>, extras: DocumentExtras<'_>, to: (Usage, &mut Out)) {
        let (usage, out) = to;
        let (finish_reason, stop_reason) = match said.ending {
            Some((reason, stop_reason)) => (Some(reason), stop_reason),
            None => (None, None),
        };
        let choice = ChatChunkChoice {
            index: choice_index(idx),
            delta: said.delta,
            logprobs: said.logprobs,
            finish_reason,
            stop_reason,
            token_ids: said.token_ids,
        };
        out.frame(&Document {
            head: self.identity.head(Object::ChatChunk),
            choices: &[choice],
            usage: usage_so_far(self.usage, usage),
            extras,
        });
    }

    /// What a chunk tells of its document while answers run.
    fn running(&self, usage: Usage) -> DocumentExtras<'static> {
        let asked = self.report.running_timings == Told::Told;
        DocumentExtras {
            timings: asked.then(|| self.meter.so_far(usage)),
            ..DocumentExtras::default()
        }
    }

    /// Whether no chunk follows that could tell where the time went.
    fn is_last(&self) -> bool {
        self.num_running == 0 && self.usage == StreamUsage::Never
    }

    /// Where the time went.
    fn at_end(&self, usage: Usage) -> DocumentExtras<'static> {
        DocumentExtras {
            timings: Some(self.meter.whole(usage)),
            timeline: self.timelines.tell(Instant::now()),
            ..DocumentExtras::default()
        }
    }
}

/// What a part adds to a choice; the end of a call adds nothing.
fn delta_of<'a>(part: &'a Part, call_id: &'a str) -> Option<Delta<'a>> {
    let call = |index: &usize, id, name: Option<&'a str>, arguments| ToolCallDelta {
        index: *index,
        id,
        kind: name.map(|_| "function"),
        function: CalledFunction { name, arguments },
    };
    let nothing = Delta::default();
    match part {
        Part::Content(text) => Some(Delta {
            content: Some(text),
            ..nothing
        }),
        Part::Reasoning(text) => Some(Delta {
            reasoning: Some(text),
            reasoning_content: Some(text),
            ..nothing
        }),
        Part::CallBegin { index, name } => Some(Delta {
            tool_calls: Some([call(index, Some(call_id), Some(name), "")]),
            ..nothing
        }),
        Part::CallArguments { index, json } => Some(Delta {
            tool_calls: Some([call(index, None, None, json)]),
            ..nothing
        }),
        Part::CallEnd { .. } => None,
    }
}

/// Nine letters and digits: Mistral's templates want just that, and to the others it is all the same.
fn new_call_id() -> String {
    const NUM_LETTERS: usize = 9;
    let letters = Uuid::new_v4().simple().to_string();
    letters[..NUM_LETTERS].to_owned()
}

/// All that a choice says.
struct Texts {
    content: String,
    reasoning: String,
    calls: Vec<Call>,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    fn told(&self) -> ToolCall<'_> {
        ToolCall {
            id: &self.id,
            kind: "function",
            function: CalledFunction {
                name: Some(&self.name),
                arguments: &self.arguments,
            },
        }
    }
}

impl Texts {
    fn of(choice: &Collected) -> Texts {
        let call = |(name, arguments): (&str, &str)| Call {
            id: new_call_id(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        Texts {
            content: choice.content(),
            reasoning: choice.reasoning(),
            calls: choice.calls().into_iter().map(call).collect(),
        }
    }

    fn message(&self) -> ChatMessage<'_> {
        let reasoning = Some(self.reasoning.as_str()).filter(|text| !text.is_empty());
        let is_silent = self.content.is_empty() && !self.calls.is_empty();
        ChatMessage {
            role: "assistant",
            content: (!is_silent).then_some(self.content.as_str()),
            refusal: Never,
            reasoning,
            reasoning_content: reasoning,
            tool_calls: self.calls.iter().map(Call::told).collect(),
        }
    }
}

impl Dialect for Chat {
    fn open(&mut self, usage: Usage, out: &mut Out) {
        for idx in 0..self.num_choices {
            let said = Said {
                delta: Delta {
                    role: Some("assistant"),
                    content: Some(""),
                    ..Delta::default()
                },
                ..Said::default()
            };
            let mut extras = DocumentExtras::default();
            if idx == 0 {
                extras.prompt_token_ids = self.prompt.told_ids(&self.report);
                extras.prompt_text = self.prompt.told_text(&self.report);
            }
            self.chunk(idx, said, extras, (usage, out));
        }
    }

    fn started(&mut self, _idx: usize) {
        self.meter.started();
    }

    fn news(&mut self, idx: usize, news: News, usage: Usage, out: &mut Out) {
        self.meter.tokens();
        let mut logprobs = self
            .report
            .logprobs
            .map(|num_top| self.naming.chat(&news.logprobs, num_top))
            .filter(|logprobs| !logprobs.content.is_empty());
        let mut token_ids =
            told_tokens(&news.tokens, &self.report).filter(|token_ids| !token_ids.is_empty());
        let nothing = [Part::Content(String::new())];
        let parts = match news.parts.is_empty() && (logprobs.is_some() || token_ids.is_some()) {
            true => &nothing[..],
            false => &news.parts[..],
        };
        for part in parts {
            let id = match part {
                Part::CallBegin { .. } => new_call_id(),
                _ => String::new(),
            };
            let Some(delta) = delta_of(part, &id) else {
                continue;
            };
            let said = Said {
                delta,
                // With the first part: the tokens are not told apart by part.
                logprobs: logprobs.take(),
                token_ids: token_ids.take(),
                ending: None,
            };
            self.chunk(idx, said, self.running(usage), (usage, out));
        }
    }

    fn ended(&mut self, idx: usize, ended: Ended, usage: Usage, out: &mut Out) {
        self.meter.ended(&ended.times);
        self.timelines.ended(idx, &ended);
        self.num_running -= 1;
        let said = Said {
            ending: Some((ended.reason, ended.stop_reason)),
            ..Said::default()
        };
        let extras = match self.is_last() {
            true => self.at_end(usage),
            false => self.running(usage),
        };
        self.chunk(idx, said, extras, (usage, out));
    }

    fn broken(&mut self, running: &[usize], refusal: &Refusal, usage: Usage, out: &mut Out) {
        for &idx in running {
            let said = Said {
                ending: Some((FinishReason::Abort, None)),
                ..Said::default()
            };
            self.chunk(idx, said, DocumentExtras::default(), (usage, out));
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
                extras: self.at_end(usage),
            });
        }
        out.done();
    }

    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8> {
        let prompt_logprobs = self.report.prompt_logprobs.and_then(|num_top| {
            let logprobs = choices.first()?.prompt_logprobs.as_ref()?;
            Some(self.naming.prompt(logprobs, num_top))
        });
        let texts: Vec<Texts> = choices.iter().map(Texts::of).collect();
        let choice = |(idx, choice): (usize, &Collected)| ChatChoice {
            index: choice_index(idx),
            message: texts[idx].message(),
            logprobs: self
                .report
                .logprobs
                .map(|num_top| self.naming.chat(&choice.logprobs, num_top)),
            finish_reason: choice.ended().reason,
            stop_reason: choice.ended().stop_reason.clone(),
            token_ids: told_tokens(&choice.tokens, &self.report),
        };
        let told: Vec<ChatChoice<'_>> = choices.iter().enumerate().map(choice).collect();
        for (idx, choice) in choices.iter().enumerate() {
            self.meter.ended(&choice.ended().times);
            self.timelines.ended(idx, choice.ended());
        }
        to_json(&Document {
            head: self.identity.head(Object::Chat),
            choices: &told,
            usage: UsageField::Told(usage),
            extras: DocumentExtras {
                prompt_token_ids: self.prompt.told_ids(&self.report),
                prompt_text: self.prompt.told_text(&self.report),
                prompt_logprobs: prompt_logprobs.as_deref(),
                ..self.at_end(usage)
            },
        })
    }
}
