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
use api::urgency::{ServiceTier, Urgency};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue};

use crate::class::{Body, Caller, Class, KeyId, Lease, NotEntered, Standing, Wishes};
use crate::errors::Refusal;
use crate::state::Shared;

/// The class of a request and what decided it.
pub(crate) const CLASS_HEADER: HeaderName = HeaderName::from_static("x-fulcrum-class");

/// The key a request brought, if the configuration names it; travels with the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerKey(pub Option<KeyId>);

/// Where whoever answers finds the class, once it is decided; travels with the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<OnceLock<HeaderValue>>);

impl Told {
    /// The header's value, if a class was decided.
    pub fn header(&self) -> Option<HeaderValue> {
        self.0.get().cloned()
    }
}

/// What is known of a request before its body is read.
pub(crate) struct Entrance {
    key: Option<KeyId>,
    route: String,
    wishes: Wishes,
    lease: Arc<Lease>,
    told: Told,
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
        Ok(Entrance {
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
        let _ = self.told.0.set(header.expect("names of classes are plain"));
        let class = traffic.class(decision.class);
        let tier = |asked: ServiceTier| decision.told_tier(traffic, asked);
        Placed {
            standing: decision.standing(&self.lease),
            tier: urgency.service_tier.map(tier),
            timeout: urgency.timeout.into_iter().chain(class.timeout).min(),
            arrived: self.arrived,
            lease: Arc::clone(&self.lease),
        }
    }
}

impl Placed {
    /// Its class.
    pub fn class<'s>(&self, shared: &'s Shared) -> &'s Class {
        shared.config.traffic.class(self.standing.class)
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
