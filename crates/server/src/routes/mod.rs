//! The routes, and what stands around them.
//!
//! ```text
//! observe ─▶ CORS (off by default) ─▶ key ─▶ route or fallback
//! ```

mod generate;
mod health;
mod messages;
mod metrics;
mod models;
mod render;
mod responses;
mod tokenize;
mod version;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware;
use axum::routing::{get, post};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::errors::Refusal;
use crate::state::Shared;
use crate::{auth, observe};

/// All routes, checked and counted.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let routes = Router::new()
        .route("/v1/chat/completions", post(generate::chat))
        // llama.cpp answers without the version too.
        .route("/chat/completions", post(generate::chat))
        .route("/v1/completions", post(generate::completion))
        .route("/v1/chat/completions/render", post(render::chat))
        .route("/v1/completions/render", post(render::completion))
        .route("/apply-template", post(render::apply_template))
        .route("/v1/responses", post(responses::create))
        .route(
            "/v1/responses/{id}",
            get(responses::show).delete(responses::delete),
        )
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route(
            "/v1/responses/{id}/input_items",
            get(responses::input_items),
        )
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count))
        .route("/v1/models", get(models::list))
        // Names may hold slashes, as in `org/model`.
        .route("/v1/models/{*id}", get(models::show))
        .route("/tokenize", post(tokenize::encode))
        .route("/detokenize", post(tokenize::decode))
        .route("/version", get(version::show))
        .route("/metrics", get(metrics::show))
        .route("/livez", get(health::live))
        .route("/health", get(health::ready))
        .route("/readyz", get(health::ready))
        .route("/ready", get(health::ready))
        .route("/ping", get(health::ready))
        .fallback(|| async { Refusal::UnknownRoute })
        .method_not_allowed_fallback(|| async { Refusal::UnknownMethod })
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            auth::require_key,
        ));
    let routes = match cors(&shared.config.allowed_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            observe::observe,
        ))
        .with_state(shared)
}

/// CORS for the origins allowed; without any there is no CORS header at all, and browsers
/// keep foreign pages from reading or sending JSON.
fn cors(allowed: &[String]) -> Option<CorsLayer> {
    if allowed.is_empty() {
        return None;
    }
    let origins = if allowed.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let value =
            |origin| HeaderValue::from_str(origin).expect("checked before the port is taken");
        AllowOrigin::list(allowed.iter().map(String::as_str).map(value))
    };
    let exposed = [HeaderName::from_static("x-request-id"), header::RETRY_AFTER];
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed);
    Some(layer)
}
