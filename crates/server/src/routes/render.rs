//! What a request would be made of, without an answer: vLLM's `…/render` (the tokens and
//! settings of `/v1/completions` and `/v1/chat/completions`) and llama.cpp's
//! `/apply-template` (the text of a conversation).
//!
//! A body is read and checked exactly as its endpoint would, so what is refused here is
//! refused there.

use std::sync::Arc;

use api::chat::ChatRequest;
use api::completion::CompletionRequest;
use api::params::Generation;
use api::render::{AppliedTemplate, Rendered, Settings};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

use crate::answer::{Desk, at_desk};
use crate::errors::Refusal;
use crate::state::Shared;

pub(super) async fn chat(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    at_desk(shared, request, render_chat).await
}

pub(super) async fn completion(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    at_desk(shared, request, render_completion).await
}

pub(super) async fn apply_template(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    at_desk(shared, request, apply).await
}

fn render_chat(desk: &Desk, body: &[u8]) -> Result<Response, Refusal> {
    let request = ChatRequest::parse(body, &desk.shared.config.limits.request)?;
    desk.shared.note_unknown(&request.unknown);
    let sequence = desk.admission().chat(&request)?.request;
    let rendered = rendered(desk, "chatcmpl", &request.generation, &sequence)?;
    Ok(Json(rendered).into_response())
}

fn render_completion(desk: &Desk, body: &[u8]) -> Result<Response, Refusal> {
    let request = CompletionRequest::parse(body, &desk.shared.config.limits.request)?;
    desk.shared.note_unknown(&request.unknown);
    let sequences = desk.admission().completion(&request)?;
    let rendered = sequences
        .iter()
        .map(|sequence| rendered(desk, "cmpl", &request.generation, sequence))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Json(rendered).into_response())
}

fn apply(desk: &Desk, body: &[u8]) -> Result<Response, Refusal> {
    let request = ChatRequest::parse(body, &desk.shared.config.limits.request)?;
    desk.shared.note_unknown(&request.unknown);
    desk.shared
        .served_name(request.generation.model.as_deref())?;
    let rendered = desk.admission().render_chat(&request)?;
    Ok(Json(AppliedTemplate {
        prompt: rendered.text,
    })
    .into_response())
}

fn rendered<'a>(
    desk: &'a Desk,
    prefix: &str,
    generation: &Generation,
    sequence: &engine::Request,
) -> Result<Rendered<'a>, Refusal> {
    let model = desk.shared.served_name(generation.model.as_deref())?;
    let (sampling, stop) = (&sequence.sampling, &sequence.stop);
    let rest = match &generation.request_id {
        Some(chosen) => chosen.clone(),
        None => Uuid::new_v4().simple().to_string(),
    };
    Ok(Rendered {
        request_id: format!("{prefix}-{rest}"),
        token_ids: sequence.prompt.iter().map(|token| token.0).collect(),
        sampling_params: Settings {
            n: generation.answers.num_kept,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            // vLLM's word for all.
            top_k: sampling.top_k.unwrap_or(0),
            min_p: sampling.min_p,
            repetition_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            seed: generation.sampling.seed,
            max_tokens: stop.max_tokens,
            min_tokens: stop.min_tokens,
            stop: stop.strings.clone(),
            stop_token_ids: stop.token_ids.iter().map(|token| token.0).collect(),
            ignore_eos: stop.ignore_eos,
            logprobs: generation.report.logprobs,
            prompt_logprobs: sequence.logprobs.prompt,
        },
        model,
    })
}
