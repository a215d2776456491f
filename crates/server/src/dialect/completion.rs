//! `/v1/completions`: raw prompts, several at once, and the scores of prompts (`echo`).
//!
//! As chat, but for the opening: there is none, unless the prompt is to be repeated. Its
//! log-probabilities are known only once it was computed, so where both are asked for the
//! repeated prompt waits for them.
//!
//! Source: the OpenAI API reference, "Completions" (legacy); vLLM and llama.cpp for what can
//! be asked for besides.

use std::sync::Arc;
use std::time::Instant;

use api::answer::{
    CompletionChoice, Document, DocumentExtras, FinishReason, Never, Object, StopReason, Usage,
    UsageField,
};
use api::completion::{CompletionRequest, Prompt};
use api::logprobs::CompletionLogprobs;
use api::params::StreamUsage;
use api::report::{Report, Told};
use engine::TokenLogprobs;
use text::TokenId;

use crate::answer::{Ask, Desk, Identity, Mode, Prepared};
use crate::choices::{Ended, News};
use crate::demand::Demand;
use crate::dialect::prompt::{PromptFacts, told_tokens};
use crate::dialect::timeline::Timelines;
use crate::dialect::timings::Meter;
use crate::dialect::{Dialect, choice_index, to_json, usage_so_far};
use crate::errors::Refusal;
use crate::naming::{Naming, Offsets};
use crate::parse::{OutputParser, Part};
use crate::stream::Out;
use crate::whole::Collected;

/// Reads and checks a completion request.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let (shared, serving) = (&desk.shared, &desk.serving);
    let request = CompletionRequest::parse(body, &shared.config.limits.request)?;
    shared.note_unknown(&request.unknown);
    let generation = &request.generation;
    let model = shared.served_name(generation.model.as_deref())?;
    let placed = desk.place(generation.urgency, generation.delivery);
    let requests = desk.admission_of(&placed).completion(&request)?;
    let (mode, usage) = Mode::of(generation.delivery);
    let (report, answers) = (generation.report, generation.answers);
    let facts = |(prompt, sequence): (&Prompt, &engine::Request)| {
        let typed = match prompt {
            Prompt::Text(text) => Some(text.as_str()),
            Prompt::Ids(_) => None,
        };
        PromptFacts::of(&sequence.prompt, typed, &report, serving)
    };
    let num_choices = requests.len() * answers.num_kept;
    let dialect = Completion {
        identity: Identity::new("cmpl", generation.request_id.as_deref(), model, serving)
            .with_tier(placed.tier),
        usage,
        num_answers: answers.num_kept,
        num_running: num_choices,
        prompts: request.prompts.iter().zip(&requests).map(facts).collect(),
        progress: vec![Progress::default(); num_choices],
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
            requests,
            answers,
            parser: OutputParser::default(),
            matched_stop: generation.ending.matched_stop,
            demand: Demand::of(generation.constraint.as_ref()),
            placed,
        },
        dialect: Box::new(dialect),
        mode,
    })
}

/// One completion answer.
struct Completion {
    identity: Identity,
    usage: StreamUsage,
    /// Choices of each prompt.
    num_answers: usize,
    /// Choices that have not ended.
    num_running: usize,
    prompts: Vec<PromptFacts>,
    /// Of each choice.
    progress: Vec<Progress>,
    naming: Naming,
    report: Report,
    meter: Meter,
    timelines: Timelines,
}

/// How far a choice's stream is.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Where its next token begins.
    offsets: Offsets,
    has_chunks: bool,
}

/// What a chunk says of its choice.
#[derive(Default)]
struct Said<'a> {
    text: &'a str,
    logprobs: Option<CompletionLogprobs>,
    token_ids: Option<Vec<u32>>,
    ending: Option<(FinishReason, Option<StopReason>)>,
}

impl Completion {
    fn prompt_of(&self, idx: usize) -> &PromptFacts {
        &self.prompts[idx / self.num_answers]
    }

    fn echoes(&self) -> bool {
        self.report.echo == Told::Told
    }

    /// Writes a chunk about one choice.
    fn chunk(
        &mut self,
        idx: usize,
        said: Said<'_>,
        extras: DocumentExtras<'_>,
        to: (Usage, &mut Out),
    ) {
        let (usage, out) = to;
        let (finish_reason, stop_reason) = match said.ending {
            Some((reason, stop_reason)) => (Some(reason), stop_reason),
            None => (None, None),
        };
        let is_first = !std::mem::replace(&mut self.progress[idx].has_chunks, true);
        let prompt = is_first.then(|| self.prompt_of(idx));
        let choice = CompletionChoice {
            index: choice_index(idx),
            text: said.text,
            logprobs: said.logprobs,
            finish_reason,
            stop_reason,
            token_ids: said.token_ids,
            prompt_token_ids: prompt.and_then(|prompt| prompt.told_ids(&self.report)),
            prompt_text: prompt.and_then(|prompt| prompt.told_text(&self.report)),
            prompt_logprobs: None,
        };
        out.frame(&Document {
            head: self.identity.head(Object::Completion),
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

    /// Where the time went.
    fn at_end(&self, usage: Usage) -> DocumentExtras<'static> {
        DocumentExtras {
            timings: Some(self.meter.whole(usage)),
            timeline: self.timelines.tell(Instant::now()),
            ..DocumentExtras::default()
        }
    }

    /// The logprobs of a repeated prompt, and where the answer behind it begins.
    fn echo(
        &self,
        idx: usize,
        logprobs: &[TokenLogprobs],
    ) -> (Option<CompletionLogprobs>, Offsets) {
        let prompt = self.prompt_of(idx);
        let behind = Offsets::behind(&prompt.text);
        let (Some(num_top), Some(&first)) = (self.report.logprobs, prompt.ids.first()) else {
            return (None, behind);
        };
        let tokenizer = &self.naming.serving.tokenizer;
        // The first token that has text.
        let mut spelled = prompt
            .ids
            .iter()
            .filter_map(|&id| tokenizer.token_bytes(TokenId(id)));
        let begins = spelled.find(|bytes| !bytes.is_empty()).unwrap_or(&[]);
        let mut offsets = Offsets::of(&prompt.text, begins);
        let told = self
            .naming
            .echo(TokenId(first), (logprobs, num_top), &mut offsets);
        (Some(told), behind)
    }
}

impl Dialect for Completion {
    fn open(&mut self, usage: Usage, out: &mut Out) {
        if !self.echoes() || self.report.logprobs.is_some() {
            return;
        }
        for idx in 0..self.progress.len() {
            let text = self.prompt_of(idx).text.clone();
            let said = Said {
                text: &text,
                ..Said::default()
            };
            self.chunk(idx, said, DocumentExtras::default(), (usage, out));
        }
    }

    fn started(&mut self, _idx: usize) {
        self.meter.started();
    }

    fn prompt(&mut self, idx: usize, logprobs: &[TokenLogprobs], usage: Usage, out: &mut Out) {
        let (told, behind) = self.echo(idx, logprobs);
        self.progress[idx].offsets = behind;
        let text = self.prompt_of(idx).text.clone();
        let said = Said {
            text: &text,
            logprobs: told,
            ..Said::default()
        };
        self.chunk(idx, said, self.running(usage), (usage, out));
    }

    fn news(&mut self, idx: usize, news: News, usage: Usage, out: &mut Out) {
        self.meter.tokens();
        let mut logprobs = None;
        if let Some(num_top) = self.report.logprobs
            && !news.logprobs.is_empty()
        {
            let told = logprobs.insert(CompletionLogprobs::default());
            let offsets = &mut self.progress[idx].offsets;
            self.naming
                .completion((&news.logprobs, num_top), offsets, told);
        }
        let token_ids = told_tokens(&news.tokens, &self.report).filter(|ids| !ids.is_empty());
        let text: String = news
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Content(text) => Some(text.as_str()),
                // Raw text has no other parts.
                _ => None,
            })
            .collect();
        if text.is_empty() && logprobs.is_none() && token_ids.is_none() {
            return;
        }
        let said = Said {
            text: &text,
            logprobs,
            token_ids,
            ending: None,
        };
        self.chunk(idx, said, self.running(usage), (usage, out));
    }

    fn ended(&mut self, idx: usize, ended: Ended, usage: Usage, out: &mut Out) {
        self.meter.ended(&ended.times);
        self.timelines.ended(idx, &ended);
        self.num_running -= 1;
        let said = Said {
            ending: Some((ended.reason, ended.stop_reason)),
            ..Said::default()
        };
        let is_last = self.num_running == 0 && self.usage == StreamUsage::Never;
        let extras = match is_last {
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
                head: self.identity.head(Object::Completion),
                choices: &choices,
                usage: UsageField::Told(usage),
                extras: self.at_end(usage),
            });
        }
        out.done();
    }

    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8> {
        for (idx, choice) in choices.iter().enumerate() {
            self.meter.ended(&choice.ended().times);
            self.timelines.ended(idx, choice.ended());
        }
        let text = |(idx, choice): (usize, &Collected)| match self.echoes() {
            true => self.prompt_of(idx).text.clone() + &choice.content(),
            false => choice.content(),
        };
        let texts: Vec<String> = choices.iter().enumerate().map(text).collect();
        let told = |(idx, choice): (usize, &Collected)| self.choice(idx, choice, &texts[idx]);
        let told: Vec<CompletionChoice<'_>> = choices.iter().enumerate().map(told).collect();
        to_json(&Document {
            head: self.identity.head(Object::Completion),
            choices: &told,
            usage: UsageField::Told(usage),
            extras: self.at_end(usage),
        })
    }
}

impl Completion {
    /// A whole choice.
    fn choice<'a>(&'a self, idx: usize, choice: &Collected, text: &'a str) -> CompletionChoice<'a> {
        let of_prompt = choice.prompt_logprobs.as_deref().map(Vec::as_slice);
        let logprobs = self.report.logprobs.map(|num_top| {
            let (mut told, mut offsets) = match self.echoes() {
                true => {
                    let (told, behind) = self.echo(idx, of_prompt.unwrap_or_default());
                    (told.unwrap_or_default(), behind)
                }
                false => Default::default(),
            };
            let logprobs = (&*choice.logprobs, num_top);
            self.naming.completion(logprobs, &mut offsets, &mut told);
            told
        });
        let prompt = self.prompt_of(idx);
        let prompt_logprobs = self.report.prompt_logprobs.zip(of_prompt);
        CompletionChoice {
            index: choice_index(idx),
            text,
            logprobs,
            finish_reason: Some(choice.ended().reason),
            stop_reason: choice.ended().stop_reason.clone(),
            token_ids: told_tokens(&choice.tokens, &self.report),
            prompt_token_ids: prompt.told_ids(&self.report),
            prompt_text: prompt.told_text(&self.report),
            prompt_logprobs: prompt_logprobs
                .map(|(num_top, logprobs)| self.naming.prompt(logprobs, num_top)),
        }
    }
}
