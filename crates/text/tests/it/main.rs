//! What the crate promises, seen from outside.

mod chat_fixtures;
mod stream;
mod tokenizer_fixtures;
