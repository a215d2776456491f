//! `POST /v1/chat/completions` and `POST /v1/completions`: one way in, a dialect each.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use crate::answer;
use crate::dialect::{chat, completion};
use crate::errors::Refusal;
use crate::state::Shared;

pub(super) async fn chat(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    answer::create(shared, request, chat::prepare).await
}

pub(super) async fn completion(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    answer::create(shared, request, completion::prepare).await
}
