//! How much at once a run will have: as far as can be told before it, and as it turned out.
//!
//! Before it, an open loop's requests in flight are its rate times the time of an answer (Little's law), and that time is
//! the trial request's, prolonged to the workload's answers. What an overloaded server does to it is seen afterwards.

use super::trust::DELAY_S_MIN;
use super::{Levels, Order};
use crate::arrival::Process;
use crate::calibrate::{Floor, Rehearsal, Transport};
use crate::client::Probed;
use crate::load::Pace;
use crate::workload::Vocabulary;

/// What a fast server sends of one answer; one that is slower alone is not faster in company.
const EVENTS_PER_S: f64 = 50.0;
/// To the first token, if the trial does not tell.
const FIRST_S: f64 = 0.2;
/// An answer's tokens, if the workload leaves them to the server.
const TOKENS: f64 = 256.0;
/// Conversations that stand for all.
const NUM_DRAWN: u64 = 64;

/// What to rehearse before a run.
pub(super) fn rehearsal(order: &Order, probed: &Probed, vocabulary: &Vocabulary) -> Rehearsal {
    let answers_s = conversation_s(order, probed, vocabulary);
    let of_rate = |process: &Process| process.peak_rate().unwrap_or(0.0) * answers_s;
    let followers = match &order.levels {
        Levels::Listed(plans) => plans
            .iter()
            .map(|plan| match &plan.pace {
                Pace::Users(users) => f64::from(*users),
                Pace::Arrivals(process) => of_rate(process),
            })
            .fold(0.0, f64::max),
        Levels::Search { first, .. } => first.iter().copied().max().map_or(0.0, f64::from),
    };
    let classes = order.workload.classes.iter();
    let others: f64 = classes
        .filter_map(|class| Some(of_rate(class.arrivals.as_ref()?)))
        .sum();
    let num_streams = ((followers + others).ceil() as usize).clamp(1, order.concurrency_max.max(1));
    let of_stream = 1.0 / token_s(probed);
    let events_per_s = num_streams as f64 * of_stream.min(EVENTS_PER_S);
    Rehearsal::of_rate(num_streams, events_per_s, Transport::of(&order.client))
}

/// What to rehearse after it: so much as was seen, if that was much more; or if it was much less, and the floor is one
/// that would be held against the run.
pub(super) fn second_rehearsal(
    before: &Floor,
    num_streams: u64,
    events_per_s: f64,
) -> Option<Rehearsal> {
    if events_per_s <= 0.0 {
        return None;
    }
    let planned = &before.rehearsal;
    let num_streams = usize::try_from(num_streams).unwrap_or(usize::MAX).max(1);
    let seen = Rehearsal::of_rate(num_streams, events_per_s, planned.transport);
    let was_more = planned.is_exceeded_by(num_streams, events_per_s);
    let was_less = seen.is_exceeded_by(planned.num_streams, planned.events_per_s());
    (was_more || (was_less && before.p99_s > DELAY_S_MIN)).then_some(seen)
}

/// How long all answers of a conversation take together.
fn conversation_s(order: &Order, probed: &Probed, vocabulary: &Vocabulary) -> f64 {
    let trial = &probed.trial;
    let first_s = trial
        .first_token
        .map_or(FIRST_S, |first| first.as_secs_f64());
    let token_s = token_s(probed);
    let (mut sum_s, mut num) = (0.0, 0.0);
    for number in 0..NUM_DRAWN {
        let Some(drawn) = order.workload.conversation(number, order.seed, vocabulary) else {
            break;
        };
        for turn in &drawn.turns {
            let num_tokens = turn.num_output_tokens.map_or(TOKENS, |num| num as f64);
            sum_s += first_s + token_s * num_tokens;
        }
        num += 1.0;
    }
    if num > 0.0 { sum_s / num } else { first_s }
}

/// From one token to the next, by the trial request.
fn token_s(probed: &Probed) -> f64 {
    let told = probed.trial.tpot().filter(|&token_s| token_s > 0.0);
    told.unwrap_or(1.0 / EVENTS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Protocol, Scheme};

    #[test]
    fn a_run_that_had_much_more_than_was_rehearsed_is_rehearsed_again() {
        let transport = Transport {
            protocol: Protocol::Http2,
            scheme: Scheme::Https,
        };
        let mut before = Floor {
            rehearsal: Rehearsal::of_rate(64, 3_200.0, transport),
            num_events: 2_560,
            p50_s: 0.000_1,
            p99_s: 0.000_5,
            num_failed: 0,
        };
        assert_eq!(second_rehearsal(&before, 90, 4_000.0), None);
        let again = second_rehearsal(&before, 400, 4_000.0).expect("a rehearsal");
        assert_eq!((again.num_streams, again.transport), (400, transport));
        let again = second_rehearsal(&before, 10, 9_000.0).expect("a rehearsal");
        assert!((again.events_per_s() - 9_000.0).abs() < 1.0);
        assert_eq!(second_rehearsal(&before, 400, 0.0), None, "nothing arrived");
        assert_eq!(
            second_rehearsal(&before, 8, 400.0),
            None,
            "good enough for less"
        );
        before.p99_s = 0.6;
        let again = second_rehearsal(&before, 8, 400.0).expect("a rehearsal");
        assert_eq!(again.num_streams, 8, "too much was planned, and it shows");
    }
}
