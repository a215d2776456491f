//! A runner whose greedy answers are known, and whose steps a test can hold.
//!
//! The next token follows from the last byte alone:
//!
//! ```text
//! a b c … z END           the alphabet, then the end
//! 9 … 2 1 END             a countdown: an answer of chosen length
//! E 😀(four bytes) E 😀 …   characters over several tokens, for ever
//! anything else           a
//! ```
//!
//! It computes nothing, so what a test sees is the server's doing; `real.rs` runs a real
//! model. Other tokens get logits that fall with their id: sampling has something to do.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use model::runner::{Batch, LogitRows, Logits, Runner, RunnerError, RunnerShape};
use text::{TokenId, Tokenizer};

/// Lets steps through, or holds them.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Steps that may still run; `None` is any number.
    num_steps: Option<usize>,
    /// Whether the next step fails.
    fails: bool,
}

/// A test that fails must not leave an engine waiting for ever.
const HELD_MAX: Duration = Duration::from_secs(60);

impl Gate {
    pub fn open() -> Arc<Gate> {
        let state = State {
            num_steps: None,
            fails: false,
        };
        Arc::new(Gate {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// From now on this many steps run, then none.
    pub fn allow(&self, num_steps: Option<usize>) {
        self.state.lock().unwrap().num_steps = num_steps;
        self.changed.notify_all();
    }

    /// The next step fails.
    pub fn fail(&self) {
        self.state.lock().unwrap().fails = true;
    }

    fn pass(&self) -> bool {
        let state = self.state.lock().unwrap();
        let held = |state: &mut State| state.num_steps == Some(0);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, HELD_MAX, held)
            .unwrap();
        if let Some(num_steps) = &mut state.num_steps {
            *num_steps = num_steps.saturating_sub(1);
        }
        !std::mem::take(&mut state.fails)
    }
}

/// The runner.
pub struct Script {
    shape: RunnerShape,
    gate: Arc<Gate>,
    /// For each token, what follows it.
    next: Vec<u32>,
    values: Vec<f32>,
    states: Vec<f32>,
}

/// Values of a hidden state.
pub const HIDDEN: usize = 4;

/// The state of every position that holds `token`.
pub fn state_of(token: u32) -> [f32; HIDDEN] {
    let token = token as f32;
    [token + 1.0, -token, 0.5, token / 8.0]
}

/// Sizes a test can choose.
pub struct Shape {
    pub context_max: usize,
    pub num_blocks: usize,
}

impl Script {
    pub fn new(tokenizer: &Tokenizer, shape: Shape, gate: Arc<Gate>) -> Script {
        let vocab = tokenizer.vocab();
        let shape = RunnerShape {
            vocab,
            hidden: HIDDEN,
            context_max: shape.context_max,
            num_blocks: shape.num_blocks,
            block_bytes: 1,
            fingerprint: "fp_script".to_owned(),
        };
        let next = (0..vocab as u32)
            .map(|id| follower(tokenizer, TokenId(id)))
            .collect();
        Script {
            shape,
            gate,
            next,
            values: Vec::new(),
            states: Vec::new(),
        }
    }
}

const SMILE: [u8; 4] = [0xf0, 0x9f, 0x98, 0x80];

fn follower(tokenizer: &Tokenizer, token: TokenId) -> u32 {
    let end = tokenizer.eos().expect("the tiny models have an end token");
    let byte = |wanted: u8| {
        let single = |id: &u32| tokenizer.token_bytes(TokenId(*id)) == Some(&[wanted][..]);
        (0..tokenizer.vocab() as u32)
            .find(single)
            .expect("every byte is a token")
    };
    let bytes = tokenizer.token_bytes(token).unwrap_or(&[]);
    match *bytes {
        [.., b'z' | b'1'] => end.0,
        [.., last @ b'a'..=b'y'] => byte(last + 1),
        [.., last @ b'2'..=b'9'] => byte(last - 1),
        [.., b'E'] => byte(SMILE[0]),
        [.., 0xf0] => byte(SMILE[1]),
        [.., 0x9f] => byte(SMILE[2]),
        [.., 0x98] => byte(SMILE[3]),
        [.., 0x80] => byte(b'E'),
        _ => byte(b'a'),
    }
}

impl Runner for Script {
    fn shape(&self) -> &RunnerShape {
        &self.shape
    }

    fn forward(&mut self, batch: &Batch) -> Result<Logits<'_>, RunnerError> {
        if !self.gate.pass() {
            return Err(RunnerError::BadBatch {
                reason: "the script says so: SECRET".to_owned(),
            });
        }
        let vocab = self.shape.vocab;
        self.values.clear();
        self.states.clear();
        let mut end = 0;
        for sequence in &batch.sequences {
            let start = end;
            end += sequence.num_tokens;
            let rows = match sequence.logits {
                LogitRows::None => end..end,
                LogitRows::Last | LogitRows::LastState => end - 1..end,
                LogitRows::All | LogitRows::AllStates => start..end,
            };
            if let LogitRows::LastState | LogitRows::AllStates = sequence.logits {
                let tokens = &batch.tokens[rows];
                self.states
                    .extend(tokens.iter().flat_map(|&token| state_of(token)));
                continue;
            }
            for row in rows {
                let next = self.next[batch.tokens[row] as usize] as usize;
                let logit = |id| {
                    if id == next {
                        9.0
                    } else {
                        -(id as f32) / vocab as f32
                    }
                };
                self.values.extend((0..vocab).map(logit));
            }
        }
        Ok(Logits {
            values: &mut self.values,
            vocab,
            states: &self.states,
            hidden: HIDDEN,
        })
    }
}
