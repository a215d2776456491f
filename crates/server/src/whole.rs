//! An answer in one document: the same events as a stream, collected.

use std::sync::Arc;

use api::answer::{
    ChatChoice, ChatMessage, CompletionChoice, Document, FinishReason, Never, Object, StopReason,
    UsageField,
};
use axum::Json;
use axum::response::{IntoResponse, Response};

use crate::answer::{Endpoint, Identity};
use crate::choices::{Choices, Happening};
use crate::errors::Refusal;
use crate::state::Shared;
use crate::stream::choice_index;

/// One choice as far as it is known.
#[derive(Default)]
struct Collected {
    text: String,
    ending: Option<(FinishReason, Option<StopReason>)>,
}

/// Waits for every choice. If the client goes away this future is dropped, and the
/// choices with it.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    identity: Identity,
    mut choices: Choices,
) -> Result<Response, Refusal> {
    let mut collected: Vec<Collected> = Vec::new();
    collected.resize_with(choices.num_choices(), Collected::default);
    while let Some((idx, happening)) = choices.next().await {
        match happening {
            Happening::Text(text) => collected[idx].text += &text,
            Happening::Ended {
                text,
                reason,
                stop_reason,
            } => {
                collected[idx].text += &text;
                collected[idx].ending = Some((reason, stop_reason));
            }
            Happening::Broken(broken) => return Err(broken.refusal(shared)),
        }
    }
    let usage = UsageField::Told(choices.usage());
    Ok(match identity.endpoint {
        Endpoint::Chat => {
            let choices: Vec<ChatChoice<'_>> = each(&collected, chat_choice);
            let head = identity.head(Object::Chat);
            Json(Document {
                head,
                choices: &choices,
                usage,
            })
            .into_response()
        }
        Endpoint::Completion => {
            let choices: Vec<CompletionChoice<'_>> = each(&collected, completion_choice);
            let head = identity.head(Object::Completion);
            Json(Document {
                head,
                choices: &choices,
                usage,
            })
            .into_response()
        }
    })
}

fn each<'a, C>(
    collected: &'a [Collected],
    choice: fn(u32, &'a str, FinishReason, Option<StopReason>) -> C,
) -> Vec<C> {
    let build = |(idx, collected): (usize, &'a Collected)| {
        let (reason, stop_reason) = collected
            .ending
            .clone()
            .expect("every choice ends before there are no more events");
        choice(choice_index(idx), &collected.text, reason, stop_reason)
    };
    collected.iter().enumerate().map(build).collect()
}

fn chat_choice(
    index: u32,
    text: &str,
    finish_reason: FinishReason,
    stop_reason: Option<StopReason>,
) -> ChatChoice<'_> {
    let message = ChatMessage {
        role: "assistant",
        content: text,
        refusal: Never,
    };
    ChatChoice {
        index,
        message,
        logprobs: Never,
        finish_reason,
        stop_reason,
    }
}

fn completion_choice(
    index: u32,
    text: &str,
    finish_reason: FinishReason,
    stop_reason: Option<StopReason>,
) -> CompletionChoice<'_> {
    let finish_reason = Some(finish_reason);
    CompletionChoice {
        index,
        text,
        logprobs: Never,
        finish_reason,
        stop_reason,
    }
}
