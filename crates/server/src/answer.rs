//! From prepared requests to an answer: submit all, or none; then stream or collect.
//!
//! Both endpoints share everything but how a body is read ([`Prepare`]).

use std::sync::Arc;
use std::time::Instant;

use api::answer::Object;
use api::params::{Delivery, Generation, MatchedStop};
use axum::extract::Request;
use axum::response::Response;
use engine::AdmitError;
use uuid::Uuid;

use crate::choices::Choices;
use crate::errors::{QueueBound, Refusal};
use crate::state::{Serving, Shared, unix_seconds};
use crate::{body, offload, stream, whole};

/// Which of the two endpoints answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Chat,
    Completion,
}

/// A request with everything decided.
pub(crate) struct Prepared {
    pub endpoint: Endpoint,
    pub requests: Vec<engine::Request>,
    /// The served name it used.
    pub model: String,
    pub delivery: Delivery,
    pub matched_stop: MatchedStop,
}

impl Prepared {
    pub fn new(
        endpoint: Endpoint,
        requests: Vec<engine::Request>,
        model: &str,
        generation: &Generation,
    ) -> Prepared {
        Prepared {
            endpoint,
            requests,
            model: model.to_owned(),
            delivery: generation.delivery,
            matched_stop: generation.ending.matched_stop,
        }
    }
}

/// What every document of one answer repeats.
pub(crate) struct Identity {
    pub endpoint: Endpoint,
    pub id: String,
    pub created: u64,
    pub model: String,
    pub fingerprint: String,
}

impl Identity {
    fn new(endpoint: Endpoint, model: String, serving: &Serving) -> Identity {
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completion => "cmpl",
        };
        Identity {
            endpoint,
            id: format!("{prefix}-{}", Uuid::new_v4().simple()),
            created: unix_seconds(),
            model,
            fingerprint: serving.facts.fingerprint.clone(),
        }
    }

    pub fn head(&self, object: Object) -> api::answer::Head<'_> {
        api::answer::Head {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: &self.fingerprint,
        }
    }
}

/// Makes an endpoint's body into requests; may take long for a long body.
pub(crate) type Prepare = fn(&Shared, &Serving, &[u8], Instant) -> Result<Prepared, Refusal>;

/// Receives a body, prepares it, and answers: what both endpoints do.
pub(crate) async fn create(
    shared: Arc<Shared>,
    request: Request,
    prepare: Prepare,
) -> Result<Response, Refusal> {
    let arrived = Instant::now();
    let serving = Arc::clone(shared.serving()?);
    // Before the body is read: an overloaded server must not spend its time on what it will
    // turn away.
    let room = serving.engine.expect_room();
    room.map_err(|error| refused_by_engine(&shared, &error))?;
    let body = body::receive(&shared, request).await?;
    let num_bytes = body.bytes.len();
    let work = {
        let (shared, serving) = (Arc::clone(&shared), Arc::clone(&serving));
        move || prepare(&shared, &serving, &body.bytes, arrived)
    };
    let prepared = offload::run(&shared, num_bytes, work).await?;
    respond(&shared, &serving, prepared).await
}

/// Hands the requests to the engine and answers as asked.
async fn respond(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    prepared: Prepared,
) -> Result<Response, Refusal> {
    let Prepared {
        endpoint,
        requests,
        model,
        delivery,
        matched_stop,
    } = prepared;
    let choices = Choices::submit(shared, serving, requests, matched_stop)
        .map_err(|error| refused_by_engine(shared, &error))?;
    let identity = Identity::new(endpoint, model, serving);
    match delivery {
        Delivery::Whole => whole::respond(shared, identity, choices).await,
        Delivery::Stream(usage) => Ok(stream::respond(shared, identity, choices, usage)),
    }
}

fn refused_by_engine(shared: &Shared, error: &AdmitError) -> Refusal {
    let reason = error.to_string();
    match *error {
        // Both were checked before; the engine's own bounds may still be tighter.
        AdmitError::TooLong { .. } => Refusal::ContextLength {
            param: "max_tokens",
            message: reason,
        },
        AdmitError::EmptyPrompt | AdmitError::UnknownToken { .. } => Refusal::ForModel {
            param: "prompt".to_owned(),
            reason: format!("cannot be continued: {reason}"),
        },
        AdmitError::QueueFull { retry_after, .. } => Refusal::QueueFull {
            bound: QueueBound::Requests,
            reason,
            retry_after,
        },
        AdmitError::QueueTokensFull { retry_after, .. } => Refusal::QueueFull {
            bound: QueueBound::Tokens,
            reason,
            retry_after,
        },
        AdmitError::ShuttingDown => Refusal::Draining {
            retry_after: shared.config.limits.retry_after,
        },
    }
}
