//! One answer's text into parts, as it comes.
//!
//! The one idea: a window of text that is not decided yet, and a state that says what it may be. A step either decides some
//! of it or waits for more; at the end everything is decided. So where the text is cut makes no difference.
//!
//! ```text
//!            open                    close                opener, or a bare object
//! Start ─────────────▶ Reasoning ─────────────▶ Content ───────────────────────────▶ Calls ⇄ Call
//!   └───────────────────────────────────────────▶ ▲ ◀──────── whatever is no call ──────┘
//! ```

use super::call::{Call, Outcome};
use super::{CallSyntax, OutputSyntax, Part};

/// What a request wants of its answer.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Names of the tools offered; without any, calls are content.
    pub tools: Vec<String>,
    /// How many calls may be; more are content.
    pub num_calls_max: Option<usize>,
    /// Whether the prompt ends inside a block of reasoning ([`OutputSyntax::opens_reasoning`]).
    pub starts_in_reasoning: bool,
}

/// Splits one answer's text into parts.
#[derive(Clone, Debug)]
pub struct OutputParser {
    syntax: OutputSyntax,
    wanted: Wanted,
    state: State,
    /// Text that is not decided yet.
    window: String,
    /// Nothing but white space was content so far.
    is_blank: bool,
    /// Calls that are complete.
    num_calls: usize,
    /// Calls that began.
    num_begun: usize,
}

#[derive(Clone, Debug)]
enum State {
    /// Reasoning may begin.
    Start,
    Reasoning {
        /// Something of it was told.
        has_begun: bool,
    },
    /// Between reasoning and content: white space counts as neither.
    AfterReasoning,
    Content,
    Calls(Calls),
    Call(Box<Call>, Calls),
    /// Whatever comes is content.
    Over,
}

/// A place where calls may stand.
#[derive(Clone, Debug)]
struct Calls {
    /// What was consumed since the last call or content; it becomes content if no call follows.
    raw: String,
    is_bare: bool,
    /// A call was read here.
    has_call: bool,
}

/// What a step came to.
enum Step {
    /// There may be more to decide.
    Again,
    /// More text is needed.
    Wait,
}

impl OutputParser {
    /// A parser for one answer.
    pub fn new(syntax: OutputSyntax, wanted: Wanted) -> OutputParser {
        let state = match (wanted.starts_in_reasoning, syntax.reasoning.markers()) {
            (true, Some(_)) => State::Reasoning { has_begun: false },
            (_, Some(_)) => State::Start,
            (_, None) => State::Content,
        };
        OutputParser {
            syntax,
            wanted,
            state,
            window: String::new(),
            is_blank: true,
            num_calls: 0,
            num_begun: 0,
        }
    }

    /// Calls that are complete.
    pub fn num_calls(&self) -> usize {
        self.num_calls
    }

    /// Whether the text so far ends inside reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning { .. })
    }

    /// Takes more text and gives back the parts that became certain.
    ///
    /// # Cost
    ///
    /// Linear in the text over an answer's life; what is held is a marker, trailing white space, or the head of
    /// a call up to its name and arguments.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.window.push_str(text);
        self.run(false)
    }

    /// The text ended: gives back what was held.
    pub fn finish(&mut self) -> Vec<Part> {
        self.run(true)
    }

    fn run(&mut self, is_end: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Step::Again = self.step(is_end, &mut parts) {}
        parts
    }

    fn step(&mut self, is_end: bool, parts: &mut Vec<Part>) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Start => self.start(is_end),
            State::Reasoning { has_begun } => self.reasoning(has_begun, is_end, parts),
            State::AfterReasoning => self.after_reasoning(),
            State::Content => self.content(is_end, parts),
            State::Calls(calls) => self.calls(calls, is_end, parts),
            State::Call(call, calls) => self.call(call, calls, is_end, parts),
            State::Over => {
                self.tell(self.window.len(), parts);
                Step::Wait
            }
        }
    }

    /// Reasoning stands at the very beginning or nowhere.
    fn start(&mut self, is_end: bool) -> Step {
        let (open, _) = self
            .syntax
            .reasoning
            .markers()
            .expect("else it begins with content");
        let begun = self.window.trim_start();
        if let Some(rest) = begun.strip_prefix(open) {
            self.window = rest.to_owned();
            self.state = State::Reasoning { has_begun: false };
            return Step::Again;
        }
        if open.starts_with(begun) && !is_end {
            self.state = State::Start;
            return Step::Wait;
        }
        self.state = State::Content;
        Step::Again
    }

    /// White space around it is no part of it.
    fn reasoning(&mut self, has_begun: bool, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let (_, close) = self
            .syntax
            .reasoning
            .markers()
            .expect("reasoning has a close");
        let (end, next) = match self.window.find(close) {
            Some(at) => (at, Some(at + close.len())),
            None if is_end => (self.window.len(), None),
            None => (self.window.len() - held(&self.window, close), None),
        };
        let mut said = self.window[..end].to_owned();
        if !has_begun {
            said = said.trim_start().to_owned();
        }
        let is_over = next.is_some() || is_end;
        let kept = said.trim_end().len();
        let tail = said.split_off(kept);
        let has_begun = has_begun || !said.is_empty();
        if !said.is_empty() {
            parts.push(Part::Reasoning(said));
        }
        match next {
            Some(next) => {
                self.window.drain(..next);
                self.state = State::AfterReasoning;
                Step::Again
            }
            None => {
                let rest = self.window.split_off(end);
                // White space at the end waits for what follows; at the beginning it is gone.
                self.window = if is_over || !has_begun {
                    rest
                } else {
                    tail + &rest
                };
                self.state = State::Reasoning { has_begun };
                Step::Wait
            }
        }
    }

    fn after_reasoning(&mut self) -> Step {
        let blank = self.window.len() - self.window.trim_start().len();
        self.window.drain(..blank);
        if self.window.is_empty() {
            self.state = State::AfterReasoning;
            return Step::Wait;
        }
        self.state = State::Content;
        Step::Again
    }

    fn may_call(&self) -> bool {
        let is_open = self
            .wanted
            .num_calls_max
            .is_none_or(|max| self.num_calls < max);
        !self.wanted.tools.is_empty() && is_open
    }

    fn content(&mut self, is_end: bool, parts: &mut Vec<Part>) -> Step {
        self.state = State::Content;
        if !self.may_call() {
            self.tell(self.window.len(), parts);
            return Step::Wait;
        }
        if self.syntax.calls.may_be_bare() && self.is_blank {
            match self.window.trim_start().chars().next() {
                Some('{' | '[') => {
                    self.state = State::Calls(Calls {
                        raw: String::new(),
                        is_bare: true,
                        has_call: false,
                    });
                    return Step::Again;
                }
                None if !is_end => return Step::Wait,
                _ => {}
            }
        }
        let opener = self.syntax.calls.opener();
        if let Some((opener, at)) =
            opener.and_then(|opener| Some((opener, self.window.find(opener)?)))
        {
            let said = self.window[..at].trim_end().len();
            self.tell(said, parts);
            // White space before a call is no content, unless there is no call.
            let raw: String = self.window.drain(..at - said + opener.len()).collect();
            self.state = State::Calls(Calls {
                raw,
                is_bare: false,
                has_call: false,
            });
            return Step::Again;
        }
        if is_end && self.num_begun > 0 && self.window.trim().is_empty() {
            // White space after a call is no content either.
            self.window.clear();
        }
        let certain = match (is_end, opener) {
            (true, _) | (_, None) => self.window.len(),
            (false, Some(opener)) => {
                let len = self.window.len() - held(&self.window, opener);
                self.window[..len].trim_end().len()
            }
        };
        self.tell(certain, parts);
        Step::Wait
    }

    /// Between calls: separators, a name in front of its arguments, the end of the list, or no call at all.
    fn calls(&mut self, mut calls: Calls, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let blank = self.window.len() - self.window.trim_start().len();
        calls.raw.extend(self.window.drain(..blank));
        if let Some(closer) = self.syntax.calls.closer().filter(|_| !calls.is_bare) {
            if let Some(rest) = self.window.strip_prefix(closer) {
                self.window = rest.to_owned();
                return self.leave(calls, closer, parts);
            }
            if closer.starts_with(self.window.as_str()) && !is_end {
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
            Some('{') if self.may_call() => {
                self.state = State::Call(Box::new(Call::in_object()), calls);
                Step::Again
            }
            Some(letter)
                if !is_separator(letter)
                    && self.syntax.calls == CallSyntax::Mistral
                    && self.may_call() =>
            {
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

    /// `name[ARGS]{…}`, or `name{…}`.
    fn named(&mut self, mut calls: Calls, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let is_name = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
        let end = self
            .window
            .find(|letter| !is_name(letter))
            .unwrap_or(self.window.len());
        let could_be = self
            .wanted
            .tools
            .iter()
            .any(|tool| tool.starts_with(&self.window[..end]));
        let rest = &self.window[end..];
        const ARGS: &str = "[ARGS]";
        let is_whole = rest.starts_with(ARGS) || rest.starts_with('{');
        if could_be && !is_whole && !is_end && ARGS.starts_with(rest) {
            self.state = State::Calls(calls);
            return Step::Wait;
        }
        let name = self.window[..end].to_owned();
        if !is_whole || !self.wanted.tools.contains(&name) {
            return self.leave(calls, "", parts);
        }
        let len = end
            + if rest.starts_with(ARGS) {
                ARGS.len()
            } else {
                0
            };
        calls.raw.extend(self.window.drain(..len));
        self.state = State::Call(Box::new(Call::with_name(name)), calls);
        Step::Again
    }

    fn call(
        &mut self,
        mut call: Box<Call>,
        mut calls: Calls,
        is_end: bool,
        parts: &mut Vec<Part>,
    ) -> Step {
        let text = std::mem::take(&mut self.window);
        let outcome = call.push(&text, &self.wanted.tools, is_end);
        if let Some(name) = call.take_name() {
            parts.push(Part::CallBegin {
                index: self.num_begun,
                name,
            });
            self.num_begun += 1;
        }
        let index = self.num_begun.saturating_sub(1);
        if let Some(json) = call.take_arguments() {
            parts.push(Part::CallArguments { index, json });
        }
        match outcome {
            Outcome::Going => {
                self.state = State::Call(call, calls);
                Step::Wait
            }
            Outcome::Complete { num_left } => {
                parts.push(Part::CallEnd { index });
                self.num_calls += 1;
                self.is_blank = false;
                self.window = text[text.len() - num_left..].to_owned();
                calls.raw.clear();
                calls.has_call = true;
                self.state = State::Calls(calls);
                Step::Again
            }
            Outcome::NoCall { num_left } => {
                self.window = text[text.len() - num_left..].to_owned();
                calls.raw.push_str(&call.rest());
                self.leave(calls, "", parts)
            }
        }
    }

    /// Back to content. What was consumed without becoming a call is content too.
    fn leave(&mut self, calls: Calls, closer: &str, parts: &mut Vec<Part>) -> Step {
        // Between and after calls, separators say nothing.
        let is_noise = calls.has_call && calls.raw.chars().all(is_separator);
        if !is_noise {
            let said = calls.raw + closer;
            if !said.is_empty() {
                self.is_blank = false;
                push_content(parts, said);
            }
        }
        // A whole answer that is no call is not looked at again.
        self.state = if calls.is_bare {
            State::Over
        } else {
            State::Content
        };
        Step::Again
    }

    /// The first `len` bytes of the window are content.
    fn tell(&mut self, len: usize, parts: &mut Vec<Part>) {
        if len == 0 {
            return;
        }
        let said: String = self.window.drain(..len).collect();
        self.is_blank = self.is_blank && said.trim().is_empty();
        push_content(parts, said);
    }
}

/// What may stand around calls.
fn is_separator(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '[' | ']' | ',' | ';')
}

/// Neighbouring pieces are one part.
fn push_content(parts: &mut Vec<Part>, text: String) {
    match parts.last_mut() {
        Some(Part::Content(said)) => said.push_str(&text),
        _ => parts.push(Part::Content(text)),
    }
}

/// Bytes at the end of `text` that may be the beginning of `marker`.
fn held(text: &str, marker: &str) -> usize {
    let longest = marker.len().min(text.len());
    (1..=longest)
        .rev()
        .find(|&len| {
            text.is_char_boundary(text.len() - len) && marker.starts_with(&text[text.len() - len..])
        })
        .unwrap_or(0)
}
