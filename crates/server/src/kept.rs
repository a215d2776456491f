//! Responses that clients may ask for later, in memory: bounded in number and in bytes, the
//! oldest leave first. What still runs (in the background) stays until it ends.
//!
//! ```text
//! Running ── ended by itself, or failed ──▶ Finished ── the oldest ──▶ gone
//!    └─────── cancelled by a client ──────────▲
//! ```
//!
//! Kept as JSON text, so that bytes are counted exactly, and once per response: the items of
//! the whole conversation, of which its own input is a range. An id is 122 random bits that
//! only its creator was told: whoever knows it may read it.
//!
//! Not here: what a response says (`dialect::responses`). Nothing survives the process.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::responses::answer::{Response, Status};
use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::dialect::to_json;
use crate::limits::Limits;

/// All kept responses.
pub(crate) struct Kept {
    num_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_id: HashMap<String, Entry>,
    /// Ids of finished ones by age.
    oldest: BTreeMap<u64, String>,
    num_ever: u64,
    num_bytes: usize,
}

struct Entry {
    stage: Stage,
    conversation: Conversation,
    /// Its place in `oldest`, once it finished.
    age: u64,
    num_bytes: usize,
}

enum Stage {
    Running {
        response: Box<Response>,
        /// Ends its work.
        cancel: CancellationToken,
    },
    Finished {
        document: Bytes,
        /// Whether it was made without a client, and so can be cancelled again and again.
        background: bool,
    },
}

/// What was said up to and including a response.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    /// JSON text of the list of items.
    pub items: Bytes,
    /// Which of them were the request's own.
    pub input: Range<usize>,
}

impl Conversation {
    /// The items, read again.
    pub fn items(&self) -> Vec<Value> {
        serde_json::from_slice(&self.items).expect("written by this server")
    }
}

/// Why there is nothing to go on after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFinished {
    /// No such response is kept.
    Unknown,
    /// It still runs.
    Running,
}

/// Why a response cannot be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCancelled {
    /// No such response is kept.
    Unknown,
    /// It had a client of its own.
    Attended,
}

impl Kept {
    pub fn new(limits: &Limits) -> Kept {
        Kept {
            num_max: limits.num_kept_responses_max,
            bytes_max: limits.kept_responses_bytes_max,
            state: Mutex::new(State::default()),
        }
    }

    /// No code that could leave a half-made state runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A response that nobody waits for begins.
    pub fn begin(&self, response: Response, conversation: Conversation, cancel: CancellationToken) {
        let id = response.id.clone();
        let stage = Stage::Running {
            response: Box::new(response),
            cancel,
        };
        let entry = Entry {
            num_bytes: conversation.items.len(),
            stage,
            conversation,
            age: 0,
        };
        let mut state = self.lock();
        state.num_bytes += entry.num_bytes;
        let earlier = state.by_id.insert(id, entry);
        assert!(earlier.is_none(), "ids are random");
    }

    /// It is being made.
    pub fn progress(&self, id: &str) {
        if let Some(Entry {
            stage: Stage::Running { response, .. },
            ..
        }) = self.lock().by_id.get_mut(id)
        {
            response.status = Status::InProgress;
        }
    }

    /// A response ended; `conversation` now has what it said. One that ran without a client
    /// and was cancelled or deleted meanwhile stays so.
    pub fn finish(&self, response: &Response, conversation: Conversation) {
        let mut state = self.lock();
        let runs = matches!(
            state.by_id.get(&response.id),
            Some(Entry {
                stage: Stage::Running { .. },
                ..
            })
        );
        if response.background && !runs {
            return;
        }
        state.settle(response, conversation);
        state.make_room(self.num_max, self.bytes_max);
    }

    /// The response as it stands.
    pub fn document(&self, id: &str) -> Option<Bytes> {
        Some(match &self.lock().by_id.get(id)?.stage {
            Stage::Running { response, .. } => to_json(response).into(),
            Stage::Finished { document, .. } => document.clone(),
        })
    }

    /// What was said up to and including a response.
    pub fn conversation(&self, id: &str) -> Option<Conversation> {
        Some(self.lock().by_id.get(id)?.conversation.clone())
    }

    /// The same, to go on after it.
    pub fn finished_conversation(&self, id: &str) -> Result<Conversation, NotFinished> {
        let state = self.lock();
        let entry = state.by_id.get(id).ok_or(NotFinished::Unknown)?;
        match entry.stage {
            Stage::Running { .. } => Err(NotFinished::Running),
            Stage::Finished { .. } => Ok(entry.conversation.clone()),
        }
    }

    /// Ends a response's work, if it still runs, and tells how it stands then.
    pub fn cancel(&self, id: &str) -> Result<Bytes, NotCancelled> {
        let mut state = self.lock();
        let entry = state.by_id.get(id).ok_or(NotCancelled::Unknown)?;
        let (mut response, conversation) = match &entry.stage {
            Stage::Finished {
                document,
                background: true,
            } => return Ok(document.clone()),
            Stage::Finished { .. } => return Err(NotCancelled::Attended),
            Stage::Running { response, cancel } => {
                cancel.cancel();
                (response.clone(), entry.conversation.clone())
            }
        };
        response.status = Status::Cancelled;
        let document = state.settle(&response, conversation);
        state.make_room(self.num_max, self.bytes_max);
        Ok(document)
    }

    /// Forgets a response, ending its work if it still runs; whether there was one.
    pub fn delete(&self, id: &str) -> bool {
        let mut state = self.lock();
        let entry = state.remove(id);
        if let Some(Entry {
            stage: Stage::Running { cancel, .. },
            ..
        }) = &entry
        {
            cancel.cancel();
        }
        entry.is_some()
    }
}

impl State {
    /// Makes it a finished one, the youngest.
    fn settle(&mut self, response: &Response, conversation: Conversation) -> Bytes {
        self.remove(&response.id);
        let document = Bytes::from(to_json(response));
        let age = self.num_ever;
        self.num_ever += 1;
        let entry = Entry {
            num_bytes: document.len() + conversation.items.len(),
            stage: Stage::Finished {
                document: document.clone(),
                background: response.background,
            },
            conversation,
            age,
        };
        self.num_bytes += entry.num_bytes;
        self.oldest.insert(age, response.id.clone());
        self.by_id.insert(response.id.clone(), entry);
        document
    }

    fn make_room(&mut self, num_max: usize, bytes_max: usize) {
        while self.by_id.len() > num_max || self.num_bytes > bytes_max {
            let Some((_, id)) = self.oldest.pop_first() else {
                return;
            };
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) -> Option<Entry> {
        let entry = self.by_id.remove(id)?;
        self.num_bytes -= entry.num_bytes;
        if matches!(entry.stage, Stage::Finished { .. }) {
            self.oldest.remove(&entry.age);
        }
        Some(entry)
    }
}
