//! An answer in one document: the same happenings as a stream, collected.

use std::sync::Arc;

use api::report::Answers;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use engine::TokenLogprobs;
use text::TokenId;

use crate::choices::{Choices, Ended, Happening, News};
use crate::dialect::Dialect;
use crate::errors::Refusal;
use crate::parse::Part;
use crate::state::Shared;

/// All that was heard of one choice.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Of the prompt, if the request wants them: one per token after the first.
    pub prompt_logprobs: Option<Arc<Vec<TokenLogprobs>>>,
    /// Neighbours of the same kind are joined.
    pub parts: Vec<Part>,
    pub tokens: Vec<TokenId>,
    /// One per token if the request wants them, else none.
    pub logprobs: Vec<TokenLogprobs>,
    /// `None` until it ends.
    pub ended: Option<Ended>,
}

impl Collected {
    /// Adds what is new.
    pub fn add(&mut self, news: News) {
        for part in news.parts {
            match (self.parts.last_mut(), part) {
                (Some(Part::Content(so_far)), Part::Content(more))
                | (Some(Part::Reasoning(so_far)), Part::Reasoning(more)) => so_far.push_str(&more),
                (
                    Some(Part::CallArguments { index, json }),
                    Part::CallArguments {
                        index: of,
                        json: more,
                    },
                ) if *index == of => json.push_str(&more),
                (_, part) => self.parts.push(part),
            }
        }
        self.tokens.extend(news.tokens);
        self.logprobs.extend(news.logprobs);
    }

    /// All content, joined.
    pub fn content(&self) -> String {
        let text = |part: &Part| match part {
            Part::Content(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// All reasoning, joined.
    pub fn reasoning(&self) -> String {
        let text = |part: &Part| match part {
            Part::Reasoning(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// The calls that began: name and arguments. Those of the last may break off, as they do in
    /// a stream; then the answer does not end as one that calls.
    pub fn calls(&self) -> Vec<(&str, &str)> {
        let mut calls: Vec<(&str, &str)> = Vec::new();
        for part in &self.parts {
            match part {
                Part::CallBegin { name, .. } => calls.push((name, "")),
                Part::CallArguments { json, .. } => {
                    let begun = calls.last_mut().expect("a call begins with its name");
                    begun.1 = json;
                }
                Part::CallEnd { .. } | Part::Content(_) | Part::Reasoning(_) => {}
            }
        }
        calls
    }

    /// How it ended.
    ///
    /// # Panics
    ///
    /// If it has not.
    pub fn ended(&self) -> &Ended {
        let ended = self.ended.as_ref();
        ended.expect("every choice ends before there are no more happenings")
    }
}

/// Waits for every choice. If the client goes away this future is dropped, and the
/// choices with it.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    mut dialect: Box<dyn Dialect>,
    mut choices: Choices,
    answers: Answers,
) -> Result<Response, Refusal> {
    let mut collected: Vec<Collected> = Vec::new();
    collected.resize_with(choices.num_choices(), Collected::default);
    while let Some((idx, happening)) = choices.next().await {
        let choice = &mut collected[idx];
        match happening {
            Happening::Started => (),
            Happening::Prompt(logprobs) => choice.prompt_logprobs = Some(logprobs),
            Happening::News(news) => choice.add(news),
            Happening::Ended(ended) => choice.ended = Some(ended),
            Happening::Broken(broken) => return Err(broken.refusal(shared)),
        }
    }
    let kept = likeliest(collected, answers);
    let document = dialect.document(kept, choices.usage());
    let mut response = Response::new(Body::from(document));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// Of the answers to each prompt those whose tokens are likeliest on average, the likeliest
/// first; all of them, as they are, if as many are asked for.
fn likeliest(collected: Vec<Collected>, answers: Answers) -> Vec<Collected> {
    if answers.num_kept == answers.num_made {
        return collected;
    }
    let mean = |choice: &Collected| {
        let ended = choice.ended();
        ended.logprob_sum / f64::from(ended.usage.num_completion.max(1))
    };
    let mut rest = collected.into_iter();
    let mut kept = Vec::new();
    loop {
        let mut group: Vec<Collected> = rest.by_ref().take(answers.num_made).collect();
        if group.is_empty() {
            return kept;
        }
        group.sort_by(|one, other| mean(other).total_cmp(&mean(one)));
        group.truncate(answers.num_kept);
        kept.append(&mut group);
    }
}
