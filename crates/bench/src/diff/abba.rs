//! Two endpoints in turn, A B B A A B B A: what drifts (heat, neighbours, a filling cache) hurts both alike.
//!
//! Each pair of neighbouring rounds of different sides gives a ratio B / A. In the order A B, B A, ... a drift that
//! grows evenly enters one ratio upwards and the next downwards, so it leaves their mean. The interval is Student's, on
//! the logarithms of the ratios; the drift itself is told from how A's and B's own rounds go on.

use serde::{Deserialize, Serialize};

/// Which endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// `--a`
    A,
    /// `--b`
    B,
}

/// One round: what one endpoint showed in its turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Whose turn.
    pub side: Side,
    /// Metrics by name, for example `ttft.p50`; the same names in every round. A figure that is missing or not positive
    /// leaves its pair out.
    pub figures: Vec<(String, f64)>,
}

/// The ratios of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AbbaMetric {
    /// As in [`Round::figures`].
    pub metric: String,
    /// B / A of each pair of neighbours, in order.
    pub ratios: Vec<f64>,
    /// Their median; `null` without pairs.
    pub median: Option<f64>,
    /// Their geometric mean.
    pub mean: Option<f64>,
    /// The mean's 95 % interval; `null` with fewer than two pairs.
    pub ci95: Option<[f64; 2]>,
    /// By what share a side's own figures grow from one of its rounds to its next, on average over both sides; `null`
    /// with fewer than two rounds of each side.
    pub drift_per_round: Option<f64>,
}

/// What the rounds tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AbbaReport {
    /// Rounds of both sides.
    pub num_rounds: usize,
    /// In the order of the first round's figures.
    pub metrics: Vec<AbbaMetric>,
}

/// Ratios with intervals of rounds in the order in which they ran: A B B A A B B A.
///
/// Rounds 0 and 1, 2 and 3, ... are pairs; a pair of one side, and a last round alone, are left out.
pub fn abba(rounds: &[Round]) -> AbbaReport {
    let names = rounds.first().map_or(&[][..], |round| &round.figures);
    AbbaReport {
        num_rounds: rounds.len(),
        metrics: names.iter().map(|(name, _)| metric(rounds, name)).collect(),
    }
}

fn metric(rounds: &[Round], name: &str) -> AbbaMetric {
    let logs: Vec<f64> = rounds
        .chunks_exact(2)
        .filter_map(|pair| match (pair[0].side, pair[1].side) {
            (Side::A, Side::B) => Some(figure(&pair[1], name)?.ln() - figure(&pair[0], name)?.ln()),
            (Side::B, Side::A) => Some(figure(&pair[0], name)?.ln() - figure(&pair[1], name)?.ln()),
            _ => None,
        })
        .collect();
    let mut sorted = logs.clone();
    sorted.sort_by(f64::total_cmp);
    let mean = (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64);
    AbbaMetric {
        metric: name.to_owned(),
        ratios: logs.iter().map(|log| log.exp()).collect(),
        median: super::at_share(&sorted, 0.5).map(f64::exp),
        mean: mean.map(f64::exp),
        ci95: mean.and_then(|mean| interval(&logs, mean)),
        drift_per_round: drift(rounds, name),
    }
}

fn figure(round: &Round, name: &str) -> Option<f64> {
    let found = round.figures.iter().find(|(known, _)| known == name)?;
    (found.1 > 0.0 && found.1.is_finite()).then_some(found.1)
}

fn interval(logs: &[f64], mean: f64) -> Option<[f64; 2]> {
    let freedom = logs.len().checked_sub(1).filter(|&freedom| freedom > 0)?;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let error = (squares / freedom as f64 / logs.len() as f64).sqrt();
    let half = student_975(freedom) * error;
    Some([(mean - half).exp(), (mean + half).exp()])
}

/// The 97.5th percentile of Student's t; beyond the table, within 0.2 % by Fisher's expansion about the normal.
fn student_975(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    let z = 1.959_964_f64;
    let n = freedom as f64;
    TABLE.get(freedom - 1).copied().unwrap_or_else(|| {
        z + (z.powi(3) + z) / (4.0 * n)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
    })
}

/// The least-squares slope of the logarithms over a side's rounds, averaged over both sides.
fn drift(rounds: &[Round], name: &str) -> Option<f64> {
    let slope = |side: Side| {
        let logs: Vec<f64> = rounds
            .iter()
            .filter(|round| round.side == side)
            .filter_map(|round| Some(figure(round, name)?.ln()))
            .collect();
        let num = logs.len() as f64;
        let (middle, mean) = ((num - 1.0) / 2.0, logs.iter().sum::<f64>() / num);
        let (mut over, mut under) = (0.0, 0.0);
        for (idx, log) in logs.iter().enumerate() {
            over += (idx as f64 - middle) * (log - mean);
            under += (idx as f64 - middle).powi(2);
        }
        (logs.len() >= 2).then(|| over / under)
    };
    Some(((slope(Side::A)? + slope(Side::B)?) / 2.0).exp_m1())
}
