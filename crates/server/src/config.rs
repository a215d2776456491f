//! What the caller decides: where to listen, who may call, which model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{EngineHandle, EngineLimits, Observer, Pooling};
use text::{ChatTemplate, Tokenizer};

use crate::auth::ApiKeys;
use crate::class::Traffic;
use crate::limits::Limits;

/// Settings of one server. No `Default`: the caller decides.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one. Loopback unless the operator says otherwise.
    pub address: SocketAddr,
    /// Names requests may use for the model, at least one; the first is the default and
    /// the `model_name` of metrics.
    pub served_names: Vec<String>,
    /// Keys without a name that open the routes; with none, and none in `traffic`, everything is
    /// open.
    pub api_keys: ApiKeys,
    /// Classes, tenants, and keys with names.
    pub traffic: Traffic,
    /// Origins whose scripts may call (`*` for any); none, and no CORS header is sent.
    pub allowed_origins: Vec<String>,
    /// How long running answers may go on after the server was told to stop.
    pub drain_limit: Duration,
    /// Work without the end of a step for longer than this is a stalled engine: `/livez` turns red.
    pub stall_limit: Duration,
    /// Threads of the HTTP side, apart from the engine's, at least 1.
    pub num_http_threads: usize,
    /// How the hidden states of an input become its embedding.
    pub pooling: Pooling,
    /// Whether `/debug/requests` exists: ids, routes and times of others' requests.
    pub debug_endpoints: bool,
    /// What signals do.
    pub signals: Signals,
    /// Bounds.
    pub limits: Limits,
}

/// What SIGTERM and SIGINT do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// The first drains, the second stops at once.
    Drain,
    /// They are somebody else's business.
    Ignore,
}

/// Starts the engine thread around a loaded model, telling it whom to report to.
pub type StartEngine = Box<dyn FnOnce(Box<dyn Observer>) -> (EngineHandle, JoinHandle<()>) + Send>;

/// Why a model could not be loaded, in its loader's own words.
pub type LoadError = Box<dyn std::error::Error + Send + Sync>;

/// A model ready to answer.
pub struct LoadedModel {
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template; without one, chat requests are refused.
    pub template: Option<ChatTemplate>,
    /// Fixed facts.
    pub facts: ModelFacts,
    /// Starts its engine.
    pub start_engine: StartEngine,
}

/// Fixed facts about a loaded model and its engine.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Equal fingerprints give equal greedy bytes; `system_fingerprint` of answers.
    pub fingerprint: String,
    /// Longest sequence the model was made for, in tokens; the engine's own bound may be
    /// tighter.
    pub context_max: usize,
    /// Values of an embedding.
    pub hidden: usize,
    /// KV blocks of the pool.
    pub num_blocks: usize,
    /// Positions a block holds.
    pub block_tokens: usize,
    /// How their keys and values are stored, in the words of `--kv-type`.
    pub kv_type: &'static str,
    /// The bounds the engine was started with.
    pub engine_limits: EngineLimits,
    /// The model file's own sampling defaults.
    pub defaults: SamplingDefaults,
}

/// What a request leaves open, as the model's authors would have it; `None` is OpenAI's
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// 0 to 2.
    pub temperature: Option<f32>,
    /// Above 0, at most 1.
    pub top_p: Option<f32>,
    /// At least 1.
    pub top_k: Option<u32>,
    /// 0 to 1.
    pub min_p: Option<f32>,
    /// Above 0.
    pub repetition_penalty: Option<f32>,
}
