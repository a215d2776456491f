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
    /// With so many calls an answer is over.
    num_calls_max: Option<usize>,
}

/// What becomes of reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReasoningParts {
    #[default]
    Told,
    Dropped,
}

impl OutputParser {
    /// A parser of an answer in a syntax, that is over after `num_calls_max` calls.
    pub fn new(
        inner: output::OutputParser,
        reasoning: ReasoningParts,
        num_calls_max: Option<usize>,
    ) -> OutputParser {
        OutputParser {
            inner: Some(inner),
            reasoning,
            num_calls_max,
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

    /// Whether the text so far ends inside reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.inner
            .as_ref()
            .is_some_and(output::OutputParser::is_reasoning)
    }

    /// Whether calls are complete.
    pub fn has_calls(&self) -> bool {
        self.num_calls() > 0
    }

    /// Whether there are as many calls as there may be.
    pub fn is_satisfied(&self) -> bool {
        self.num_calls_max
            .is_some_and(|max| self.num_calls() >= max)
    }

    fn num_calls(&self) -> usize {
        self.inner
            .as_ref()
            .map_or(0, output::OutputParser::num_calls)
    }

    fn told(&self, mut parts: Vec<Part>) -> Vec<Part> {
        if self.reasoning == ReasoningParts::Dropped {
            parts.retain(|part| !matches!(part, Part::Reasoning(_)));
        }
        parts
    }
}
