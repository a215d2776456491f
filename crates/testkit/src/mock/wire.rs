//! Pieces of OpenAI's streams, as scripts need them.

use std::time::Duration;

use super::{End, Script, Step};

/// The head of a stream that ends as HTTP says.
pub const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// One chunk of a chunked body; an empty one ends it.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// An event with text.
pub fn text_event(text: &str) -> String {
    let text = serde_json::Value::from(text);
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The event that says why the answer ended, with the usage.
pub fn last_event(num_prompt_tokens: u64, num_output_tokens: u64) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"length\"}}],\"usage\":\
         {{\"prompt_tokens\":{num_prompt_tokens},\"completion_tokens\":{num_output_tokens}}}}}\n\n"
    )
}

/// A step.
pub fn step(after_ms: f64, text: impl Into<String>) -> Step {
    Step {
        after: Duration::from_secs_f64(after_ms / 1e3),
        bytes: text.into().into_bytes(),
    }
}

/// An answer as it should be: its head at once, the first token after `first_ms`, each other after `gap_ms` more.
pub fn good_answer(num_prompt_tokens: u64, num_tokens: u64, first_ms: f64, gap_ms: f64) -> Script {
    let mut steps = vec![step(0.0, STREAM_HEAD)];
    for idx in 0..num_tokens {
        let after = if idx == 0 { first_ms } else { gap_ms };
        steps.push(step(after, chunk(&text_event(" word"))));
    }
    let rest =
        chunk(&last_event(num_prompt_tokens, num_tokens)) + &chunk("data: [DONE]\n\n") + &chunk("");
    steps.push(step(0.0, rest));
    Script {
        steps,
        end: End::KeepOpen,
        held: None,
    }
}

/// A whole answer with a body, for questions that are not streams.
pub fn document(status: u16, content_type: &str, body: &str) -> Script {
    let num_bytes = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {num_bytes}\r\n\r\n"
    );
    Script {
        steps: vec![step(0.0, head + body)],
        end: End::KeepOpen,
        held: None,
    }
}
