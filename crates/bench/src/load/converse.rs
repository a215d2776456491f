//! One conversation, turn by turn: think, wait for a place, ask, remember what was said.
//!
//! ```text
//! end of the turn before | thinks | due | waits for a place | handed over | connects | sent | ... | end
//!                                       |------ held -------|
//!                                 |----- held + lag --------|
//! ```

use std::sync::Arc;

use tokio::time::sleep_until;

use super::ask::{Moment, Question};
use super::caller::Caller;
use super::places::{Lines, Place};
use super::{Shared, Told};
use crate::observe::Status;
use crate::sample::{ClassId, LevelId};
use crate::workload::{Conversation, History, Message, Role};

/// How a conversation begins.
#[derive(Debug)]
pub(super) struct Begin {
    /// When its first question is due, in seconds of the run.
    pub due: f64,
    /// The place for it, if there is one already.
    pub place: Option<Place>,
}

/// How a conversation ended, and at which second of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Every question that was asked had its answer.
    Answered(f64),
    /// A question had none.
    Failed(f64),
    /// Nothing was asked.
    Unasked,
}

/// Asks all turns, as long as a level wants them.
pub(super) async fn converse(
    shared: &Arc<Shared>,
    caller: Caller<'_>,
    mut lines: Lines<'_>,
    conversation: &Conversation,
    begin: Begin,
) -> Outcome {
    let mut said = Said::new(conversation);
    let Begin { mut due, mut place } = begin;
    let mut outcome = Outcome::Unasked;
    let mut last_level = None;
    for (idx, turn) in conversation.turns.iter().enumerate() {
        if let Outcome::Answered(ended) = outcome {
            due = ended + turn.think_s;
            if think(shared, caller, due, turn.think_s).await.is_none() {
                tell_cut(shared, last_level).await;
                break;
            }
        }
        let place = match place.take() {
            Some(place) => Some(place),
            None => shared.places.take(caller.until(shared)).await,
        };
        // In this order: a place that is waited for may come in another level.
        let granted = place.and_then(|place| Some((place, caller.level()?)));
        let Some((place, level)) = granted else {
            let class = ClassId(conversation.class as u16);
            tell_missed(shared, caller, (class, due), last_level).await;
            break;
        };
        last_level = Some(level);
        said.question(&turn.text);
        let question = Question {
            conversation,
            idx,
            said: &said.messages,
            needs_text: said.needs_answer_to(idx),
        };
        let moment = Moment {
            level,
            pacing: caller.pacing(),
            due,
            held: place.waited,
        };
        let mut line = lines.take();
        let sample = question.ask(shared, &mut line, moment).await;
        lines.give(line);
        drop(place);
        let ended = sample.sent + sample.record.ended.as_secs_f64();
        let is_ok = sample.record.status == Status::Ok;
        let text = sample.record.text.as_deref().map(Arc::from);
        shared.tell(Told::Ended(Box::new(sample))).await;
        if !is_ok {
            // A user who got no answer has nothing to go on with.
            return Outcome::Failed(ended);
        }
        said.answer(idx, text);
        outcome = Outcome::Answered(ended);
    }
    outcome
}

/// Waits until `due`; none if the end comes first.
async fn think(shared: &Shared, caller: Caller<'_>, due: f64, think_s: f64) -> Option<()> {
    if think_s <= 0.0 {
        // A timer that is due already would still round up to its next millisecond.
        return Some(());
    }
    let thinking = sleep_until(shared.instant(due));
    caller.until(shared).run_until_cancelled(thinking).await
}

/// The end came while nothing was due: no question is lost, but a conversation is.
async fn tell_cut(shared: &Shared, last_level: Option<LevelId>) {
    if let Some(level) = last_level {
        shared.tell(Told::Cut(level)).await;
    }
}

/// The end came before a question had its place. A schedule's was due all the same; a user simply has not asked.
async fn tell_missed(
    shared: &Shared,
    caller: Caller<'_>,
    question: (ClassId, f64),
    last_level: Option<LevelId>,
) {
    match caller {
        Caller::Arrival { target, .. } if target.takes_quota() => {
            let told = Told::Dropped(target.level, vec![question]);
            shared.tell(told).await;
        }
        Caller::Arrival { .. } | Caller::User { .. } => tell_cut(shared, last_level).await,
    }
}

/// What was said so far.
struct Said<'a> {
    conversation: &'a Conversation,
    messages: Vec<Message>,
    /// Messages before the first question.
    num_opening: usize,
}

impl Said<'_> {
    fn new(conversation: &Conversation) -> Said<'_> {
        let system = conversation.system.iter().map(|text| Message {
            role: Role::System,
            text: Arc::clone(text),
        });
        let mut messages: Vec<Message> = system.collect();
        messages.extend(conversation.opening.iter().cloned());
        Said {
            conversation,
            num_opening: messages.len(),
            messages,
        }
    }

    fn question(&mut self, text: &str) {
        self.messages.push(Message {
            role: Role::User,
            text: text.into(),
        });
    }

    /// Whether a later question repeats the answer to this one.
    fn needs_answer_to(&self, idx: usize) -> bool {
        let is_last = idx + 1 == self.conversation.turns.len();
        !is_last && self.conversation.history == History::Answers
    }

    fn answer(&mut self, idx: usize, text: Option<Arc<str>>) {
        let answer = match self.conversation.history {
            History::Answers => text,
            History::Recorded => self.conversation.turns[idx].answer.clone(),
            History::None => None,
        };
        match answer {
            Some(text) => self.messages.push(Message {
                role: Role::Assistant,
                text,
            }),
            None => self.messages.truncate(self.num_opening),
        }
    }
}
