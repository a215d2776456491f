//! What is asked: conversations, drawn from a workload file or read from a trace.
//!
//! The one idea: a workload is a pure function of its file, a seed and a vocabulary. Conversation `i` is the same
//! whoever asks for it and in whatever order, so runs pair request by request, and nothing is kept.
//!
//! Not here: when things are asked (`load`), and over what (`client`).

use std::sync::Arc;

use crate::slo::Slo;

/// A kind of traffic within a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As in the file, for example `interactive`.
    pub name: String,
    /// What its users were promised; empty if nothing.
    pub slo: Slo,
    /// The share of prompt tokens that are common to several requests by declaration, in [0, 1]; none if unknown.
    pub shared_share: Option<f64>,
}

/// Questions of one user that follow each other: each turn repeats all before it, and waits for the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Its number in the workload.
    pub number: u64,
    /// An index into the workload's classes.
    pub class: usize,
    /// What every turn begins with, often shared between conversations.
    pub system: Option<Arc<str>>,
    /// At least one.
    pub turns: Vec<Turn>,
    /// When a trace says that it begins: seconds since the trace's first. None but for traces.
    pub due_s: Option<f64>,
    /// Headers of each request, besides those of the run.
    pub headers: Vec<(String, String)>,
    /// Body fields of each request, besides those of the run (for example `priority`).
    pub body: serde_json::Map<String, serde_json::Value>,
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The user's text.
    pub text: String,
    /// Tokens of the whole prompt of this turn as meant, earlier turns and the server's template included; none
    /// if the workload cannot know (real texts, or no vocabulary).
    pub num_prompt_tokens: Option<u64>,
    /// Of those, common to several requests by declaration.
    pub num_shared_tokens: u64,
    /// `max_tokens`; none leaves it to the server.
    pub num_output_tokens: Option<u64>,
    /// Whether the answer should have exactly that many tokens, end tokens or not.
    pub output: OutputLength,
    /// Seconds that the user thinks before asking; 0 for the first turn.
    pub think_s: f64,
}

/// How `num_output_tokens` is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputLength {
    /// Exactly (`ignore_eos`).
    Exact,
    /// The model may end earlier.
    AtMost,
}
