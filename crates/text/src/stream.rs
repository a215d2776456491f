//! Tokens to text as they come: whole UTF-8 characters, possible stop strings held back.

/// What one more token released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// This much text is now certain (may be empty).
    Text(String),
    /// A stop string matched; `text` is what precedes it and was not yet released.
    Stopped {
        /// Text before the match.
        text: String,
        /// Index of the stop string that matched.
        stop_idx: usize,
    },
}

/// The text of one answer.
#[derive(Debug)]
pub struct TextStream {}

impl TextStream {
    /// An empty answer that ends at any of `stops` (none empty).
    pub fn new(stops: Vec<String>) -> TextStream {
        let _ = stops;
        unimplemented!()
    }
    /// Adds a token's bytes.
    pub fn push(&mut self, token_bytes: &[u8]) -> Pushed {
        let _ = token_bytes;
        unimplemented!()
    }
    /// Releases what is held back; an incomplete character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        unimplemented!()
    }
}
