//! Traffic classes: is a human waiting for this answer, or not?
//!
//! One idea: every request that generates has a *standing*, decided once, before any work, from
//! what it says (body, headers), who sends it (key) and where (route), in a documented order. The
//! scheduler reads the standing and nothing else of all that.
//!
//! ```text
//! fulcrum.toml ── config ──▶ Traffic (classes by rank, tenants, keys)
//!                               │
//! headers ── Wishes ──┐         ▼
//! body ── Body ───────┼──▶ Traffic::decide ──▶ Decision (class, reason, targets) ─┐
//! key, route ─────────┘                                                           ├─▶ Standing
//! key, fairness id ──────────▶ Tenants::enter ──▶ Lease (tenant, weight, bucket) ─┘
//! ```
//!
//! Pure: text and time are arguments. Not here: HTTP answers (`errors`), and which work is done
//! when (the scheduler).

mod config; // a file's text to classes, tenants and keys, or why not
mod quantity; // durations as they are written
mod sketch; // what the file may say, before it is checked

mod decide; // the class of a request, and why
mod tenants; // who shares what: a bounded table, token buckets

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use config::{ConfigError, NUM_CLASSES_MAX, NUM_KEYS_MAX, NUM_TENANTS_MAX, TEXT_BYTES_MAX};
pub use decide::{Body, Caller, Decision, Reason, Wishes};
pub use tenants::{Lease, NotEntered, OverShare, Tenants};

/// A class by its place: 0 goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

/// A tenant by its place in a bounded table; places are used again once a tenant has been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// A key of the configuration by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u16);

/// All that decides when a request's work is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Its class.
    pub class: ClassId,
    /// Whose it is.
    pub tenant: TenantId,
    /// That tenant's share relative to others, above 0.
    pub weight: f64,
    /// Order within the class and tenant; lower goes first.
    pub priority: i32,
    /// The first token is due this long after arrival.
    pub ttft: Option<Duration>,
    /// Each further token is due this long after the one before.
    pub itl: Option<Duration>,
}

/// What a class promises, expects and bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name in headers, metrics and the configuration.
    pub name: String,
    /// Classes go by ascending rank.
    pub rank: u16,
    /// Its targets.
    pub slo: Slo,
    /// Share of the engine's time it gets however much the classes before it want, 0 to 1.
    pub share_min: f64,
    /// What happens to what cannot meet its target.
    pub overload: Overload,
    /// Requests of it that may wait; the server's own bound holds besides.
    pub queue_max: Option<usize>,
    /// Answer tokens a request may have.
    pub output_tokens_max: Option<u32>,
    /// Tokens a request may have, prompt and answer together.
    pub context_tokens_max: Option<u32>,
    /// How long a request may take from its arrival to its end.
    pub timeout: Option<Duration>,
}

/// Targets of a class; none is a promise without a measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    /// 95 of 100 first tokens come this soon.
    pub ttft_p95: Option<Duration>,
    /// 99 of 100 gaps between tokens are at most this long.
    pub itl_p99: Option<Duration>,
    /// The whole answer is there this long after it was asked for.
    pub deadline: Option<Duration>,
}

/// What happens to a request that cannot meet its first-token target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// It waits.
    Queue,
    /// It is refused at once.
    Refuse,
}

/// A tenant's terms.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantTerms {
    /// Share relative to other tenants, above 0.
    pub weight: f64,
    /// Prompt and answer tokens it may use, in the long run; a minute's worth at once.
    pub tokens_per_minute: Option<u64>,
}

/// A tenant that the configuration names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTenant {
    /// Its name, also its fairness id if it has no keys.
    pub name: String,
    /// Its terms.
    pub terms: TenantTerms,
    /// Whether only its keys may speak for it.
    pub has_keys: bool,
}

/// A key that the configuration names.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// The name that classes and tenants use.
    pub name: String,
    /// SHA-256 of the key; the key itself is not kept.
    pub digest: [u8; 32],
    /// The class it is pinned to: none above it can be had with this key.
    pub class: Option<ClassId>,
    /// The tenant it speaks for, an index of [`Traffic::tenants`].
    pub tenant: Option<usize>,
}

impl std::fmt::Debug for NamedKey {
    /// Not the digest either: a weak key could be guessed from it.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "NamedKey({})", self.name)
    }
}

/// Everything about classes and tenants that an operator decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// By rank; a [`ClassId`] is an index. At least the three built-in ones.
    classes: Vec<Class>,
    /// Where requests go that say nothing.
    plain: Plain,
    /// Routes with a class of their own.
    routes: Vec<(String, ClassId)>,
    /// Keys by name; a [`KeyId`] is an index.
    keys: Vec<NamedKey>,
    /// Terms of tenants that the configuration does not name, each for itself.
    default_terms: TenantTerms,
    tenants: Vec<NamedTenant>,
}

/// The built-in classes among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plain {
    interactive: ClassId,
    standard: ClassId,
    batch: ClassId,
}

impl Traffic {
    /// The built-in classes, and nobody named.
    pub fn standard() -> Traffic {
        Traffic::parse("", |_| None).expect("an empty configuration is a valid one")
    }

    /// The classes, first to go first.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// A class.
    ///
    /// # Panics
    ///
    /// If the id is not of this configuration.
    pub fn class(&self, id: ClassId) -> &Class {
        &self.classes[usize::from(id.0)]
    }

    /// The class of this name.
    pub fn class_named(&self, name: &str) -> Option<ClassId> {
        let found = self.classes.iter().position(|class| class.name == name)?;
        Some(ClassId(u8::try_from(found).expect("bounded by the parser")))
    }

    /// The class of work that nobody waits for.
    pub fn batch(&self) -> ClassId {
        self.plain.batch
    }

    /// The keys, by [`KeyId`].
    pub fn keys(&self) -> &[NamedKey] {
        &self.keys
    }

    /// The tenants that have a name here.
    pub fn tenants(&self) -> &[NamedTenant] {
        &self.tenants
    }

    /// Terms of all others, each for itself.
    pub fn default_terms(&self) -> &TenantTerms {
        &self.default_terms
    }
}
