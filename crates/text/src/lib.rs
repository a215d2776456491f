//! Text to tokens and back: tokenizers, chat templates, streaming detokenizer, stop strings.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod stream;
mod template;
mod tokenizer;

pub use stream::{Pushed, TextStream};
pub use template::{ChatTemplate, Rendered, TemplateError};
pub use tokenizer::{SpecialText, TokenId, Tokenizer, TokenizerError};
