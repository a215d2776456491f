//! What an answer looks like on the wire: one dialect, one file.
//!
//! A dialect reads its endpoint's body (its `prepare`), and then writes what happens to the
//! choices, either as frames while it happens or as one document at the end. It lives as
//! long as one answer and may remember what it wrote (sequence numbers, open blocks); one
//! that must know its whole answer at the end of a stream keeps a [`Collected`] per choice.
//!
//! Order of calls for a stream: `open`, then for each choice `started`, `prompt` (if asked for), any
//! number of `news`, and `ended`, choices interleaved; then `close`. If the server ends it,
//! `broken` is the last call instead. For a document there is the one call.
//!
//! Not here: pings, stalled clients, cancellation (`stream.rs`), or whose fault a failure is.

pub(crate) mod chat;
pub(crate) mod completion;
pub(crate) mod messages;
pub(crate) mod responses;

mod prompt;
mod timeline;
mod timings;

use api::answer::{Usage, UsageField};
use api::params::StreamUsage;
use engine::TokenLogprobs;

use crate::choices::{Ended, News};
use crate::errors::Refusal;
use crate::stream::Out;
use crate::whole::Collected;

/// See the module. `idx` is a choice's place in the request's list; `usage` counts all tokens
/// of all choices so far.
pub(crate) trait Dialect: Send {
    /// The request was taken: what can be said before anything is computed.
    fn open(&mut self, usage: Usage, out: &mut Out);

    /// A choice begins to be computed.
    fn started(&mut self, _idx: usize) {}

    /// The prompt's log-probabilities, which only a dialect hears that asked for them.
    fn prompt(&mut self, _idx: usize, _logprobs: &[TokenLogprobs], _usage: Usage, _out: &mut Out) {}

    /// There is more of a choice.
    fn news(&mut self, idx: usize, news: News, usage: Usage, out: &mut Out);

    /// A choice ended by itself.
    fn ended(&mut self, idx: usize, ended: Ended, usage: Usage, out: &mut Out);

    /// The server ended all choices that still ran, for the reason told.
    fn broken(&mut self, running: &[usize], refusal: &Refusal, usage: Usage, out: &mut Out);

    /// All choices ended by themselves.
    fn close(&mut self, usage: Usage, out: &mut Out);

    /// The stream was silent for a while: a sign of life.
    fn ping(&mut self, out: &mut Out) {
        out.ping();
    }

    /// The whole answer as JSON.
    fn document(&mut self, choices: Vec<Collected>, usage: Usage) -> Vec<u8>;
}

/// The `usage` key of a chunk that has choices.
pub(crate) fn usage_so_far(asked: StreamUsage, usage: Usage) -> UsageField {
    match asked {
        StreamUsage::Never => UsageField::Absent,
        StreamUsage::AtEnd => UsageField::Null,
        StreamUsage::InEveryChunk => UsageField::Told(usage),
    }
}

/// A choice's index on the wire.
pub(crate) fn choice_index(idx: usize) -> u32 {
    u32::try_from(idx).expect("the number of choices is bounded far below")
}

/// A document's bytes.
pub(crate) fn to_json<T: serde::Serialize>(document: &T) -> Vec<u8> {
    serde_json::to_vec(document).expect("answers are made of strings and numbers")
}
