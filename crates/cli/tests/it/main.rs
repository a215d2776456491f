//! The binary as its users meet it: exit codes, stdout, stderr.

mod support;

mod inspect;
mod logits;
mod pull;
mod run;
mod serve;
