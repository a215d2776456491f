//! What a caller asks of the engine, and what it hears back.

use std::time::{Duration, Instant};

use crate::constraint::Constraint;

pub use text::TokenId;

/// One generation. Every field was checked by the front (`server::admit`); the engine
/// checks only what it alone knows (queue, KV pool).
#[derive(Clone, Debug)]
pub struct Request {
    /// Prompt tokens, at least one.
    pub prompt: Vec<TokenId>,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// When generation ends.
    pub stop: Stop,
    /// Which log-probabilities its events tell.
    pub logprobs: Logprobs,
    /// What the answer must look like; `None` is free text. Then every stop leaves a complete answer: the
    /// ends of [`Stop`] count where the answer is complete, and nowhere else.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Whether control tokens that do not end the answer have text.
    pub control_text: ControlText,
    /// When the request reached the front; waiting and first-token times count from here.
    pub arrived: Instant,
}

/// One prompt that is to become a vector.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// At least one token.
    pub prompt: Vec<TokenId>,
    /// What of its hidden states.
    pub pooling: Pooling,
    /// As [`Request::arrived`].
    pub arrived: Instant,
}

/// How the hidden states of a prompt become one vector. States are those that the output head
/// reads: behind the last layer, after the final norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all positions, summed in 64 bits in their order. Such a prompt is computed
    /// whole, whatever is cached.
    Mean,
    /// The last position's: the only one that has seen the whole prompt.
    Last,
}

impl EmbedRequest {
    /// The same as a generation of nothing.
    pub(crate) fn into_request(self) -> Request {
        Request {
            prompt: self.prompt,
            sampling: Sampling {
                temperature: 0.0,
                top_k: None,
                top_p: 1.0,
                min_p: 0.0,
                repetition_penalty: 1.0,
                presence_penalty: 0.0,
                frequency_penalty: 0.0,
                logit_bias: Vec::new(),
                allowed: None,
                bad_words: Vec::new(),
                // Nothing is drawn, and nobody's seed is used up.
                seed: Some(0),
            },
            stop: Stop {
                max_tokens: 0,
                min_tokens: 0,
                strings: Vec::new(),
                token_ids: Vec::new(),
                ignore_eos: false,
            },
            logprobs: Logprobs::default(),
            constraint: None,
            control_text: ControlText::Dropped,
            arrived: self.arrived,
        }
    }
}

/// Which log-probabilities a request wants. They are the model's own: of the logits before bias,
/// bans, penalties and temperature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logprobs {
    /// Of each answer token, and of this many of the likeliest in its place; `None` tells nothing.
    pub answer: Option<u32>,
    /// The same for each prompt token but the first. Such a prompt is computed whole, whatever is cached.
    /// Held until the prompt is computed: about 40 bytes a token and 8 more for each of the likeliest.
    pub prompt: Option<u32>,
}

/// How likely a token was in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token that stands there.
    pub token: TokenId,
    /// Natural logarithm of its probability; minus infinity if the model rules it out.
    pub logprob: f32,
    /// Its place in the order of likelihood; 1 is the likeliest.
    pub rank: u32,
    /// The likeliest tokens in its place, likeliest first, lowest id first among equals.
    pub top: Vec<(TokenId, f32)>,
}

/// Whether control tokens that do not end the answer have text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlText {
    /// They have none (`skip_special_tokens: true`).
    #[default]
    Dropped,
    /// Their names stand in the text, where a parser of tool calls may need them.
    Shown,
}

/// How tokens are chosen. Applied in this order: logit bias, `min_tokens` ban of stop ids,
/// penalties, `allowed`, `bad_words`, the constraint, temperature, top-k, top-p, min-p, draw.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// 0 is greedy (largest logit, lowest id on a tie), and so is all below 1e-5; at most 2 by the API.
    pub temperature: f32,
    /// Keep this many of the largest; `None` and 0 keep all.
    pub top_k: Option<u32>,
    /// Keep the smallest set whose probability reaches this, at least one token; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest; 0 drops none.
    pub min_p: f32,
    /// Divides (positive) or multiplies (negative) logits of tokens in prompt or answer; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from tokens of the answer; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence in the answer; 0 is off.
    pub frequency_penalty: f32,
    /// Added to single logits, values in -100..=100. -100 bans and +100 forces, exactly: no logit is
    /// large enough to get past them. Bans of everything ban nothing.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The only tokens that may be chosen, end tokens too; `None` allows all. Yields to nothing but what
    /// is stricter: what leaves no token is refused ([`AdmitError::NothingAllowed`]), except that
    /// `min_tokens` gives way if all that is allowed would end the answer.
    pub allowed: Option<Vec<TokenId>>,
    /// Token sequences, none empty, whose last token is banned where the ones before it are the end of the
    /// answer so far. If they leave no token, the answer ends [`FinishReason::OutOfConstraint`].
    pub bad_words: Vec<Vec<TokenId>>,
    /// Same seed and request, same text, in any company. `None` takes a fresh one from the engine's source.
    /// Of several answers to a request each has a seed of its own, which follows from this.
    pub seed: Option<u64>,
}

/// When an answer ends.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Answer tokens at most; prompt + this fits the context. 0 computes the prompt and ends.
    pub max_tokens: u32,
    /// Answer tokens before which no stop id or end token may be chosen (an end token that
    /// `ignore_eos` makes ordinary may be). Stop strings still stop.
    pub min_tokens: u32,
    /// Texts that end the answer; they are not part of it.
    pub strings: Vec<String>,
    /// Tokens that end the answer besides the model's own end tokens.
    pub token_ids: Vec<TokenId>,
    /// Do not end at the model's own end tokens.
    pub ignore_eos: bool,
}

/// What the engine reports about one request, in order: `Started`, any number of `Text`,
/// then exactly one `Finished`, which is all that a request hears that ends while it waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first prompt tokens are about to be computed.
    Started {
        /// As [`Usage::num_cached`].
        num_cached: u32,
    },
    /// Some more of the answer: whole UTF-8 characters, nothing that could still become a stop string.
    Text {
        /// The text; may be empty while a character or possible stop string is held back.
        text: String,
        /// Tokens committed since the previous event, at least one; an end token too. Over all events they
        /// are the answer's tokens as `Usage` counts them.
        tokens: Vec<TokenId>,
        /// One per token of `tokens`, so of an end token too, if the request wants them, else empty.
        logprobs: Vec<TokenLogprobs>,
    },
    /// Log-probabilities of the whole prompt, if the request wants them: before the first `Text`, one per
    /// prompt token after the first.
    Prompt {
        /// The `i`-th belongs to prompt token `i + 1`.
        logprobs: Vec<TokenLogprobs>,
    },
    /// The vector of an [`EmbedRequest`], not normalised: as many values as the model's hidden
    /// states have. Once, just before the end.
    Embedding {
        /// All finite.
        vector: Vec<f32>,
    },
    /// The end; nothing follows.
    Finished(Finished),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Text released at the end: what was held back and turned out not to be a stop string.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Where the time went.
    pub times: Times,
    /// Sum of the log-probabilities of all answer tokens; 0 unless the request wants them.
    pub logprob_sum: f64,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub enum FinishReason {
    /// An end token, a stop token or a stop string.
    Stop(StopCause),
    /// `max_tokens` or the context is used up.
    Length,
    /// The caller went away.
    Cancelled,
    /// The engine is shutting down and the drain limit has passed.
    Aborted,
    /// The answer cannot go on within its constraint or rules: nothing that the request allows fits, or it
    /// became too expensive to follow. The caller's fault; what was told so far is not complete.
    OutOfConstraint {
        /// Why, for the caller.
        reason: String,
    },
    /// The engine failed; the message is for the log, not for the caller.
    Failed {
        /// What went wrong.
        message: String,
    },
}

/// What matched.
#[derive(Clone, Debug, PartialEq)]
pub enum StopCause {
    /// The model's own end token.
    EndToken,
    /// A token of the request's `token_ids`.
    TokenId(TokenId),
    /// One of the request's `strings`.
    String(String),
    /// The constraint: the answer is complete and nothing may follow.
    Exhausted,
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub num_prompt: u32,
    /// Of those, not computed for this answer: taken from the prefix cache or, for the second and later
    /// answers of a group, from another of the group. A group's prompt was therefore used as answer 0
    /// says.
    pub num_cached: u32,
    /// Answer tokens, the end token included when the model produced one.
    pub num_completion: u32,
}

/// Where a request's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From arrival until the first step that computed some of it.
    pub queued: Duration,
    /// From that step until the first answer token.
    pub prefill: Duration,
    /// From the first answer token to the last.
    pub decode: Duration,
    /// How often it was preempted.
    pub num_preemptions: u32,
}

/// Hears, on the engine thread and with its times, what happens to one answer; must return in
/// microseconds and never block. What every answer's observer hears is [`crate::Observer`]'s.
///
/// An answer that the engine was never given, or that a dying engine drops, is heard of no further: then
/// its witness is dropped without [`Witness::ended`].
pub trait Witness: std::fmt::Debug + Send + Sync {
    /// The first step that computes some of it begins. Not told of an answer that ends before.
    fn started(&self, num_cached: u32, at: Instant);
    /// It takes part in a step, the first included.
    fn stepped(&self);
    /// Its blocks were taken away; it waits for others.
    fn parked(&self, at: Instant);
    /// It is computed again.
    fn resumed(&self, at: Instant);
    /// It has one more token.
    fn token(&self, at: Instant);
    /// It ended.
    fn ended(&self, reason: &FinishReason, usage: Usage, at: Instant);
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is wrong: 400.
    Caller,
    /// Too much at once: 429 or 503 with `Retry-After`.
    Load {
        /// When trying again is worth it.
        retry_after: Duration,
    },
    /// This server cannot: 503.
    Server,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdmitError {
    /// Prompt plus answer exceed the model's context or the whole KV pool.
    #[error(
        "this model's context is {num_tokens_max} tokens, but the request needs {num_tokens} ({num_prompt} in the prompt and {max_tokens} for the answer)"
    )]
    TooLong {
        /// Prompt plus answer.
        num_tokens: u32,
        /// Prompt alone.
        num_prompt: u32,
        /// Answer limit asked for.
        max_tokens: u32,
        /// What fits.
        num_tokens_max: u32,
    },
    /// An empty prompt has nothing to continue.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// `allowed`, `bad_words` and bias leave no token that could ever be chosen.
    #[error("the allowed tokens, bad words and logit bias leave no token to choose")]
    NothingAllowed,
    /// More answers to one prompt than the queue and the running sequences together hold.
    #[error("{num_answers} answers are wanted at once, at most {num_answers_max} can be")]
    TooManyAnswers {
        /// Answers asked for.
        num_answers: u32,
        /// What fits.
        num_answers_max: u32,
    },
    /// A prompt token that the model does not have.
    #[error("token {} is not in the vocabulary of {vocab} tokens", token.0)]
    UnknownToken {
        /// The first such token.
        token: TokenId,
        /// Tokens are below this.
        vocab: u32,
    },
    /// Too many requests wait already.
    #[error("{num_waiting} requests already wait, at most {num_waiting_max} may")]
    QueueFull {
        /// Requests waiting now.
        num_waiting: u32,
        /// The limit.
        num_waiting_max: u32,
        /// When trying again is worth it.
        retry_after: Duration,
    },
    /// Too many prompt tokens wait already.
    #[error("{num_tokens} prompt tokens already wait, at most {num_tokens_max} may")]
    QueueTokensFull {
        /// Prompt tokens waiting now.
        num_tokens: u64,
        /// The limit.
        num_tokens_max: u64,
        /// When trying again is worth it.
        retry_after: Duration,
    },
    /// The engine is draining or gone.
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl AdmitError {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            AdmitError::TooLong { .. }
            | AdmitError::EmptyPrompt
            | AdmitError::NothingAllowed
            | AdmitError::TooManyAnswers { .. }
            | AdmitError::UnknownToken { .. } => Fault::Caller,
            AdmitError::QueueFull { retry_after, .. }
            | AdmitError::QueueTokensFull { retry_after, .. } => Fault::Load {
                retry_after: *retry_after,
            },
            AdmitError::ShuttingDown => Fault::Server,
        }
    }
}
