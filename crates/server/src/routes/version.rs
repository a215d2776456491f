//! `GET /version`.

use api::answer::Version;
use axum::Json;
use axum::response::{IntoResponse, Response};

pub(super) async fn show() -> Response {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
    })
    .into_response()
}
