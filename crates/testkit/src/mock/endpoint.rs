//! A whole small endpoint: one model, a tokenizer that counts words, chat answers of the length asked for.

use serde_json::json;

use super::wire::{document, good_answer};
use super::{Asked, Script};

/// How fast it answers.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// To the first token, in ms.
    pub first_ms: f64,
    /// To each other, in ms.
    pub gap_ms: f64,
}

/// The answer to any request: `/v1/models`, `/tokenize`, chat.
pub fn answer(asked: &Asked, speed: Speed) -> Script {
    let body = asked.json();
    if asked.is_for("/v1/models") {
        let models = json!({"object": "list", "data": [{"id": "mock", "object": "model"}]});
        return document(200, "application/json", &models.to_string());
    }
    if asked.is_for("/metrics") {
        let page = format!("# TYPE asked_total counter\nasked_total {}\n", asked.number);
        return document(200, "text/plain", &page);
    }
    if asked.is_for("/tokenize") {
        let num = num_words(&body["prompt"]);
        let counted = json!({"count": num, "tokens": vec![0; num as usize], "max_model_len": 4096});
        return document(200, "application/json", &counted.to_string());
    }
    if !asked.is_for("/v1/chat/completions") {
        let error = json!({"error": {"message": "no such route", "type": "invalid_request_error"}});
        return document(404, "application/json", &error.to_string());
    }
    let messages = body["messages"].as_array();
    // Five tokens of template around every message.
    let num_prompt: u64 = messages
        .into_iter()
        .flatten()
        .map(|message| num_words(&message["content"]) + 5)
        .sum();
    let num_tokens = body["max_tokens"].as_u64().unwrap_or(16);
    good_answer(num_prompt, num_tokens, speed.first_ms, speed.gap_ms)
}

fn num_words(text: &serde_json::Value) -> u64 {
    let text = text.as_str().unwrap_or("");
    text.split_ascii_whitespace().count() as u64
}
