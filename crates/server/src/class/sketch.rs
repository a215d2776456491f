//! What the file may say, before it is checked: one struct a table, unknown keys refused.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub class: BTreeMap<String, ClassTable>,
    pub tenant: BTreeMap<String, TenantTable>,
    pub key: BTreeMap<String, KeyTable>,
}

/// `[class.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClassTable {
    pub rank: Option<u16>,
    pub slo: Option<SloTable>,
    pub share_min: Option<Number>,
    pub overload: Option<OverloadWord>,
    pub queue_max: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub max_context_tokens: Option<u64>,
    pub timeout: Option<String>,
    pub routes: Vec<String>,
    pub keys: Vec<String>,
}

/// `slo = { … }`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SloTable {
    pub ttft_p95: Option<String>,
    pub itl_p99: Option<String>,
    pub deadline: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OverloadWord {
    Queue,
    Refuse,
}

/// `[tenant.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantTable {
    /// Whole numbers are weights too.
    pub weight: Option<Number>,
    pub tokens_per_minute: Option<u64>,
    pub keys: Vec<String>,
}

/// TOML tells 4 from 4.0; a weight does not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(pub f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl serde::de::Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a number")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
        Ok(Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
        Ok(Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
        Ok(Number(number))
    }
}

/// `[key.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeyTable {
    pub sha256: Option<String>,
    pub env: Option<String>,
}
