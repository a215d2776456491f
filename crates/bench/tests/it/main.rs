//! What the observer promises, through its public face: any stream, however cut, and servers over real HTTP.

#![forbid(unsafe_code)]

// Answers by byte scripts.
mod observe;
// Any bytes at all: shared with the fuzz targets.
mod walk;
// Servers behind sockets, TLS and HTTP/2.
mod client;
