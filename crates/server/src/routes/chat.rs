//! `POST /v1/chat/completions`.

use std::sync::Arc;
use std::time::Instant;

use api::chat::ChatRequest;
use axum::extract::{Request, State};
use axum::response::Response;

use crate::admit::Admission;
use crate::answer::{self, Endpoint, Prepared};
use crate::errors::Refusal;
use crate::state::{Serving, Shared};

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    answer::create(shared, request, prepare).await
}

fn prepare(
    shared: &Shared,
    serving: &Serving,
    body: &[u8],
    arrived: Instant,
) -> Result<Prepared, Refusal> {
    let limits = &shared.config.limits;
    let request = ChatRequest::parse(body, &limits.request)?;
    shared.note_unknown(&request.unknown);
    let model = shared.served_name(request.generation.model.as_deref())?;
    let sequence = Admission {
        serving,
        limits,
        arrived,
    }
    .chat(&request)?;
    Ok(Prepared::new(
        Endpoint::Chat,
        vec![sequence],
        model,
        &request.generation,
    ))
}
