//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;
use std::time::Instant;

use api::messages::answer::TokenCount;
use api::messages::{Purpose, parse};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use crate::admit::Admission;
use crate::dialect::messages;
use crate::errors::Refusal;
use crate::state::{Serving, Shared};
use crate::{answer, body, offload};

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
    let serving = Arc::clone(shared.loaded()?);
    let body = body::receive(&shared, request).await?;
    let num_bytes = body.bytes.len();
    let work = {
        let shared = Arc::clone(&shared);
        move || count_body(&shared, &serving, &body.bytes)
    };
    offload::run(&shared, num_bytes, work).await
}

fn count_body(shared: &Shared, serving: &Serving, body: &[u8]) -> Result<Response, Refusal> {
    let limits = &shared.config.limits;
    let request = parse(body, Purpose::Count, &limits.request)?;
    shared.served_name(request.generation.model.as_deref())?;
    let admission = Admission {
        serving,
        limits,
        arrived: Instant::now(),
    };
    let rendered = admission.render_chat(&request)?;
    let tokens = serving.tokenizer.encode_chat(&rendered);
    let count = TokenCount {
        input_tokens: tokens.len() as u64,
    };
    Ok(Json(count).into_response())
}
