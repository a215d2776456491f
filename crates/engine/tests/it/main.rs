//! The whole engine, from `submit` to `Finished`: on a fake runner whose logits are a function of
//! what its cache really holds, and on tiny models.

// The fake runner, its gate, and a log of what happened.
mod lab;

// What an answer contains and why it ends.
mod answers;

// Answers that must be of a form.
mod constraints;

// The same answer whoever else is there.
mod company;

// Log-probabilities of the answer and of the prompt.
mod logprobs;

// Prompts as vectors.
mod embeddings;

// Several answers to one prompt.
mod groups;

// What a request allows, and the names of control tokens.
mod rules;

// Who hears of one answer.
mod witness;

// Too little memory.
mod pressure;

// Admission.
mod queue;

// Cancellation and drains.
mod departures;

// A runner that fails.
mod failures;

// Tiny and real models in place of the fake.
mod models;

// Checkpoints of every family against the reference.
mod families;
