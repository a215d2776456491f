//! White space at the end of what was said so far, which what follows decides on.
//!
//! The one idea: it is kept apart from the text that is looked at, so nobody looks at it twice; and a run too long to be
//! layout is told, whatever follows.

/// Bytes of white space that are held; a longer run is told.
const HELD_BYTES_MAX: usize = 4096;

/// A run of white space that was not told.
#[derive(Clone, Debug, Default)]
pub(super) struct Blank {
    held: String,
    /// The run was too long to be held, and so is the rest of it.
    is_long: bool,
}

impl Blank {
    /// Takes more of what was said and gives back what can be told of it.
    pub(super) fn push(&mut self, text: &str) -> String {
        let kept = text.trim_end().len();
        let mut said = String::new();
        if kept > 0 {
            said = self.take();
            said.push_str(&text[..kept]);
        }
        self.held.push_str(&text[kept..]);
        self.is_long |= self.held.len() > HELD_BYTES_MAX;
        if self.is_long {
            said.push_str(&std::mem::take(&mut self.held));
        }
        said
    }

    /// Ends the run and gives back what was held of it.
    pub(super) fn take(&mut self) -> String {
        self.is_long = false;
        std::mem::take(&mut self.held)
    }
}
