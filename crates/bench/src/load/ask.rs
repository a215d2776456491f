//! One conversation, turn by turn: from what was said so far to a sample.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{LIMITS, Shared, Told};
use crate::client::{Asked, Connection, Exchanged, Waits};
use crate::observe::{self, Observation, Status, StreamEnd};
use crate::sample::{AskId, ClassId, LevelId, Pacing, Sample};
use crate::workload::{Conversation, History, Message, Role};

/// A user's connection, kept from one request to the next.
#[derive(Debug, Default)]
pub(super) struct Line(pub Option<Connection>);

/// When and for which level a request is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub level: LevelId,
    pub pacing: Pacing,
    /// When it should be sent, in seconds of the run; none for as soon as possible.
    pub due: Option<f64>,
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every question had its answer, or the run was over.
    Answered,
    /// A question had none.
    Failed,
}

/// Asks all turns. `each` says before every turn which level it belongs to, or that it is over.
pub(super) async fn converse(
    shared: &Arc<Shared>,
    line: &mut Line,
    conversation: &Conversation,
    mut each: impl FnMut() -> Option<Moment>,
) -> Outcome {
    let mut said: Vec<Message> = Vec::new();
    let opening = conversation.system.iter().map(|text| Message {
        role: Role::System,
        text: Arc::clone(text),
    });
    said.extend(opening);
    said.extend(conversation.opening.iter().cloned());
    let num_opening = said.len();
    for (idx, turn) in conversation.turns.iter().enumerate() {
        if idx > 0 && turn.think_s > 0.0 {
            let thinking = sleep(Duration::from_secs_f64(turn.think_s));
            tokio::select! {
                () = thinking => {}
                () = shared.cancel.cancelled() => return Outcome::Answered,
            }
        }
        let Some(mut moment) = each() else {
            return Outcome::Answered;
        };
        if idx > 0 {
            // Only a conversation's beginning can be scheduled: the rest depends on answers.
            moment.due = None;
        }
        said.push(Message {
            role: Role::User,
            text: turn.text.as_str().into(),
        });
        let is_last = idx + 1 == conversation.turns.len();
        let needs_text = !is_last && conversation.history == History::Answers;
        let question = Question {
            conversation,
            idx,
            said: &said,
            needs_text,
        };
        let sample = question.ask(shared, line, moment).await;
        let answer = match conversation.history {
            History::Answers => sample.record.text.as_deref().map(Arc::from),
            History::Recorded => turn.answer.clone(),
            History::None => None,
        };
        let is_ok = sample.record.status == Status::Ok;
        shared.tell(Told::Ended(Box::new(sample))).await;
        if !is_ok {
            // A user who got no answer has nothing to go on with.
            return Outcome::Failed;
        }
        match answer {
            Some(text) if conversation.history != History::None => said.push(Message {
                role: Role::Assistant,
                text,
            }),
            _ => said.truncate(num_opening),
        }
    }
    Outcome::Answered
}

struct Question<'a> {
    conversation: &'a Conversation,
    idx: usize,
    said: &'a [Message],
    needs_text: bool,
}

impl Question<'_> {
    async fn ask(&self, shared: &Arc<Shared>, line: &mut Line, moment: Moment) -> Sample {
        shared.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        let setting = &shared.setting;
        let turn = &self.conversation.turns[self.idx];
        let asked = Asked {
            model: setting.model.as_deref(),
            messages: self.said,
            num_output_tokens: turn.num_output_tokens,
            output: turn.output,
            extra: &[&self.conversation.body, &setting.body],
        };
        let body = asked.body(setting.dialect);
        let route = setting.dialect.api.path();
        let request = setting.client.post(route, &self.conversation.headers, body);

        // Told before there is a connection: a request that waits for one is on its way.
        let told = shared.seconds(Instant::now());
        shared.tell(Told::Sent(moment.level, told)).await;
        let connected = self.connect(shared, line).await;
        let was_open = connected.is_ok();
        let (connect, exchanged) = match (connected, request) {
            (Ok((connection, connect)), Ok(request)) => {
                let mut observation = Observation::new(observe::LIMITS);
                if self.needs_text {
                    observation.keep_text(LIMITS.answer_bytes_max);
                }
                let waits = Waits {
                    timeouts: setting.client.timeouts,
                    cancel: &shared.cancel,
                };
                let events = &shared.counters.events;
                let arrived = |num| {
                    events.fetch_add(num, Ordering::Relaxed);
                };
                let exchange = connection.exchange(request, observation, waits, arrived);
                (connect, exchange.await)
            }
            (Ok((connection, connect)), Err(error)) => {
                let mut exchanged = not_sent(StreamEnd::NotConnected, error.to_string());
                exchanged.connection = Some(connection);
                (connect, exchanged)
            }
            (Err(error), _) if error.kind() == ErrorKind::Interrupted => {
                (None, not_sent(StreamEnd::Cancelled, error.to_string()))
            }
            (Err(error), _) => (None, not_sent(StreamEnd::NotConnected, error.to_string())),
        };
        line.0 = exchanged.connection;
        if was_open && line.0.is_none() {
            shared.counters.closed();
        }
        shared.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        let sent = shared.seconds(exchanged.sent);
        Sample {
            id: AskId {
                conversation: self.conversation.number,
                turn: self.idx as u32,
            },
            level: moment.level,
            class: ClassId(self.conversation.class as u16),
            pacing: moment.pacing,
            due: moment.due.unwrap_or(sent),
            sent,
            told,
            connect: connect.map(|connect| connect.as_secs_f64()),
            num_prompt_wanted: turn.num_prompt_tokens,
            num_prompt_shared: turn.num_shared_tokens,
            num_output_wanted: turn.num_output_tokens,
            output: turn.output,
            record: exchanged.record,
        }
    }

    /// The line's connection, or a new one and how long that took.
    async fn connect(
        &self,
        shared: &Arc<Shared>,
        line: &mut Line,
    ) -> std::io::Result<(Connection, Option<Duration>)> {
        if let Some(mut connection) = line.0.take() {
            if connection.is_usable().await {
                return Ok((connection, None));
            }
            shared.counters.closed();
        }
        let connecting = shared.setting.client.connect();
        let (connection, took) = tokio::select! {
            connected = connecting => connected?,
            () = shared.cancel.cancelled() => {
                return Err(std::io::Error::from(std::io::ErrorKind::Interrupted));
            }
        };
        shared.counters.opened();
        Ok((connection, Some(took)))
    }
}

fn not_sent(end: StreamEnd, error: String) -> Exchanged {
    let mut record = Observation::new(observe::LIMITS).finish(end, Duration::ZERO);
    record.error = Some(error);
    Exchanged {
        sent: Instant::now(),
        record,
        connection: None,
    }
}
