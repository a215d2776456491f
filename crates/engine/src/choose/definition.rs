//! What sampling means, written to be read: sorts everything, in f64, with no shortcuts.
//! Tests compare the real thing with this.

use crate::request::{Sampling, TokenId};

/// What the definition looks at besides the logits.
pub(super) struct Situation<'a> {
    pub(super) prompt: &'a [TokenId],
    pub(super) answer: &'a [TokenId],
    /// Stop ids that are banned because the answer is still short.
    pub(super) banned: &'a [TokenId],
}

/// The probability of each token, `row.len()` of them, or `None` if there is nothing to choose.
pub(super) fn distribution(
    row: &[f32],
    sampling: &Sampling,
    situation: &Situation<'_>,
) -> Option<Vec<f64>> {
    let mut logits: Vec<f64> = row
        .iter()
        .map(|&logit| {
            if logit.is_nan() {
                f64::NEG_INFINITY
            } else {
                f64::from(logit)
            }
        })
        .collect();
    for &(token, bias) in &sampling.logit_bias {
        let logit = &mut logits[token.0 as usize];
        if bias <= -100.0 {
            *logit = f64::NEG_INFINITY;
        } else if bias < 100.0 {
            *logit += f64::from(bias);
        }
    }
    for token in situation.banned {
        logits[token.0 as usize] = f64::NEG_INFINITY;
    }
    let forced: Vec<usize> = sampling
        .logit_bias
        .iter()
        .filter(|(token, bias)| *bias >= 100.0 && !situation.banned.contains(token))
        .map(|(token, _)| token.0 as usize)
        .collect();
    if !forced.is_empty() {
        for (id, logit) in logits.iter_mut().enumerate() {
            if !forced.contains(&id) {
                *logit = f64::NEG_INFINITY;
            }
        }
    }
    penalise(&mut logits, sampling, situation);
    (logits.iter().any(|logit| logit.is_finite())).then(|| filtered(&logits, sampling))
}

fn penalise(logits: &mut [f64], sampling: &Sampling, situation: &Situation<'_>) {
    for (id, logit) in logits.iter_mut().enumerate() {
        let token = TokenId(id as u32);
        let num_in_answer = situation.answer.iter().filter(|&&t| t == token).count();
        if num_in_answer > 0 || situation.prompt.contains(&token) {
            let repetition = f64::from(sampling.repetition_penalty);
            *logit = if *logit > 0.0 {
                *logit / repetition
            } else {
                *logit * repetition
            };
        }
        if num_in_answer > 0 {
            *logit -= f64::from(sampling.presence_penalty);
        }
        *logit -= f64::from(sampling.frequency_penalty) * num_in_answer as f64;
    }
}

fn filtered(logits: &[f64], sampling: &Sampling) -> Vec<f64> {
    // Heaviest first, lowest id among equals.
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let mut probabilities = vec![0.0; logits.len()];
    if sampling.temperature == 0.0 {
        probabilities[order[0]] = 1.0;
        return probabilities;
    }
    if let Some(k) = sampling.top_k {
        order.truncate(k as usize);
    }
    let weight =
        |id: usize| ((logits[id] - logits[order[0]]) / f64::from(sampling.temperature)).exp();
    let total: f64 = order.iter().map(|&id| weight(id)).sum();
    let mut reached = 0.0;
    let mut kept = Vec::new();
    for &id in &order {
        kept.push(id);
        reached += weight(id) / total;
        if sampling.top_p < 1.0 && reached >= f64::from(sampling.top_p) {
            break;
        }
    }
    kept.retain(|&id| weight(id) >= f64::from(sampling.min_p));
    let total: f64 = kept.iter().map(|&id| weight(id)).sum();
    for id in kept {
        probabilities[id] = weight(id) / total;
    }
    probabilities
}
