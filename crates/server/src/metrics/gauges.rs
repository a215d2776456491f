//! Gauges read from the engine's atomics while a scrape is rendered, so that they are
//! never older than the scrape. Before there is an engine they are zero.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use engine::{PrefixCache, Stats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{ClassBooks, ENGINE};
use crate::config::ModelFacts;
use crate::heart::Heart;

/// The collector.
pub(super) struct Gauges {
    model_name: String,
    /// Classes whose requests nobody waits for.
    unattended: Vec<Arc<ClassBooks>>,
    heart: Arc<Heart>,
    shown: OnceLock<Shown>,
}

/// A running engine.
struct Shown {
    stats: Arc<Stats>,
    facts: ModelFacts,
}

impl fmt::Debug for Gauges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Gauges")
            .field("model_name", &self.model_name)
            .finish()
    }
}

impl Gauges {
    pub fn new(model_name: &str, unattended: Vec<Arc<ClassBooks>>, heart: Arc<Heart>) -> Gauges {
        Gauges {
            model_name: model_name.to_owned(),
            unattended,
            heart,
            shown: OnceLock::new(),
        }
    }

    pub fn show(&self, stats: Arc<Stats>, facts: ModelFacts) {
        let shown = Shown { stats, facts };
        // A server loads one model once; a second engine would be a bug of `state`.
        assert!(self.shown.set(shown).is_ok(), "one engine per server");
    }
}

/// A consistent reading, as far as separate atomics allow.
#[derive(Default)]
struct Reading {
    num_running: u64,
    num_waiting: u64,
    num_waiting_tokens: u64,
    kv_usage: f64,
    blocks_held: u64,
    blocks_cached: u64,
    blocks_total: u64,
    blocks_leaked: u64,
    last_step_age: Duration,
}

impl Shown {
    fn read(&self) -> Reading {
        let stats = &self.stats;
        let num_running = stats.num_running.load(Relaxed);
        let num_waiting = stats.num_waiting.load(Relaxed);
        Reading {
            num_running,
            num_waiting,
            num_waiting_tokens: stats.num_waiting_tokens.load(Relaxed),
            kv_usage: stats.kv_usage(),
            blocks_held: stats.blocks_held.load(Relaxed),
            blocks_cached: stats.blocks_cached.load(Relaxed),
            blocks_total: stats.blocks_total.load(Relaxed),
            blocks_leaked: stats.blocks_leaked.load(Relaxed),
            last_step_age: Duration::ZERO,
        }
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let reading = self.reading();
        let mut gauge = |name: &str, help: &str, value: f64| {
            self.write(&mut encoder, (name, help), &[(vec![], value)])
        };
        gauge(
            "vllm:num_requests_running",
            "Sequences being computed",
            reading.num_running as f64,
        )?;
        gauge(
            "vllm:num_requests_waiting",
            "Requests queued, but for those of batch",
            reading.num_waiting as f64,
        )?;
        gauge(
            "vllm:kv_cache_usage_perc",
            "Share of KV blocks held by running sequences, 0 to 1",
            reading.kv_usage,
        )?;
        gauge(
            "vllm:gpu_cache_usage_perc",
            "Older name of vllm:kv_cache_usage_perc",
            reading.kv_usage,
        )?;
        gauge(
            "vllm:cpu_cache_usage_perc",
            "Always 0: there is no second cache",
            0.0,
        )?;
        gauge(
            "vllm:num_requests_swapped",
            "Always 0: nothing is swapped",
            0.0,
        )?;
        gauge(
            "fulcrum_waiting_tokens",
            "Prompt tokens of queued requests",
            reading.num_waiting_tokens as f64,
        )?;
        gauge(
            "fulcrum_leaked_blocks",
            "KV blocks that belong to nobody; must be 0",
            reading.blocks_leaked as f64,
        )?;
        let help = "Since the end of the last step, while there is work; 0 while idle";
        gauge(
            "fulcrum_last_step_age_seconds",
            help,
            reading.last_step_age.as_secs_f64(),
        )?;
        gauge(
            "fulcrum_ready",
            "1 once the model is loaded",
            f64::from(u8::from(self.shown.get().is_some())),
        )?;
        self.by_reason(&mut encoder, &reading)?;
        self.blocks(&mut encoder, &reading)?;
        self.info(&mut encoder)
    }
}

impl Gauges {
    fn reading(&self) -> Reading {
        let reading = self.shown.get().map(Shown::read).unwrap_or_default();
        let num_unattended: usize = self.unattended.iter().map(|it| it.num_waiting()).sum();
        Reading {
            num_waiting: reading.num_waiting.saturating_sub(num_unattended as u64),
            last_step_age: self.heart.pulse(Instant::now(), Duration::MAX).age(),
            ..reading
        }
    }

    fn by_reason(&self, encoder: &mut DescriptorEncoder<'_>, reading: &Reading) -> fmt::Result {
        let head = (
            "vllm:num_requests_waiting_by_reason",
            "Requests queued by what they wait for",
        );
        let series = [
            (vec![("reason", "capacity")], reading.num_waiting as f64),
            // Nothing is put off for another reason yet.
            (vec![("reason", "deferred")], 0.0),
        ];
        self.write(encoder, head, &series)
    }

    fn blocks(&self, encoder: &mut DescriptorEncoder<'_>, reading: &Reading) -> fmt::Result {
        let head = (
            "fulcrum_kv_blocks",
            "KV blocks by state; they add up to the pool",
        );
        let known = reading.blocks_held + reading.blocks_cached + reading.blocks_leaked;
        let free = reading.blocks_total.saturating_sub(known);
        let series = [
            (vec![("state", "held")], reading.blocks_held as f64),
            (vec![("state", "cached")], reading.blocks_cached as f64),
            (vec![("state", "leaked")], reading.blocks_leaked as f64),
            (vec![("state", "free")], free as f64),
        ];
        self.write(encoder, head, &series)
    }

    fn info(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let build = ("fulcrum_build_info", "The version, as a label");
        write_series(encoder, build, &[(version.to_vec(), 1.0)])?;
        let cache = (
            "vllm:cache_config_info",
            "Size and kind of the KV cache, as labels",
        );
        let Some(Shown { facts, .. }) = self.shown.get() else {
            return write_series(encoder, cache, &[]);
        };
        let block_size = facts.block_tokens.to_string();
        let num_blocks = facts.num_blocks.to_string();
        let prefix_caching = match facts.engine_limits.prefix_cache {
            PrefixCache::On => "True",
            PrefixCache::Off => "False",
        };
        let labels = vec![
            ("engine", ENGINE),
            ("block_size", block_size.as_str()),
            // vLLM's label name; endpoint pickers size their prefix index by it.
            ("num_gpu_blocks", num_blocks.as_str()),
            ("cache_dtype", facts.kv_type),
            ("enable_prefix_caching", prefix_caching),
        ];
        write_series(encoder, cache, &[(labels, 1.0)])
    }

    /// Writes a family whose series carry the model's labels and their own.
    fn write(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        head: (&str, &str),
        series: &[(Labels<'_>, f64)],
    ) -> fmt::Result {
        let common = [("model_name", self.model_name.as_str()), ("engine", ENGINE)];
        let series: Vec<(Labels<'_>, f64)> = series
            .iter()
            .map(|(labels, value)| (common.iter().chain(labels).copied().collect(), *value))
            .collect();
        write_series(encoder, head, &series)
    }
}

fn write_series(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    series: &[(Labels<'_>, f64)],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        let labels = labels.as_slice();
        ConstGauge::new(*value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
