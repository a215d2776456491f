//! `GET /version`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub(super) async fn show() -> Response {
    Json(json!({"version": env!("CARGO_PKG_VERSION")})).into_response()
}
