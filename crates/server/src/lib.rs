//! The HTTP front of one engine: routes, admission, streams, metrics, life cycle.
//!
//! One idea: everything a client can do is decided before any work is done for it, and
//! nothing it does can hold up anybody else. A request is refused with a reason, or it
//! becomes an `engine::Request` and then only its events matter.
//!
//! Read in the order of a request's life:
//! [`routes`] → [`body`] → [`admit`] → [`answer`] → [`stream`] or [`whole`].
//!
//! Not here: what the wire looks like (`api`), which work is done when (`engine`), flags
//! and wording (`cli`). The model behind it is whatever [`LoadedModel`] carries.
#![forbid(unsafe_code)]

mod routes;

mod admit;
mod answer;
mod body;
mod offload;
mod stream;
mod whole;

mod errors;
mod metrics;

mod auth;
mod observe;

mod accept;
mod lifecycle;
mod socket;

mod config;
mod limits;
mod state;

pub use auth::{ApiKeys, EmptyKey, PUBLIC_PATHS};
pub use config::{
    LoadError, LoadedModel, ModelFacts, SamplingDefaults, ServerConfig, Signals, StartEngine,
};
pub use lifecycle::{Outcome, ServeError, Server, ShutdownHandle, run};
pub use limits::Limits;
pub use state::Phase;
