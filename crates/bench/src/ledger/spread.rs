//! Where the tokens of one answer fall in time.
//!
//! The whole answer's count (usage first) is the truth; arrivals only say when. Content events that tell their tokens
//! weigh as told, those that do not share the rest evenly.

use crate::observe::Record;

/// Tokens that arrived at once, seconds after the request was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    pub at: f64,
    /// None if nobody counted.
    pub tokens: Option<f64>,
}

/// Tokens of an answer by arrival. They sum to its count, if it has one.
pub(super) fn arrivals_of(record: &Record) -> Vec<Arrival> {
    let told: u64 = record.marks.iter().filter_map(|mark| mark.num_tokens).sum();
    let num_silent = record
        .marks
        .iter()
        .filter(|mark| mark.num_tokens.is_none())
        .count();
    let Some(total) = record.num_tokens else {
        return record
            .marks
            .iter()
            .map(|mark| Arrival {
                at: mark.at.as_secs_f64(),
                tokens: mark.num_tokens.map(|num| num as f64),
            })
            .collect();
    };
    if record.marks.is_empty() {
        // Nobody saw them come: they came with the end.
        let at = record.last_token.unwrap_or(record.ended).as_secs_f64();
        let tokens = Some(total as f64);
        return vec![Arrival { at, tokens }];
    }
    let rest = total.saturating_sub(told) as f64;
    // Without events to take the difference, or with more told than there are, all are scaled to the total.
    let scale = match (num_silent, told) {
        (_, 0) => 1.0,
        (0, told) => total as f64 / told as f64,
        (_, told) => (total as f64 / told as f64).min(1.0),
    };
    record
        .marks
        .iter()
        .map(|mark| Arrival {
            at: mark.at.as_secs_f64(),
            tokens: Some(match mark.num_tokens {
                Some(num) if told > 0 => num as f64 * scale,
                Some(_) if num_silent == 0 => total as f64 / record.marks.len() as f64,
                Some(_) => 0.0,
                None => rest / num_silent as f64,
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Mark;
    use std::time::Duration;

    fn record(total: Option<u64>, marks: &[Option<u64>]) -> Record {
        let marks = marks.iter().zip(1..).map(|(&num_tokens, idx)| Mark {
            at: Duration::from_millis(10 * idx),
            num_tokens,
        });
        Record {
            num_tokens: total,
            marks: marks.collect(),
            ended: Duration::from_secs(1),
            ..Record::default()
        }
    }

    fn spread(total: Option<u64>, marks: &[Option<u64>]) -> Vec<Option<f64>> {
        let arrivals = arrivals_of(&record(total, marks));
        arrivals.iter().map(|arrival| arrival.tokens).collect()
    }

    #[test]
    fn events_that_tell_weigh_as_told_and_the_others_share_the_rest() {
        let marks = [Some(3), None, Some(1), None];
        assert_eq!(spread(Some(10), &marks), [3.0, 3.0, 1.0, 3.0].map(Some));
    }

    #[test]
    fn silent_events_share_all() {
        assert_eq!(spread(Some(100), &[None; 4]), [Some(25.0); 4]);
    }

    #[test]
    fn the_usage_is_right_where_events_disagree() {
        assert_eq!(spread(Some(8), &[Some(3), Some(1)]), [Some(6.0), Some(2.0)]);
        assert_eq!(
            spread(Some(2), &[Some(3), None, Some(1)]),
            [1.5, 0.0, 0.5].map(Some)
        );
        assert_eq!(spread(Some(4), &[Some(0), Some(0)]), [Some(2.0); 2]);
    }

    #[test]
    fn nothing_is_made_up_where_nobody_counts() {
        assert_eq!(spread(None, &[None, Some(2)]), [None, Some(2.0)]);
        assert_eq!(spread(Some(0), &[]), [Some(0.0)]);
    }

    #[test]
    fn an_answer_in_one_piece_arrives_with_its_end() {
        let arrivals = arrivals_of(&record(Some(7), &[]));
        assert_eq!((arrivals[0].at, arrivals[0].tokens), (1.0, Some(7.0)));
    }
}
