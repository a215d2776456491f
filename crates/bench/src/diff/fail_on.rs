//! What must not get worse: `ttft.p95>+5%@95%`.
//!
//! A rule is broken only when the whole one-sided confidence bound lies beyond its limit: with 95 % confidence, TTFT
//! p95 grew by *more than* 5 %. A difference that may be noise breaks nothing, and neither does too little data; that
//! is told as undecided.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{LevelComparison, Measure, Stat, at_share};

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailOn {
    /// Of what.
    pub metric: Measure,
    /// Which figure.
    pub stat: Stat,
    /// Which side of the limit is broken.
    pub side: Beyond,
    /// The change from A to B: 0.05 is 5 % more.
    pub limit: f64,
    /// One-sided, in [0.5, 1).
    pub confidence: f64,
}

/// Which side of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// `>`
    Above,
    /// `<`
    Below,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FailOnError {
    /// Not of the form.
    #[error(
        "{rule:?} is no rule: expected METRIC.STAT>+N%@CONFIDENCE%, for example ttft.p95>+5%@95% or throughput<-3%@95%"
    )]
    Form {
        /// As typed.
        rule: String,
    },
    /// An unknown metric.
    #[error(
        "{rule:?}: unknown metric {metric:?}; known are ttft, tpot, itl, e2e, throughput and requests"
    )]
    Metric {
        /// As typed.
        rule: String,
        /// What stood for the metric.
        metric: String,
    },
    /// An unknown figure.
    #[error("{rule:?}: unknown figure {stat:?}; times have mean, p50, p95 and p99, and rates none")]
    Stat {
        /// As typed.
        rule: String,
        /// What stood for the figure.
        stat: String,
    },
    /// Not a change.
    #[error("{rule:?}: {limit:?} is no change; write +5% or -3%")]
    Limit {
        /// As typed.
        rule: String,
        /// What stood for the change.
        limit: String,
    },
    /// Not a confidence.
    #[error("{rule:?}: {confidence:?} is no confidence; write 95%, from 50% to below 100%")]
    Confidence {
        /// As typed.
        rule: String,
        /// What stood for it.
        confidence: String,
    },
}

impl FromStr for FailOn {
    type Err = FailOnError;

    fn from_str(text: &str) -> Result<FailOn, FailOnError> {
        let rule = text.trim().to_owned();
        let form = || FailOnError::Form { rule: rule.clone() };
        let at = rule.find(['<', '>']).ok_or_else(form)?;
        let side = if rule[at..].starts_with('>') {
            Beyond::Above
        } else {
            Beyond::Below
        };
        let (limit, confidence) = rule[at + 1..].split_once('@').ok_or_else(form)?;
        let (metric, stat) = figure(&rule, rule[..at].trim())?;
        Ok(FailOn {
            metric,
            stat,
            side,
            limit: percent(limit)
                .filter(|limit| *limit > -1.0)
                .ok_or_else(|| FailOnError::Limit {
                    rule: rule.clone(),
                    limit: limit.trim().to_owned(),
                })?,
            confidence: percent(confidence)
                .filter(|confidence| (0.5..1.0).contains(confidence))
                .ok_or_else(|| FailOnError::Confidence {
                    rule: rule.clone(),
                    confidence: confidence.trim().to_owned(),
                })?,
        })
    }
}

fn figure(rule: &str, text: &str) -> Result<(Measure, Stat), FailOnError> {
    let (name, figure) = match text.split_once('.') {
        Some((name, figure)) => (name.trim(), Some(figure.trim())),
        None => (text, None),
    };
    let metric = match name {
        "ttft" => Measure::Ttft,
        "tpot" => Measure::Tpot,
        "itl" => Measure::Itl,
        "e2e" => Measure::E2e,
        "throughput" => Measure::Throughput,
        "requests" => Measure::Requests,
        unknown => {
            return Err(FailOnError::Metric {
                rule: rule.to_owned(),
                metric: unknown.to_owned(),
            });
        }
    };
    let stat = match (metric.is_rate(), figure) {
        (true, None) => Some(Stat::Rate),
        (false, Some(figure)) => Stat::OF_TIMES
            .into_iter()
            .find(|stat| stat.name() == figure),
        _ => None,
    };
    let stat = stat.ok_or_else(|| FailOnError::Stat {
        rule: rule.to_owned(),
        stat: figure.unwrap_or_default().to_owned(),
    })?;
    Ok((metric, stat))
}

fn percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    number.is_finite().then_some(number / 100.0)
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.name())?;
        if !self.metric.is_rate() {
            write!(f, ".{}", self.stat.name())?;
        }
        let side = match self.side {
            Beyond::Above => '>',
            Beyond::Below => '<',
        };
        write!(
            f,
            "{side}{:+}%@{}%",
            rounded(self.limit),
            rounded(self.confidence)
        )
    }
}

/// In percent, as fine as anybody types, without binary fractions' tails.
pub(super) fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// What came of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// At no load is it shown to be broken.
    Kept,
    /// At some load it is.
    Broken,
    /// No load had enough requests to tell.
    Undecided,
}

/// A rule and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailOutcome {
    /// As it reads.
    pub rule: String,
    /// What came of it.
    pub ruling: Ruling,
    /// The bound at each load, as text.
    pub because: Vec<String>,
}

impl FailOn {
    pub(super) fn judge(&self, levels: &[LevelComparison]) -> FailOutcome {
        let mut outcome = FailOutcome {
            rule: self.to_string(),
            ruling: Ruling::Undecided,
            because: Vec::new(),
        };
        for level in levels {
            let metric = level
                .metrics
                .iter()
                .find(|metric| metric.metric == self.metric && metric.stat == self.stat);
            let Some(bound) = metric.and_then(|metric| self.bound(&metric.resampled)) else {
                let why = metric.and_then(|metric| metric.because.as_deref());
                let why = why.unwrap_or("not measured");
                outcome.because.push(format!("load {}: {why}", level.load));
                continue;
            };
            let is_broken = match self.side {
                Beyond::Above => bound > self.limit,
                Beyond::Below => bound < self.limit,
            };
            if is_broken {
                outcome.ruling = Ruling::Broken;
            } else if outcome.ruling == Ruling::Undecided {
                outcome.ruling = Ruling::Kept;
            }
            outcome.because.push(self.told(level.load, bound));
        }
        outcome
    }

    fn told(&self, load: f64, bound: f64) -> String {
        let side = match self.side {
            Beyond::Above => "at least",
            Beyond::Below => "at most",
        };
        let confidence = rounded(self.confidence);
        format!(
            "load {load}: {side} {:+.2} % with {confidence} % confidence",
            bound * 100.0
        )
    }

    /// The end of the one-sided interval that lies nearest to the limit, as a change from A to B.
    fn bound(&self, resampled: &[f64]) -> Option<f64> {
        let share = match self.side {
            Beyond::Above => 1.0 - self.confidence,
            Beyond::Below => self.confidence,
        };
        Some(at_share(resampled, share)? - 1.0)
    }
}
