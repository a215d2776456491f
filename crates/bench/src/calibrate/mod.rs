//! What the client itself can do: the same client against a server that is known to be fast.
//!
//! The one idea: the server writes into each event when it wrote it, by a clock that both share. What the client
//! tells of the arrival, minus that, is the client's error, the kernel's loop-back included. A run whose figures are
//! not well above it measured the client.
//!
//! Not here: how late the client was beside the real server (`load::Pulse`).

// The server.
mod loopback;

// What it answers.
mod answers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Api, Client, Connector, Endpoint, HeaderError, Timeouts, Trust, Waits};
use crate::observe::{LIMITS, Observation, Status};
use crate::sample::GapSketch;

pub use self::loopback::{Loopback, Pattern, Processor, Transport, keep_to};

/// What the client is measured with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rehearsal {
    /// Streams at once.
    pub num_streams: usize,
    /// What each plays.
    pub pattern: Pattern,
    /// How.
    pub transport: Transport,
}

impl Rehearsal {
    /// About a second of `num_streams` streams with `events_per_s`, all together.
    ///
    /// # Panics
    ///
    /// If there are no streams or no events.
    pub fn of_rate(num_streams: usize, events_per_s: f64, transport: Transport) -> Rehearsal {
        assert!(num_streams > 0 && events_per_s > 0.0, "something to play");
        let gap_s = (num_streams as f64 / events_per_s).clamp(GAP_S_MIN, GAP_S_MAX);
        Rehearsal {
            num_streams,
            pattern: Pattern {
                num_events: (LENGTH_S / gap_s).ceil() as u32,
                gap: Duration::from_secs_f64(gap_s),
            },
            transport,
        }
    }

    /// Events a second, all streams together.
    pub fn events_per_s(&self) -> f64 {
        self.num_streams as f64 / self.pattern.gap.as_secs_f64()
    }

    /// Whether a run with so much at once is another matter than this.
    pub fn is_exceeded_by(&self, num_streams: usize, events_per_s: f64) -> bool {
        num_streams as f64 > EXCESS * self.num_streams as f64
            || events_per_s > EXCESS * self.events_per_s()
    }
}

/// How long a rehearsal takes.
const LENGTH_S: f64 = 1.0;
/// The server's timers tell milliseconds.
const GAP_S_MIN: f64 = 0.001;
/// A percentile of a second takes some events.
const GAP_S_MAX: f64 = 0.1;
/// A floor may be taken for a run that has so many times its streams or events.
const EXCESS: f64 = 1.5;

/// What the client told too late, over all events of a rehearsal.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// What was played.
    pub rehearsal: Rehearsal,
    /// Events that were told, all streams together.
    pub num_events: u64,
    /// The median error, in seconds.
    pub p50_s: f64,
    /// The 99th percentile of the error, in seconds.
    pub p99_s: f64,
    /// Streams that did not end as they should.
    pub num_failed: usize,
}

impl Floor {
    /// Whether it is of as many streams as it says.
    pub fn is_trusted(&self) -> bool {
        self.num_failed == 0
    }
}

/// Why there is no floor.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// No loop-back server.
    #[error("cannot serve on the loop-back address: {0}")]
    Serve(#[source] io::Error),
    /// No client for it.
    #[error("cannot set up a client of the loop-back server: {0}")]
    Client(#[source] io::Error),
    /// Not one event arrived.
    #[error("no event of the loop-back server arrived; are there enough open files (ulimit -n)?")]
    Nothing,
    /// A header is none.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

/// Plays all streams of a rehearsal at once, over connections that are open before.
///
/// # Errors
///
/// If the loop-back cannot be served, or not one stream can be played. Of some that cannot, the floor tells.
///
/// # Cost
///
/// The pattern's duration, on `handle`'s runtime, and a thread for the server.
pub async fn rehearse(handle: &Handle, rehearsal: Rehearsal) -> Result<Floor, CalibrateError> {
    let Rehearsal {
        num_streams,
        pattern,
        transport,
    } = rehearsal;
    let server = Loopback::start(pattern, transport).map_err(CalibrateError::Serve)?;
    let client = client_of(&server, pattern)?;
    let epoch = server.epoch();
    let all_connected = Arc::new(Barrier::new(num_streams));
    let mut streams = Vec::with_capacity(num_streams);
    for _ in 0..num_streams {
        let stream = Stream {
            client: client.clone(),
            epoch,
            all_connected: Arc::clone(&all_connected),
        };
        streams.push(handle.spawn(stream.play()));
    }
    let mut errors = GapSketch::default();
    let mut num_failed = 0;
    for stream in streams {
        match stream.await {
            Ok(Some(of_stream)) => errors.merge(&of_stream),
            Ok(None) | Err(_) => num_failed += 1,
        }
    }
    let (p50, p99) = errors
        .quantile(0.5)
        .zip(errors.quantile(0.99))
        .ok_or(CalibrateError::Nothing)?;
    Ok(Floor {
        rehearsal,
        num_events: errors.len(),
        p50_s: p50,
        p99_s: p99,
        num_failed,
    })
}

/// One in so many events is left out at the beginning: that all streams begin at the same moment is the rehearsal's
/// doing, and the work of beginning is not that of listening.
const WARM_UP_SHARE: usize = 5;

/// One stream of a rehearsal.
struct Stream {
    client: Client,
    epoch: Instant,
    all_connected: Arc<Barrier>,
}

impl Stream {
    /// How late each event was told; none if the stream did not end as it should.
    async fn play(self) -> Option<GapSketch> {
        let connected = self.client.connect().await;
        // Whether or not: the others wait.
        self.all_connected.wait().await;
        let (connection, _) = connected.ok()?;
        let body = Bytes::from_static(b"{}");
        let request = self.client.post(Api::Chat.path(), &[], body).ok()?;
        let mut observation = Observation::new(LIMITS);
        observation.keep_text(usize::MAX);
        let cancel = CancellationToken::new();
        let waits = Waits {
            timeouts: self.client.timeouts,
            cancel: &cancel,
        };
        let exchanged = connection
            .exchange(request, observation, waits, |_| {})
            .await;
        let record = exchanged.record;
        let sent = exchanged.sent.saturating_duration_since(self.epoch);
        let mut errors = GapSketch::default();
        let text = record.text.as_deref().unwrap_or("");
        let events = record.marks.iter().zip(text.split_ascii_whitespace());
        for (mark, written) in events.skip(record.marks.len() / WARM_UP_SHARE) {
            let written = Duration::from_nanos(written.parse().unwrap_or(0));
            errors.add((sent + mark.at).saturating_sub(written).as_secs_f64());
        }
        (record.status == Status::Ok).then_some(errors)
    }
}

/// The client that is calibrated: the one of runs, but for the address, and for believing the server's certificate.
///
/// # Errors
///
/// If TLS cannot be set up.
pub fn client_of(server: &Loopback, pattern: Pattern) -> Result<Client, CalibrateError> {
    let Transport { protocol, scheme } = server.transport();
    let endpoint = Endpoint {
        scheme,
        host: server.address().ip().to_string(),
        port: server.address().port(),
        base_path: String::new(),
        api: Some(Api::Chat),
    };
    let wait = pattern.duration() + Duration::from_secs(30);
    Ok(Client {
        headers: Client::headers(&endpoint, None, &[])?,
        connector: Connector::tcp(&endpoint, protocol, Trust::Anybody)
            .map_err(CalibrateError::Client)?,
        endpoint,
        protocol,
        timeouts: Timeouts {
            connect: Duration::from_secs(10),
            first_token: wait,
            next_token: wait,
            total: wait,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Protocol, Scheme};

    #[tokio::test]
    async fn a_rehearsal_is_played_over_every_transport() {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            for scheme in [Scheme::Http, Scheme::Https] {
                let rehearsal = Rehearsal {
                    num_streams: 3,
                    pattern: Pattern {
                        num_events: 10,
                        gap: Duration::from_millis(1),
                    },
                    transport: Transport { protocol, scheme },
                };
                let floor = rehearse(&Handle::current(), rehearsal).await;
                let floor = floor.unwrap_or_else(|error| panic!("{rehearsal:?}: {error}"));
                assert_eq!(
                    (floor.num_failed, floor.num_events),
                    (0, 24),
                    "{rehearsal:?}"
                );
                assert!(floor.p50_s <= floor.p99_s);
            }
        }
    }

    #[test]
    fn a_rehearsal_has_the_rate_that_it_is_made_for() {
        let transport = Transport {
            protocol: Protocol::Http1,
            scheme: Scheme::Http,
        };
        let rehearsal = Rehearsal::of_rate(200, 8_000.0, transport);
        assert!((rehearsal.events_per_s() - 8_000.0).abs() < 1e-6);
        assert_eq!(rehearsal.pattern.num_events, 40);
        assert!(!rehearsal.is_exceeded_by(300, 12_000.0));
        assert!(rehearsal.is_exceeded_by(301, 100.0) && rehearsal.is_exceeded_by(1, 12_001.0));
    }
}
