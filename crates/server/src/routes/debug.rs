//! `GET /debug/requests`: where the time of the slowest requests went. Only if the operator wants it.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::errors::Refusal;
use crate::state::Shared;

pub(super) async fn requests(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let slowest = shared.slowest.as_ref().ok_or(Refusal::UnknownRoute)?;
    Ok(Json(slowest.list(Instant::now())).into_response())
}
