//! Whole models through the public interface: tiny ones built on the spot, and the two real ones.

mod support;

mod checkpoints;
mod convert; // families of tiny checkpoints against transformers
mod fidelity; // real models against transformers
mod folders; // families of tiny checkpoints against transformers, as folders
mod int8_cache; // how much more it holds, how little it changes
mod invariance; // neither neighbours, chunks nor threads change a bit
mod memory; // peak while loading, resident afterwards
mod quantised;
mod refusals; // hostile and unsuitable files
mod states; // hidden states in place of logits
mod tiny; // what a spec changes, on models built for it
mod work;
