//! A request's way in: who sends it and what for, before its body is read; its class, once it is.
//!
//! ```text
//! head ── Entrance::of ──▶ Entrance (tenant's lease) ── body ── place ──▶ Placed ──▶ engine
//!              └─ 400, 429                                  └─▶ Told ──▶ response header
//! ```
//!
//! Not here: how a class is decided (`class`).

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use api::params::Delivery;
use api::report::Told as ReportTold;
use api::urgency::{ServiceTier, Urgency};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use engine::AdmitError;

use crate::answer::refused_by_engine;
use crate::class::{Body, Caller, Class, ClassId, KeyId, Lease, NotEntered, Slo, Standing, Wishes};
use crate::errors::Refusal;
use crate::slowest::Label;
use crate::state::{Serving, Shared};
use crate::watch::{Remembered, Watch};

/// The class of a request and what decided it.
pub(crate) const CLASS_HEADER: HeaderName = HeaderName::from_static("x-fulcrum-class");

/// Asks where the time goes.
const TIMELINE_HEADER: HeaderName = HeaderName::from_static("x-fulcrum-timeline");

/// What a request is called in the log and in its answer; travels with the request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub HeaderValue);

/// The key a request brought, if the configuration names it; travels with the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerKey(pub Option<KeyId>);

/// Where whoever answers finds the class, once it is decided; travels with the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<OnceLock<(ClassId, HeaderValue)>>);

impl Told {
    /// The header's value, if a class was decided.
    pub fn header(&self) -> Option<HeaderValue> {
        self.0.get().map(|(_, header)| header.clone())
    }

    /// It.
    pub fn class(&self) -> Option<ClassId> {
        self.0.get().map(|(class, _)| *class)
    }
}

/// What is known of a request before its body is read.
pub(crate) struct Entrance {
    key: Option<KeyId>,
    route: String,
    wishes: Wishes,
    lease: Arc<Lease>,
    told: Told,
    timeline: ReportTold,
    id: String,
    arrived: Instant,
}

/// A request with its class.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    // Read by the scheduler's side once it takes it.
    pub standing: Standing,
    /// `service_tier` of the answer, if the request names one.
    pub tier: Option<&'static str>,
    /// How long it may take from its arrival on.
    pub timeout: Option<Duration>,
    /// Whether the answer tells where its time went.
    pub timeline: ReportTold,
    remembered: Option<Remembered>,
    /// When it came.
    pub arrived: Instant,
    lease: Arc<Lease>,
}

impl Entrance {
    /// Reads the head and lets the request in as its tenant's.
    pub fn of(shared: &Shared, request: &Request, arrived: Instant) -> Result<Entrance, Refusal> {
        let traffic = &shared.config.traffic;
        let extensions = request.extensions();
        let key = extensions.get::<CallerKey>().and_then(|key| key.0);
        let route = extensions.get::<MatchedPath>();
        let wishes = Wishes::read(request.headers(), traffic)?;
        let fairness = wishes.fairness.as_deref();
        let entered = shared.tenants.enter(traffic, key, fairness, arrived);
        let lease = entered.map_err(|error| match error {
            NotEntered::NotYours(error) => Refusal::Request(error),
            NotEntered::OverShare(over) => Refusal::TenantOverShare {
                retry_after: over.retry_after,
            },
        })?;
        let id = extensions
            .get::<RequestId>()
            .and_then(|id| id.0.to_str().ok());
        Ok(Entrance {
            timeline: timeline(request.headers())?,
            id: id.unwrap_or_default().to_owned(),
            key,
            route: route.map_or("", MatchedPath::as_str).to_owned(),
            wishes,
            lease: Arc::new(lease),
            told: extensions.get::<Told>().cloned().unwrap_or_default(),
            arrived,
        })
    }

    /// Decides the class, now that the body is known, and tells whoever will answer.
    pub fn place(&self, shared: &Shared, urgency: Urgency, delivery: Delivery) -> Placed {
        let traffic = &shared.config.traffic;
        let caller = Caller {
            key: self.key,
            route: &self.route,
        };
        let body = Body {
            service_tier: urgency.service_tier,
            priority: urgency.priority,
            streams: matches!(delivery, Delivery::Stream(_)),
        };
        let decision = traffic.decide(caller, &self.wishes, body);
        let header = HeaderValue::try_from(decision.header(traffic));
        // Names are plain by the configuration's rule. A request is placed once.
        let header = header.expect("names of classes are plain");
        let _ = self.told.0.set((decision.class, header));
        let class = traffic.class(decision.class);
        let tier = |asked: ServiceTier| decision.told_tier(traffic, asked);
        let remembered = shared.slowest.as_ref().map(|slowest| Remembered {
            slowest: Arc::clone(slowest),
            label: Arc::new(Label {
                id: self.id.clone(),
                route: self.route.clone(),
                class: class.name.clone(),
            }),
        });
        Placed {
            timeline: self.timeline,
            remembered,
            standing: decision.standing(&self.lease),
            tier: urgency.service_tier.map(tier),
            timeout: urgency.timeout.into_iter().chain(class.timeout).min(),
            arrived: self.arrived,
            lease: Arc::clone(&self.lease),
        }
    }
}

/// Whether the head asks where the time went.
fn timeline(headers: &HeaderMap) -> Result<ReportTold, Refusal> {
    let mut values = headers.get_all(TIMELINE_HEADER).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        (None | Some(b"0"), None) => Ok(ReportTold::Left),
        (Some(b"1"), None) => Ok(ReportTold::Told),
        _ => Err(Refusal::Request(api::RequestError::Invalid {
            param: TIMELINE_HEADER.to_string(),
            expected: "1 or 0".to_owned(),
            got: "another value".to_owned(),
        })),
    }
}

impl Placed {
    /// Refuses what an answer of this dialect has no place for.
    pub fn expect_no_timeline(&self) -> Result<(), Refusal> {
        match self.timeline {
            ReportTold::Left => Ok(()),
            ReportTold::Told => Err(Refusal::ForModel {
                param: TIMELINE_HEADER.to_string(),
                reason: "is for /v1/chat/completions and /v1/completions".to_owned(),
            }),
        }
    }

    /// Its class.
    pub fn class<'s>(&self, shared: &'s Shared) -> &'s Class {
        shared.config.traffic.class(self.standing.class)
    }

    /// Hands `num_new` answers to the engine, unless as many of its class wait already as may. `submit`
    /// gets a maker of watches.
    pub fn queue<T>(
        &self,
        shared: &Shared,
        serving: &Serving,
        num_new: usize,
        submit: impl FnOnce(&dyn Fn() -> Arc<Watch>) -> Result<T, AdmitError>,
    ) -> Result<T, Refusal> {
        let class = self.class(shared);
        let books = shared.metrics.class(self.standing.class);
        let door = books.door();
        let num_waiting = books.num_waiting();
        // More at once than may wait would hear "try again" for ever, so they are taken when no other
        // waits; and who can start at once does not wait.
        let is_full = |bound| num_waiting > 0 && num_waiting + num_new > bound;
        if class.queue_max.is_some_and(is_full) && serving.is_busy() {
            return Err(Refusal::ClassQueueFull {
                class: class.name.clone(),
                retry_after: shared.config.limits.retry_after,
            });
        }
        let targets = Slo {
            ttft_p95: self.standing.ttft,
            itl_p99: self.standing.itl,
            deadline: class.slo.deadline,
        };
        let watch = || {
            let now = Instant::now();
            let work = shared.heart.begin(now);
            let watch = Watch::new(books, targets, self.arrived, now, work);
            Arc::new(watch.remember(self.remembered.clone()))
        };
        let taken = submit(&watch);
        drop(door);
        taken.map_err(|error| refused_by_engine(shared, &error))
    }

    /// Takes tokens from its tenant's bucket.
    pub fn charge(&self, num_tokens: u64) {
        self.lease.charge(num_tokens, Instant::now());
    }

    /// What of its time is left; `None` if there is no limit.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        let spent = now.saturating_duration_since(self.arrived);
        Some(self.timeout?.saturating_sub(spent))
    }
}
