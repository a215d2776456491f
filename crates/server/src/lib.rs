//! The HTTP front of one engine: routes, admission, streams, metrics, life cycle.
//!
//! One idea: everything a client can do is decided before any work is done for it, and
//! nothing it does can hold up anybody else. A request is refused with a reason, or it
//! becomes an `engine::Request` and then only its events matter.
//!
//! Read in the order of a request's life:
//! `routes` → `body` → `dialect` (reads) → `admit` → `answer` → `choices` → `stream` or
//! `whole` → `dialect` (writes).
//!
//! Not here: what the wire looks like (`api`), which work is done when (`engine`), flags
//! and wording (`cli`). The model behind it is whatever [`LoadedModel`] carries.
#![forbid(unsafe_code)]

mod routes; // which path means what, and what stands around them all

mod body; // bytes, bounded
mod offload;
mod unread; // what a refusal left of a body // long work away from the async workers

mod enter; // who asks, and how urgently

mod admit; // every parameter against the model; the engine's request
mod answer; // submit, then stream or collect
mod slowest; // which requests took longest lately
mod watch; // where an answer's time goes, and what its class promised

mod choices; // the engine's events, joined; dropping them cancels
mod embed; // inputs to vectors
mod parse; // what the text of an answer consists of
mod talk; // tools and reasoning of a conversation

mod naming; // tokens and their log-probabilities in words

mod demand;
mod dialect; // what requests and answers look like on the wire
mod stream; // to server-sent events
mod whole; // to one document

mod errors; // why there is no answer, and whose fault it is
mod metrics; // what operators read

pub mod class; // is a human waiting?

mod auth; // who may call
mod observe; // ids, counts, the log, no panic that escapes

mod heart; // idle, busy, or stalled

mod accept; // connections
mod lifecycle; // loading, ready, draining, ended
mod socket; // two clocks that HTTP does not keep

mod config; // what the caller decides
mod kept; // responses to be asked for later
mod limits; // every bound
mod state; // what all routes share

pub use auth::{ApiKeys, EmptyKey, PUBLIC_PATHS};
pub use config::{
    LoadError, LoadedModel, ModelFacts, SamplingDefaults, ServerConfig, Signals, StartEngine,
};
pub use lifecycle::{Outcome, ServeError, Server, ShutdownHandle, run};
pub use limits::Limits;
pub use state::Phase;
