//! What operators, autoscalers and endpoint pickers read.
//!
//! Two sources, none of which can be held up by the engine: counters and histograms that
//! the engine thread feeds through [`observer`] as things happen, and gauges that
//! [`gauges`] reads from its atomics while a scrape is rendered. The `vllm:` names are a
//! mirror, so that existing dashboards work unchanged; `fulcrum_` names are our own.
//!
//! Label values come from fixed sets (the model's name is the operator's): nothing a
//! client sends can add a time series.
//!
//! `docs/reference/metrics.md` explains every family; a test keeps it complete.

mod buckets;
mod classes;
mod gauges;
mod observer;

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::class::{ClassId, Traffic};
use crate::errors::{QueueBound, Refusal};
use crate::heart::Heart;
use crate::state::Serving;

pub(crate) use classes::{Cause, ClassBooks, Outcome, Target};
pub(crate) use observer::EngineObserver;

/// Everything that is counted. Cheap to clone the parts of; one per server.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) engine: EngineMetrics,
    /// By class.
    classes: Vec<Arc<ClassBooks>>,
    gauges: Arc<gauges::Gauges>,
    arrived: Counter,
    rejected: Family<Reason, Counter>,
    admission_rejected: Family<Reason, Counter>,
    broken: Family<Reason, Counter>,
    http_requests: Family<Route, Counter>,
    http_seconds: Family<RouteOnly, Histogram>,
    compiled: Family<Reason, Counter>,
    compile_seconds: Histogram,
    connections: Gauge,
    body_bytes: Gauge,
}

/// Why: a word of a fixed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reason {
    reason: &'static str,
}

/// Why a request ended: vLLM's label name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FinishedReason {
    finished_reason: &'static str,
}

/// What a step computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StepKind {
    kind: &'static str,
}

/// A route of the router, never a path of a client, and the status it answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteOnly {
    route: String,
}

/// What the engine thread feeds.
#[derive(Clone)]
pub(crate) struct EngineMetrics {
    pub prompt_tokens: Counter,
    pub prompt_tokens_cached: Counter,
    pub generation_tokens: Counter,
    pub preemptions: Counter,
    pub prefix_queries: Counter,
    pub prefix_hits: Counter,
    pub success: Family<FinishedReason, Counter>,
    pub recomputed_tokens: Counter,
    pub evicted_blocks: Counter,
    pub step_seconds: Family<StepKind, Histogram>,
    pub iteration_tokens: Histogram,
    pub ttft: Histogram,
    pub inter_token: Histogram,
    pub time_per_output_token: Histogram,
    pub e2e: Histogram,
    pub queue_time: Histogram,
    pub inference_time: Histogram,
    pub prefill_time: Histogram,
    pub decode_time: Histogram,
    pub request_prompt_tokens: Histogram,
    pub request_generation_tokens: Histogram,
    pub request_max_num_generation_tokens: Histogram,
    pub request_params_n: Histogram,
    pub request_params_max_tokens: Histogram,
    pub prefill_kv_computed_tokens: Histogram,
}

impl Metrics {
    pub fn new(model_name: &str, traffic: &Traffic, heart: &Arc<Heart>) -> Metrics {
        let engine = EngineMetrics::new();
        let mut registry = Registry::default();
        let labels = [
            ("model_name", model_name.to_owned()),
            ("engine", ENGINE.to_owned()),
        ];
        let labels = labels.map(|(key, value)| (key.into(), value.into()));
        let per_model = registry.sub_registry_with_labels(labels.into_iter());
        engine.register(per_model);
        let names = traffic.classes().iter().map(|class| class.name.as_str());
        let classes = classes::books(names, per_model);
        // Autoscalers count who waits; those of batch wait for idle machines, not for more of them.
        let unattended = classes[usize::from(traffic.batch().0)..].to_vec();
        let gauges = Arc::new(gauges::Gauges::new(
            model_name,
            unattended,
            Arc::clone(heart),
        ));
        let mut metrics = Metrics {
            arrived: Counter::default(),
            rejected: Family::default(),
            admission_rejected: Family::default(),
            broken: Family::default(),
            http_requests: Family::default(),
            http_seconds: Family::new_with_constructor(|| Histogram::new(buckets::HTTP_SECONDS)),
            compiled: Family::default(),
            compile_seconds: Histogram::new(buckets::HTTP_SECONDS),
            connections: Gauge::default(),
            body_bytes: Gauge::default(),
            registry,
            engine,
            classes,
            gauges,
        };
        metrics.register_http();
        metrics
    }

    fn register_http(&mut self) {
        let registry = &mut self.registry;
        let rejected = "Requests refused before the engine took them, by error code";
        registry.register(
            "fulcrum_requests_arrived",
            "Sequences the engine took",
            self.arrived.clone(),
        );
        registry.register("fulcrum_requests_rejected", rejected, self.rejected.clone());
        let name = "vllm:admission_rejections";
        registry.register(
            name,
            "Requests refused because the queue was full",
            self.admission_rejected.clone(),
        );
        let broken =
            "Answers the server had to end, streamed (although their status was 200) or not";
        registry.register("fulcrum_broken_answers", broken, self.broken.clone());
        let requests = "HTTP requests by route and status (499: the client went away first)";
        registry.register(
            "fulcrum_http_requests",
            requests,
            self.http_requests.clone(),
        );
        let seconds = "From a request's head to its response's head";
        registry.register(
            "fulcrum_http_request_seconds",
            seconds,
            self.http_seconds.clone(),
        );
        registry.register(
            "fulcrum_http_connections",
            "Connections open",
            self.connections.clone(),
        );
        let compiled = "Schemas and grammars of requests, by what became of them";
        registry.register("fulcrum_constraints", compiled, self.compiled.clone());
        let seconds = "Until a schema or grammar was compiled, found compiled, or refused";
        registry.register(
            "fulcrum_constraint_compile_seconds",
            seconds,
            self.compile_seconds.clone(),
        );
        let body_bytes = "Bytes of request bodies being read or prepared";
        registry.register("fulcrum_body_bytes", body_bytes, self.body_bytes.clone());
        registry.register_collector(Box::new(Arc::clone(&self.gauges)));
        // Series that are there from the start can be watched for their first step.
        for code in Refusal::CODES {
            drop(self.rejected.get_or_create(&Reason { reason: code }));
        }
        for reason in ["max_num_queued_reqs", "max_num_queued_tokens"] {
            drop(self.admission_rejected.get_or_create(&Reason { reason }));
        }
        for reason in ["compiled", "refused"] {
            drop(self.compiled.get_or_create(&Reason { reason }));
        }
        for reason in [
            "shutting_down",
            "engine_failed",
            "constraint_failed",
            "timeout",
        ] {
            drop(self.broken.get_or_create(&Reason { reason }));
        }
    }

    /// The books of a class.
    ///
    /// # Panics
    ///
    /// If it is of another configuration.
    pub fn class(&self, id: ClassId) -> &Arc<ClassBooks> {
        &self.classes[usize::from(id.0)]
    }

    /// The exposition, in the classic text format.
    pub fn render(&self, body_bytes: usize) -> String {
        self.body_bytes
            .set(i64::try_from(body_bytes).unwrap_or(i64::MAX));
        let mut text = String::with_capacity(64 * 1024);
        prometheus_text::encode(&mut text, &self.registry)
            .expect("writing to a string cannot fail");
        text
    }

    /// From now on gauges show this engine.
    pub fn engine_started(&self, serving: &Serving) {
        self.gauges
            .show(Arc::clone(serving.engine.stats()), serving.facts.clone());
    }

    /// The engine took a sequence.
    pub fn arrived(&self) {
        self.arrived.inc();
    }

    /// A request was refused before it became work.
    pub fn rejected(&self, refusal: &Refusal) {
        let reason = refusal.code();
        self.rejected.get_or_create(&Reason { reason }).inc();
        if let Refusal::QueueFull { bound, .. } = refusal {
            let reason = match bound {
                QueueBound::Requests => "max_num_queued_reqs",
                QueueBound::Tokens => "max_num_queued_tokens",
            };
            self.admission_rejected
                .get_or_create(&Reason { reason })
                .inc();
        }
    }

    /// The server had to end an answer, streamed or not.
    pub fn broken(&self, refusal: &Refusal) {
        let reason = refusal.code();
        self.broken.get_or_create(&Reason { reason }).inc();
    }

    /// An HTTP request was answered, or abandoned by its client.
    pub fn http_request(&self, route: &str, status: StatusCode, duration: Duration) {
        let labels = Route {
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.http_requests.get_or_create(&labels).inc();
        let labels = RouteOnly {
            route: route.to_owned(),
        };
        self.http_seconds
            .get_or_create(&labels)
            .observe(duration.as_secs_f64());
    }

    /// A request's schema or grammar was compiled, or was not.
    pub fn compiled(&self, outcome: Compiled, duration: Duration) {
        let reason = match outcome {
            Compiled::Usable => "compiled",
            Compiled::Refused => "refused",
        };
        self.compiled.get_or_create(&Reason { reason }).inc();
        self.compile_seconds.observe(duration.as_secs_f64());
    }

    pub fn connection_opened(&self) {
        self.connections.inc();
    }

    pub fn connection_closed(&self) {
        self.connections.dec();
    }
}

/// What became of a schema or grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiled {
    Usable,
    Refused,
}

/// There is one engine in a server.
pub(crate) const ENGINE: &str = "0";

/// Words of `finished_reason`.
pub(crate) const FINISHED_REASONS: &[&str] = &["stop", "length", "abort", "error"];

impl EngineMetrics {
    fn new() -> EngineMetrics {
        let step = || Histogram::new(buckets::STEP_SECONDS);
        let tokens = || Histogram::new(buckets::TOKENS);
        let phase = || Histogram::new(buckets::PHASE_SECONDS);
        let success = Family::<FinishedReason, Counter>::default();
        for finished_reason in FINISHED_REASONS {
            drop(success.get_or_create(&FinishedReason { finished_reason }));
        }
        let step_seconds = Family::new_with_constructor(step as fn() -> Histogram);
        for kind in ["prefill", "decode", "mixed"] {
            drop(step_seconds.get_or_create(&StepKind { kind }));
        }
        EngineMetrics {
            prompt_tokens: Counter::default(),
            prompt_tokens_cached: Counter::default(),
            generation_tokens: Counter::default(),
            preemptions: Counter::default(),
            prefix_queries: Counter::default(),
            prefix_hits: Counter::default(),
            success,
            recomputed_tokens: Counter::default(),
            evicted_blocks: Counter::default(),
            step_seconds,
            iteration_tokens: Histogram::new(buckets::ITERATION_TOKENS),
            ttft: Histogram::new(buckets::TTFT_SECONDS),
            inter_token: Histogram::new(buckets::TOKEN_SECONDS),
            time_per_output_token: Histogram::new(buckets::TOKEN_SECONDS),
            e2e: phase(),
            queue_time: phase(),
            inference_time: phase(),
            prefill_time: phase(),
            decode_time: phase(),
            request_prompt_tokens: tokens(),
            request_generation_tokens: tokens(),
            request_max_num_generation_tokens: tokens(),
            request_params_n: Histogram::new(buckets::PARAMS_N),
            request_params_max_tokens: tokens(),
            prefill_kv_computed_tokens: tokens(),
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.register_counters(registry);
        self.register_latencies(registry);
        self.register_sizes(registry);
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            (
                "vllm:prompt_tokens",
                "Prompt tokens of ended requests, cached ones included",
                &self.prompt_tokens,
            ),
            (
                "vllm:prompt_tokens_cached",
                "Prompt tokens of ended requests taken from the prefix cache",
                &self.prompt_tokens_cached,
            ),
            (
                "vllm:generation_tokens",
                "Answer tokens",
                &self.generation_tokens,
            ),
            (
                "vllm:num_preemptions",
                "Sequences preempted",
                &self.preemptions,
            ),
            (
                "vllm:prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache",
                &self.prefix_queries,
            ),
            (
                "vllm:prefix_cache_hits",
                "Prompt tokens found in the prefix cache",
                &self.prefix_hits,
            ),
            (
                "vllm:gpu_prefix_cache_queries",
                "Older name of vllm:prefix_cache_queries",
                &self.prefix_queries,
            ),
            (
                "vllm:gpu_prefix_cache_hits",
                "Older name of vllm:prefix_cache_hits",
                &self.prefix_hits,
            ),
            (
                "fulcrum_recomputed_tokens",
                "Tokens computed again after a preemption",
                &self.recomputed_tokens,
            ),
            (
                "fulcrum_evicted_blocks",
                "Blocks evicted from the prefix cache",
                &self.evicted_blocks,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Ended requests by reason (abort: the client went away or the server drained)";
        registry.register("vllm:request_success", help, self.success.clone());
    }

    fn register_latencies(&self, registry: &mut Registry) {
        let histograms = [
            (
                "vllm:time_to_first_token_seconds",
                "From arrival to the first answer token",
                &self.ttft,
            ),
            (
                "vllm:inter_token_latency_seconds",
                "Between consecutive answer tokens",
                &self.inter_token,
            ),
            (
                "vllm:time_per_output_token_seconds",
                "Older name of vllm:inter_token_latency_seconds",
                &self.inter_token,
            ),
            (
                "vllm:request_time_per_output_token_seconds",
                "Mean time per answer token after the first, per request",
                &self.time_per_output_token,
            ),
            (
                "vllm:e2e_request_latency_seconds",
                "From arrival to the end, of completed requests",
                &self.e2e,
            ),
            (
                "vllm:request_queue_time_seconds",
                "From arrival to the first step, of completed requests",
                &self.queue_time,
            ),
            (
                "vllm:request_inference_time_seconds",
                "From the first step to the end, of completed requests",
                &self.inference_time,
            ),
            (
                "vllm:request_prefill_time_seconds",
                "From the first step to the first answer token, of completed requests",
                &self.prefill_time,
            ),
            (
                "vllm:request_decode_time_seconds",
                "From the first answer token to the last, of completed requests",
                &self.decode_time,
            ),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
        let help = "Duration of a step by what it computed";
        registry.register(
            "fulcrum_step_duration_seconds",
            help,
            self.step_seconds.clone(),
        );
    }

    fn register_sizes(&self, registry: &mut Registry) {
        let histograms = [
            // A histogram in vLLM too, whatever its name says; its count is a heartbeat.
            (
                "vllm:iteration_tokens_total",
                "Tokens computed in a step",
                &self.iteration_tokens,
            ),
            (
                "vllm:request_prompt_tokens",
                "Prompt tokens of completed requests",
                &self.request_prompt_tokens,
            ),
            (
                "vllm:request_generation_tokens",
                "Answer tokens of completed requests",
                &self.request_generation_tokens,
            ),
            (
                "vllm:request_max_num_generation_tokens",
                "Longest answer of completed requests",
                &self.request_max_num_generation_tokens,
            ),
            (
                "vllm:request_params_n",
                "Parameter n of completed requests",
                &self.request_params_n,
            ),
            (
                "vllm:request_params_max_tokens",
                "Answer limit of completed requests",
                &self.request_params_max_tokens,
            ),
            (
                "vllm:request_prefill_kv_computed_tokens",
                "Prompt tokens computed, not cached, of completed requests",
                &self.prefill_kv_computed_tokens,
            ),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
