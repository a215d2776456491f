//! What one event's JSON says, whatever server wrote it.
//!
//! Lenient: null is absent, unknown is ignored, and nothing here can fail; a value of another type than expected
//! says nothing.

use std::borrow::Cow;

use serde::Deserialize;
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
    pub content: Option<Cow<'a, str>>,
    reasoning: Option<Cow<'a, str>>,
    refusal: Option<Cow<'a, str>>,
    /// Bytes of names and arguments of tool calls.
    call_bytes: u64,
    num_tokens: Option<u64>,
    pub finish_reason: Option<Cow<'a, str>>,
}

/// How many tokens an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    Counted(u64),
    Unknown,
}

impl<'a> Chunk<'a> {
    /// What `json` says; none if it is no JSON.
    ///
    /// # Cost
    ///
    /// What most events of most servers hold is read without a copy: at 100,000 events a second it counts.
    pub(super) fn parse(json: &'a [u8]) -> Option<Chunk<'a>> {
        if let Ok(usual) = serde_json::from_slice::<Usual<'a>>(json) {
            return Some(usual.chunk());
        }
        value_of(json).map(|value| Chunk::read(&value))
    }

    /// The same of a value, in words of its own.
    pub(super) fn read(value: &Value) -> Chunk<'static> {
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

/// The shape that nearly all events have: text and nothing else that matters. Any other key or kind is for the
/// patient reader.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Usual<'a> {
    #[serde(borrow)]
    choices: [UsualChoice<'a>; 1],
    #[serde(default)]
    usage: Option<UsualUsage>,
    #[serde(default, rename = "id")]
    _id: Unread,
    #[serde(default, rename = "object")]
    _object: Unread,
    #[serde(default, rename = "created")]
    _created: Unread,
    #[serde(default, rename = "model")]
    _model: Unread,
    #[serde(default, rename = "system_fingerprint")]
    _system_fingerprint: Unread,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsualChoice<'a> {
    #[serde(default)]
    index: u32,
    #[serde(borrow)]
    delta: UsualDelta<'a>,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: Nothing,
    #[serde(default, rename = "logprobs")]
    _logprobs: Nothing,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsualDelta<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default, rename = "role")]
    _role: Unread,
}

/// Whatever it is, it does not matter.
type Unread = serde::de::IgnoredAny;
/// Null, or not there.
type Nothing = Option<()>;

/// Tokens so far, as servers tell them with every event if they are asked to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsualUsage {
    prompt_tokens: u64,
    completion_tokens: i64,
    #[serde(default, rename = "total_tokens")]
    _total_tokens: Unread,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

impl<'a> Usual<'a> {
    fn chunk(self) -> Chunk<'a> {
        let [choice] = self.choices;
        let content = choice.delta.content;
        let usage = self.usage.as_ref();
        Chunk {
            choices: vec![ChunkChoice {
                index: choice.index as usize,
                content: (!content.is_empty()).then_some(content),
                reasoning: None,
                refusal: None,
                call_bytes: 0,
                num_tokens: None,
                finish_reason: None,
            }],
            completion_tokens: usage.map(|usage| usage.completion_tokens),
            reasoning_tokens: usage
                .and_then(|usage| usage.completion_tokens_details.as_ref()?.reasoning_tokens),
            prompt_tokens: usage.map(|usage| usage.prompt_tokens),
            cached_tokens: usage
                .and_then(|usage| usage.prompt_tokens_details.as_ref()?.cached_tokens),
            queue_ms: None,
            error: None,
        }
    }
}

impl ChunkChoice<'_> {
    fn read(value: &Value) -> ChunkChoice<'static> {
        // A stream's delta, a whole chat answer's message, or a completion's choice itself.
        let said = ["delta", "message"]
            .iter()
            .find_map(|key| value.get(key).filter(|said| said.is_object()));
        let said = said.unwrap_or(value);
        let text = |key: &str| text_of(said, key);
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
            // Some servers send an empty one until the end.
            finish_reason: text_of(value, "finish_reason"),
        }
    }

    pub(super) fn has_content(&self) -> bool {
        self.content_bytes() > 0
    }

    pub(super) fn content_bytes(&self) -> u64 {
        let texts = [&self.content, &self.reasoning, &self.refusal];
        let num_bytes: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        num_bytes as u64 + self.call_bytes
    }

    /// Refusals and tool calls are the answer, whatever the text says.
    pub(super) fn is_more_than_text(&self) -> bool {
        self.refusal.is_some() || self.call_bytes > 0
    }
}

/// JSON, with replacement characters for what is no UTF-8, as browsers read event streams.
pub(super) fn value_of(json: &[u8]) -> Option<Value> {
    match std::str::from_utf8(json) {
        Ok(json) => serde_json::from_str(json).ok(),
        Err(_) => serde_json::from_str(&String::from_utf8_lossy(json)).ok(),
    }
}

/// A text that says something.
fn text_of(value: &Value, key: &str) -> Option<Cow<'static, str>> {
    let text = value.get(key).and_then(Value::as_str);
    let text = text.filter(|text| !text.is_empty())?;
    Some(Cow::Owned(text.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Events of real servers, usual and not.
    const EVENTS: [&str; 9] = [
        r#"{"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" w\u00e9"},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1,"audio":0},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":null,"reasoning":"a"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1,2]}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":-2}}"#,
        r#"{"choices":[{"index":0,"text":"a"}],"timings":{"queue_ms":1.5}}"#,
        r#"{"error":{"message":"no"},"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
    ];

    #[test]
    fn the_short_way_reads_what_the_long_way_reads() {
        for event in EVENTS {
            let value: Value = serde_json::from_str(event).expect("JSON");
            let long = Chunk::read(&value);
            let parsed = Chunk::parse(event.as_bytes()).expect("JSON");
            assert_eq!(format!("{parsed:?}"), format!("{long:?}"), "{event}");
        }
    }

    #[test]
    fn the_usual_event_takes_the_short_way() {
        for event in &EVENTS[..3] {
            assert!(serde_json::from_str::<Usual<'_>>(event).is_ok(), "{event}");
        }
    }
}
