//! What a model's text consists of: reasoning, content, and tool calls in the syntax its template teaches.
//!
//! The one idea: a syntax is a handful of markers and the shape of a call, found by looking at the chat template
//! ([`OutputSyntax::detect`]); and one parser reads them all ([`OutputParser`]), incrementally, holding back only
//! what could still become a marker or a call. Where the text is cut into pieces makes no difference.
//!
//! What becomes of a call that is none:
//!
//! * It never began, because its name is not offered, its keys are not a call's, or it is no JSON: all of it, its
//!   opener included, is content, and calls behind it are read as ever.
//! * It began ([`Part::CallBegin`]) and then broke or was cut: what was told as its arguments stays told (a readable
//!   rest of arguments in a string is told too), there is no [`Part::CallEnd`], and nothing of it is content.
//!   [`OutputParser::has_broken_call`] says so. Text behind it is read as ever.
//! * It comes after the last call wanted ([`Wanted::num_calls_max`]): it is dropped, with all that follows
//!   ([`OutputParser::is_done`]).
//!
//! In channels (gpt-oss), headers and control tokens are never told; a message in the channel `analysis` is
//! reasoning, one to a tool that is offered is a call, all others are content.
//!
//! Not here: what parts look like on the wire, forcing a model into a syntax (`grammar.rs` says what to force it
//! into).

// One answer's text into parts.
mod parser;

// White space that what follows decides on.
mod blank;

// Messages in channels.
mod channels;

// Where calls stand.
mod calls;

// A call's JSON as it arrives.
mod call;

// What a call must look like, for constrained output.
mod grammar;

#[cfg(test)]
mod tests;

pub use grammar::{CallPlace, CallRules, Parallel};
pub use parser::{OutputParser, Wanted};

/// A piece of an answer, of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the model thinks before it answers; never empty.
    Reasoning(String),
    /// What it says to the reader; never empty.
    Content(String),
    /// A call of one of the tools offered begins.
    CallBegin {
        /// Which of the answer's calls, from 0.
        index: usize,
        /// The tool.
        name: String,
    },
    /// More of a call's arguments: pieces of one JSON object's text.
    CallArguments {
        /// Which call.
        index: usize,
        /// The piece; never empty.
        json: String,
    },
    /// A call is complete, and its arguments are a JSON object.
    CallEnd {
        /// Which call.
        index: usize,
    },
}

/// The syntax of a model's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSyntax {
    /// How reasoning is told from the answer.
    pub reasoning: ReasoningSyntax,
    /// How tools are called.
    pub calls: CallSyntax,
}

/// How reasoning is told from the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningSyntax {
    /// It is not.
    None,
    /// Between `<think>` and `</think>` (Qwen 3, DeepSeek R1, SmolLM3).
    Think,
    /// Between `[THINK]` and `[/THINK]` (Magistral).
    Brackets,
    /// Between two sentences (Granite 3).
    Granite,
    /// Between `<think>` and `</think>`, and the answer between `<response>` and `</response>` (Granite 3.3).
    ThinkAndRespond,
    /// In channels (gpt-oss): `<|channel|>analysis<|message|>` until the message ends.
    Channels,
}

/// How tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSyntax {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, one after the other (Hermes, Qwen 2.5 and 3).
    Hermes,
    /// `{"name": …, "parameters": {…}}` as the whole answer or after `<|python_tag|>`, several with semicolons (Llama 3).
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, or `[TOOL_CALLS]name[ARGS]{…}` (Mistral).
    Mistral,
    /// `<|tool_call|>[{"name": …, "arguments": {…}}]` (Granite 3).
    Granite,
    /// An object or a list of objects with a name and arguments, as the whole answer.
    Json,
    /// `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>` (gpt-oss).
    Channels,
}

impl ReasoningSyntax {
    /// What opens and closes reasoning.
    pub fn markers(self) -> Option<(&'static str, &'static str)> {
        match self {
            ReasoningSyntax::None => None,
            ReasoningSyntax::Think | ReasoningSyntax::ThinkAndRespond => {
                Some(("<think>", "</think>"))
            }
            ReasoningSyntax::Brackets => Some(("[THINK]", "[/THINK]")),
            ReasoningSyntax::Granite => {
                Some(("Here is my thought process:", "Here is my response:"))
            }
            ReasoningSyntax::Channels => Some((channels::ANALYSIS, channels::END)),
        }
    }

    /// What opens and closes the answer behind reasoning, if anything does.
    pub fn answer_markers(self) -> Option<(&'static str, &'static str)> {
        match self {
            ReasoningSyntax::ThinkAndRespond => Some(("<response>", "</response>")),
            _ => None,
        }
    }

    /// The word for a flag, as vLLM has it where it has one.
    pub fn from_word(word: &str) -> Option<ReasoningSyntax> {
        match word {
            "none" => Some(ReasoningSyntax::None),
            "think" | "qwen3" | "deepseek_r1" => Some(ReasoningSyntax::Think),
            "mistral" => Some(ReasoningSyntax::Brackets),
            "granite" => Some(ReasoningSyntax::Granite),
            "granite3.3" => Some(ReasoningSyntax::ThinkAndRespond),
            "openai_gptoss" => Some(ReasoningSyntax::Channels),
            _ => None,
        }
    }

    /// Words that [`ReasoningSyntax::from_word`] knows.
    pub const WORDS: &'static [&'static str] = &[
        "none",
        "think",
        "qwen3",
        "deepseek_r1",
        "mistral",
        "granite",
        "granite3.3",
        "openai_gptoss",
    ];
}

impl CallSyntax {
    /// What announces a call, if anything must.
    pub fn opener(self) -> Option<&'static str> {
        match self {
            CallSyntax::Hermes => Some("<tool_call>"),
            CallSyntax::Llama3 => Some("<|python_tag|>"),
            CallSyntax::Mistral => Some("[TOOL_CALLS]"),
            CallSyntax::Granite => Some("<|tool_call|>"),
            CallSyntax::Json | CallSyntax::Channels => None,
        }
    }

    /// What ends a call that an opener announced, if it has an end of its own.
    pub fn closer(self) -> Option<&'static str> {
        match self {
            CallSyntax::Hermes => Some("</tool_call>"),
            _ => None,
        }
    }

    /// Whether a call may be the whole answer, without an opener.
    pub fn may_be_bare(self) -> bool {
        matches!(self, CallSyntax::Llama3 | CallSyntax::Json)
    }

    /// The word for a flag, as vLLM has it.
    pub fn from_word(word: &str) -> Option<CallSyntax> {
        match word {
            "hermes" => Some(CallSyntax::Hermes),
            "llama3_json" => Some(CallSyntax::Llama3),
            "mistral" => Some(CallSyntax::Mistral),
            "granite" => Some(CallSyntax::Granite),
            "json" => Some(CallSyntax::Json),
            "openai" => Some(CallSyntax::Channels),
            _ => None,
        }
    }

    /// Words that [`CallSyntax::from_word`] knows.
    pub const WORDS: &'static [&'static str] = &[
        "hermes",
        "llama3_json",
        "mistral",
        "granite",
        "json",
        "openai",
    ];
}

impl OutputSyntax {
    /// Content and nothing else, and calls as plain JSON.
    pub const PLAIN: OutputSyntax = OutputSyntax {
        reasoning: ReasoningSyntax::None,
        calls: CallSyntax::Json,
    };

    /// The syntax that a chat template teaches, by the markers it holds.
    pub fn detect(template: &str) -> OutputSyntax {
        let has = |marker: &str| template.contains(marker);
        let reasoning = if has("<|channel|>") {
            ReasoningSyntax::Channels
        } else if has("[THINK]") {
            ReasoningSyntax::Brackets
        } else if has("Here is my thought process") {
            ReasoningSyntax::Granite
        } else if has("<think>") && has("<response>") {
            ReasoningSyntax::ThinkAndRespond
        } else if has("<think>") || has("</think>") {
            ReasoningSyntax::Think
        } else {
            ReasoningSyntax::None
        };
        let calls = if has("<|channel|>") {
            CallSyntax::Channels
        } else if has("[TOOL_CALLS]") {
            CallSyntax::Mistral
        } else if has("<|tool_call|>") {
            CallSyntax::Granite
        } else if has("<tool_call>") {
            CallSyntax::Hermes
        } else if has("<|python_tag|>") || (has("\"parameters\"") && has("ipython")) {
            CallSyntax::Llama3
        } else {
            CallSyntax::Json
        };
        OutputSyntax { reasoning, calls }
    }

    /// All markers, for seeing to it that a model's control tokens among them are shown.
    pub fn markers(&self) -> impl Iterator<Item = &'static str> {
        let reasoning = self.reasoning.markers();
        let reasoning = reasoning
            .into_iter()
            .flat_map(|(open, close)| [open, close]);
        let calls = self.calls.opener().into_iter().chain(self.calls.closer());
        let answer = self.reasoning.answer_markers();
        let answer = answer.into_iter().flat_map(|(open, close)| [open, close]);
        let inner: &[&str] = match self.calls {
            CallSyntax::Mistral => &["[CALL_ID]", "[ARGS]"],
            _ if self.has_channels() => &channels::TOKENS,
            _ => &[],
        };
        reasoning
            .chain(answer)
            .chain(calls)
            .chain(inner.iter().copied())
    }

    /// The text is in messages of channels.
    fn has_channels(&self) -> bool {
        self.reasoning == ReasoningSyntax::Channels || self.calls == CallSyntax::Channels
    }

    /// Whether a rendered prompt ends inside a block of reasoning that its template opened.
    pub fn opens_reasoning(&self, prompt: &str) -> bool {
        let open = match self.has_channels() {
            true => Some(channels::ANALYSIS),
            false => self.reasoning.markers().map(|(open, _)| open),
        };
        let Some(open) = open else {
            return false;
        };
        prompt.trim_end().ends_with(open)
    }
}
