//! What users were promised: `ttft:p95<800ms,tpot:p99<80ms`.
//!
//! One text serves two questions. Of a *level*: is the named percentile of the metric below the limit? Of one
//! *request*: is its own value below the limit, whatever the percentile? The second makes a request good, and good
//! requests make goodput and attainment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is measured of a request, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// First content minus due or sent.
    Ttft,
    /// Seconds per token after the first event.
    Tpot,
    /// Gaps between consecutive tokens, pooled over requests.
    Itl,
    /// Last content minus due or sent.
    E2e,
}

impl Metric {
    /// As written in flags and files.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Ttft => "ttft",
            Metric::Tpot => "tpot",
            Metric::Itl => "itl",
            Metric::E2e => "e2e",
        }
    }
}

/// One promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Of what.
    pub metric: Metric,
    /// For which share of requests, in (0, 1]; 1 is the maximum.
    pub quantile: f64,
    /// Strictly below, in seconds.
    pub limit_s: f64,
}

/// Promises that hold together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slo {
    /// All of them must hold.
    pub objectives: Vec<Objective>,
}

/// Why a text is no SLO.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// Not of the form.
    #[error("{part:?} is no objective: expected METRIC:pN<LIMIT, for example ttft:p95<800ms")]
    Form {
        /// The objective as typed.
        part: String,
    },
    /// An unknown metric.
    #[error("{part:?}: unknown metric {metric:?}; known are ttft, tpot, itl and e2e")]
    Metric {
        /// The objective as typed.
        part: String,
        /// What stood for the metric.
        metric: String,
    },
    /// Not a percentile.
    #[error("{part:?}: {quantile:?} is no percentile; write p50, p99.9 or max")]
    Quantile {
        /// The objective as typed.
        part: String,
        /// What stood for the percentile.
        quantile: String,
    },
    /// Not a duration.
    #[error("{part:?}: {limit:?} is no limit; write 800ms, 1.5s or 500us")]
    Limit {
        /// The objective as typed.
        part: String,
        /// What stood for the limit.
        limit: String,
    },
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Slo, SloError> {
        let objectives = text
            .split(',')
            .map(|part| objective(part.trim()))
            .collect::<Result<_, _>>()?;
        Ok(Slo { objectives })
    }
}

fn objective(part: &str) -> Result<Objective, SloError> {
    let form = || SloError::Form {
        part: part.to_owned(),
    };
    let (head, limit) = part.split_once('<').ok_or_else(form)?;
    let (metric, quantile) = head.split_once(':').ok_or_else(form)?;
    Ok(Objective {
        metric: match metric.trim() {
            "ttft" => Metric::Ttft,
            "tpot" => Metric::Tpot,
            "itl" => Metric::Itl,
            "e2e" => Metric::E2e,
            unknown => {
                return Err(SloError::Metric {
                    part: part.to_owned(),
                    metric: unknown.to_owned(),
                });
            }
        },
        quantile: quantile_of(quantile.trim()).ok_or_else(|| SloError::Quantile {
            part: part.to_owned(),
            quantile: quantile.trim().to_owned(),
        })?,
        limit_s: seconds(limit.trim_start_matches('=').trim()).ok_or_else(|| SloError::Limit {
            part: part.to_owned(),
            limit: limit.trim().to_owned(),
        })?,
    })
}

fn quantile_of(text: &str) -> Option<f64> {
    if text == "max" {
        return Some(1.0);
    }
    let percent: f64 = text.strip_prefix('p')?.parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some(percent / 100.0)
}

/// Seconds of `800ms`, `1.5s`, `500us` or `2m`; positive and finite.
pub fn seconds(text: &str) -> Option<f64> {
    let at = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let number: f64 = text[..at].trim().parse().ok()?;
    let unit = match &text[at..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = number * unit;
    (seconds > 0.0 && seconds.is_finite()).then_some(seconds)
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.quantile * 100.0;
        let quantile = if self.quantile >= 1.0 {
            "max".to_owned()
        } else {
            format!("p{percent}")
        };
        // As fine as anybody types, without binary fractions' tails.
        let limit_ms = (self.limit_s * 1e6).round() / 1e3;
        write!(f, "{}:{quantile}<{limit_ms}ms", self.metric.name())
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, objective) in self.objectives.iter().enumerate() {
            let comma = if idx > 0 { "," } else { "" };
            write!(f, "{comma}{objective}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_slo_reads_as_it_prints() {
        for text in [
            "ttft:p95<800ms",
            "ttft:p95<800ms,tpot:p99<80ms",
            "e2e:max<1500ms,itl:p99.9<0.5ms",
        ] {
            let slo: Slo = text.parse().expect(text);
            assert_eq!(slo.to_string(), text);
        }
    }

    #[test]
    fn units_and_spaces_are_free() {
        let slo: Slo = " ttft : p50 < 1.5s , tpot:p90<500us"
            .parse()
            .expect("an SLO");
        assert_eq!(slo.to_string(), "ttft:p50<1500ms,tpot:p90<0.5ms");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("", "METRIC:pN<LIMIT"),
            ("ttft<800ms", "METRIC:pN<LIMIT"),
            ("speed:p95<800ms", "unknown metric \"speed\""),
            ("ttft:95<800ms", "\"95\" is no percentile"),
            ("ttft:p101<800ms", "\"p101\" is no percentile"),
            ("ttft:p95<800", "\"800\" is no limit"),
            ("ttft:p95<-3ms", "\"-3ms\" is no limit"),
            ("ttft:p95<NaNs", "is no limit"),
        ] {
            let error = text.parse::<Slo>().expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
