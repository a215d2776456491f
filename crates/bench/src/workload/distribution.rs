//! How long things are: prompts, answers, conversations, pauses.
//!
//! The one idea: a distribution is its quantile function, clipped. Drawing is one uniform number put through it, and
//! a mean is its average over evenly spaced quantiles, so what is declared and what is drawn cannot differ.
//!
//! Not here: which length belongs to which text.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use statrs::distribution::{ContinuousCDF as _, Normal};

use super::LIMITS;

/// Where a mean is taken at: enough for four digits even of a heavy tail that is clipped.
const NUM_QUANTILES: u32 = 4096;

/// A distribution of non-negative numbers: its shape, clipped to `min..=max`.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    shape: Shape,
    min: f64,
    max: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Fixed {
        value: f64,
    },
    Uniform {
        min: f64,
        max: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    Lognormal {
        median: f64,
        sigma: f64,
    },
    /// Values, each with the sum of weights up to it over the sum of all.
    Empirical {
        steps: Vec<(f64, f64)>,
    },
}

impl Distribution {
    /// Always `value`.
    pub fn fixed(value: f64) -> Distribution {
        Distribution {
            shape: Shape::Fixed { value },
            min: value,
            max: value,
        }
    }

    /// The number that a share `unit` in [0, 1) of draws falls below.
    pub fn quantile(&self, unit: f64) -> f64 {
        // The ends of the normal distribution lie in infinity.
        let inner = unit.clamp(1e-12, 1.0 - 1e-12);
        let raw = match &self.shape {
            Shape::Fixed { value } => *value,
            Shape::Uniform { min, max } => min + (max - min) * unit,
            Shape::Normal { mean, deviation } => mean + deviation * standard_normal(inner),
            Shape::Lognormal { median, sigma } => median * (sigma * standard_normal(inner)).exp(),
            Shape::Empirical { steps } => {
                let idx = steps.partition_point(|&(_, up_to)| up_to <= unit);
                steps[idx.min(steps.len() - 1)].0
            }
        };
        raw.clamp(self.min, self.max)
    }

    /// As [`Distribution::quantile`], to the nearest whole number. Of `uniform`, every whole number within its bounds
    /// is equally likely, the bounds included.
    pub fn whole(&self, unit: f64) -> u64 {
        if let Shape::Uniform { min, max } = self.shape {
            let (low, high) = (min.ceil(), max.floor());
            if low > high {
                return min.round() as u64;
            }
            return (low + ((high - low + 1.0) * unit).floor()).clamp(low, high) as u64;
        }
        self.quantile(unit).round() as u64
    }

    /// The mean of `value` over whole draws.
    pub fn mean_of(&self, value: impl Fn(u64) -> f64) -> f64 {
        let at = |idx: u32| (f64::from(idx) + 0.5) / f64::from(NUM_QUANTILES);
        let sum: f64 = (0..NUM_QUANTILES)
            .map(|idx| value(self.whole(at(idx))))
            .sum();
        sum / f64::from(NUM_QUANTILES)
    }

    /// The smallest and the largest number there can be.
    pub fn bounds(&self) -> (f64, f64) {
        (self.min, self.max)
    }
}

/// The quantile function of the standard normal distribution.
fn standard_normal(unit: f64) -> f64 {
    Normal::standard().inverse_cdf(unit)
}

/// A distribution as it stands in a file: a number, or a table.
#[derive(Debug)]
pub(super) struct Written {
    table: Table,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    distribution: Name,
    value: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    deviation: Option<f64>,
    median: Option<f64>,
    sigma: Option<f64>,
    values: Option<Vec<f64>>,
    weights: Option<Vec<f64>>,
    unit: Option<Unit>,
    exact: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Fixed,
    Uniform,
    Normal,
    Lognormal,
    Empirical,
}

/// What the length of a prompt counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Tokens of the prompt as the server counts them, its template included.
    Tokens,
    /// Words of the text; the template comes on top.
    Words,
}

/// What a distribution is for: which keys it may have, and how large it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) min: f64,
    pub(super) max: f64,
    /// Whether `unit` means something here.
    pub(super) unit: Allowed,
    /// Whether `exact` does.
    pub(super) exact: Allowed,
}

/// Whether a key may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    Yes,
    No,
}

/// What is wrong with a distribution, and at which of its keys.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) key: &'static str,
    pub(super) reason: String,
}

impl Written {
    pub(super) fn unit(&self) -> Option<Unit> {
        self.table.unit
    }

    pub(super) fn exact(&self) -> Option<bool> {
        self.table.exact
    }

    /// The distribution, if every key that it needs is there and no other.
    pub(super) fn read(&self, bounds: Bounds) -> Result<Distribution, Fault> {
        let table = &self.table;
        self.refuse_keys(bounds)?;
        let (min, max) = self.clip(bounds)?;
        let shape = match table.distribution {
            Name::Fixed => Shape::Fixed {
                value: within(bounds, "value", required("value", table.value)?)?,
            },
            Name::Uniform => Shape::Uniform {
                min: required("min", table.min)?,
                max: required("max", table.max)?,
            },
            Name::Normal => Shape::Normal {
                mean: finite("mean", required("mean", table.mean)?)?,
                deviation: not_negative("deviation", required("deviation", table.deviation)?)?,
            },
            Name::Lognormal => Shape::Lognormal {
                median: positive("median", required("median", table.median)?)?,
                sigma: not_negative("sigma", required("sigma", table.sigma)?)?,
            },
            Name::Empirical => Shape::Empirical {
                steps: steps(bounds, table.values.as_deref(), table.weights.as_deref())?,
            },
        };
        Ok(Distribution { shape, min, max })
    }

    fn clip(&self, bounds: Bounds) -> Result<(f64, f64), Fault> {
        let min = within(bounds, "min", self.table.min.unwrap_or(bounds.min))?;
        let max = within(bounds, "max", self.table.max.unwrap_or(bounds.max))?;
        if min > max {
            return Err(Fault::new("min", format!("is {min}, above max = {max}")));
        }
        Ok((min, max))
    }

    /// A key that the distribution has no use for was meant to do something.
    fn refuse_keys(&self, bounds: Bounds) -> Result<(), Fault> {
        let table = &self.table;
        let name = table.distribution;
        let clips = matches!(
            name,
            Name::Uniform | Name::Normal | Name::Lognormal | Name::Empirical
        );
        let keys = [
            ("value", table.value.is_some(), name == Name::Fixed),
            ("min", table.min.is_some(), clips),
            ("max", table.max.is_some(), clips),
            ("mean", table.mean.is_some(), name == Name::Normal),
            ("deviation", table.deviation.is_some(), name == Name::Normal),
            ("median", table.median.is_some(), name == Name::Lognormal),
            ("sigma", table.sigma.is_some(), name == Name::Lognormal),
            ("values", table.values.is_some(), name == Name::Empirical),
            ("weights", table.weights.is_some(), name == Name::Empirical),
            ("unit", table.unit.is_some(), bounds.unit == Allowed::Yes),
            ("exact", table.exact.is_some(), bounds.exact == Allowed::Yes),
        ];
        match keys
            .iter()
            .find(|(_, is_there, is_allowed)| *is_there && !is_allowed)
        {
            Some((key @ ("unit" | "exact"), ..)) => {
                Err(Fault::new(key, "means nothing here".to_owned()))
            }
            Some((key, ..)) => {
                let name = format!("{name:?}").to_lowercase();
                Err(Fault::new(
                    key,
                    format!("means nothing for a distribution that is {name}"),
                ))
            }
            None => Ok(()),
        }
    }
}

/// Values with cumulated weights.
fn steps(
    bounds: Bounds,
    values: Option<&[f64]>,
    weights: Option<&[f64]>,
) -> Result<Vec<(f64, f64)>, Fault> {
    let values = values.ok_or_else(|| Fault::missing("values"))?;
    if values.is_empty() || values.len() > LIMITS.values_max {
        let reason = format!(
            "has {} values; it takes 1 to {}",
            values.len(),
            LIMITS.values_max
        );
        return Err(Fault::new("values", reason));
    }
    let equal = vec![1.0; values.len()];
    let weights = weights.unwrap_or(&equal);
    if weights.len() != values.len() {
        let reason = format!("has {} weights for {} values", weights.len(), values.len());
        return Err(Fault::new("weights", reason));
    }
    for &weight in weights {
        not_negative("weights", weight)?;
    }
    let total: f64 = weights.iter().sum();
    positive("weights", total)?;
    // Sorted, so that it is a quantile function like the others.
    let mut pairs: Vec<(f64, f64)> = values
        .iter()
        .copied()
        .zip(weights.iter().copied())
        .collect();
    pairs
        .iter()
        .try_for_each(|&(value, _)| within(bounds, "values", value).map(drop))?;
    pairs.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut sum = 0.0;
    Ok(pairs
        .into_iter()
        .map(|(value, weight)| {
            sum += weight;
            (value, sum / total)
        })
        .collect())
}

impl Fault {
    fn new(key: &'static str, reason: String) -> Fault {
        Fault { key, reason }
    }

    fn missing(key: &'static str) -> Fault {
        Fault::new(key, "is missing".to_owned())
    }
}

fn required(key: &'static str, value: Option<f64>) -> Result<f64, Fault> {
    value.ok_or_else(|| Fault::missing(key))
}

fn finite(key: &'static str, value: f64) -> Result<f64, Fault> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(Fault::new(key, format!("is {value}, not a finite number"))),
    }
}

fn positive(key: &'static str, value: f64) -> Result<f64, Fault> {
    match finite(key, value)? > 0.0 {
        true => Ok(value),
        false => Err(Fault::new(key, format!("is {value}; it must be above 0"))),
    }
}

fn not_negative(key: &'static str, value: f64) -> Result<f64, Fault> {
    match finite(key, value)? >= 0.0 {
        true => Ok(value),
        false => Err(Fault::new(
            key,
            format!("is {value}; it must not be negative"),
        )),
    }
}

fn within(bounds: Bounds, key: &'static str, value: f64) -> Result<f64, Fault> {
    match (bounds.min..=bounds.max).contains(&finite(key, value)?) {
        true => Ok(value),
        false => {
            let reason = format!(
                "is {value}; it must be from {} to {}",
                bounds.min, bounds.max
            );
            Err(Fault::new(key, reason))
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        deserializer.deserialize_any(NumberOrTable)
    }
}

/// `512` is short for `{ distribution = "fixed", value = 512 }`. Not an untagged enum: that would lose which key of a
/// table is unknown.
struct NumberOrTable;

impl<'de> Visitor<'de> for NumberOrTable {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a table with `distribution`")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Written, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Written, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Written, E> {
        let table = Table {
            distribution: Name::Fixed,
            value: Some(value),
            min: None,
            max: None,
            mean: None,
            deviation: None,
            median: None,
            sigma: None,
            values: None,
            weights: None,
            unit: None,
            exact: None,
        };
        Ok(Written { table })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Written { table })
    }
}
