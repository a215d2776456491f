//! Why a request gets no answer, sorted by whose fault it is, and what that is on the wire.
//!
//! ```text
//! caller   malformed, too long, no such model          4xx
//! load     queue or memory full right now              503 + Retry-After
//!          a tenant or a class over its own bound      429 + Retry-After
//!          not ready within the request's own time     504
//! server   loading, draining, broken                   503 + Retry-After, 500
//! ```
//!
//! A full queue is 503 and not 429: it is the instance that is full, and a load balancer should
//! try another. 429 is for whoever is over a bound of his own.

use std::time::Duration;

use api::answer::{ErrorBody, ErrorObject};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Why a request gets no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    // The caller's fault.
    /// The body cannot be read.
    #[error(transparent)]
    Request(#[from] api::RequestError),
    /// A field is well-formed but wrong for this model.
    #[error("'{param}' {reason}")]
    ForModel { param: String, reason: String },
    /// Prompt, or prompt and answer, exceed the context.
    #[error("{message}")]
    ContextLength { param: String, message: String },
    /// No such model is served.
    #[error("the model does not exist; this server serves: {served}")]
    UnknownModel { served: String },
    /// No such response is kept.
    #[error("no such response is kept here; it may have been deleted, or left to make room")]
    UnknownResponse,
    /// The response to go on after is not kept.
    #[error(
        "'previous_response_id' names no response that is kept here; it may have been deleted, or left to make room"
    )]
    UnknownPreviousResponse,
    /// No such route.
    #[error("no such route")]
    UnknownRoute,
    /// The route exists, the method does not.
    #[error("this route has no such method")]
    UnknownMethod,
    /// No valid key.
    #[error("no valid API key; send one as 'Authorization: Bearer KEY'")]
    Unauthorized,
    /// The body is not declared as JSON.
    #[error("the content type must be application/json")]
    MediaType,
    /// The body is declared in another character set.
    #[error("the content type's charset must be utf-8, as JSON's is")]
    Charset,
    /// The body is compressed.
    #[error("the body's Content-Encoding is {coding}; only identity is accepted")]
    ContentCoding { coding: &'static str },
    /// The body is too large.
    #[error("the body exceeds {bytes_max} bytes")]
    BodyTooLarge { bytes_max: usize },
    /// The head is too large.
    #[error("the request's headers exceed {bytes_max} bytes")]
    HeadTooLarge { bytes_max: usize },
    /// The body came too slowly.
    #[error("the body did not arrive completely in time")]
    BodyIncomplete,
    /// An answer cannot go on within its constraint: the request asks for what excludes each other, or
    /// its grammar is too expensive to follow.
    #[error("the answer cannot go on as the request demands: {reason}")]
    OutOfConstraint { reason: String },
    /// The body ended before its declared length, or its chunks are none.
    #[error("the body breaks off, or its framing is wrong")]
    BodyBroken,

    // Load.
    /// The engine's queue is full.
    #[error("{reason}")]
    QueueFull {
        bound: QueueBound,
        reason: String,
        retry_after: Duration,
    },
    /// The tenant used the tokens it may use for now.
    #[error("this tenant has used its tokens per minute")]
    TenantOverShare { retry_after: Duration },
    /// As many requests of the class wait as may.
    #[error("too many requests of the class {class} wait already")]
    ClassQueueFull {
        class: String,
        retry_after: Duration,
    },
    /// The request's time is over, by its own `timeout` or its class's.
    #[error("the answer was not complete within {} s", timeout.as_secs_f64())]
    TimedOut { timeout: Duration },
    /// Too many bodies are being read or prepared.
    #[error("too many large requests at once")]
    BodiesFull { retry_after: Duration },

    /// Too many responses are being made that nobody waits for.
    #[error("too many background responses at once")]
    BackgroundFull { retry_after: Duration },
    /// Too many constraints are being compiled.
    #[error("too many schemas and grammars are being compiled at once")]
    CompilersFull { retry_after: Duration },

    // The server's fault.
    /// The model is not there yet.
    #[error("Loading model")]
    Loading { retry_after: Duration },
    /// The server is going away.
    #[error("the server is shutting down")]
    Draining { retry_after: Duration },
    /// The server went away under a running answer.
    #[error("the server shut down before the answer was complete")]
    CutOff { retry_after: Duration },
    /// The engine failed; why is in the log.
    #[error("the engine failed")]
    EngineFailed,
    /// A bug of ours; what it was is in the log.
    #[error("internal error")]
    Panicked,
}

/// Which bound of the engine's queue was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueBound {
    Requests,
    Tokens,
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Refusal::Request(_)
            | Refusal::ForModel { .. }
            | Refusal::ContextLength { .. }
            | Refusal::OutOfConstraint { .. }
            | Refusal::UnknownPreviousResponse
            | Refusal::BodyBroken => StatusCode::BAD_REQUEST,
            Refusal::UnknownModel { .. } | Refusal::UnknownResponse | Refusal::UnknownRoute => {
                StatusCode::NOT_FOUND
            }
            Refusal::UnknownMethod => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
            Refusal::MediaType | Refusal::Charset | Refusal::ContentCoding { .. } => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Refusal::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::HeadTooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::BodyIncomplete => StatusCode::REQUEST_TIMEOUT,
            Refusal::QueueFull { .. }
            | Refusal::BodiesFull { .. }
            | Refusal::BackgroundFull { .. }
            | Refusal::CompilersFull { .. }
            | Refusal::Loading { .. }
            | Refusal::Draining { .. }
            | Refusal::CutOff { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::TenantOverShare { .. } | Refusal::ClassQueueFull { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Refusal::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            Refusal::EngineFailed | Refusal::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// `error.type`: the class by which clients decide what to do.
    fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable_error",
            StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            StatusCode::INTERNAL_SERVER_ERROR => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// `error.type` in Anthropic's dialect.
    pub(crate) fn anthropic_kind(&self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "request_too_large"
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            StatusCode::INTERNAL_SERVER_ERROR => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The same refusal about a field that the request knows by another name.
    pub(crate) fn renamed(mut self, rename: impl FnOnce(&str) -> String) -> Refusal {
        if let Refusal::ForModel { param, .. } | Refusal::ContextLength { param, .. } = &mut self {
            *param = rename(param);
        }
        self
    }

    /// `error.code`, and the `reason` label of metrics: a fixed set of words.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refusal::Request(error) => error.code(),
            Refusal::ForModel { .. } => "invalid_value",
            Refusal::ContextLength { .. } => "context_length_exceeded",
            Refusal::UnknownModel { .. } => "model_not_found",
            Refusal::UnknownResponse => "response_not_found",
            Refusal::UnknownPreviousResponse => "previous_response_not_found",
            Refusal::UnknownRoute => "unknown_url",
            Refusal::UnknownMethod => "method_not_allowed",
            Refusal::Unauthorized => "invalid_api_key",
            Refusal::MediaType => "unsupported_media_type",
            Refusal::Charset => "unsupported_charset",
            Refusal::ContentCoding { .. } => "unsupported_content_encoding",
            Refusal::BodyTooLarge { .. } => "body_too_large",
            Refusal::HeadTooLarge { .. } => "headers_too_large",
            Refusal::BodyIncomplete => "body_incomplete",
            Refusal::BodyBroken => "body_broken",
            Refusal::OutOfConstraint { .. } => "constraint_failed",
            Refusal::QueueFull { .. } => "queue_full",
            Refusal::TenantOverShare { .. } => "tenant_over_share",
            Refusal::ClassQueueFull { .. } => "class_queue_full",
            Refusal::TimedOut { .. } => "timeout",
            Refusal::BodiesFull { .. } => "bodies_full",
            Refusal::BackgroundFull { .. } => "background_full",
            Refusal::CompilersFull { .. } => "compilers_full",
            Refusal::Loading { .. } => "model_loading",
            Refusal::Draining { .. } | Refusal::CutOff { .. } => "shutting_down",
            Refusal::EngineFailed => "engine_failed",
            Refusal::Panicked => "internal_error",
        }
    }

    /// Every word [`Refusal::code`] can be, so that all series exist from the start.
    pub(crate) const CODES: &[&str] = &[
        "invalid_json",
        "missing_required_parameter",
        "invalid_value",
        "unsupported_parameter",
        "context_length_exceeded",
        "model_not_found",
        "response_not_found",
        "previous_response_not_found",
        "unknown_url",
        "method_not_allowed",
        "invalid_api_key",
        "unsupported_media_type",
        "unsupported_charset",
        "unsupported_content_encoding",
        "body_too_large",
        "headers_too_large",
        "body_incomplete",
        "body_broken",
        "constraint_failed",
        "queue_full",
        "tenant_over_share",
        "class_queue_full",
        "timeout",
        "bodies_full",
        "background_full",
        "compilers_full",
        "model_loading",
        "shutting_down",
        "engine_failed",
        "internal_error",
    ];

    fn param(&self) -> Option<&str> {
        match self {
            Refusal::Request(error) => error.param(),
            Refusal::ForModel { param, .. } => Some(param),
            Refusal::ContextLength { param, .. } => Some(param),
            Refusal::UnknownModel { .. } => Some("model"),
            Refusal::UnknownResponse => Some("response_id"),
            Refusal::UnknownPreviousResponse => Some("previous_response_id"),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::QueueFull { retry_after, .. }
            | Refusal::TenantOverShare { retry_after }
            | Refusal::ClassQueueFull { retry_after, .. }
            | Refusal::BodiesFull { retry_after }
            | Refusal::BackgroundFull { retry_after }
            | Refusal::CompilersFull { retry_after }
            | Refusal::Loading { retry_after }
            | Refusal::Draining { retry_after }
            | Refusal::CutOff { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// Whether the engine had already taken the request: then it was not rejected but
    /// broken, and is counted as such.
    pub(crate) fn came_later(&self) -> bool {
        matches!(
            self,
            Refusal::CutOff { .. }
                | Refusal::EngineFailed
                | Refusal::OutOfConstraint { .. }
                | Refusal::TimedOut { .. }
        )
    }

    /// Hands `{"error": …}` to `write`; whole answers and stream frames share it.
    pub(crate) fn with_body<T>(&self, write: impl FnOnce(&ErrorBody<'_>) -> T) -> T {
        let message = self.to_string();
        write(&ErrorBody {
            error: ErrorObject {
                message: &message,
                kind: self.kind(),
                param: self.param(),
                code: Some(self.code()),
            },
        })
    }
}

/// A refusal travelling with its response to whoever counts and logs.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub Refusal);

/// Whole seconds for everybody, milliseconds for OpenAI's SDKs.
pub(crate) fn set_retry_after(headers: &mut HeaderMap, wait: Duration) {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    headers.insert("retry-after-ms", HeaderValue::from(millis));
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.with_body(|body| (self.status(), axum::Json(body)).into_response());
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after() {
            set_retry_after(headers, wait);
        }
        if matches!(self, Refusal::Unauthorized) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self, Refusal::ContentCoding { .. }) {
            let accepted = HeaderValue::from_static("identity");
            headers.insert(header::ACCEPT_ENCODING, accepted);
        }
        let closes = matches!(
            self,
            Refusal::BodyTooLarge { .. }
                | Refusal::BodyIncomplete
                | Refusal::BodyBroken
                | Refusal::Draining { .. }
                | Refusal::CutOff { .. }
        );
        if closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(Refused(self));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Refusal> {
        let retry_after = Duration::from_millis(1500);
        let text = String::new;
        vec![
            api::RequestError::NotUtf8 { at_byte: 0 }.into(),
            api::RequestError::Missing {
                param: text(),
                expected: text(),
            }
            .into(),
            api::RequestError::Invalid {
                param: text(),
                expected: text(),
                got: text(),
            }
            .into(),
            api::RequestError::Unsupported {
                param: text(),
                accepted: text(),
            }
            .into(),
            Refusal::ForModel {
                param: text(),
                reason: text(),
            },
            Refusal::ContextLength {
                param: text(),
                message: text(),
            },
            Refusal::UnknownModel { served: text() },
            Refusal::UnknownResponse,
            Refusal::UnknownPreviousResponse,
            Refusal::UnknownRoute,
            Refusal::UnknownMethod,
            Refusal::Unauthorized,
            Refusal::MediaType,
            Refusal::Charset,
            Refusal::ContentCoding { coding: "gzip" },
            Refusal::BodyTooLarge { bytes_max: 1 },
            Refusal::HeadTooLarge { bytes_max: 1 },
            Refusal::BodyIncomplete,
            Refusal::BodyBroken,
            Refusal::OutOfConstraint { reason: text() },
            Refusal::QueueFull {
                bound: QueueBound::Tokens,
                reason: text(),
                retry_after,
            },
            Refusal::TenantOverShare { retry_after },
            Refusal::ClassQueueFull {
                class: text(),
                retry_after,
            },
            Refusal::TimedOut {
                timeout: retry_after,
            },
            Refusal::BodiesFull { retry_after },
            Refusal::BackgroundFull { retry_after },
            Refusal::CompilersFull { retry_after },
            Refusal::Loading { retry_after },
            Refusal::Draining { retry_after },
            Refusal::CutOff { retry_after },
            Refusal::EngineFailed,
            Refusal::Panicked,
        ]
    }

    #[test]
    fn every_code_is_in_the_list_of_metric_labels() {
        let codes: std::collections::BTreeSet<&str> =
            one_of_each().iter().map(Refusal::code).collect();
        assert_eq!(codes, Refusal::CODES.iter().copied().collect());
    }

    #[test]
    fn what_may_pass_says_when_to_come_back() {
        for refusal in one_of_each() {
            let status = refusal.status();
            let response = refusal.into_response();
            let retry_after = response.headers().get(header::RETRY_AFTER);
            let may_pass = [
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::TOO_MANY_REQUESTS,
            ];
            assert_eq!(retry_after.is_some(), may_pass.contains(&status));
            assert!(
                retry_after.is_none_or(|seconds| seconds == "2"),
                "rounded up"
            );
        }
    }
}
