//! One answer's text into parts, as it comes.
//!
//! The one idea: a window of text that is not decided yet, and a state that says what it may be. A step either decides some
//! of it or waits for more; at the end everything is decided. So where the text is cut makes no difference.
//!
//! ```text
//!            open                    close                opener, or a bare object
//! Start ─────────────▶ Reasoning ─────────────▶ Content ───────────────────────────▶ Calls ⇄ Call ──▶ Done
//!   └───────────────────────────────────────────▶ ▲ ◀──────── whatever is no call ──────┘
//!
//!          <|message|>             <|end|>                  (channels)
//! Header ─────────────▶ Message ─────────────▶ Header
//!   └─────────────────▶ Call ──▶ Message, dropped ──▶ Header
//! ```

use super::blank::Blank;
use super::call::Call;
use super::calls::{Calls, Place};
use super::channels::Body;
use super::{OutputSyntax, Part};

/// Bytes looked at at once: whatever comes in one push costs no more than if it came in pieces.
const PIECE_BYTES: usize = 1024;

/// What a request wants of its answer.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Names of the tools offered; without any, calls are content.
    pub tools: Vec<String>,
    /// How many calls may begin, at least one. Whatever comes after the last of them is dropped
    /// ([`OutputParser::is_done`]).
    pub num_calls_max: Option<usize>,
    /// Whether the prompt ends inside a block of reasoning ([`OutputSyntax::opens_reasoning`]).
    pub starts_in_reasoning: bool,
}

/// Splits one answer's text into parts.
#[derive(Clone, Debug)]
pub struct OutputParser {
    pub(super) syntax: OutputSyntax,
    pub(super) wanted: Wanted,
    pub(super) state: State,
    /// Text that is not decided yet.
    pub(super) window: String,
    /// White space before the window that is not decided either.
    blank: Blank,
    /// Nothing but white space was content so far.
    pub(super) is_blank: bool,
    /// Something of this block of reasoning was told.
    has_reasoned: bool,
    /// Some of the text taken last was reasoning.
    pub(super) took_reasoning: bool,
    /// The answer's tag was opened and its end was not seen.
    is_answering: bool,
    /// Calls that are complete.
    pub(super) num_calls: usize,
    /// Calls that began.
    pub(super) num_begun: usize,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    /// Reasoning may begin.
    Start,
    Reasoning,
    /// Between reasoning and content: white space counts as neither.
    AfterReasoning,
    Content,
    Calls(Calls),
    Call(Box<Call>, Calls),
    /// Between a channel's messages.
    Header {
        /// The answer may as well have none.
        is_first: bool,
    },
    /// In a message of a channel.
    Message(Body),
    /// Whatever comes is content.
    Over,
    /// Whatever comes is dropped.
    Done,
}

/// What a step came to.
pub(super) enum Step {
    /// There may be more to decide.
    Again,
    /// More text is needed.
    Wait,
}

impl OutputParser {
    /// A parser for one answer.
    pub fn new(syntax: OutputSyntax, wanted: Wanted) -> OutputParser {
        let state = match (syntax.has_channels(), wanted.starts_in_reasoning) {
            (true, true) => State::Message(Body::Reasoning),
            (true, false) => State::Header { is_first: true },
            (false, _) if syntax.reasoning.markers().is_none() => State::Content,
            (false, true) => State::Reasoning,
            (false, false) => State::Start,
        };
        OutputParser {
            syntax,
            wanted,
            state,
            window: String::new(),
            blank: Blank::default(),
            is_blank: true,
            has_reasoned: false,
            took_reasoning: false,
            is_answering: false,
            num_calls: 0,
            num_begun: 0,
        }
    }

    /// Calls that are complete.
    pub fn num_calls(&self) -> usize {
        self.num_calls
    }

    /// Whether a call was told to begin and has not ended: it broke, or the text ended in it. Such an answer did not stop
    /// in order to have its tools called.
    pub fn has_broken_call(&self) -> bool {
        self.num_begun > self.num_calls
    }

    /// Whether the last call wanted is over, so that whatever follows is dropped and the answer may stop.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the text so far ends inside reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(
            self.state,
            State::Reasoning | State::Message(Body::Reasoning)
        )
    }

    /// Whether any of the text of the last [`OutputParser::push`] belonged to a block of reasoning, the markers around it
    /// and white space included, be the block over or not.
    pub fn took_reasoning(&self) -> bool {
        self.took_reasoning
    }

    /// Takes more text and gives back the parts that became certain.
    ///
    /// # Cost
    ///
    /// Linear in the text over an answer's life. Held are a marker, some kilobytes of white space or of what stands between
    /// calls, the head of a call up to its name and arguments (a megabyte at most), and one call's text, because
    /// whether it is JSON is judged when it is whole.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.took_reasoning = false;
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
            self.took_reasoning |= self.is_reasoning();
            self.window.push_str(piece);
            self.run(false, &mut parts);
            rest = more;
        }
        parts
    }

    /// The text ended: gives back what was held.
    pub fn finish(&mut self) -> Vec<Part> {
        self.took_reasoning = false;
        let mut parts = Vec::new();
        self.run(true, &mut parts);
        parts
    }

    fn run(&mut self, is_end: bool, parts: &mut Vec<Part>) {
        while let Step::Again = self.step(is_end, parts) {}
    }

    fn step(&mut self, is_end: bool, parts: &mut Vec<Part>) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Start => self.start(is_end, parts),
            State::Reasoning => self.reasoning(is_end, parts),
            State::AfterReasoning => self.after_reasoning(is_end),
            State::Content => self.content(is_end, parts),
            State::Calls(calls) => self.calls(calls, is_end, parts),
            State::Call(call, calls) => self.call(call, calls, is_end, parts),
            State::Header { is_first } => self.header(is_first, is_end, parts),
            State::Message(body) => self.body(body, is_end, parts),
            State::Over => {
                self.tell_window(self.window.len(), parts);
                Step::Wait
            }
            State::Done => {
                self.window.clear();
                self.state = State::Done;
                Step::Wait
            }
        }
    }

    /// Reasoning stands at the very beginning or nowhere.
    fn start(&mut self, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let (open, _) = self
            .syntax
            .reasoning
            .markers()
            .expect("else it begins with content");
        let is_layout = self.hold_blank(parts);
        if is_layout && let Some(rest) = self.window.strip_prefix(open) {
            self.window = rest.to_owned();
            self.blank.take();
            self.took_reasoning = true;
            self.state = State::Reasoning;
            return Step::Again;
        }
        if is_layout && open.starts_with(&self.window) && !is_end {
            self.state = State::Start;
            return Step::Wait;
        }
        self.state = State::AfterReasoning;
        Step::Again
    }

    /// White space around it is no part of it.
    fn reasoning(&mut self, is_end: bool, parts: &mut Vec<Part>) -> Step {
        let (_, close) = self
            .syntax
            .reasoning
            .markers()
            .expect("reasoning has a close");
        let (len, next) = match self.window.find(close) {
            Some(at) => (at, Some(close.len())),
            None if is_end => (self.window.len(), None),
            None => (self.window.len() - held(&self.window, &[close]), None),
        };
        let said: String = self.window.drain(..len).collect();
        self.tell_reasoning(&said, parts);
        let Some(next) = next else {
            self.state = State::Reasoning;
            return Step::Wait;
        };
        self.window.drain(..next);
        self.end_reasoning();
        self.state = State::AfterReasoning;
        Step::Again
    }

    /// More of a block of reasoning.
    pub(super) fn tell_reasoning(&mut self, said: &str, parts: &mut Vec<Part>) {
        let said = match self.has_reasoned {
            true => said,
            false => said.trim_start(),
        };
        self.has_reasoned |= !said.is_empty();
        let said = self.blank.push(said);
        push_part(parts, Part::Reasoning(said));
    }

    /// A block of reasoning is over, and the white space at its end is gone.
    pub(super) fn end_reasoning(&mut self) {
        self.blank.take();
        self.has_reasoned = false;
    }

    /// White space is gone, and so is the tag in front of the answer.
    fn after_reasoning(&mut self, is_end: bool) -> Step {
        let blank = self.window.len() - self.window.trim_start().len();
        self.window.drain(..blank);
        let answer = self.syntax.reasoning.answer_markers();
        let open = answer.map(|(open, _)| open).filter(|_| !self.is_answering);
        if let Some(rest) = open.and_then(|open| self.window.strip_prefix(open)) {
            self.window = rest.to_owned();
            self.blank.take();
            self.is_answering = true;
            self.state = State::AfterReasoning;
            return Step::Again;
        }
        let could_be = |open: &str| open.starts_with(&self.window);
        if !is_end && (self.window.is_empty() || open.is_some_and(could_be)) {
            self.state = State::AfterReasoning;
            return Step::Wait;
        }
        self.state = State::Content;
        Step::Again
    }

    /// Calls are told apart at all.
    fn may_call(&self) -> bool {
        !self.wanted.tools.is_empty() && self.wanted.num_calls_max != Some(0)
    }

    fn content(&mut self, is_end: bool, parts: &mut Vec<Part>) -> Step {
        self.state = State::Content;
        let may_call = self.may_call();
        if may_call && self.syntax.calls.may_be_bare() && self.is_blank {
            self.hold_blank(parts);
            match self.window.chars().next() {
                Some('{' | '[') => {
                    let raw = self.blank.take();
                    self.state = State::Calls(Calls::at(Place::Bare, raw));
                    return Step::Again;
                }
                None if !is_end => return Step::Wait,
                _ => {}
            }
        }
        let opener = self.syntax.calls.opener().filter(|_| may_call);
        let answer = self.syntax.reasoning.answer_markers();
        let close = answer.map(|(_, close)| close).filter(|_| self.is_answering);
        let markers: Vec<&'static str> = opener.into_iter().chain(close).collect();
        if let Some((at, marker)) = find_first(&self.window, &markers) {
            self.hold_window(at, parts);
            self.window.drain(..marker.len());
            // White space before a call is no content, unless there is no call.
            let blank = self.blank.take();
            match Some(marker) == close {
                true => self.is_answering = false,
                false => {
                    self.state = State::Calls(Calls::at(Place::Opened, blank + marker));
                }
            }
            return Step::Again;
        }
        match is_end {
            true => self.hold_window(self.window.len(), parts),
            false => self.hold_window(self.window.len() - held(&self.window, &markers), parts),
        }
        // Nothing can follow for which white space would matter, or it ends with a call or its tag.
        let is_layout = self.num_begun > 0 || answer.is_some();
        let is_plain = markers.is_empty() && answer.is_none();
        if is_plain || (is_end && !is_layout) {
            let blank = self.blank.take();
            self.tell(&blank, parts);
        }
        Step::Wait
    }

    /// Takes white space from the beginning of the window; tells whether it may be mere layout.
    fn hold_blank(&mut self, parts: &mut Vec<Part>) -> bool {
        let blank = self.window.len() - self.window.trim_start().len();
        let said: String = self.window.drain(..blank).collect();
        let said = self.blank.push(&said);
        self.tell(&said, parts);
        said.is_empty()
    }

    /// The first `len` bytes of the window are content but for the white space at their end, which waits.
    fn hold_window(&mut self, len: usize, parts: &mut Vec<Part>) {
        let said: String = self.window.drain(..len).collect();
        let said = self.blank.push(&said);
        self.tell(&said, parts);
    }

    /// The first `len` bytes of the window are content.
    fn tell_window(&mut self, len: usize, parts: &mut Vec<Part>) {
        let said: String = self.window.drain(..len).collect();
        self.tell(&said, parts);
    }

    /// This is content.
    pub(super) fn tell(&mut self, said: &str, parts: &mut Vec<Part>) {
        self.is_blank = self.is_blank && said.trim().is_empty();
        push_part(parts, Part::Content(said.to_owned()));
    }
}

/// Neighbouring pieces are one part, and empty ones are none.
pub(super) fn push_part(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), part) {
        (_, Part::Content(said) | Part::Reasoning(said)) if said.is_empty() => {}
        (Some(Part::Content(said)), Part::Content(more))
        | (Some(Part::Reasoning(said)), Part::Reasoning(more))
        | (Some(Part::CallArguments { json: said, .. }), Part::CallArguments { json: more, .. }) => {
            said.push_str(&more);
        }
        (_, part) => parts.push(part),
    }
}

/// The marker that comes first in `text`, and where.
pub(super) fn find_first(text: &str, markers: &[&'static str]) -> Option<(usize, &'static str)> {
    markers
        .iter()
        .filter_map(|&marker| Some((text.find(marker)?, marker)))
        .min()
}

/// Bytes at the end of `text` that may be the beginning of one of `markers`.
pub(super) fn held(text: &str, markers: &[&str]) -> usize {
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    (1..=longest.min(text.len()))
        .rev()
        .find(|&len| {
            let from = text.len() - len;
            text.is_char_boundary(from)
                && markers
                    .iter()
                    .any(|marker| marker.starts_with(&text[from..]))
        })
        .unwrap_or(0)
}
