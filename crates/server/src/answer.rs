//! From prepared requests to an answer: submit all, or none; then stream or collect.
//!
//! All endpoints that generate share everything but how a body is read ([`Prepare`]) and
//! what the answer looks like ([`Dialect`]).

use std::sync::Arc;
use std::time::Instant;

use api::answer::Object;
use api::params::{Delivery, MatchedStop, StreamUsage};
use api::report::Answers;
use api::urgency::Urgency;
use axum::extract::Request;
use axum::response::Response;
use engine::AdmitError;
use uuid::Uuid;

use crate::admit::Admission;
use crate::choices::Choices;
use crate::demand::Demand;
use crate::dialect::Dialect;
use crate::enter::{Entrance, Placed};
use crate::errors::{QueueBound, Refusal};
use crate::parse::OutputParser;
use crate::state::{Serving, Shared, unix_seconds};
use crate::{body, demand, offload, stream, whole};

/// A request with everything decided.
pub(crate) struct Prepared {
    pub ask: Ask,
    /// How the answer is put.
    pub dialect: Box<dyn Dialect>,
    pub mode: Mode,
}

/// What the engine is asked, and what its text goes through.
pub(crate) struct Ask {
    /// One per prompt.
    pub requests: Vec<engine::Request>,
    /// Answers to each; the choices of one prompt stand together.
    pub answers: Answers,
    /// Each choice gets a copy.
    pub parser: OutputParser,
    pub matched_stop: MatchedStop,
    /// What every answer must look like; not yet compiled.
    pub demand: Option<Demand>,
    /// How urgent it is, and whose.
    pub placed: Placed,
}

/// In one document, or as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Whole,
    Stream,
}

impl Mode {
    /// How a request wants its answer, and where a stream of it tells token counts.
    pub fn of(delivery: Delivery) -> (Mode, StreamUsage) {
        match delivery {
            Delivery::Whole => (Mode::Whole, StreamUsage::Never),
            Delivery::Stream(usage) => (Mode::Stream, usage),
        }
    }
}

/// What every document of one answer repeats.
pub(crate) struct Identity {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub fingerprint: String,
    /// Told if the request names one.
    pub service_tier: Option<&'static str>,
}

impl Identity {
    /// A new one; `prefix` tells what kind of answer an id belongs to, `chosen` is the rest of
    /// it if the caller chose one.
    pub fn new(prefix: &str, chosen: Option<&str>, model: &str, serving: &Serving) -> Identity {
        let id = match chosen {
            Some(chosen) => format!("{prefix}-{chosen}"),
            None => format!("{prefix}-{}", Uuid::new_v4().simple()),
        };
        Identity {
            id,
            created: unix_seconds(),
            model: model.to_owned(),
            fingerprint: serving.facts.fingerprint.clone(),
            service_tier: None,
        }
    }

    /// The same, of an answer that had this tier.
    pub fn with_tier(self, service_tier: Option<&'static str>) -> Identity {
        Identity {
            service_tier,
            ..self
        }
    }

    pub fn head(&self, object: Object) -> api::answer::Head<'_> {
        api::answer::Head {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: &self.fingerprint,
            service_tier: self.service_tier,
        }
    }
}

/// Where a body is read and checked: the server, its model, and when the request came.
pub(crate) struct Desk {
    pub shared: Arc<Shared>,
    pub serving: Arc<Serving>,
    pub arrived: Instant,
    /// Of routes that ask the engine for work.
    pub entrance: Option<Entrance>,
}

impl Desk {
    /// For what is asked of no engine: every bound but a class's.
    pub fn admission(&self) -> Admission<'_> {
        Admission {
            serving: &self.serving,
            limits: &self.shared.config.limits,
            arrived: self.arrived,
            class: None,
        }
    }

    /// For what is: within the bounds of its class too.
    pub fn admission_of(&self, placed: &Placed) -> Admission<'_> {
        Admission {
            class: Some(placed.class(&self.shared)),
            ..self.admission()
        }
    }

    /// Decides the class.
    pub fn place(&self, urgency: Urgency, delivery: Delivery) -> Placed {
        let entrance = self.entrance.as_ref();
        let entrance = entrance.expect("whoever asks the engine for work came in by its head");
        entrance.place(&self.shared, urgency, delivery)
    }
}

/// Makes an endpoint's body into requests; may take long for a long body.
pub(crate) type Prepare<T> = fn(&Desk, &[u8]) -> Result<T, Refusal>;

/// Receives a body, prepares it, and answers: what all endpoints that generate do.
pub(crate) async fn create(
    shared: Arc<Shared>,
    request: Request,
    prepare: Prepare<Prepared>,
) -> Result<Response, Refusal> {
    let (serving, prepared) = receive(&shared, request, prepare).await?;
    respond(&shared, &serving, prepared).await
}

/// Receives a body and prepares it.
pub(crate) async fn receive<T: Send + 'static>(
    shared: &Arc<Shared>,
    request: Request,
    prepare: Prepare<T>,
) -> Result<(Arc<Serving>, T), Refusal> {
    let arrived = Instant::now();
    let serving = Arc::clone(shared.serving()?);
    let entrance = Entrance::of(shared, &request, arrived)?;
    // Before the body is read: an overloaded server must not spend its time on what it will
    // turn away.
    let room = serving.engine.expect_room();
    room.map_err(|error| refused_by_engine(shared, &error))?;
    let body = body::receive(shared, request).await?;
    let num_bytes = body.bytes.len();
    let desk = Desk {
        shared: Arc::clone(shared),
        serving: Arc::clone(&serving),
        arrived,
        entrance: Some(entrance),
    };
    let work = move || prepare(&desk, &body.bytes);
    let prepared = offload::run(shared, num_bytes, work).await?;
    Ok((serving, prepared))
}

/// Receives a body and works on it. The engine is not asked, so nothing is refused for load.
pub(crate) async fn at_desk(
    shared: Arc<Shared>,
    request: Request,
    work: Prepare<Response>,
) -> Result<Response, Refusal> {
    let desk = Desk {
        serving: Arc::clone(shared.loaded()?),
        shared: Arc::clone(&shared),
        arrived: Instant::now(),
        entrance: None,
    };
    let body = body::receive(&shared, request).await?;
    let num_bytes = body.bytes.len();
    offload::run(&shared, num_bytes, move || work(&desk, &body.bytes)).await
}

/// Hands the requests to the engine and answers as asked.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    prepared: Prepared,
) -> Result<Response, Refusal> {
    let Prepared {
        mut ask,
        dialect,
        mode,
    } = prepared;
    demand::meet(shared, serving, &mut ask).await?;
    let answers = ask.answers;
    let choices = Choices::submit(shared, serving, ask)?;
    match mode {
        Mode::Whole => whole::respond(shared, dialect, choices, answers).await,
        Mode::Stream => Ok(stream::respond(shared, dialect, choices)),
    }
}

pub(crate) fn refused_by_engine(shared: &Shared, error: &AdmitError) -> Refusal {
    let reason = error.to_string();
    match *error {
        // Both were checked before; the engine's own bounds may still be tighter.
        AdmitError::TooLong { .. } => Refusal::ContextLength {
            param: "max_tokens".to_owned(),
            message: reason,
        },
        AdmitError::EmptyPrompt | AdmitError::UnknownToken { .. } => Refusal::ForModel {
            param: "prompt".to_owned(),
            reason: format!("cannot be continued: {reason}"),
        },
        AdmitError::NothingAllowed => Refusal::ForModel {
            param: "allowed_token_ids".to_owned(),
            reason,
        },
        AdmitError::TooManyAnswers { .. } => Refusal::ForModel {
            param: "n".to_owned(),
            reason,
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
