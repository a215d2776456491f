//! One question: from what was said so far to a sample.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{LIMITS, Shared, Told};
use crate::client::{Asked, Connection, Exchanged, Waits};
use crate::observe::{self, Observation, StreamEnd};
use crate::sample::{AskId, ClassId, LevelId, Pacing, Sample};
use crate::workload::{Conversation, Message};

/// A user's connection, kept from one request to the next.
#[derive(Debug, Default)]
pub(super) struct Line(pub Option<Connection>);

/// When and for which level a request is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub level: LevelId,
    pub pacing: Pacing,
    /// When it should be sent, in seconds of the run.
    pub due: f64,
    /// How many seconds it waited for a place.
    pub held: f64,
}

pub(super) struct Question<'a> {
    pub conversation: &'a Conversation,
    /// Which turn.
    pub idx: usize,
    pub said: &'a [Message],
    /// Whether a later turn repeats the answer.
    pub needs_text: bool,
}

impl Question<'_> {
    pub(super) async fn ask(
        &self,
        shared: &Arc<Shared>,
        line: &mut Line,
        moment: Moment,
    ) -> Sample {
        shared.counters.asked();
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
        // Books that do not keep up hold the client back, so this counts as its lag.
        let handed = shared.seconds(Instant::now());
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
        shared.counters.answered();
        let sent = shared.seconds(exchanged.sent);
        Sample {
            id: AskId {
                conversation: self.conversation.number,
                turn: self.idx as u32,
            },
            level: moment.level,
            class: ClassId(self.conversation.class as u16),
            pacing: moment.pacing,
            due: moment.due,
            held: moment.held,
            handed,
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
