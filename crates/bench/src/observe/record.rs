//! What came of one request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::EVENT_TOKENS_MAX;

/// How a request ended. Only [`Status::Ok`] enters latencies; all enter attainment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A whole answer.
    Ok,
    /// It stopped in the middle.
    #[default]
    Truncated,
    /// The server said so in the stream.
    ErrorEvent,
    /// The status was not 2xx.
    HttpError,
    /// The client waited too long.
    Timeout,
    /// There was no connection, or it ended before an answer began.
    Connect,
    /// What arrived is no answer.
    Protocol,
    /// The client changed its mind.
    Cancelled,
    /// 200 without a token.
    Empty,
}

/// Where a token count comes from: the first that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// `usage.completion_tokens` of the last usage seen.
    Usage,
    /// Token ids, log-probabilities or growing usage, event by event.
    Events,
    /// A tokenizer on the whole text.
    Tokenizer,
    /// Nobody knows: events are no tokens.
    #[default]
    None,
}

/// What a reader of the figures should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The answer came whole although a stream was asked for.
    NotStreamed,
    /// The stream ended without `[DONE]`.
    MissingDone,
    /// The usage told cannot be right.
    UsageSuspect,
    /// Most of the answer arrived in one read: gaps say nothing.
    Buffered,
}

/// Content that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Duration,
    /// How many tokens it has, if the server tells.
    pub num_tokens: Option<u64>,
}

/// One request's outcome. Times are since it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// How it ended.
    pub status: Status,
    /// The status line's number, if there was one.
    pub http_status: Option<u16>,
    /// When the headers were there.
    pub head: Option<Duration>,
    /// When the first byte of the body was there.
    pub first_byte: Option<Duration>,
    /// TTFT: the first content, of whatever kind.
    pub first_token: Option<Duration>,
    /// The first content that is not reasoning.
    pub first_answer: Option<Duration>,
    /// The last content: the end of E2E.
    pub last_token: Option<Duration>,
    /// When `[DONE]` was there.
    pub done: Option<Duration>,
    /// Every arrival of content, in order.
    pub marks: Vec<Mark>,
    /// Answer tokens, reasoning included.
    pub num_tokens: Option<u64>,
    /// Who says so.
    pub token_source: TokenSource,
    /// Of those, reasoning, if the server tells.
    pub num_reasoning_tokens: Option<u64>,
    /// Prompt tokens by the server's count.
    pub num_prompt_tokens: Option<u64>,
    /// Of those, found in its cache, if it tells.
    pub num_cached_tokens: Option<u64>,
    /// How long the request queued, if the server tells.
    pub queue: Option<Duration>,
    /// When the last byte was there, or the request was given up.
    pub ended: Duration,
    /// The answer's text, if it was asked for: what a next turn repeats.
    pub text: Option<String>,
    /// Bytes of all content.
    pub num_content_bytes: u64,
    /// Content events that shared a read with the one before.
    pub num_coalesced: u32,
    /// Comments: signs of life.
    pub num_comments: u32,
    /// Why the first choice ended.
    pub finish_reason: Option<String>,
    /// What the server said of its failure.
    pub error: Option<String>,
    /// What to know about the figures.
    pub flags: Vec<Flag>,
}

impl Record {
    /// Tokens of the first content event; 1 if the server does not tell.
    pub fn num_first(&self) -> u64 {
        self.marks
            .first()
            .and_then(|mark| mark.num_tokens)
            .unwrap_or(1)
    }

    /// Seconds per output token after the first event, `(E2E - TTFT) / (N - n_1)`; none if there are
    /// no tokens after it, or nobody counted them.
    pub fn tpot(&self) -> Option<f64> {
        let num_later = self
            .num_tokens?
            .checked_sub(self.num_first())
            .filter(|&num| num > 0)?;
        let decode = self.last_token?.checked_sub(self.first_token?)?;
        Some(decode.as_secs_f64() / num_later as f64)
    }

    /// Seconds between consecutive tokens: one per token after the first event. Tokens that share an event share
    /// its gap evenly; an event whose tokens nobody counted is one.
    pub fn token_gaps(&self) -> impl Iterator<Item = f64> {
        self.marks.windows(2).flat_map(|pair| {
            let num_tokens = pair[1].num_tokens.unwrap_or(1);
            let num_tokens = num_tokens.clamp(1, EVENT_TOKENS_MAX);
            let gap = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
            std::iter::repeat_n(
                gap / num_tokens as f64,
                usize::try_from(num_tokens).unwrap_or(1),
            )
        })
    }

    /// `E2E - (TTFT + (N - n_1) * gap)` in seconds: what a steady stream with that gap does not explain.
    pub fn residual(&self, gap: f64) -> Option<f64> {
        let num_later = self.num_tokens?.checked_sub(self.num_first())?;
        let decode = self.last_token?.checked_sub(self.first_token?)?;
        Some(decode.as_secs_f64() - num_later as f64 * gap)
    }
}
