//! What a request is made of: answers of `…/render` and `/apply-template`.
//!
//! Source: vLLM's `GenerateRequest`, in the part a text-only server has; llama.cpp's server.

use serde::Serialize;
use utoipa::ToSchema;

/// One prompt of a request, ready for an engine.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Rendered<'a> {
    /// The id its answer would have.
    pub request_id: String,
    /// The prompt.
    pub token_ids: Vec<u32>,
    /// How the answer would be made, with all defaults filled in.
    pub sampling_params: Settings,
    /// The served name.
    pub model: &'a str,
}

/// vLLM's `SamplingParams`, as far as a request can set them here.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Settings {
    /// Answers to the prompt.
    pub n: usize,
    /// 0 is greedy.
    pub temperature: f32,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub top_k: u32,
    /// 0 is off.
    pub min_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// `null`: a fresh one.
    pub seed: Option<i64>,
    /// Answer tokens at most.
    pub max_tokens: u32,
    /// No end token before this many.
    pub min_tokens: u32,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer.
    pub stop_token_ids: Vec<u32>,
    /// Go on past the model's own end tokens.
    pub ignore_eos: bool,
    /// Log-probabilities of the answer's tokens.
    pub logprobs: Option<u32>,
    /// Of the prompt's.
    pub prompt_logprobs: Option<u32>,
}

/// A conversation as the model's chat template writes it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AppliedTemplate {
    /// The text.
    pub prompt: String,
}
