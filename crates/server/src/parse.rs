//! What one answer's text consists of, as it comes: the stand of an output parser between
//! the engine's text and the wire.
//!
//! Not here: what a syntax looks like (`text::output`), how a part looks on the wire (`dialect`).

use text::output;
pub(crate) use text::output::Part;

/// Splits one answer's text into parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputParser {
    /// `None` tells everything as content.
    inner: Option<output::OutputParser>,
    reasoning: ReasoningParts,
}

/// What becomes of reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReasoningParts {
    #[default]
    Told,
    Dropped,
}

impl OutputParser {
    /// A parser of an answer in a syntax.
    pub fn new(inner: output::OutputParser, reasoning: ReasoningParts) -> OutputParser {
        OutputParser {
            inner: Some(inner),
            reasoning,
        }
    }

    /// Takes more text and gives back the parts that became certain.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        match &mut self.inner {
            _ if text.is_empty() => Vec::new(),
            None => vec![Part::Content(text.to_owned())],
            Some(inner) => {
                let parts = inner.push(text);
                self.told(parts)
            }
        }
    }

    /// The text ended: gives back what was held.
    pub fn finish(&mut self) -> Vec<Part> {
        match &mut self.inner {
            None => Vec::new(),
            Some(inner) => {
                let parts = inner.finish();
                self.told(parts)
            }
        }
    }

    /// Whether some of the text last pushed is reasoning, its markers included.
    pub fn took_reasoning(&self) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(output::OutputParser::took_reasoning)
    }

    /// Whether there are calls, and every one that began is complete.
    pub fn has_calls(&self) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(|inner| inner.num_calls() > 0 && !inner.has_broken_call())
    }

    /// Whether there are as many calls as there may be.
    pub fn is_satisfied(&self) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(output::OutputParser::is_done)
    }

    fn told(&self, mut parts: Vec<Part>) -> Vec<Part> {
        if self.reasoning == ReasoningParts::Dropped {
            parts.retain(|part| !matches!(part, Part::Reasoning(_)));
        }
        parts
    }
}
