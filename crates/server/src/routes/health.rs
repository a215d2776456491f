//! Liveness and readiness: two questions, never one.
//!
//! `/livez` says that the process answers; restarting it would not help. `/readyz` (and
//! `/health`, `/ready`, `/ping`, which others ask) says that requests are answered now:
//! 503 while the model loads and again while the server drains. Neither asks the engine
//! anything, so a long prefill cannot make a healthy server look dead.

use std::sync::Arc;

use api::answer::Healthy;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::errors::set_retry_after;
use crate::state::{Phase, Shared};

pub(super) async fn live() -> Response {
    ok()
}

pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match shared.phase() {
        Phase::Ready => ok(),
        Phase::Loading => unavailable(&shared, "Loading model"),
        Phase::Draining => unavailable(&shared, "Shutting down"),
    }
}

fn ok() -> Response {
    Json(Healthy { status: "ok" }).into_response()
}

/// The body that llama.cpp's clients wait on.
fn unavailable(shared: &Shared, message: &str) -> Response {
    let body = json!({"error": {"code": 503, "message": message, "type": "unavailable_error"}});
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    set_retry_after(response.headers_mut(), shared.config.limits.retry_after);
    response
}
