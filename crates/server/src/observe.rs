//! Around every request: an id, a count, a line in the log, no panic that escapes, and no
//! refusal that a client cannot see for still sending.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use api::messages::answer::{ErrorBody, ErrorObject};
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use uuid::Uuid;

use crate::class::ClassId;
use crate::dialect::to_json;
use crate::enter::{CLASS_HEADER, RequestId, Told};
use crate::errors::{Refusal, Refused};
use crate::metrics::Outcome;
use crate::state::Shared;
use crate::unread::Unread;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ids are replaced: they are echoed and logged.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// A made-up status, as nginx counts it: the client went away before there was one.
const CLIENT_WENT_AWAY: u16 = 499;

/// The outermost middleware.
pub(crate) async fn observe(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let id = request_id(request.headers());
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("unmatched", MatchedPath::as_str).to_owned();
    let seen = Seen {
        shared,
        route,
        id: id.clone(),
        began: Instant::now(),
        counted: false,
    };
    let limits = seen.shared.config.limits;
    let speaks_anthropic = is_anthropic(request.uri().path());
    let told = Told::default();
    let (mut request, unread) = Unread::lend(request);
    request.extensions_mut().insert(told.clone());
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = match head_too_large(&request, &seen.shared) {
        Some(refusal) => refusal.into_response(),
        None => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            // The panic hook has already written what it was.
            Err(_panic) => Refusal::Panicked.into_response(),
        },
    };
    if let Some(Refused(refusal)) = response.extensions().get() {
        // One whose time to send a body is up gets no more of it.
        if !matches!(refusal, Refusal::BodyIncomplete) {
            unread.discard(&limits).await;
        }
    }
    seen.answered(&response, told.class());
    if speaks_anthropic {
        response = in_anthropic_words(response, &id);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(class) = told.header() {
        headers.insert(CLASS_HEADER, class);
    }
    response
}

/// Whether a path is one of Anthropic's dialect, known or not: then failures of all kinds, of
/// keys and of bodies too, are told in its words.
fn is_anthropic(path: &str) -> bool {
    path.strip_prefix("/v1/messages")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A refusal's body as Anthropic's clients read it, and the id where they look for it.
fn in_anthropic_words(response: Response, id: &HeaderValue) -> Response {
    let (mut head, body) = response.into_parts();
    let body = match head.extensions.get() {
        None => body,
        Some(Refused(refusal)) => {
            let error = ErrorBody {
                kind: "error",
                error: ErrorObject {
                    kind: refusal.anthropic_kind(),
                    message: &refusal.to_string(),
                },
                request_id: id.to_str().ok(),
            };
            head.headers.remove(header::CONTENT_LENGTH);
            Body::from(to_json(&error))
        }
    };
    head.headers.insert("request-id", id.clone());
    Response::from_parts(head, body)
}

/// The client's id if it is short and plain, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    headers
        .get(REQUEST_ID)
        .filter(plain)
        .cloned()
        .unwrap_or_else(|| {
            let id = Uuid::new_v4().to_string();
            HeaderValue::from_str(&id).expect("a UUID is plain ASCII")
        })
}

fn head_too_large(request: &Request, shared: &Shared) -> Option<Refusal> {
    let line = request
        .uri()
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let header = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    let num_bytes = line + request.headers().iter().map(header).sum::<usize>();
    let bytes_max = shared.config.limits.header_bytes_max;
    (num_bytes > bytes_max).then_some(Refusal::HeadTooLarge { bytes_max })
}

/// A request being answered; dropped unanswered if its client goes away.
struct Seen {
    shared: Arc<Shared>,
    route: String,
    id: HeaderValue,
    began: Instant,
    counted: bool,
}

impl Seen {
    fn answered(mut self, response: &Response, class: Option<ClassId>) {
        self.counted = true;
        let refused = response.extensions().get::<Refused>();
        match refused {
            Some(Refused(refusal)) if refusal.came_later() => self.shared.metrics.broken(refusal),
            Some(Refused(refusal)) => {
                self.shared.metrics.rejected(refusal);
                if let Some(class) = class {
                    self.shared.metrics.class(class).ended(Outcome::Refused);
                }
            }
            None => {}
        }
        self.count(response.status());
        let reason = refused.map_or("", |Refused(refusal)| refusal.code());
        let (id, route) = (&self.id, &self.route);
        let status = response.status().as_u16();
        let ms = self.began.elapsed().as_millis();
        tracing::debug!(?id, route, status, ms, reason, "answered");
    }

    fn count(&self, status: StatusCode) {
        self.shared
            .metrics
            .http_request(&self.route, status, self.began.elapsed());
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if !self.counted {
            self.count(StatusCode::from_u16(CLIENT_WENT_AWAY).expect("three digits"));
            tracing::debug!(id = ?self.id, route = self.route, "the client went away");
        }
    }
}
