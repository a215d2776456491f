//! The binary as its users meet it: exit codes, stdout, stderr.

mod support;

mod bench;
mod doctor;
mod folders;
mod hub;
mod hub_stand_in;
mod inspect;
mod logits;
mod pull;
mod raw;
mod run;
mod scoring;
mod serve;
