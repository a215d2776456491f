//! What the client itself can do: the same client against a server that is known to be fast.
//!
//! The one idea: the server writes into each event when it wrote it, by a clock that both share. What the client
//! tells of the arrival, minus that, is the client's error, the kernel's loop-back included. A run whose figures are
//! not well above it measured the client.
//!
//! Not here: how late the client was beside the real server (`load::Pulse`).

// The server.
mod loopback;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{
    Api, Client, Connector, Endpoint, HeaderError, Protocol, Timeouts, Trust, Waits,
};
use crate::observe::{LIMITS, Observation, Status};
use crate::sample::GapSketch;

pub use self::loopback::{Loopback, Pattern, Processor, keep_to};

/// What the client told too late, over all events of a rehearsal.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// Streams at once.
    pub num_streams: usize,
    /// Events that were told, all streams together.
    pub num_events: u64,
    /// A second, all streams together.
    pub events_per_s: f64,
    /// The median error, in seconds.
    pub p50_s: f64,
    /// The 99th percentile of the error, in seconds.
    pub p99_s: f64,
    /// Streams that did not end as they should.
    pub num_failed: usize,
}

/// Why there is no floor.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// No loop-back server.
    #[error("cannot serve on the loop-back address: {0}")]
    Serve(#[source] io::Error),
    /// No connection to it.
    #[error(
        "cannot connect to the loop-back server: {0}; are there enough open files (ulimit -n)?"
    )]
    Connect(#[source] io::Error),
    /// Not one event arrived.
    #[error("no event of the loop-back server arrived")]
    Nothing,
    /// A header is none.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

/// Plays `num_streams` streams of `pattern` at once, over connections that are open before.
///
/// # Errors
///
/// If the loop-back cannot be served or reached.
///
/// # Cost
///
/// The pattern's duration, on `handle`'s runtime, and a thread for the server.
pub async fn rehearse(
    handle: &Handle,
    num_streams: usize,
    pattern: Pattern,
) -> Result<Floor, CalibrateError> {
    let server = Loopback::start(pattern).map_err(CalibrateError::Serve)?;
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
    let begun = Instant::now();
    let mut errors = GapSketch::default();
    let mut num_failed = 0;
    for stream in streams {
        match stream.await {
            Ok(Ok((of_stream, is_ok))) => {
                errors.merge(&of_stream);
                num_failed += usize::from(!is_ok);
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => num_failed += 1,
        }
    }
    let (p50, p99) = errors
        .quantile(0.5)
        .zip(errors.quantile(0.99))
        .ok_or(CalibrateError::Nothing)?;
    Ok(Floor {
        num_streams,
        num_events: errors.len(),
        events_per_s: errors.len() as f64 / begun.elapsed().as_secs_f64(),
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
    /// How late each event was told, and whether the stream ended as it should.
    async fn play(self) -> Result<(GapSketch, bool), CalibrateError> {
        let connected = self.client.connect().await;
        // Whether or not: the others wait.
        self.all_connected.wait().await;
        let (connection, _) = connected.map_err(CalibrateError::Connect)?;
        let body = Bytes::from_static(b"{}");
        let request = self.client.post(Api::Chat.path(), &[], body)?;
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
        Ok((errors, record.status == Status::Ok))
    }
}

/// The client that is calibrated: the one of runs, but for the address.
///
/// # Errors
///
/// If TLS, which is not used, cannot be set up.
pub fn client_of(server: &Loopback, pattern: Pattern) -> Result<Client, CalibrateError> {
    let endpoint = Endpoint {
        scheme: crate::client::Scheme::Http,
        host: server.address().ip().to_string(),
        port: server.address().port(),
        base_path: String::new(),
        api: Some(Api::Chat),
    };
    let wait = pattern.duration() + Duration::from_secs(30);
    Ok(Client {
        headers: Client::headers(&endpoint, None, &[])?,
        connector: Connector::tcp(&endpoint, Protocol::Http1, Trust::Platform)
            .map_err(CalibrateError::Connect)?,
        endpoint,
        protocol: Protocol::Http1,
        timeouts: Timeouts {
            connect: Duration::from_secs(10),
            first_token: wait,
            next_token: wait,
            total: wait,
        },
    })
}
