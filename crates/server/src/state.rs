//! What all routes share, and the one question they all ask first: can this server
//! answer now?
//!
//! ```text
//! Loading ──model there──▶ Ready ──told to stop──▶ Draining
//! ```

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use engine::EngineHandle;
use engine::constrain::Compiler;
use text::{ChatTemplate, TokenId, Tokenizer};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::auth::ApiKeys;
use crate::class::Tenants;
use crate::config::{ModelFacts, ServerConfig};
use crate::errors::Refusal;
use crate::heart::{Heart, Pulse};
use crate::kept::Kept;
use crate::metrics::Metrics;
use crate::slowest::Slowest;

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The model is being loaded; nothing can be answered yet.
    Loading,
    /// Requests are answered.
    Ready,
    /// Running answers go on, new ones are refused.
    Draining,
}

/// What all routes share.
pub(crate) struct Shared {
    pub config: ServerConfig,
    /// Every key that opens the routes.
    pub keys: ApiKeys,
    pub tenants: Tenants,
    /// If the operator wants to look at it.
    pub slowest: Option<Arc<Slowest>>,
    /// Whether the engine's steps end.
    pub heart: Arc<Heart>,
    pub metrics: Metrics,
    /// Bytes that bodies may still take.
    pub body_bytes: Arc<Semaphore>,
    /// Turns for preparing large bodies.
    pub preparing: Arc<Semaphore>,
    /// Responses that may be asked for later.
    pub kept: Kept,
    /// Places for responses that nobody waits for.
    pub background: Arc<Semaphore>,
    /// Turns for compiling constraints.
    pub compiling: Arc<Semaphore>,
    /// Cancelled when answers that still run must end, whatever the engine is doing.
    pub cut: CancellationToken,
    phase: watch::Sender<Phase>,
    serving: OnceLock<Arc<Serving>>,
    unknown_fields: Mutex<BTreeSet<String>>,
}

/// Field names nobody knows that are remembered, so that each is logged once. Beyond
/// this many, somebody is making them up.
const NUM_UNKNOWN_FIELDS_MAX: usize = 64;
/// Longer names are not worth a log line.
const UNKNOWN_FIELD_BYTES_MAX: usize = 64;

impl Shared {
    pub fn new(config: ServerConfig) -> Shared {
        let limits = &config.limits;
        let heart = Arc::new(Heart::default());
        Shared {
            keys: config.api_keys.with_named(config.traffic.keys()),
            tenants: Tenants::new(&config.traffic, Instant::now()),
            metrics: Metrics::new(&config.served_names[0], &config.traffic, &heart),
            heart,
            slowest: config.debug_endpoints.then(Arc::default),
            body_bytes: Arc::new(Semaphore::new(limits.bodies_bytes_max)),
            preparing: Arc::new(Semaphore::new(limits.num_preparing_max)),
            kept: Kept::new(limits),
            background: Arc::new(Semaphore::new(limits.num_background_max)),
            compiling: Arc::new(Semaphore::new(limits.num_compiling_max)),
            cut: CancellationToken::new(),
            phase: watch::Sender::new(Phase::Loading),
            serving: OnceLock::new(),
            unknown_fields: Mutex::new(BTreeSet::new()),
            config,
        }
    }

    /// Bytes that bodies take right now.
    pub fn body_bytes_in_use(&self) -> usize {
        let limit = self.config.limits.bodies_bytes_max;
        limit.saturating_sub(self.body_bytes.available_permits())
    }

    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// The model is there: from now on requests are answered.
    pub fn become_ready(&self, serving: Serving) {
        self.metrics.engine_started(&serving);
        let stats = Arc::clone(serving.engine.stats());
        self.heart.listen(stats, Instant::now());
        // So that the first constrained request need not wait for it.
        serving.compiler.warm_up();
        let first = self.serving.set(Arc::new(serving)).is_ok();
        assert!(first, "a server loads one model once");
        self.phase.send_replace(Phase::Ready);
    }

    pub fn become_draining(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// How the engine's step loop is.
    pub fn pulse(&self) -> Pulse {
        self.heart.pulse(Instant::now(), self.config.stall_limit)
    }

    /// The model, if it can answer now.
    pub fn serving(&self) -> Result<&Arc<Serving>, Refusal> {
        let retry_after = self.config.limits.retry_after;
        match self.phase() {
            Phase::Loading => Err(Refusal::Loading { retry_after }),
            Phase::Ready => Ok(self.serving.get().expect("set before the phase changes")),
            Phase::Draining => Err(Refusal::Draining { retry_after }),
        }
    }

    /// The model, once it was loaded, even while draining.
    pub fn loaded(&self) -> Result<&Arc<Serving>, Refusal> {
        let retry_after = self.config.limits.retry_after;
        self.serving.get().ok_or(Refusal::Loading { retry_after })
    }

    /// The served name a request means.
    pub fn served_name(&self, requested: Option<&str>) -> Result<&str, Refusal> {
        let names = &self.config.served_names;
        match requested {
            // There is one model: leaving the name out cannot mean another.
            None => Ok(&names[0]),
            Some(requested) => names
                .iter()
                .find(|name| *name == requested)
                .map(String::as_str)
                .ok_or_else(|| self.unknown_model()),
        }
    }

    /// Tells which models there are.
    pub fn unknown_model(&self) -> Refusal {
        Refusal::UnknownModel {
            served: self.config.served_names.join(", "),
        }
    }

    /// Says once in the log that a field is nobody's.
    pub fn note_unknown(&self, fields: &[String]) {
        if fields.is_empty() {
            return;
        }
        let mut seen = self
            .unknown_fields
            .lock()
            .expect("nothing panics while holding it");
        for field in fields {
            let fits =
                field.len() <= UNKNOWN_FIELD_BYTES_MAX && seen.len() < NUM_UNKNOWN_FIELDS_MAX;
            if fits && seen.insert(field.clone()) {
                tracing::warn!(field = ?field, "unknown request field ignored (said once)");
            }
        }
    }
}

/// A loaded model with its running engine.
pub(crate) struct Serving {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub engine: EngineHandle,
    /// Makes constraints over the vocabulary.
    pub compiler: Compiler,
    pub facts: ModelFacts,
    /// When it was loaded, seconds since 1970.
    pub created: u64,
    /// Bytes of the longest token: a text of `n` bytes has at least `n / this` tokens,
    /// so what cannot fit is refused before the tokenizer sees it.
    pub token_bytes_max: usize,
}

impl Serving {
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
        engine: EngineHandle,
        facts: ModelFacts,
    ) -> Serving {
        let ids = (0..tokenizer.vocab()).filter_map(|id| u32::try_from(id).ok());
        // Of a control token, the text counts: that is what a prompt spells out.
        let length = |id| {
            let bytes = tokenizer.token_bytes(TokenId(id)).map_or(0, <[u8]>::len);
            bytes.max(tokenizer.token_text(TokenId(id)).map_or(0, str::len))
        };
        let token_bytes_max = ids.map(length).max().unwrap_or(1).max(1);
        let vocabulary = Arc::clone(&tokenizer);
        Serving {
            compiler: Compiler::new(vocabulary, engine::constrain::Limits::STANDARD),
            tokenizer,
            template,
            engine,
            facts,
            created: unix_seconds(),
            token_bytes_max,
        }
    }

    /// Whether one more sequence would have to wait for a place.
    pub fn is_busy(&self) -> bool {
        let stats = self.engine.stats();
        let num_there = stats.num_running.load(Relaxed) + stats.num_waiting.load(Relaxed);
        num_there >= self.facts.engine_limits.num_sequences_max as u64
    }

    /// Longest sequence that can ever run, prompt and answer together: the context, or the
    /// whole KV pool if less.
    pub fn sequence_tokens_max(&self) -> usize {
        let facts = &self.facts;
        let pool = facts.num_blocks * facts.block_tokens;
        facts
            .context_max
            .min(facts.engine_limits.context_max)
            .min(pool)
    }
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
