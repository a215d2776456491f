//! An answer in messages of channels (gpt-oss): `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
//!
//! The one idea: a header says what the text behind `<|message|>` is, up to the next control token: reasoning, content, or
//! the arguments of a call, if it is addressed `to=functions.NAME`. Headers and control tokens are never told.
//!
//! Source: the template of gpt-oss, and OpenAI's description of its harmony format.

use super::call::Call;
use super::calls::{Calls, Place};
use super::parser::{OutputParser, State, Step, find_first, held};
use super::{CallSyntax, Part};

/// What begins a message's text.
pub(super) const MESSAGE: &str = "<|message|>";

/// What begins a message that is reasoning.
pub(super) const ANALYSIS: &str = "<|channel|>analysis<|message|>";

/// What ends a message's text.
pub(super) const END: &str = "<|end|>";

/// Control tokens of the format.
pub(super) const TOKENS: [&str; 7] = [
    "<|channel|>",
    MESSAGE,
    END,
    "<|start|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
];

/// Control tokens that end a message's text; the last two begin the next header.
const ENDS: [&str; 5] = [END, "<|call|>", "<|return|>", "<|start|>", "<|channel|>"];

/// Bytes of a header; a longer one is none.
const HEADER_BYTES_MAX: usize = 1024;

/// What a message's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Reasoning,
    Content,
    /// What is behind a call, or addressed to nobody.
    Dropped,
}

impl OutputParser {
    /// Between messages. `is_first` while the answer may as well have none at all.
    pub(super) fn header(&mut self, is_first: bool, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let begun = self.window.trim_start();
        let begins = ["<|channel|>", "<|start|>", MESSAGE, "to=functions."];
        let is_whole = !is_first || begins.iter().any(|begin| begun.starts_with(begin));
        if !is_whole && (is_end || !begins.iter().any(|begin| begin.starts_with(begun))) {
            self.state = State::Message(Body::Content);
            return Step::Again;
        }
        let message = self.window.find(MESSAGE);
        if let Some(at) = message.filter(|&at| is_whole && at <= HEADER_BYTES_MAX) {
            let header: String = self.window.drain(..at + MESSAGE.len()).collect();
            self.state = self.message(&header);
            return Step::Again;
        }
        if self.window.len() > HEADER_BYTES_MAX + MESSAGE.len() {
            // Whatever that is, it is shown.
            let len = self.window.floor_char_boundary(HEADER_BYTES_MAX);
            let said: String = self.window.drain(..len).collect();
            self.tell(&said, parts);
            self.state = State::Message(Body::Content);
            return Step::Again;
        }
        if is_end {
            // A header that broke off says nothing.
            self.window.clear();
        }
        self.state = State::Header { is_first };
        Step::Wait
    }

    /// What a header announces.
    fn message(&self, header: &str) -> State {
        let recipient = header
            .split_once("to=")
            .map(|(_, rest)| rest.split(['<', ' ', '\n']).next().unwrap_or_default());
        let tool = recipient
            .and_then(|recipient| recipient.strip_prefix("functions."))
            .filter(|name| self.wanted.tools.iter().any(|tool| tool == name));
        if let Some(name) = tool.filter(|_| self.syntax.calls == CallSyntax::Channels) {
            let call = Box::new(Call::with_name(name.to_owned()));
            return State::Call(call, Calls::at(Place::Channel, String::new()));
        }
        let channel = header
            .split_once("<|channel|>")
            .map_or("", |(_, rest)| rest.trim_start());
        match channel.starts_with("analysis") {
            true => State::Message(Body::Reasoning),
            false => State::Message(Body::Content),
        }
    }

    /// A message's text, up to a control token.
    pub(super) fn body(&mut self, body: Body, is_end: bool, parts: &mut Vec<Part>) -> Step {
        self.took_reasoning |= body == Body::Reasoning;
        let found = find_first(&self.window, &ENDS);
        let len = match found {
            Some((at, _)) => at,
            None if is_end => self.window.len(),
            None => self.window.len() - held(&self.window, &ENDS),
        };
        let said: String = self.window.drain(..len).collect();
        match body {
            Body::Reasoning => self.tell_reasoning(&said, parts),
            Body::Content => self.tell(&said, parts),
            Body::Dropped => {}
        }
        let Some((_, end)) = found else {
            self.state = State::Message(body);
            return Step::Wait;
        };
        if body == Body::Reasoning {
            self.end_reasoning();
        }
        if end != "<|channel|>" {
            self.window.drain(..end.len());
        }
        self.state = State::Header { is_first: false };
        Step::Again
    }
}
