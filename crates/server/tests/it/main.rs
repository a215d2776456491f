//! A server from outside: real sockets, real engine, a model that says the alphabet.

mod harness; // a server under test
mod http; // a client that shows every byte
mod script; // the model

mod auth;
mod cancellation;
mod classes;
mod completions;
mod echo;

// Answers of a demanded form.
mod constrained;
mod embeddings;
mod errors;
mod http2;
mod lifecycle;
mod limits;
mod logprobs;
mod messages;
mod metrics;
mod openapi;
mod parameters;
mod real;
mod render;
mod responses;
mod several;
mod streaming;
mod tokenize;
mod tools; // calls of functions, demanded and free
