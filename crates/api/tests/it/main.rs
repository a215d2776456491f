//! Requests as clients write them, read by the public entry points.

mod dialects;
mod parameters;
mod reference;
mod requests;

/// Bounds small enough that a test can exceed them.
const LIMITS: api::Limits = api::Limits {
    num_messages_max: 8,
    num_prompts_max: 4,
    num_inputs_max: 8,
    num_logit_biases_max: 16,
    num_stop_token_ids_max: 4,
    num_tools_max: 4,
    num_allowed_token_ids_max: 4,
    num_bad_words_max: 4,
    bad_word_bytes_max: 32,
    stop_bytes_max: 32,
};

/// A chat body with `more` appended to a minimal valid request.
fn chat(more: &str) -> Result<api::chat::ChatRequest, api::RequestError> {
    let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
    api::chat::ChatRequest::parse(body.as_bytes(), &LIMITS)
}

/// The field named by the refusal of a chat body.
fn chat_refused(more: &str) -> String {
    let error = chat(more).expect_err(more);
    error
        .param()
        .unwrap_or_else(|| panic!("{more}: {error}"))
        .to_owned()
}
