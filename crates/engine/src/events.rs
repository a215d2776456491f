//! The mailbox of one request: the engine posts events, the caller reads them.
//!
//! The one idea: posting never waits. A slow reader finds what piled up joined into fewer,
//! longer texts, so a mailbox holds a bounded number of events and no more text than
//! `max_tokens` allows. A reader that goes away leaves a flag for the engine to find.
//!
//! ```text
//! engine thread             ┌─────────────────────────┐            caller
//! Sender ── post ─────────> │ Started Text Text Text… │ ─────────> EventStream
//!        <─ is_abandoned ── └─────────────────────────┘ <─ drop ──
//! ```
//!
//! Not here: which events there are (`request.rs`), or an async runtime: a stream keeps a
//! `std::task::Waker`, and a thread can wait as well.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::inbox::Inbox;
use crate::request::{Event, FinishReason, Finished, Times, Usage, Witness};

/// Unread events from which on texts are joined. A reader this far behind is not waiting for
/// single tokens any more.
const NUM_UNREAD_MAX: usize = 32;

/// Both ends of a new mailbox. Dropping the reader's end rings at `inbox`.
#[cfg(test)]
pub(crate) fn mailbox(inbox: Arc<Inbox>) -> (Sender, EventStream) {
    watched_mailbox(inbox, None)
}

/// The same, with somebody else who hears of the answer.
pub(crate) fn watched_mailbox(
    inbox: Arc<Inbox>,
    witness: Option<Arc<dyn Witness>>,
) -> (Sender, EventStream) {
    let mailbox = Arc::new(Mailbox::default());
    (
        Sender {
            mailbox: Arc::clone(&mailbox),
            is_finished: false,
            witness,
        },
        EventStream { mailbox, inbox },
    )
}

#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<State>,
    /// Rings for a reader that waits on a thread.
    posted: Condvar,
    /// The reader is gone.
    is_abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    unread: VecDeque<Event>,
    /// `Finished` was posted; it may still be unread.
    is_finished: bool,
    /// A reader that waits as a task.
    waker: Option<Waker>,
}

impl Mailbox {
    /// No code that could panic runs under the lock, so a poisoned one is as good as new.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, event: Event) {
        let mut state = self.lock();
        state.is_finished |= matches!(event, Event::Finished(_));
        state.add(event);
        let waker = state.waker.take();
        drop(state);
        self.posted.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    fn add(&mut self, event: Event) {
        let is_behind = self.unread.len() >= NUM_UNREAD_MAX;
        match (self.unread.back_mut(), event) {
            (
                Some(Event::Text {
                    text: unread,
                    tokens: unread_tokens,
                    logprobs: unread_logprobs,
                }),
                Event::Text {
                    text,
                    tokens,
                    logprobs,
                },
            ) if is_behind => {
                unread_logprobs.extend(logprobs);
                unread.push_str(&text);
                unread_tokens.extend(tokens);
            }
            (_, event) => self.unread.push_back(event),
        }
    }
}

/// The engine's end. Says `Finished` exactly once: if nothing else did, its drop does, so that
/// no reader waits for ever whatever happens to the engine.
#[derive(Debug)]
pub(crate) struct Sender {
    mailbox: Arc<Mailbox>,
    is_finished: bool,
    /// Hears of the answer besides its reader.
    witness: Option<Arc<dyn Witness>>,
}

impl Sender {
    /// Tells the witness, if there is one.
    pub(crate) fn witness(&self, tell: impl FnOnce(&dyn Witness)) {
        if let Some(witness) = &self.witness {
            tell(&**witness);
        }
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.mailbox.is_abandoned.load(Ordering::Acquire)
    }

    /// Never blocks (but for a reader taking one event).
    pub(crate) fn post(&self, event: Event) {
        self.mailbox.post(event);
    }

    pub(crate) fn finish(mut self, finished: Finished) {
        self.is_finished = true;
        self.mailbox.post(Event::Finished(finished));
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_finished {
            self.mailbox.post(Event::Finished(Finished {
                text: String::new(),
                reason: FinishReason::Failed {
                    message: "the engine thread ended early".to_owned(),
                },
                usage: Usage::default(),
                times: Times::default(),
                logprob_sum: 0.0,
            }));
        }
    }
}

/// The events of one request. Dropping it cancels the request within two steps.
#[derive(Debug)]
pub struct EventStream {
    mailbox: Arc<Mailbox>,
    inbox: Arc<Inbox>,
}

impl EventStream {
    /// Waits for the next event on this thread; `None` after `Finished`.
    pub fn next_blocking(&mut self) -> Option<Event> {
        let mut state = self.mailbox.lock();
        loop {
            if let Some(event) = state.unread.pop_front() {
                return Some(event);
            }
            if state.is_finished {
                return None;
            }
            state = self
                .mailbox
                .posted
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl futures_core::Stream for EventStream {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.mailbox.lock();
        match state.unread.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if state.is_finished => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.mailbox.is_abandoned.store(true, Ordering::Release);
        self.inbox.ring_abandoned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::test_inbox;
    use crate::request::TokenId;

    fn text(text: &str, token: u32) -> Event {
        Event::Text {
            text: text.to_owned(),
            tokens: vec![TokenId(token)],
            logprobs: Vec::new(),
        }
    }

    fn finished() -> Finished {
        Finished {
            text: String::new(),
            reason: FinishReason::Length,
            usage: Usage::default(),
            times: Times::default(),
            logprob_sum: 0.0,
        }
    }

    #[test]
    fn a_reader_that_keeps_up_gets_every_event_as_posted() {
        let (sender, mut stream) = mailbox(test_inbox());
        sender.post(Event::Started { num_cached: 3 });
        sender.post(text("a", 1));
        sender.post(text("b", 2));
        sender.finish(finished());
        assert_eq!(
            stream.next_blocking(),
            Some(Event::Started { num_cached: 3 })
        );
        assert_eq!(stream.next_blocking(), Some(text("a", 1)));
        assert_eq!(stream.next_blocking(), Some(text("b", 2)));
        assert_eq!(stream.next_blocking(), Some(Event::Finished(finished())));
        assert_eq!(stream.next_blocking(), None);
        assert_eq!(stream.next_blocking(), None);
    }

    #[test]
    fn a_reader_that_never_reads_costs_a_bounded_number_of_events_and_loses_nothing() {
        let (sender, mut stream) = mailbox(test_inbox());
        for token in 0..10_000 {
            sender.post(text("x", token));
        }
        assert_eq!(stream.mailbox.lock().unread.len(), NUM_UNREAD_MAX);
        sender.finish(finished());
        let mut all_tokens = Vec::new();
        let mut all_text = String::new();
        while let Some(Event::Text { text, tokens, .. }) = stream.next_blocking() {
            all_text.push_str(&text);
            all_tokens.extend(tokens);
        }
        assert_eq!(all_text.len(), 10_000);
        assert!(all_tokens.iter().map(|token| token.0).eq(0..10_000));
    }

    #[test]
    fn a_sender_dropped_without_a_word_tells_the_reader_that_it_failed() {
        let (sender, mut stream) = mailbox(test_inbox());
        drop(sender);
        let Some(Event::Finished(finished)) = stream.next_blocking() else {
            panic!("no end")
        };
        assert!(matches!(finished.reason, FinishReason::Failed { .. }));
        assert_eq!(stream.next_blocking(), None);
    }

    #[test]
    fn a_waiting_task_is_woken_by_the_next_event() {
        struct Flag(AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        let (sender, mut stream) = mailbox(test_inbox());
        let mut poll = |stream: &mut EventStream| {
            futures_core::Stream::poll_next(Pin::new(stream), &mut context)
        };
        assert_eq!(poll(&mut stream), Poll::Pending);
        assert!(!flag.0.load(Ordering::SeqCst));
        sender.post(text("a", 1));
        assert!(flag.0.load(Ordering::SeqCst));
        assert_eq!(poll(&mut stream), Poll::Ready(Some(text("a", 1))));
    }

    #[test]
    fn dropping_the_stream_is_seen_by_the_sender() {
        let (sender, stream) = mailbox(test_inbox());
        assert!(!sender.is_abandoned());
        drop(stream);
        assert!(sender.is_abandoned());
    }
}
