//! Liveness and readiness: two questions, never one.
//!
//! `/livez` says that restarting would not help: the process answers, and the engine's steps end or
//! there is nothing to do. 503 once there is work and no step has ended for longer than the limit.
//! `/readyz` (and `/health`, `/ready`, `/ping`, which others ask) says that requests are taken now:
//! 503 while the model loads, while the server drains, while the queue is full and while the engine
//! stalls. Neither waits for the engine, so a long prefill cannot make a healthy server look dead.

use std::sync::Arc;
use std::time::Duration;

use api::answer::{Alive, Healthy};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::answer::refused_by_engine;
use crate::errors::{Refusal, set_retry_after};
use crate::heart::Pulse;
use crate::state::{Phase, Shared};

pub(super) async fn live(State(shared): State<Arc<Shared>>) -> Response {
    let engine = match (shared.phase(), shared.pulse()) {
        (_, Pulse::Stalled { age }) => return stalled(&shared, age),
        (Phase::Loading, _) => "loading",
        (_, Pulse::Busy { .. }) => "busy",
        (_, Pulse::Idle) => "idle",
    };
    let status = "ok";
    Json(Alive { status, engine }).into_response()
}

pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let serving = match shared.serving() {
        Ok(serving) => serving,
        Err(Refusal::Draining { .. }) => return unavailable(&shared, "Shutting down"),
        Err(_) => return unavailable(&shared, "Loading model"),
    };
    if let Pulse::Stalled { age } = shared.pulse() {
        return stalled(&shared, age);
    }
    match serving.engine.expect_room() {
        Ok(()) => Json(Healthy { status: "ok" }).into_response(),
        Err(error) => match refused_by_engine(&shared, &error) {
            Refusal::QueueFull { retry_after, .. } => {
                unavailable_for("The queue is full", retry_after)
            }
            // Told to drain between the two questions.
            _ => unavailable(&shared, "Shutting down"),
        },
    }
}

fn stalled(shared: &Shared, age: Duration) -> Response {
    let message = format!(
        "The engine has work and has ended no step for {} s",
        age.as_secs()
    );
    unavailable(shared, &message)
}

fn unavailable(shared: &Shared, message: &str) -> Response {
    unavailable_for(message, shared.config.limits.retry_after)
}

/// The body that llama.cpp's clients wait on.
fn unavailable_for(message: &str, retry_after: Duration) -> Response {
    let body = json!({"error": {"code": 503, "message": message, "type": "unavailable_error"}});
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    set_retry_after(response.headers_mut(), retry_after);
    response
}
