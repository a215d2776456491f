//! The class of a request, and why. The first of these that says something decides:
//!
//! 1. `service_tier` in the body, unless it says `auto` or `default`
//! 2. the header `x-gateway-inference-objective`, which names a class
//! 3. the API key, if a class lists it
//! 4. the route, if a class lists it
//! 5. nothing: interactive if the answer is streamed, standard if not
//!
//! A key that a class lists is also a limit: what would be above that class is of that class.

use std::time::Duration;

use api::RequestError;
use api::urgency::ServiceTier;
use axum::http::HeaderMap;

use super::quantity::decimal;
use super::{ClassId, KeyId, Standing, Traffic};

/// Targets of a request in milliseconds.
const TTFT_HEADER: &str = "x-slo-ttft-ms";
const TPOT_HEADER: &str = "x-slo-tpot-ms";
/// The Gateway API's words for a class and a tenant.
const OBJECTIVE_HEADER: &str = "x-gateway-inference-objective";
pub(super) const FAIRNESS_HEADER: &str = "x-gateway-inference-fairness-id";
/// An hour: no human waits longer for a token.
const TARGET_MS_MAX: f64 = 3_600_000.0;
/// Longer fairness ids are refused: they are kept.
const FAIRNESS_BYTES_MAX: usize = 128;

/// What a request's headers ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// A class.
    pub objective: Option<ClassId>,
    /// A tenant's fairness id: 1 to 128 visible ASCII characters.
    pub fairness: Option<String>,
    /// Its own target for the first token.
    pub ttft: Option<Duration>,
    /// Its own target for the gaps between tokens.
    pub itl: Option<Duration>,
}

/// What a request's body asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// `service_tier`.
    pub service_tier: Option<ServiceTier>,
    /// vLLM's `priority`: lower goes first, within the class.
    pub priority: i32,
    /// Whether the answer is streamed.
    pub streams: bool,
}

/// Who sends a request, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    /// Its key, if the configuration names it.
    pub key: Option<KeyId>,
    /// The route's path.
    pub route: &'a str,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `service_tier` in the body.
    ServiceTier,
    /// The objective header.
    Objective,
    /// The key.
    Key,
    /// The key does not allow the class that was asked for.
    KeyLimit,
    /// The route.
    Route,
    /// Nothing, and the answer is streamed.
    Streams,
    /// Nothing at all.
    Default,
}

impl Reason {
    /// The word of the response header.
    pub fn word(self) -> &'static str {
        match self {
            Reason::ServiceTier => "service_tier",
            Reason::Objective => "objective",
            Reason::Key => "key",
            Reason::KeyLimit => "key_limit",
            Reason::Route => "route",
            Reason::Streams => "streams",
            Reason::Default => "default",
        }
    }
}

/// The class of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// It.
    pub class: ClassId,
    /// What decided.
    pub reason: Reason,
    /// The request's own order within the class.
    pub priority: i32,
    /// Its own target, else the class's.
    pub ttft: Option<Duration>,
    /// Its own target, else the class's.
    pub itl: Option<Duration>,
}

impl Wishes {
    /// Reads the headers that concern classes.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`], naming the header, for what stands there twice, is no number or
    /// names no class.
    pub fn read(headers: &HeaderMap, traffic: &Traffic) -> Result<Wishes, RequestError> {
        let objective = match single(headers, OBJECTIVE_HEADER)? {
            None => None,
            Some(name) => Some(traffic.class_named(name).ok_or_else(|| {
                let names: Vec<&str> = traffic
                    .classes
                    .iter()
                    .map(|class| class.name.as_str())
                    .collect();
                invalid(
                    OBJECTIVE_HEADER,
                    &format!("one of the classes {}", names.join(", ")),
                )
            })?),
        };
        let fairness = single(headers, FAIRNESS_HEADER)?;
        let fits = |id: &str| {
            (1..=FAIRNESS_BYTES_MAX).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if fairness.is_some_and(|id| !fits(id)) {
            let expected = format!("1 to {FAIRNESS_BYTES_MAX} visible ASCII characters");
            return Err(invalid(FAIRNESS_HEADER, &expected));
        }
        Ok(Wishes {
            objective,
            fairness: fairness.map(str::to_owned),
            ttft: target(headers, TTFT_HEADER)?,
            itl: target(headers, TPOT_HEADER)?,
        })
    }
}

/// A header's value; refused if it stands there twice or is no ASCII text.
fn single<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>, RequestError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid(name, "one value"));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text.trim())),
        Err(_) => Err(invalid(name, "ASCII text")),
    }
}

fn target(headers: &HeaderMap, name: &'static str) -> Result<Option<Duration>, RequestError> {
    let Some(text) = single(headers, name)? else {
        return Ok(None);
    };
    let ms = decimal(text).filter(|&ms| ms <= TARGET_MS_MAX);
    let target = ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
    match target.filter(|target| *target > Duration::ZERO) {
        Some(target) => Ok(Some(target)),
        None => Err(invalid(
            name,
            "a number of milliseconds above 0 and at most 3600000",
        )),
    }
}

/// The value is not repeated: it may be long, or somebody's.
pub(super) fn invalid(param: &str, expected: &str) -> RequestError {
    RequestError::Invalid {
        param: param.to_owned(),
        expected: expected.to_owned(),
        got: "another value".to_owned(),
    }
}

impl Traffic {
    /// The class of a request, and why; see the module for the order.
    pub fn decide(&self, caller: Caller<'_>, wishes: &Wishes, body: Body) -> Decision {
        let pinned = caller
            .key
            .and_then(|key| self.keys[usize::from(key.0)].class);
        let (wanted, reason) = self.wanted(caller, pinned, wishes, body);
        let (class, reason) = match pinned {
            Some(limit) if wanted < limit => (limit, Reason::KeyLimit),
            _ => (wanted, reason),
        };
        let slo = self.class(class).slo;
        Decision {
            class,
            reason,
            priority: body.priority,
            ttft: wishes.ttft.or(slo.ttft_p95),
            itl: wishes.itl.or(slo.itl_p99),
        }
    }

    fn wanted(
        &self,
        caller: Caller<'_>,
        pinned: Option<ClassId>,
        wishes: &Wishes,
        body: Body,
    ) -> (ClassId, Reason) {
        let plain = self.plain;
        let tier = match body.service_tier {
            None | Some(ServiceTier::Auto | ServiceTier::Default) => None,
            Some(ServiceTier::Priority) => Some(plain.interactive),
            Some(ServiceTier::Flex) => Some(plain.standard),
            Some(ServiceTier::Batch) => Some(plain.batch),
        };
        let route = || {
            let found = self.routes.iter().find(|(route, _)| route == caller.route);
            found.map(|&(_, class)| class)
        };
        if let Some(class) = tier {
            (class, Reason::ServiceTier)
        } else if let Some(class) = wishes.objective {
            (class, Reason::Objective)
        } else if let Some(class) = pinned {
            (class, Reason::Key)
        } else if let Some(class) = route() {
            (class, Reason::Route)
        } else if body.streams {
            (plain.interactive, Reason::Streams)
        } else {
            (plain.standard, Reason::Default)
        }
    }
}

impl Decision {
    /// The value of the response header.
    pub fn header(&self, traffic: &Traffic) -> String {
        let name = &traffic.class(self.class).name;
        format!("{name}; reason=\"{}\"", self.reason.word())
    }

    /// `service_tier` of the answer: what the request got, in OpenAI's words.
    pub fn told_tier(&self, traffic: &Traffic, asked: ServiceTier) -> &'static str {
        let plain = traffic.plain;
        match asked {
            _ if self.class == plain.batch => "batch",
            ServiceTier::Priority if self.class == plain.interactive => "priority",
            ServiceTier::Flex if self.class == plain.standard => "flex",
            _ => "default",
        }
    }

    /// With a tenant it is a standing.
    pub fn standing(&self, tenant: &super::Lease) -> Standing {
        Standing {
            class: self.class,
            tenant: tenant.id(),
            weight: tenant.weight(),
            priority: self.priority,
            ttft: self.ttft,
            itl: self.itl,
        }
    }
}
