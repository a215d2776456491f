//! `GET /metrics`, rendered from atomics: it answers in milliseconds whatever the engine
//! is doing. With API keys set it needs one, like every route that is not about health.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::state::Shared;

pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    (
        [(header::CONTENT_TYPE, kind)],
        shared.metrics.render(shared.body_bytes_in_use()),
    )
        .into_response()
}
