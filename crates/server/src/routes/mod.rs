//! The routes, and what stands around them.
//!
//! ```text
//! observe ─▶ CORS (off by default) ─▶ key ─▶ route or fallback
//! ```

mod debug;
mod embeddings;
mod generate;
mod health;
mod messages;
mod metrics;
mod models;
mod operations; // what the OpenAPI document says of each
mod render;
mod responses;
mod tokenize;
mod version;

use std::sync::Arc;

use api::openapi::{Method, Operation};
use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on};
use bytes::Bytes;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::dialect::to_json;
use crate::enter::CLASS_HEADER;
use crate::errors::Refusal;
use crate::state::Shared;
use crate::{auth, observe};

/// Routes as they are added, each with what the OpenAPI document says of it: neither can be
/// had without the other.
struct Described {
    router: Router<Arc<Shared>>,
    operations: Vec<Operation>,
}

impl Described {
    fn add<H, T>(mut self, operation: Operation, handler: H) -> Described
    where
        H: Handler<T, Arc<Shared>>,
        T: 'static,
    {
        let method = match operation.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Delete => MethodFilter::DELETE,
        };
        self.router = self.router.route(operation.path, on(method, handler));
        self.operations.push(operation);
        self
    }
}

/// Every route there is, but for the one that tells them and those for looking inside.
fn described() -> Described {
    let empty = Described {
        router: Router::new(),
        operations: Vec::new(),
    };
    empty
        .add(operations::CHAT, generate::chat)
        // llama.cpp answers without the version too.
        .add(at("/chat/completions", operations::CHAT), generate::chat)
        .add(operations::COMPLETION, generate::completion)
        .add(operations::CHAT_RENDER, render::chat)
        .add(operations::COMPLETION_RENDER, render::completion)
        .add(operations::APPLY_TEMPLATE, render::apply_template)
        .add(operations::RESPONSE, responses::create)
        .add(operations::RESPONSE_SHOWN, responses::show)
        .add(operations::RESPONSE_DELETED, responses::delete)
        .add(operations::RESPONSE_CANCELLED, responses::cancel)
        .add(operations::RESPONSE_INPUT, responses::input_items)
        .add(operations::MESSAGE, messages::create)
        .add(operations::MESSAGE_COUNT, messages::count)
        .add(operations::EMBEDDINGS, embeddings::create)
        .add(operations::MODELS, models::list)
        // Names may hold slashes, as in `org/model`.
        .add(operations::MODEL, models::show)
        .add(operations::TOKENIZE, tokenize::encode)
        .add(operations::DETOKENIZE, tokenize::decode)
        .add(operations::VERSION, version::show)
        .add(operations::METRICS, metrics::show)
        .add(operations::LIVE, health::live)
        .add(operations::READY, health::ready)
        .add(at("/health", operations::READY), health::ready)
        .add(at("/ready", operations::READY), health::ready)
        .add(at("/ping", operations::READY), health::ready)
}

/// The same at another path.
fn at(path: &'static str, operation: Operation) -> Operation {
    Operation { path, ..operation }
}

/// All routes, checked and counted.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let described = match shared.config.debug_endpoints {
        true => described().add(operations::DEBUG_REQUESTS, debug::requests),
        false => described(),
    };
    let Described {
        router,
        mut operations,
    } = described;
    operations.push(operations::OPENAPI);
    let document = api::openapi::document(&operations, env!("CARGO_PKG_VERSION"));
    let document = Bytes::from(to_json(&document));
    let routes = router
        .route(
            operations::OPENAPI.path,
            get(move || async move { openapi(document) }),
        )
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

/// `GET /openapi.json`.
fn openapi(document: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], document).into_response()
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
    let exposed = [
        HeaderName::from_static("x-request-id"),
        CLASS_HEADER,
        header::RETRY_AFTER,
    ];
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([
            axum::http::Method::GET,
            axum::http::Method::POST,
            axum::http::Method::DELETE,
        ])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed);
    Some(layer)
}
