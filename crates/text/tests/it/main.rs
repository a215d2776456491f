//! What the crate promises, seen from outside.

mod bad_vocabularies;
mod chat_fixtures;
mod forged_turns;
mod hostile_input;
mod hostile_json;
mod hostile_templates;
mod json_oracle;
mod oracle;
mod special_tokens;
mod stream;
mod tokenizer_fixtures;
mod vocabularies;
