//! Who shares what: tenants by name in a table of bounded size, each with a token bucket.
//!
//! ```text
//! place   0        1 … n              n+1 … num_max-1
//!         default  the file's tenants  fairness ids as they come; idle ones make room
//! ```
//!
//! A fairness id is a client's word, so it must not cost memory without bound, and must not get
//! rid of a debt: a place is given away only if nothing of its tenant is in flight and its bucket
//! is full again. If none can be, the newcomer shares the default's place.
//!
//! The bucket is one of debts. A request is let in while anything is left; what it used is taken
//! when it is known, below zero if need be, and the refill pays that back before the next one. So
//! the long-run rate holds exactly, and no request is too large to ever be let in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::RequestError;

use super::decide::{FAIRNESS_HEADER, invalid};
use super::{KeyId, TenantId, TenantTerms, Traffic};

/// Places for fairness ids that the configuration does not name.
const NUM_UNNAMED_MAX: usize = 4096;

/// A tenant used what it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverShare {
    /// Until its bucket has something again.
    pub retry_after: Duration,
}

/// Why a request is of no tenant.
#[derive(Clone, Debug, PartialEq)]
pub enum NotEntered {
    /// Its fairness id is not its to use.
    NotYours(RequestError),
    /// Its tenant used what it may.
    OverShare(OverShare),
}

/// The table. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Tenants {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug)]
struct Table {
    places: Vec<Place>,
    /// Of unnamed tenants only.
    by_fairness: HashMap<String, u32>,
    num_named: usize,
    num_places_max: usize,
    default_terms: TenantTerms,
    /// Where to look next for an idle tenant, so that all take turns.
    next_idx: usize,
}

#[derive(Debug)]
struct Place {
    fairness: String,
    weight: f64,
    num_in_flight: usize,
    bucket: Option<Bucket>,
}

/// Tokens that may be used, filling at a steady rate up to a minute's worth.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens_per_minute: f64,
    /// Below zero: a debt.
    level: f64,
    at: Instant,
}

/// A request's place at its tenant, for as long as it is in flight.
#[derive(Debug)]
pub struct Lease {
    id: TenantId,
    weight: f64,
    tenants: Tenants,
}

impl Tenants {
    /// The configuration's tenants, with full buckets.
    pub fn new(traffic: &Traffic, now: Instant) -> Tenants {
        Tenants::with_places(traffic, NUM_UNNAMED_MAX, now)
    }

    /// The same with room for another number of unnamed tenants.
    pub fn with_places(traffic: &Traffic, num_unnamed_max: usize, now: Instant) -> Tenants {
        let default = Place::new("", traffic.default_terms(), now);
        let named = traffic.tenants().iter();
        let named = named.map(|tenant| Place::new(&tenant.name, &tenant.terms, now));
        let places: Vec<Place> = std::iter::once(default).chain(named).collect();
        Tenants {
            table: Arc::new(Mutex::new(Table {
                num_named: places.len(),
                num_places_max: places.len() + num_unnamed_max,
                places,
                by_fairness: HashMap::new(),
                default_terms: traffic.default_terms().clone(),
                next_idx: 0,
            })),
        }
    }

    /// Lets a request in as its tenant's: the key's, else the one its fairness id names, else the
    /// default. Costs a look-up, and once a new id finds all places taken a walk over them.
    ///
    /// # Errors
    ///
    /// [`NotEntered`]; then it counts nowhere.
    pub fn enter(
        &self,
        traffic: &Traffic,
        key: Option<KeyId>,
        fairness: Option<&str>,
        now: Instant,
    ) -> Result<Lease, NotEntered> {
        let of_key = key.and_then(|key| traffic.keys()[usize::from(key.0)].tenant);
        let named = match (of_key, fairness) {
            (Some(idx), _) => Some(idx),
            (None, Some(name)) => of_name(traffic, name).map_err(NotEntered::NotYours)?,
            (None, None) => None,
        };
        let mut table = self.lock();
        let idx = match (named, fairness) {
            // The default stands before the named ones.
            (Some(idx), _) => idx + 1,
            (None, Some(name)) if name != "default" => table.of_fairness(name, now),
            (None, _) => 0,
        };
        let place = &mut table.places[idx];
        if let Some(bucket) = &mut place.bucket {
            bucket.expect_some(now).map_err(NotEntered::OverShare)?;
        }
        place.num_in_flight += 1;
        let weight = place.weight;
        drop(table);
        Ok(Lease {
            id: TenantId(u32::try_from(idx).expect("places are bounded")),
            weight,
            tenants: self.clone(),
        })
    }

    /// Tenants that have a place.
    pub fn num_places(&self) -> usize {
        self.lock().places.len()
    }

    /// No code that could panic leaves the table in pieces.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The named tenant that a fairness id means. One with keys is spoken for by them alone.
fn of_name(traffic: &Traffic, name: &str) -> Result<Option<usize>, RequestError> {
    let found = traffic
        .tenants()
        .iter()
        .position(|tenant| tenant.name == name);
    match found {
        Some(idx) if traffic.tenants()[idx].has_keys => {
            let expected = "a tenant that may be spoken for without one of its keys";
            Err(invalid(FAIRNESS_HEADER, expected))
        }
        found => Ok(found),
    }
}

impl Table {
    /// The place of an unnamed tenant: its own, a new one, an idle one's, or the default's.
    fn of_fairness(&mut self, name: &str, now: Instant) -> usize {
        if let Some(&idx) = self.by_fairness.get(name) {
            return idx as usize;
        }
        let place = Place::new(name, &self.default_terms, now);
        let idx = if self.places.len() < self.num_places_max {
            self.places.push(place);
            self.places.len() - 1
        } else {
            let Some(idx) = self.idle(now) else { return 0 };
            let left = std::mem::replace(&mut self.places[idx], place);
            self.by_fairness.remove(&left.fairness);
            idx
        };
        let place = u32::try_from(idx).expect("places are bounded");
        self.by_fairness.insert(name.to_owned(), place);
        idx
    }

    fn idle(&mut self, now: Instant) -> Option<usize> {
        let num_unnamed = self.places.len() - self.num_named;
        let turn = |turn| self.num_named + (self.next_idx + turn) % num_unnamed;
        let idx = (0..num_unnamed)
            .map(turn)
            .find(|&idx| self.places[idx].is_idle(now))?;
        self.next_idx = idx - self.num_named + 1;
        Some(idx)
    }
}

impl Place {
    fn new(fairness: &str, terms: &TenantTerms, now: Instant) -> Place {
        let full = |tokens_per_minute: u64| Bucket {
            tokens_per_minute: tokens_per_minute as f64,
            level: tokens_per_minute as f64,
            at: now,
        };
        Place {
            fairness: fairness.to_owned(),
            weight: terms.weight,
            num_in_flight: 0,
            bucket: terms.tokens_per_minute.map(full),
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_full = |bucket: Bucket| bucket.level_at(now) >= bucket.tokens_per_minute;
        self.num_in_flight == 0 && self.bucket.is_none_or(is_full)
    }
}

impl Bucket {
    fn level_at(&self, now: Instant) -> f64 {
        let refilled =
            now.saturating_duration_since(self.at).as_secs_f64() / 60.0 * self.tokens_per_minute;
        (self.level + refilled).min(self.tokens_per_minute)
    }

    fn expect_some(&mut self, now: Instant) -> Result<(), OverShare> {
        let level = self.level_at(now);
        if level >= 1.0 {
            return Ok(());
        }
        let seconds = (1.0 - level) * 60.0 / self.tokens_per_minute;
        Err(OverShare {
            retry_after: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        })
    }

    fn charge(&mut self, num_tokens: u64, now: Instant) {
        self.level = self.level_at(now) - num_tokens as f64;
        // A clock read on another thread may be a little behind.
        self.at = self.at.max(now);
    }
}

impl Lease {
    /// Whose it is.
    pub fn id(&self) -> TenantId {
        self.id
    }

    /// That tenant's weight.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Takes tokens that the request used from its tenant's bucket.
    pub fn charge(&self, num_tokens: u64, now: Instant) {
        let mut table = self.tenants.lock();
        if let Some(bucket) = &mut table.places[self.id.0 as usize].bucket {
            bucket.charge(num_tokens, now);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut table = self.tenants.lock();
        table.places[self.id.0 as usize].num_in_flight -= 1;
    }
}
