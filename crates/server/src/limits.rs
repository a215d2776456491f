//! Every bound of the HTTP side, with its unit and its reason. Bounds of the queue and
//! the KV pool are the engine's.

use std::time::Duration;

/// Bounds of the HTTP side.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once; one more is answered 503 and closed.
    pub num_connections_max: usize,
    /// Bytes of a request's head (line and headers); 431 beyond.
    pub header_bytes_max: usize,
    /// From opening a connection, or from the end of its last request, to a complete head.
    pub header_read: Duration,
    /// Bytes of one body; 413 beyond.
    pub body_bytes_max: usize,
    /// Bytes of all bodies being read or prepared at once; 503 beyond.
    pub bodies_bytes_max: usize,
    /// From the head to the end of the body; 408 beyond.
    pub body_read: Duration,
    /// Bytes of a refused body that are still read (and dropped), so that a client which
    /// writes before it reads sees the answer and not a reset connection.
    pub discard_bytes_max: usize,
    /// How long that may take.
    pub discard: Duration,
    /// Bodies up to this size are parsed and encoded where they were read; larger ones
    /// leave the async workers, so that health and metrics never wait behind a tokenizer.
    pub inline_bytes_max: usize,
    /// Large bodies prepared at once.
    pub num_preparing_max: usize,
    /// Constraints compiled, or found compiled, at once. The compiler bounds more closely what it does
    /// at once; this bounds the threads that wait for it.
    pub num_compiling_max: usize,
    /// How long a large body, or a constraint, may wait for its turn; 503 beyond.
    pub prepare_wait: Duration,
    /// Answer limit of a request that names none (the context may allow less).
    pub answer_tokens_default: u32,
    /// Log-probabilities of prompts that one answer may tell: each is a name and a number in
    /// memory and on the wire.
    pub num_prompt_logprobs_max: usize,
    /// Tokens of all inputs that one request may have embedded.
    pub embedding_tokens_max: usize,
    /// Tokens that one request may have told, or put back into text, unless the context holds more.
    pub tokenize_tokens_max: usize,
    /// A waiting stream shows life this often: proxies cut silent connections, and a
    /// long prompt can take minutes on a CPU.
    pub keep_alive: Duration,
    /// A client that takes nothing for this long is gone.
    pub write_stall: Duration,
    /// Responses kept for later; the oldest leave first.
    pub num_kept_responses_max: usize,
    /// Bytes of all kept responses and the conversations they end; the oldest leave first.
    pub kept_responses_bytes_max: usize,
    /// Responses being made that nobody waits for; 503 beyond.
    pub num_background_max: usize,
    /// `Retry-After` while the model loads, or drains, or bodies fill the memory budget.
    pub retry_after: Duration,
    /// After the drain limit: how long the engine may take to end its last step; then
    /// answers are ended without it.
    pub engine_overdue: Duration,
    /// After that: time for the last bytes to leave before connections are cut. Together
    /// well below a second, which is what supervisors allow on top of the limit.
    pub flush: Duration,
    /// Parts of a request.
    pub request: api::Limits,
}

impl Limits {
    /// What `fulcrum serve` starts from.
    pub const STANDARD: Limits = Limits {
        num_connections_max: 1024,
        header_bytes_max: 32 * 1024,
        // Also how long a connection may idle between requests: longer than the 60 s of common
        // load balancers, so that they close first and never reuse what we just closed.
        header_read: Duration::from_secs(75),
        // A context of 128k tokens is about half a megabyte of English text.
        body_bytes_max: 8 * 1024 * 1024,
        bodies_bytes_max: 64 * 1024 * 1024,
        body_read: Duration::from_secs(30),
        discard_bytes_max: 256 * 1024 * 1024,
        discard: Duration::from_secs(2),
        inline_bytes_max: 8 * 1024,
        num_preparing_max: 2,
        num_compiling_max: 8,
        prepare_wait: Duration::from_secs(10),
        answer_tokens_default: 4096,
        // A prompt of 100 thousand tokens with 20 of the likeliest, or 64 of a thousand with 20.
        num_prompt_logprobs_max: 1 << 21,
        // OpenAI's bound.
        embedding_tokens_max: 300_000,
        // A megabyte of English text. With their texts the answer has about 8 MB.
        tokenize_tokens_max: 1 << 18,
        keep_alive: Duration::from_secs(10),
        write_stall: Duration::from_secs(60),
        num_kept_responses_max: 1024,
        kept_responses_bytes_max: 64 * 1024 * 1024,
        num_background_max: 32,
        retry_after: Duration::from_secs(2),
        engine_overdue: Duration::from_millis(200),
        flush: Duration::from_millis(500),
        request: api::Limits {
            num_messages_max: 4096,
            num_prompts_max: 64,
            // OpenAI's bound; clients send their documents in batches of a thousand.
            num_inputs_max: 2048,
            num_logit_biases_max: 1024,
            num_stop_token_ids_max: 64,
            num_tools_max: 128,
            num_allowed_token_ids_max: 16 * 1024,
            num_bad_words_max: 64,
            bad_word_bytes_max: 256,
            stop_bytes_max: 512,
        },
    };
}
