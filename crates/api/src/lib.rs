//! The wire: what an OpenAI-compatible client may send, and what it gets back.
//!
//! Lenient in, strict out. A request is read in three passes, each of which can refuse
//! it before any work is done: [`json`] makes an object of the bytes, [`fields`] walks
//! it along *one table* of everything clients are known to send (obeyed, a hint, only
//! its neutral value, refused), and the endpoint's own reader ([`chat`], [`completion`],
//! [`tokenize`]) makes typed values of it. Answers are plain `serde` types
//! ([`answer`]), framed for streaming by [`sse`]; whoever observes a server reads its stream
//! with [`event_stream`].
//!
//! Not here: what only a server knows (vocabulary, context, default values, status
//! codes); nothing here touches a tokenizer, an engine or a socket.
//!
//! Source: the OpenAI API reference, with the extensions of vLLM and llama.cpp that
//! their clients send.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod json;

pub mod fields;

pub mod params;
pub mod urgency;

pub mod constraint;
pub mod report;

pub mod chat;
pub mod completion;
pub mod tokenize;
pub mod tools;

mod conversation; // other dialects, said in chat's words

pub mod embeddings;
pub mod messages;
pub mod responses;

pub mod answer;
pub mod logprobs;
pub mod openapi;
pub mod render;
pub mod sse;
pub mod timeline;

pub mod event_stream;

mod error;

pub use error::RequestError;

/// Bounds of a request's parts, in the units named. A body's size is bounded by whoever
/// reads it; these bound what a small body can ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages of one conversation.
    pub num_messages_max: usize,
    /// Prompts of one completion request; each becomes a sequence of its own.
    pub num_prompts_max: usize,
    /// Inputs of one embedding request.
    pub num_inputs_max: usize,
    /// Entries of `logit_bias`.
    pub num_logit_biases_max: usize,
    /// Entries of `stop_token_ids`.
    pub num_stop_token_ids_max: usize,
    /// Entries of `allowed_token_ids`.
    pub num_allowed_token_ids_max: usize,
    /// Entries of `bad_words`; each is looked for at every token.
    pub num_bad_words_max: usize,
    /// Bytes of one of them.
    pub bad_word_bytes_max: usize,
    /// Tools of one request, and calls of one message.
    pub num_tools_max: usize,
    /// Bytes of one stop string; as much may be held back from a stream.
    pub stop_bytes_max: usize,
}

/// Stop strings of one request, fixed by OpenAI's contract.
pub const NUM_STOPS_MAX: usize = 4;

/// Answers to one prompt: so many sequences one small request can start.
pub const NUM_ANSWERS_MAX: u32 = 128;

/// Likeliest tokens told in one place: OpenAI's bound for chat, and more than its 5 for
/// completions.
pub const NUM_TOP_LOGPROBS_MAX: u32 = 20;

/// Bounds of the unit tests.
#[cfg(test)]
pub(crate) const TEST_LIMITS: Limits = Limits {
    num_messages_max: 64,
    num_prompts_max: 64,
    num_inputs_max: 8,
    num_logit_biases_max: 64,
    num_stop_token_ids_max: 64,
    num_allowed_token_ids_max: 64,
    num_bad_words_max: 64,
    bad_word_bytes_max: 64,
    num_tools_max: 64,
    stop_bytes_max: 64,
};
