//! Wire types of the OpenAI-compatible API, and SSE framing.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
