//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use api::messages::answer::TokenCount;
use api::messages::{Purpose, parse};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use crate::answer::{self, Desk};
use crate::dialect::messages;
use crate::errors::Refusal;
use crate::state::Shared;

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    answer::create(shared, request, messages::prepare).await
}

pub(super) async fn count(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    answer::at_desk(shared, request, count_body).await
}

fn count_body(desk: &Desk, body: &[u8]) -> Result<Response, Refusal> {
    let request = parse(body, Purpose::Count, &desk.shared.config.limits.request)?;
    desk.shared.note_unknown(&request.unknown);
    desk.shared
        .served_name(request.generation.model.as_deref())?;
    let rendered = desk.admission().render_chat(&request)?;
    let tokens = desk.serving.tokenizer.encode_chat(&rendered);
    let count = TokenCount {
        input_tokens: tokens.len() as u64,
    };
    Ok(Json(count).into_response())
}
