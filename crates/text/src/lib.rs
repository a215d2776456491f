//! Text to tokens and back: tokenizers, chat templates, streaming detokenizer, stop strings.
//!
//! A prompt passes through here twice: [`ChatTemplate`] makes one text of the messages, [`Tokenizer`] makes ids of
//! it. The two share one promise: what a user typed never becomes a control token ([`Rendered`] carries the places
//! from one to the other). An answer comes back through [`TextStream`].
//!
//! Not here: models and what they do with ids; HTTP; which requests are acceptable.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod template;
mod tokenizer;

mod folder;

mod stream;

// What a model's text consists of: reasoning, content, tool calls.
pub mod output;

pub use folder::{FolderError, FolderText};
pub use stream::{Pushed, TextStream};
pub use template::{ChatTemplate, Conversation, PromptEnding, Rendered, TemplateError, ToolsShown};
pub use tokenizer::{SpecialText, TextEnds, TokenId, Tokenizer, TokenizerError};
