//! What one answer's text consists of, as it comes: the stand of an output parser between
//! the engine's text and the wire.
//!
//! So far all text is content. Not here: how a part looks on the wire (`dialect`).

/// A piece of an answer, of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What the model says to the reader; never empty.
    Content(String),
}

/// Splits one answer's text into parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputParser;

impl OutputParser {
    /// Takes more text and gives back the parts that became certain.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        if text.is_empty() {
            return Vec::new();
        }
        vec![Part::Content(text.to_owned())]
    }

    /// The text ended: gives back what was held.
    pub fn finish(&mut self) -> Vec<Part> {
        Vec::new()
    }
}
