//! Facts from the engine thread into counters and histograms: a few dozen nanoseconds
//! each, no waiting.
//!
//! What is observed for whom: the time to first token of every request that had one;
//! gaps of every token; latencies, phases and sizes of requests that *completed* (an
//! answer cut off by its client says nothing about how long answers take); the reason of
//! every request that ended, whatever it was.

use std::time::Duration;

use engine::{FinishReason, Observer, RequestFacts, StepFacts};

use super::{EngineMetrics, FinishedReason, StepKind};

/// Lives on the engine thread.
pub(crate) struct EngineObserver {
    metrics: EngineMetrics,
}

impl EngineObserver {
    pub fn new(metrics: EngineMetrics) -> EngineObserver {
        EngineObserver { metrics }
    }
}

impl Observer for EngineObserver {
    fn step(&mut self, step: &StepFacts) {
        let metrics = &self.metrics;
        let kind = match (step.num_prefill_tokens > 0, step.num_decode_tokens > 0) {
            (true, true) => "mixed",
            (true, false) => "prefill",
            (false, _) => "decode",
        };
        let seconds = step.duration.as_secs_f64();
        metrics
            .step_seconds
            .get_or_create(&StepKind { kind })
            .observe(seconds);
        let num_tokens = step.num_prefill_tokens + step.num_decode_tokens;
        metrics.iteration_tokens.observe(f64::from(num_tokens));
        metrics
            .generation_tokens
            .inc_by(step.num_decode_tokens.into());
        metrics.preemptions.inc_by(step.num_preemptions.into());
        metrics
            .recomputed_tokens
            .inc_by(step.num_recomputed_tokens.into());
        metrics
            .prefix_queries
            .inc_by(step.num_prefix_queried.into());
        metrics.prefix_hits.inc_by(step.num_prefix_hit.into());
        metrics.evicted_blocks.inc_by(step.num_evicted.into());
    }

    fn first_token(&mut self, since_arrival: Duration) {
        self.metrics.ttft.observe(since_arrival.as_secs_f64());
    }

    fn next_token(&mut self, gap: Duration) {
        self.metrics.inter_token.observe(gap.as_secs_f64());
    }

    fn finished(&mut self, request: &RequestFacts) {
        let finished_reason = match request.reason {
            FinishReason::Stop(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled | FinishReason::Aborted => "abort",
            FinishReason::OutOfConstraint { .. } | FinishReason::Failed { .. } => "error",
        };
        self.metrics
            .success
            .get_or_create(&FinishedReason { finished_reason })
            .inc();
        self.metrics
            .prompt_tokens
            .inc_by(request.usage.num_prompt.into());
        self.metrics
            .prompt_tokens_cached
            .inc_by(request.usage.num_cached.into());
        if matches!(request.reason, FinishReason::Stop(_) | FinishReason::Length) {
            self.completed(request);
        }
    }
}

impl EngineObserver {
    fn completed(&self, request: &RequestFacts) {
        let metrics = &self.metrics;
        let RequestFacts {
            usage, times, e2e, ..
        } = request;
        metrics.e2e.observe(e2e.as_secs_f64());
        metrics.queue_time.observe(times.queued.as_secs_f64());
        metrics.prefill_time.observe(times.prefill.as_secs_f64());
        metrics.decode_time.observe(times.decode.as_secs_f64());
        metrics
            .inference_time
            .observe((times.prefill + times.decode).as_secs_f64());
        // The mean gap of a single token is undefined, not zero.
        if usage.num_completion > 1 {
            let num_gaps = f64::from(usage.num_completion - 1);
            metrics
                .time_per_output_token
                .observe(times.decode.as_secs_f64() / num_gaps);
        }
        metrics
            .request_prompt_tokens
            .observe(usage.num_prompt.into());
        metrics
            .request_generation_tokens
            .observe(usage.num_completion.into());
        // The largest of n answers, and n is 1.
        metrics
            .request_max_num_generation_tokens
            .observe(usage.num_completion.into());
        metrics.request_params_n.observe(1.0);
        metrics
            .request_params_max_tokens
            .observe(request.max_tokens.into());
        let num_computed = usage.num_prompt.saturating_sub(usage.num_cached);
        metrics
            .prefill_kv_computed_tokens
            .observe(num_computed.into());
    }
}
