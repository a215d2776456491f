//! One answer, observed: bytes and their arrival times go in, a [`Record`] comes out.
//!
//! The one idea: time is an argument. Whoever reads the socket stamps each read before anything is parsed,
//! and an event belongs to the read that its last byte arrived in. So the same bytes give the same record
//! however they were cut, but for the times; and nothing here knows a socket or a clock.
//!
//! Times are since the request was sent.
//!
//! Not here: connections and timeouts (the client's), percentiles over many records.

// What an event's JSON says.
mod chunk;

// What came of a request.
mod record;

use std::time::Duration;

use api::event_stream::{DONE, Event, Item, Reader, TooLong};

use self::chunk::{Chunk, Tokens, value_of};
pub use self::record::{Flag, Mark, Record, Status, TokenSource};

/// Bounds of one observation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one event. Servers have sent a megabyte.
    pub event_bytes_max: usize,
    /// Bytes of a body that is no event stream.
    pub body_bytes_max: usize,
    /// Arrivals of content; no context is as long, but a broken server may never stop.
    pub marks_max: usize,
}

/// The bounds in force.
pub const LIMITS: Limits = Limits {
    event_bytes_max: 16 << 20,
    body_bytes_max: 16 << 20,
    marks_max: 1 << 20,
};

/// Whether the connection has more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Read on.
    Going,
    /// `[DONE]`: whatever the connection does now is not part of the answer.
    Done,
}

/// How a connection's part in an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// [`Progress::Done`] was returned.
    Done,
    /// The body ended as HTTP says it should.
    Closed,
    /// The connection broke.
    Reset,
    /// Nothing was connected to begin with.
    NotConnected,
    /// The client had waited too long.
    TimedOut(Wait),
    /// The client changed its mind.
    Cancelled,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The first token.
    FirstToken,
    /// The next token.
    NextToken,
    /// The whole answer.
    Total,
}

/// The shape of a body, which its first bytes show; servers are wrong about its type.
#[derive(Debug)]
enum Body {
    Unknown,
    Events(Reader),
    Json(Vec<u8>),
}

/// Observes one answer.
#[derive(Debug)]
pub struct Observation {
    limits: Limits,
    body: Body,
    record: Record,
    /// Choices seen, and whether each said why it ended.
    finished: Vec<bool>,
    is_done: bool,
    error: Option<String>,
    protocol_fault: bool,
    usage: Option<i64>,
    /// Completion tokens of the last usage seen, for differences.
    tokens_so_far: u64,
    /// Whether every content event told its tokens.
    counted: Option<u64>,
    thinking: Thinking,
    last_read: Option<Duration>,
    text_bytes_max: usize,
}

/// Where an answer stands that thinks aloud in its content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thinking {
    /// Not enough text yet to tell.
    Unknown(String),
    /// Between the tags; the tail may hold the beginning of the closing one.
    Inside(String),
    /// Not, or not any more.
    Over,
}

const THINK_OPEN: &str = "<think>";
const THINK_CLOSE: &str = "</think>";

impl Observation {
    /// An observation of an answer of which nothing has arrived.
    pub fn new(limits: Limits) -> Observation {
        Observation {
            limits,
            body: Body::Unknown,
            record: Record::default(),
            finished: Vec::new(),
            is_done: false,
            error: None,
            protocol_fault: false,
            usage: None,
            tokens_so_far: 0,
            counted: Some(0),
            thinking: Thinking::Unknown(String::new()),
            last_read: None,
            text_bytes_max: 0,
        }
    }

    /// The status line and headers are there.
    pub fn head(&mut self, http_status: u16, at: Duration) {
        self.record.http_status = Some(http_status);
        self.record.head = Some(at);
    }

    /// The server says that the request queued for `queue_ms`; what is no duration is nothing said.
    pub fn queued(&mut self, queue_ms: f64) {
        let queue = Duration::try_from_secs_f64(queue_ms / 1e3).ok();
        self.record.queue = queue.or(self.record.queue);
    }

    /// Keeps the answer's text, of its first choice and up to `num_bytes_max`, for a next turn.
    pub fn keep_text(&mut self, num_bytes_max: usize) {
        self.text_bytes_max = num_bytes_max;
        self.record.text = Some(String::new());
    }

    /// Takes what one read of the socket brought at `at`.
    pub fn read(&mut self, bytes: &[u8], at: Duration) -> Progress {
        if bytes.is_empty() || self.is_done {
            return self.progress();
        }
        self.record.first_byte.get_or_insert(at);
        let mut bytes = bytes;
        if matches!(self.body, Body::Unknown) {
            // White space shows no shape, and no server means anything by it.
            bytes = bytes.trim_ascii_start();
            self.body = self.shape(bytes);
        }
        let outcome = match std::mem::replace(&mut self.body, Body::Unknown) {
            Body::Events(mut reader) => {
                let outcome = reader.push(bytes, |item| self.take(item, at));
                self.body = Body::Events(reader);
                outcome
            }
            Body::Json(mut body) => {
                let num_bytes_max = self.limits.body_bytes_max;
                let fitting = bytes.len().min(num_bytes_max - body.len());
                body.extend_from_slice(&bytes[..fitting]);
                self.body = Body::Json(body);
                match fitting == bytes.len() {
                    true => Ok(()),
                    false => Err(TooLong { num_bytes_max }),
                }
            }
            Body::Unknown => Ok(()),
        };
        // What comes after the end does no harm, whether or not it shares the end's read.
        if outcome.is_err() && !self.is_done {
            self.protocol_fault = true;
            self.is_done = true;
        }
        self.progress()
    }

    /// Content events so far.
    pub fn num_marks(&self) -> usize {
        self.record.marks.len()
    }

    fn progress(&self) -> Progress {
        if self.is_done {
            Progress::Done
        } else {
            Progress::Going
        }
    }

    /// A JSON document begins with a brace, an error page with a bracket; an event stream with a field's name.
    fn shape(&self, bytes: &[u8]) -> Body {
        match bytes.first() {
            None => Body::Unknown,
            Some(b'{' | b'<' | b'[') => Body::Json(Vec::new()),
            _ if !self.is_success() => Body::Json(Vec::new()),
            _ => Body::Events(Reader::new(self.limits.event_bytes_max)),
        }
    }

    fn is_success(&self) -> bool {
        let status = self.record.http_status;
        status.is_none_or(|status| (200..300).contains(&status))
    }

    fn take(&mut self, item: Item, at: Duration) {
        match item {
            _ if self.is_done => {}
            Item::Comment => self.record.num_comments += 1,
            Item::Event(event) => self.take_event(&event, at),
        }
    }

    fn take_event(&mut self, event: &Event, at: Duration) {
        if event.data.trim_ascii() == DONE {
            self.record.done = Some(at);
            self.is_done = true;
            return;
        }
        let Some(mut chunk) = Chunk::parse(&event.data) else {
            // An error in plain words is an error all the same.
            match event.name.as_slice() {
                b"error" => self.fail(String::from_utf8_lossy(&event.data).into_owned()),
                _ => self.protocol_fault = true,
            }
            return;
        };
        let whole = || String::from_utf8_lossy(&event.data).into_owned();
        let told = chunk.error.take();
        if let Some(error) = told.or_else(|| (event.name == b"error").then(whole)) {
            self.fail(error);
            return;
        }
        self.take_chunk(&chunk, at);
    }

    fn take_chunk(&mut self, chunk: &Chunk<'_>, at: Duration) {
        let mut usage_grew = None;
        if let Some(usage) = chunk.completion_tokens {
            self.usage = Some(usage);
            let so_far = u64::try_from(usage).unwrap_or(0);
            usage_grew = Some(so_far.saturating_sub(self.tokens_so_far));
            self.tokens_so_far = so_far;
        }
        self.record.num_reasoning_tokens =
            chunk.reasoning_tokens.or(self.record.num_reasoning_tokens);
        self.record.num_prompt_tokens = chunk.prompt_tokens.or(self.record.num_prompt_tokens);
        self.record.num_cached_tokens = chunk.cached_tokens.or(self.record.num_cached_tokens);
        if let Some(queue_ms) = chunk.queue_ms {
            self.queued(queue_ms);
        }
        for choice in &chunk.choices {
            let idx = choice.index.min(MAX_CHOICES - 1);
            if self.finished.len() <= idx {
                self.finished.resize(idx + 1, false);
            }
            if let Some(reason) = choice.finish_reason.as_deref() {
                self.finished[idx] = true;
                self.record
                    .finish_reason
                    .get_or_insert_with(|| reason.to_owned());
                if matches!(reason, "error" | "abort") {
                    self.fail(format!("finish_reason {reason:?}"));
                }
            }
        }
        let content: Vec<_> = chunk
            .choices
            .iter()
            .filter(|choice| choice.has_content())
            .collect();
        if content.is_empty() {
            return;
        }
        let tokens = match chunk.tokens() {
            Tokens::Counted(num) => Some(num),
            Tokens::Unknown => usage_grew.filter(|&grown| grown > 0),
        };
        let tokens = tokens.filter(|&num| num <= EVENT_TOKENS_MAX);
        self.counted = self.counted.zip(tokens).map(|(sum, num)| sum + num);
        for choice in &content {
            self.record.num_content_bytes += choice.content_bytes();
            if let (0, Some(text), Some(kept)) = (
                choice.index,
                choice.content.as_deref(),
                &mut self.record.text,
            ) && kept.len() + text.len() <= self.text_bytes_max
            {
                kept.push_str(text);
            }
        }
        let answers = content.iter().any(|choice| {
            let content = choice.content.as_deref().unwrap_or("");
            self.is_answer(content, choice.is_more_than_text())
        });
        self.mark(at, tokens, answers);
    }

    fn mark(&mut self, at: Duration, num_tokens: Option<u64>, answers: bool) {
        if self.record.marks.len() >= self.limits.marks_max {
            self.protocol_fault = true;
            self.is_done = true;
            return;
        }
        if self.last_read == Some(at) {
            self.record.num_coalesced += 1;
        }
        self.last_read = Some(at);
        self.record.first_token.get_or_insert(at);
        self.record.last_token = Some(at);
        if answers {
            self.record.first_answer.get_or_insert(at);
        }
        self.record.marks.push(Mark { at, num_tokens });
    }

    /// Whether this content is of the answer itself and not of thinking aloud.
    fn is_answer(&mut self, content: &str, is_more_than_text: bool) -> bool {
        if is_more_than_text {
            return true;
        }
        match &mut self.thinking {
            // White space between the closing tag and the answer is neither.
            Thinking::Over => !content.trim().is_empty(),
            Thinking::Unknown(text) => {
                text.push_str(content);
                let begun = text.trim_start();
                if let Some(rest) = begun.strip_prefix(THINK_OPEN) {
                    self.thinking = Thinking::Inside(rest.to_owned());
                    return self.is_answer("", false);
                }
                if THINK_OPEN.starts_with(begun) {
                    return false;
                }
                self.thinking = Thinking::Over;
                true
            }
            Thinking::Inside(tail) => {
                tail.push_str(content);
                match tail.find(THINK_CLOSE) {
                    Some(at) => {
                        let answers = !tail[at + THINK_CLOSE.len()..].trim().is_empty();
                        self.thinking = Thinking::Over;
                        answers
                    }
                    None => {
                        let kept = (tail.len().saturating_sub(THINK_CLOSE.len())..=tail.len())
                            .find(|&at| tail.is_char_boundary(at));
                        tail.drain(..kept.unwrap_or(0));
                        false
                    }
                }
            }
        }
    }

    fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
    }

    /// What came of it all, `at` the end.
    pub fn finish(mut self, end: StreamEnd, at: Duration) -> Record {
        self.record.ended = at;
        match std::mem::replace(&mut self.body, Body::Unknown) {
            Body::Events(reader) if !self.is_done => {
                let at = self
                    .record
                    .last_token
                    .or(self.record.first_byte)
                    .unwrap_or_default();
                // An event that broke off in its middle is the connection's fault, which `end` tells.
                if let Some(event) = reader.finish().filter(is_whole) {
                    self.take_event(&event, at);
                }
            }
            Body::Json(body) => self.take_document(&body, &end),
            Body::Events(_) | Body::Unknown => {}
        }
        self.record.status = self.status(&end);
        self.record.error = self.error.take();
        self.count_tokens();
        self.raise_flags();
        self.record
    }

    /// A whole answer in one document, or an error.
    fn take_document(&mut self, body: &[u8], end: &StreamEnd) {
        let Some(value) = value_of(body) else {
            if *end == StreamEnd::Reset && self.is_success() {
                // Half a document: the connection's fault, not the document's.
                return;
            }
            self.protocol_fault = true;
            let shown = String::from_utf8_lossy(&body[..body.len().min(ERROR_BYTES_MAX)]);
            self.error = Some(shown.into_owned());
            return;
        };
        let chunk = Chunk::read(&value);
        if let Some(error) = chunk.error {
            self.fail(error);
            return;
        }
        self.record.flags.push(Flag::NotStreamed);
        let at = self.record.first_byte.unwrap_or_default();
        self.take_chunk(&chunk, at);
        // Nobody saw the tokens come.
        self.record.first_token = None;
        self.record.first_answer = None;
        self.record.marks.clear();
    }

    fn status(&self, end: &StreamEnd) -> Status {
        let has_content = self.record.num_content_bytes > 0;
        let is_finished =
            !self.finished.is_empty() && self.finished.iter().all(|&finished| finished);
        match (self.record.http_status, end) {
            (_, StreamEnd::Cancelled) => Status::Cancelled,
            (_, StreamEnd::NotConnected) | (None, StreamEnd::Reset | StreamEnd::Closed) => {
                Status::Connect
            }
            (_, StreamEnd::TimedOut(_)) => Status::Timeout,
            (Some(status), _) if !(200..300).contains(&status) => Status::HttpError,
            _ if self.error.is_some() && !self.protocol_fault => Status::ErrorEvent,
            _ if self.protocol_fault => Status::Protocol,
            _ if is_finished && (has_content || self.usage == Some(0)) => Status::Ok,
            _ if is_finished || (!has_content && self.is_done) => Status::Empty,
            _ if !has_content && *end == StreamEnd::Closed => Status::Empty,
            _ => Status::Truncated,
        }
    }

    /// The first source that knows: the server's usage, tokens told event by event.
    fn count_tokens(&mut self) {
        let num_marks = self.record.marks.len() as u64;
        let told = self.usage.and_then(|usage| u64::try_from(usage).ok());
        let is_suspect = self.usage.is_some_and(|usage| usage < 0)
            || told.is_some_and(|num| {
                num < num_marks.max(u64::from(self.record.num_content_bytes > 0))
            });
        if is_suspect {
            self.record.flags.push(Flag::UsageSuspect);
        }
        (self.record.num_tokens, self.record.token_source) = match (told, self.counted) {
            (Some(num), _) => (Some(num), TokenSource::Usage),
            (None, Some(num)) if num_marks > 0 => (Some(num), TokenSource::Events),
            (None, _) => (None, TokenSource::None),
        };
    }

    fn raise_flags(&mut self) {
        let record = &mut self.record;
        let is_streamed = !record.flags.contains(&Flag::NotStreamed);
        if record.status == Status::Ok && record.done.is_none() && is_streamed {
            record.flags.push(Flag::MissingDone);
        }
        let num_marks = record.marks.len();
        let mut num_at_once = 0;
        let mut most_at_once = 0;
        let mut before = None;
        for mark in &record.marks {
            num_at_once = if before == Some(mark.at) {
                num_at_once + 1
            } else {
                1
            };
            most_at_once = most_at_once.max(num_at_once);
            before = Some(mark.at);
        }
        if num_marks >= BUFFERED_MARKS_MIN && most_at_once * 5 > num_marks * 4 {
            record.flags.push(Flag::Buffered);
        }
    }
}

/// Whether an event that the stream ended in says what it was to say.
fn is_whole(event: &Event) -> bool {
    event.name == b"error" || event.data.trim_ascii() == DONE || value_of(&event.data).is_some()
}

/// Tokens of one event; a server that tells more is not believed, so that nobody counts to 2^63 gaps.
pub(crate) const EVENT_TOKENS_MAX: u64 = 1 << 16;
/// Choices of one request; more are counted as the last.
const MAX_CHOICES: usize = 1024;
/// Bytes of a foreign error page that are kept.
const ERROR_BYTES_MAX: usize = 1024;
/// With fewer content events, arriving together says nothing.
const BUFFERED_MARKS_MIN: usize = 5;
