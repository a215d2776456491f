//! Places where calls stand: behind an opener, as the whole answer, or in a message of a channel.
//!
//! The one idea: whatever is consumed here is kept until it is a call; if it becomes none, it is content.
//!
//! Not here: one call's JSON.

use super::call::{Call, Outcome};
use super::channels::Body;
use super::parser::{OutputParser, State, Step, push_part};
use super::{CallSyntax, Part};

/// Bytes between calls, or between an opener and its call; more are no call.
const BETWEEN_BYTES_MAX: usize = 4096;

/// Bytes of an id that stands between a name and its arguments.
const CALL_ID_BYTES_MAX: usize = 64;

/// A place where calls may stand.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    place: Place,
    /// What was consumed since the last call or content; it becomes content if no call follows.
    raw: String,
    /// A call was read here, or the beginning of one.
    has_call: bool,
}

/// Where calls stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind an opener.
    Opened,
    /// They are the whole answer.
    Bare,
    /// A message of a channel.
    Channel,
}

impl Calls {
    /// `raw` is what announced them.
    pub(super) fn at(place: Place, raw: String) -> Calls {
        Calls {
            place,
            raw,
            has_call: false,
        }
    }
}

impl OutputParser {
    /// Between calls: separators, a name in front of its arguments, the end of the list, or no call at all.
    pub(super) fn calls(&mut self, mut calls: Calls, is_end: bool, parts: &mut Vec<Part>) -> Step {
        if calls.place == Place::Channel {
            self.state = State::Message(Body::Dropped);
            return Step::Again;
        }
        if calls.raw.len() > BETWEEN_BYTES_MAX {
            return self.leave(calls, "", parts);
        }
        if let Some(closer) = self
            .syntax
            .calls
            .closer()
            .filter(|_| calls.place == Place::Opened)
        {
            if let Some(rest) = self.window.strip_prefix(closer) {
                self.window = rest.to_owned();
                return self.leave(calls, closer, parts);
            }
            if !self.window.is_empty() && closer.starts_with(self.window.as_str()) && !is_end {
                self.state = State::Calls(calls);
                return Step::Wait;
            }
        }
        let opener = self.syntax.calls.opener();
        if let Some(opener) = opener.filter(|_| calls.has_call) {
            if let Some(rest) = self.window.strip_prefix(opener) {
                self.window = rest.to_owned();
                calls.raw.push_str(opener);
                self.state = State::Calls(calls);
                return Step::Again;
            }
            if !self.window.is_empty() && opener.starts_with(self.window.as_str()) && !is_end {
                self.state = State::Calls(calls);
                return Step::Wait;
            }
        }
        match self.window.chars().next() {
            Some('{') => {
                self.state = State::Call(Box::new(Call::in_object()), calls);
                Step::Again
            }
            Some(letter) if !is_separator(letter) && self.syntax.calls == CallSyntax::Mistral => {
                self.named(calls, is_end, parts)
            }
            // After the markers, one of which begins like a list.
            Some(letter) if is_separator(letter) => {
                self.window.drain(..letter.len_utf8());
                calls.raw.push(letter);
                self.state = State::Calls(calls);
                Step::Again
            }
            None if !is_end => {
                self.state = State::Calls(calls);
                Step::Wait
            }
            _ => self.leave(calls, "", parts),
        }
    }

    /// `name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}`, or `name{…}`.
    fn named(&mut self, mut calls: Calls, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let (name, rest) = split_word(&self.window);
        let could_be = match rest.is_empty() {
            true => self.wanted.tools.iter().any(|tool| tool.starts_with(name)),
            false => self.wanted.tools.iter().any(|tool| tool == name),
        };
        let (id, behind) = match rest.strip_prefix("[CALL_ID]") {
            Some(rest) => split_word(rest),
            None => ("", rest),
        };
        let behind_args = behind.strip_prefix("[ARGS]");
        let is_head = could_be && id.len() <= CALL_ID_BYTES_MAX;
        if is_head
            && let Some(text) =
                behind_args.or_else(|| Some(rest).filter(|rest| rest.starts_with('{')))
        {
            let len = self.window.len() - text.len();
            let call = Box::new(Call::with_name(name.to_owned()));
            calls.raw.extend(self.window.drain(..len));
            self.state = State::Call(call, calls);
            return Step::Again;
        }
        let is_going = "[ARGS]".starts_with(behind) || "[CALL_ID]".starts_with(rest);
        if is_head && is_going && !is_end {
            self.state = State::Calls(calls);
            return Step::Wait;
        }
        self.leave(calls, "", parts)
    }

    pub(super) fn call(
        &mut self,
        mut call: Box<Call>,
        mut calls: Calls,
        is_end: bool,
        parts: &mut Vec<Part>,
    ) -> Step {
        let text = std::mem::take(&mut self.window);
        let outcome = call.push(&text, &self.wanted.tools, is_end);
        if let Some(name) = call.take_name() {
            let index = self.num_begun;
            parts.push(Part::CallBegin { index, name });
            self.num_begun += 1;
        }
        let index = self.num_begun.saturating_sub(1);
        if let Some(json) = call.take_arguments() {
            push_part(parts, Part::CallArguments { index, json });
        }
        let num_left = match outcome {
            Outcome::Going => {
                self.state = State::Call(call, calls);
                return Step::Wait;
            }
            Outcome::NoCall { num_left } => {
                self.window = text[text.len() - num_left..].to_owned();
                calls.raw.push_str(&call.rest());
                return self.leave(calls, "", parts);
            }
            Outcome::Complete { num_left } => {
                parts.push(Part::CallEnd { index });
                self.num_calls += 1;
                num_left
            }
            Outcome::Broken { num_left } => {
                if let Some(json) = call.take_cut_arguments() {
                    push_part(parts, Part::CallArguments { index, json });
                }
                num_left
            }
        };
        self.is_blank = false;
        self.window = text[text.len() - num_left..].to_owned();
        calls.raw.clear();
        calls.has_call = true;
        let is_last = self
            .wanted
            .num_calls_max
            .is_some_and(|max| self.num_begun >= max);
        self.state = match is_last {
            true => State::Done,
            false => State::Calls(calls),
        };
        Step::Again
    }

    /// Back to content. What was consumed without becoming a call is content too.
    fn leave(&mut self, calls: Calls, closer: &str, parts: &mut Vec<Part>) -> Step {
        // Between and after calls, separators say nothing.
        let is_noise = calls.has_call && calls.raw.chars().all(is_separator);
        if !is_noise {
            self.tell(&(calls.raw + closer), parts);
        }
        self.state = match calls.place {
            // A whole answer that is no call is not looked at again.
            Place::Bare => State::Over,
            Place::Opened => State::Content,
            Place::Channel => State::Message(Body::Content),
        };
        Step::Again
    }
}

/// What may stand around calls.
fn is_separator(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '[' | ']' | ',' | ';')
}

/// A name or an id, and what is behind it.
fn split_word(text: &str) -> (&str, &str) {
    let is_word = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    text.split_at(end)
}
