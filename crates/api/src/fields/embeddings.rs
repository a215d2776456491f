//! Every field of `/v1/embeddings`.
//!
//! Source: OpenAI's reference; vLLM's embedding protocol.

use super::{Field, Neutral, On, PRIORITY, Shape, TIMEOUT, hint, neutral, obeyed, refused};

/// The table.
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    obeyed("model", On::Own, Shape::Text { bytes_max: 512 }, "a served name; the default model if absent"),
    obeyed("input", On::Own, Shape::Structured("a string, a list of strings, a list of token ids, or a list of such lists"), "several inputs give several vectors, by index; control-token text is plain text"),
    obeyed("encoding_format", On::Own, Shape::OneOf(&["float", "base64"]), "`base64` is the vector's 32-bit floats, little-endian; default `float`"),
    obeyed("dimensions", On::Own, Shape::Integer { min: 1, max: i32::MAX as i64 }, "keeps this many leading values, at most the model's width, and makes their length 1 again; good for models trained for it"),
    obeyed("add_special_tokens", On::Own, Shape::Flag, "whether a text input gets the model's BOS; default true"),
    hint("user", Shape::Text { bytes_max: 4096 }, "a label"),
    refused("truncate_prompt_tokens", "an input is never cut"),
    obeyed("priority", On::Own, PRIORITY, "as in chat"),
    obeyed("timeout", On::Own, TIMEOUT, "as in chat"),
    neutral("normalize", &[Neutral::Flag(true)], "vectors have length 1"),
    neutral("embd_normalize", &[Neutral::Number(2.0)], "vectors have length 1"),
];
