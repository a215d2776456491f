//! The whole engine, from `submit` to `Finished`: on a fake runner whose logits are a function of
//! what its cache really holds, and on tiny models.

mod lab; // the fake runner, its gate, and a log of what happened

mod answers; // what an answer contains and why it ends
mod company; // the same answer whoever else is there
mod departures; // cancellation and drains
mod failures;
mod models;
mod pressure; // too little memory
mod queue; // admission // a runner that fails // tiny and real models in place of the fake
