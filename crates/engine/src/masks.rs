//! Fills the masks of constrained answers while the forward pass runs.
//!
//! The one idea: which tokens may come next depends on the tokens so far and not on the logits, so
//! a thread of its own finds out while the pool computes. A step lends the constraints of the
//! sequences that will sample and takes all of them back before it chooses:
//!
//! ```text
//! engine thread  plan ── lend ── forward ───────── take back ── choose
//! masks thread           └────── fill fill fill ──┘
//! ```
//!
//! One batch is out at a time, so both channels hold one. Not here: what a mask does to logits
//! (`choose/`), or how long a fill may take (whoever makes the constraint bounds it).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sched::SeqId;

use crate::constraint::Constrained;

/// A constraint on its way to the thread and back.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) seq: SeqId,
    /// Tokens that the answer has.
    pub(crate) answer_idx: u32,
    pub(crate) constrained: Constrained,
}

/// The thread's other end. Its drop ends the thread.
#[derive(Debug)]
pub(crate) struct Masks {
    lent: SyncSender<Vec<Lent>>,
    filled: Receiver<Vec<Lent>>,
    is_out: bool,
}

impl Masks {
    /// Starts the thread.
    ///
    /// # Panics
    ///
    /// If the operating system gives no thread.
    pub(crate) fn start() -> Masks {
        let (lent, to_fill) = sync_channel::<Vec<Lent>>(1);
        let (done, filled) = sync_channel(1);
        std::thread::Builder::new()
            .name("masks".to_owned())
            .spawn(move || {
                for mut batch in to_fill {
                    for lent in &mut batch {
                        lent.constrained.fill(lent.answer_idx);
                    }
                    if done.send(batch).is_err() {
                        return;
                    }
                }
            })
            .expect("the operating system gives a thread");
        Masks {
            lent,
            filled,
            is_out: false,
        }
    }

    /// Lends constraints to the thread.
    ///
    /// # Panics
    ///
    /// If the last batch was not taken back.
    pub(crate) fn lend(&mut self, batch: Vec<Lent>) {
        assert!(!self.is_out, "one batch at a time");
        // A thread that is gone (it cannot be: fills catch their panics) gives nothing back, and
        // answers without their constraint choose nothing.
        self.is_out = !batch.is_empty() && self.lent.send(batch).is_ok();
    }

    /// Waits for what was lent; nothing if nothing is out.
    pub(crate) fn take_back(&mut self) -> Vec<Lent> {
        match std::mem::take(&mut self.is_out) {
            true => self.filled.recv().unwrap_or_default(),
            false => Vec::new(),
        }
    }
}
