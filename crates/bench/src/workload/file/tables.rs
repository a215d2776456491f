//! A workload file as it is written: what serde makes of it, before anything is checked.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::workload::History;
use crate::workload::distribution::Written;
use crate::workload::readers::{Format, Timestamps};
use crate::workload::recorded::Order;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadTable {
    pub(super) version: u32,
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) class: Vec<ClassTable>,
    #[serde(default)]
    pub(super) burst: Vec<BurstTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    pub(super) name: String,
    pub(super) share: Option<f64>,
    pub(super) arrivals: Option<ArrivalsTable>,
    pub(super) slo: Option<String>,
    pub(super) prompt: Option<Written>,
    pub(super) follow_up: Option<Written>,
    pub(super) output: Option<Written>,
    pub(super) shared_prefix: Option<PrefixTable>,
    pub(super) turns: Option<Written>,
    pub(super) think: Option<Written>,
    pub(super) history: Option<History>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: serde_json::Map<String, serde_json::Value>,
    pub(super) data: Option<DataTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefixTable {
    pub(super) tokens: u64,
    pub(super) groups: Option<u32>,
    pub(super) share: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstTable {
    pub(super) class: String,
    pub(super) size: u64,
    pub(super) every: Option<u64>,
    pub(super) probability: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataTable {
    pub(super) file: String,
    pub(super) format: Format,
    pub(super) timestamps: Option<Timestamps>,
    pub(super) block_tokens: Option<u64>,
    pub(super) order: Option<Order>,
    pub(super) repeat: Option<bool>,
    pub(super) turns_max: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrivalsTable {
    pub(super) process: ProcessName,
    pub(super) rate: Option<f64>,
    pub(super) burstiness: Option<f64>,
    pub(super) from: Option<f64>,
    pub(super) to: Option<f64>,
    pub(super) seconds: Option<f64>,
    pub(super) speed: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProcessName {
    Constant,
    Poisson,
    Gamma,
    Ramp,
    Replay,
}
