//! What an answer tells besides its text, and how many answers there are.

use serde_json::Value;

use crate::error::RequestError;
use crate::fields::Fields;
use crate::params::Delivery;
use crate::{NUM_ANSWERS_MAX, NUM_TOP_LOGPROBS_MAX};

/// What an answer tells besides its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Log-probabilities of the answer's tokens, and of this many of the likeliest.
    pub logprobs: Option<u32>,
    /// The same of the prompt, in a list of its own.
    pub prompt_logprobs: Option<u32>,
    /// How log-probabilities name a token.
    pub names: TokenNames,
    /// Token ids of prompt and answer.
    pub token_ids: Told,
    /// The prompt's text.
    pub prompt_text: Told,
    /// The prompt, as the beginning of the answer.
    pub echo: Told,
    /// Timings in every chunk.
    pub running_timings: Told,
}

/// Whether something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is.
    Told,
    /// It is left out.
    Left,
}

/// How log-probabilities name a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenNames {
    /// By its text.
    Text,
    /// By its id (`return_tokens_as_token_ids`).
    Ids,
}

/// How many answers there are to each prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// How many are made, at least as many as are kept.
    pub num_made: usize,
    /// How many are given, at least 1.
    pub num_kept: usize,
}

impl Answers {
    /// The usual case.
    pub const ONE: Answers = Answers {
        num_made: 1,
        num_kept: 1,
    };

    pub(crate) fn read(fields: &Fields, delivery: Delivery) -> Result<Answers, RequestError> {
        let number = |name| {
            let number = fields.integer(name)?;
            let number = usize::try_from(number).expect("the table bounds it");
            debug_assert!(number <= NUM_ANSWERS_MAX as usize);
            Some(number)
        };
        let num_kept = number("n").unwrap_or(1);
        let num_made = number("best_of").unwrap_or(num_kept);
        let contradiction = |reason: &str| RequestError::Contradiction {
            param: "best_of".to_owned(),
            reason: reason.to_owned(),
        };
        if num_made < num_kept {
            return Err(contradiction("must not be less than 'n'"));
        }
        if num_made > num_kept && delivery != Delivery::Whole {
            return Err(contradiction(
                "must not exceed 'n' when 'stream' is true: the best are known at the end only",
            ));
        }
        Ok(Answers { num_made, num_kept })
    }
}

impl Report {
    pub(crate) fn read(fields: &Fields, delivery: Delivery) -> Result<Report, RequestError> {
        let told = |name| match fields.flag(name) {
            Some(true) => Told::Told,
            _ => Told::Left,
        };
        let prompt_logprobs = fields.integer("prompt_logprobs");
        if prompt_logprobs.is_some() && delivery != Delivery::Whole {
            return Err(RequestError::Contradiction {
                param: "prompt_logprobs".to_owned(),
                reason: "is not available when 'stream' is true".to_owned(),
            });
        }
        Ok(Report {
            logprobs: logprobs(fields)?,
            prompt_logprobs: prompt_logprobs.map(bounded),
            names: match told("return_tokens_as_token_ids") {
                Told::Told => TokenNames::Ids,
                Told::Left => TokenNames::Text,
            },
            token_ids: told("return_token_ids"),
            prompt_text: told("return_prompt_text"),
            echo: told("echo"),
            running_timings: told("timings_per_token"),
        })
    }
}

/// Chat asks with a flag and a number, completions with a number alone.
fn logprobs(fields: &Fields) -> Result<Option<u32>, RequestError> {
    let top = fields.integer("top_logprobs").map_or(0, bounded);
    match fields.get("logprobs") {
        Some(Value::Bool(true)) if fields.is_chat() => Ok(Some(top)),
        None | Some(Value::Bool(false)) if top > 0 => Err(RequestError::Contradiction {
            param: "top_logprobs".to_owned(),
            reason: "needs 'logprobs': true".to_owned(),
        }),
        None | Some(Value::Bool(false)) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) if number <= u64::from(NUM_TOP_LOGPROBS_MAX) => {
                Ok(Some(u32::try_from(number).expect("bounded")))
            }
            _ => {
                let expected = format!("an integer from 0 to {NUM_TOP_LOGPROBS_MAX}");
                Err(RequestError::invalid("logprobs", expected, value))
            }
        },
    }
}

fn bounded(number: i64) -> u32 {
    u32::try_from(number).expect("the table bounds it")
}
