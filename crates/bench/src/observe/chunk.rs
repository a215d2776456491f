//! What one event's JSON says, whatever server wrote it.
//!
//! Lenient: null is absent, unknown is ignored, and nothing here can fail; a value of another type than expected
//! says nothing.

use serde_json::Value;

/// One event.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    pub choices: Vec<ChunkChoice<'a>>,
    /// As told, which may be nonsense.
    pub completion_tokens: Option<i64>,
    pub reasoning_tokens: Option<u64>,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub queue_ms: Option<f64>,
    /// The server's words, if it reports a failure.
    pub error: Option<String>,
}

/// What it says of one choice.
#[derive(Debug)]
pub(super) struct ChunkChoice<'a> {
    pub index: usize,
    pub content: Option<&'a str>,
    reasoning: Option<&'a str>,
    refusal: Option<&'a str>,
    /// Bytes of names and arguments of tool calls.
    call_bytes: u64,
    num_tokens: Option<u64>,
    pub finish_reason: Option<&'a str>,
}

/// How many tokens an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    Counted(u64),
    Unknown,
}

impl<'a> Chunk<'a> {
    pub(super) fn read(value: &'a Value) -> Chunk<'a> {
        let usage = value.get("usage");
        let choices = value.get("choices").and_then(Value::as_array);
        Chunk {
            choices: choices
                .into_iter()
                .flatten()
                .map(ChunkChoice::read)
                .collect(),
            completion_tokens: usage.and_then(|usage| usage.get("completion_tokens")?.as_i64()),
            reasoning_tokens: usage.and_then(|usage| {
                usage
                    .get("completion_tokens_details")?
                    .get("reasoning_tokens")?
                    .as_u64()
            }),
            prompt_tokens: usage.and_then(|usage| usage.get("prompt_tokens")?.as_u64()),
            cached_tokens: usage.and_then(|usage| {
                usage
                    .get("prompt_tokens_details")?
                    .get("cached_tokens")?
                    .as_u64()
            }),
            queue_ms: value
                .get("timings")
                .and_then(|timings| timings.get("queue_ms")?.as_f64()),
            error: value
                .get("error")
                .filter(|error| !error.is_null())
                .map(words_of),
        }
    }

    /// Told only if every choice with content tells.
    pub(super) fn tokens(&self) -> Tokens {
        let with_content = self.choices.iter().filter(|choice| choice.has_content());
        let sum = with_content
            .map(|choice| choice.num_tokens)
            .try_fold(0, |sum, num| Some(sum + num?));
        sum.filter(|&num| num > 0)
            .map_or(Tokens::Unknown, Tokens::Counted)
    }
}

impl<'a> ChunkChoice<'a> {
    fn read(value: &'a Value) -> ChunkChoice<'a> {
        // A stream's delta, a whole chat answer's message, or a completion's choice itself.
        let said = ["delta", "message"]
            .iter()
            .find_map(|key| value.get(key).filter(|said| said.is_object()));
        let said = said.unwrap_or(value);
        let text = |key: &str| {
            said.get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let calls = said.get("tool_calls").and_then(Value::as_array);
        ChunkChoice {
            index: value
                .get("index")
                .and_then(Value::as_u64)
                .map_or(0, |index| usize::try_from(index).unwrap_or(usize::MAX)),
            content: text("content").or_else(|| text("text")),
            // Some servers send both, with the same text.
            reasoning: text("reasoning_content").or_else(|| text("reasoning")),
            refusal: text("refusal"),
            call_bytes: calls.into_iter().flatten().map(call_bytes).sum(),
            num_tokens: num_tokens(value),
            finish_reason: value.get("finish_reason").and_then(Value::as_str),
        }
    }

    pub(super) fn has_content(&self) -> bool {
        self.content_bytes() > 0
    }

    pub(super) fn content_bytes(&self) -> u64 {
        let texts = [self.content, self.reasoning, self.refusal];
        let num_bytes: usize = texts.iter().flatten().map(|text| text.len()).sum();
        num_bytes as u64 + self.call_bytes
    }

    /// Refusals and tool calls are the answer, whatever the text says.
    pub(super) fn is_more_than_text(&self) -> bool {
        self.refusal.is_some() || self.call_bytes > 0
    }
}

fn call_bytes(call: &Value) -> u64 {
    let len = |key: &str| {
        let text = call
            .get("function")
            .and_then(|function| function.get(key)?.as_str());
        text.map_or(0, str::len) as u64
    };
    len("name") + len("arguments")
}

/// Tokens by their ids or their log-probabilities, in the shapes that servers have.
fn num_tokens(choice: &Value) -> Option<u64> {
    let logprobs = choice.get("logprobs");
    let list = choice
        .get("token_ids")
        .and_then(Value::as_array)
        .or_else(|| logprobs?.get("content")?.as_array())
        .or_else(|| logprobs?.get("tokens")?.as_array());
    list.map(|list| list.len() as u64)
}

/// The message of an error object, or all of it.
fn words_of(error: &Value) -> String {
    let message = error.get("message").unwrap_or(error);
    message
        .as_str()
        .map_or_else(|| message.to_string(), str::to_owned)
}
