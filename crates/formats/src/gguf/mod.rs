//! GGUF v2/v3.

/// An opened GGUF file.
#[derive(Debug)]
pub struct Gguf {}
