//! One connection and the exchanges over it.
//!
//! The one idea: connection and answer are polled by one task, the answer first. The connection reads its socket
//! only when what it read before has been taken, so the stamp of the last read is that of the bytes in hand.
//!
//! Nothing is retried here: an attempt that failed is an attempt, and its time is the user's.
//!
//! Not here: what the bytes mean (`observe`), who asks next (`load`).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::Opened;
use super::same_task::SameTask;
use super::stamp::Stamps;
use crate::observe::{Observation, Progress, Record, StreamEnd, Wait};

/// Which HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with keep-alive.
    Http1,
    /// HTTP/2, one connection for each user; without TLS by prior knowledge.
    Http2,
}

impl Protocol {
    /// As in `summary.json`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http/1.1",
            Protocol::Http2 => "http/2",
        }
    }
}

/// How long to wait for what. Each is its own, because a long answer is no slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To open a connection, TLS included.
    pub connect: Duration,
    /// From sent to the first content; comments do not count.
    pub first_token: Duration,
    /// Between two pieces of content; comments do not count.
    pub next_token: Duration,
    /// From sent to the end.
    pub total: Duration,
}

/// After the answer is known to be complete, its framing may take so long; then the connection is given up.
const DRAIN: Duration = Duration::from_secs(1);

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// An open connection.
pub struct Connection {
    sender: Sender,
    /// Moves bytes between the sender and the socket; none when it has ended.
    driver: Option<Driver>,
    stamps: Arc<Stamps>,
}

/// What an exchange yields.
#[derive(Debug)]
pub struct Exchanged {
    /// When its first byte was written, or it was tried.
    pub sent: Instant,
    /// What came.
    pub record: Record,
    /// The connection, if the next request may use it.
    pub connection: Option<Connection>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("is_open", &self.driver.is_some())
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Begins HTTP on an open socket.
    ///
    /// # Errors
    ///
    /// If the other side does not speak `protocol`.
    pub async fn begin(opened: Opened, protocol: Protocol) -> io::Result<Connection> {
        let Opened { io, stamps } = opened;
        let io = TokioIo::new(io);
        let (sender, driver): (Sender, Driver) = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::Builder::new()
                    .max_buf_size(READ_BYTES_MAX)
                    .handshake(io)
                    .await
                    .map_err(io::Error::other)?;
                (Sender::Http1(sender), Box::pin(connection))
            }
            Protocol::Http2 => {
                let parts = SameTask::default();
                let (sender, connection) = http2::Builder::new(parts.clone())
                    .initial_stream_window_size(WINDOW_BYTES)
                    .initial_connection_window_size(WINDOW_BYTES)
                    .handshake(io)
                    .await
                    .map_err(io::Error::other)?;
                (Sender::Http2(sender), Box::pin(parts.beside(connection)))
            }
        };
        Ok(Connection {
            sender,
            driver: Some(driver),
            stamps,
        })
    }

    /// Sends `request` and observes its answer until it ends, a wait is over or `cancel` is called. `arrived` is
    /// called with the number of content events of each read, for those who watch live.
    ///
    /// # Cost
    ///
    /// One timer for the whole exchange; nothing is spawned.
    pub async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
        mut observation: Observation,
        waits: Waits<'_>,
        mut arrived: impl FnMut(u64),
    ) -> Exchanged {
        self.stamps.forget_write();
        let begun = Instant::now();
        let mut patience = Patience::new(waits, begun);
        let head = self
            .until(&mut patience, |sender| sender.send(request))
            .await;
        let sent = self.stamps.first_write().unwrap_or(begun);
        let since_sent = |at: Instant| at.saturating_duration_since(sent);
        let mut body = match head {
            Ok(Ok(response)) => {
                let at = self.stamps.last_read().unwrap_or_else(Instant::now);
                observation.head(response.status().as_u16(), since_sent(at));
                if let Some(queue_ms) = queue_header(&response) {
                    observation.queued(queue_ms);
                }
                response.into_body()
            }
            failed => {
                let end = failed.err().unwrap_or(StreamEnd::Reset);
                let record = observation.finish(end, since_sent(Instant::now()));
                return Exchanged {
                    sent,
                    record,
                    connection: None,
                };
            }
        };
        let observing = self.observe(
            &mut body,
            &mut patience,
            |bytes, at| {
                let num_before = observation.num_marks();
                let progress = observation.read(bytes, since_sent(at));
                let num_new = observation.num_marks() - num_before;
                (num_new as u64, progress)
            },
            &mut arrived,
        );
        let end = observing.await;
        let ended = match end {
            StreamEnd::Done | StreamEnd::Closed => self.stamps.last_read(),
            _ => None,
        };
        let ended = since_sent(ended.unwrap_or_else(Instant::now));
        let is_whole = match end {
            StreamEnd::Closed => true,
            StreamEnd::Done => self.drain(&mut body).await,
            _ => false,
        };
        drop(body);
        Exchanged {
            sent,
            record: observation.finish(end, ended),
            connection: (is_whole && self.driver.is_some()).then_some(self),
        }
    }

    /// Hands every read of the body to `read`, which says how many content events were in it, until the end.
    async fn observe(
        &mut self,
        body: &mut Incoming,
        patience: &mut Patience<'_>,
        mut read: impl FnMut(&[u8], Instant) -> (u64, Progress),
        arrived: &mut impl FnMut(u64),
    ) -> StreamEnd {
        loop {
            let bytes = match self.until_frame(patience, body).await {
                Err(end) => return end,
                Ok(None) => return StreamEnd::Closed,
                Ok(Some(Err(_))) => return StreamEnd::Reset,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    Err(_trailers) => continue,
                },
            };
            let at = self.stamps.last_read().unwrap_or_else(Instant::now);
            let (num_events, progress) = read(&bytes, at);
            if num_events > 0 {
                patience.content_arrived(at);
                arrived(num_events);
            }
            if progress == Progress::Done {
                return StreamEnd::Done;
            }
            // A server that never pauses leaves the timer no turn.
            if let Some(end) = patience.over_at(at) {
                return end;
            }
        }
    }

    /// Sends `request` and reads its whole answer of at most `num_bytes_max`: for questions that are not measured.
    ///
    /// # Errors
    ///
    /// If there is no whole answer within the total time and the bound.
    pub async fn fetch(
        &mut self,
        request: Request<Full<Bytes>>,
        num_bytes_max: usize,
        waits: Waits<'_>,
    ) -> io::Result<(u16, Bytes)> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let mut patience = Patience::new(waits, Instant::now());
        let response = self
            .until(&mut patience, |sender| sender.send(request))
            .await
            .map_err(late)?
            .map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = self
            .until_frame(&mut patience, &mut body)
            .await
            .map_err(late)?
        {
            if let Ok(more) = frame.map_err(io::Error::other)?.into_data() {
                if bytes.len() + more.len() > num_bytes_max {
                    return Err(io::Error::from(io::ErrorKind::FileTooLarge));
                }
                bytes.extend_from_slice(&more);
            }
        }
        Ok((status, Bytes::from(bytes)))
    }

    /// Whether the other side has not closed while nobody asked.
    pub async fn is_usable(&mut self) -> bool {
        // One look at the socket: a close that has arrived is seen, and one that arrives later is the server's race.
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })
        .await;
        self.driver.is_some()
            && match &self.sender {
                Sender::Http1(sender) => !sender.is_closed(),
                Sender::Http2(sender) => !sender.is_closed(),
            }
    }

    fn drive(&mut self, cx: &mut std::task::Context<'_>) {
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(cx).is_ready()
        {
            self.driver = None;
        }
    }

    /// The head of the answer, or why nobody waits for it any more.
    async fn until<F, T>(
        &mut self,
        patience: &mut Patience<'_>,
        send: impl FnOnce(&mut Sender) -> F,
    ) -> Result<T, StreamEnd>
    where
        F: Future<Output = T>,
    {
        let mut work = pin!(send(&mut self.sender));
        let driver = &mut self.driver;
        poll_fn(|cx| {
            if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(outcome));
            }
            if let Some(moving) = driver {
                if moving.as_mut().poll(cx).is_ready() {
                    *driver = None;
                }
                if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                    return Poll::Ready(Ok(outcome));
                }
            }
            patience.poll(cx).map(Err)
        })
        .await
    }

    /// The next frame of the body, or why nobody waits for it any more.
    async fn until_frame(
        &mut self,
        patience: &mut Patience<'_>,
        body: &mut Incoming,
    ) -> Result<Option<hyper::Result<hyper::body::Frame<Bytes>>>, StreamEnd> {
        self.until(patience, |_| body.frame()).await
    }

    /// Reads the end of a body that has said everything, so that the connection can be used again.
    async fn drain(&mut self, body: &mut Incoming) -> bool {
        let deadline = Instant::now() + DRAIN;
        let rest = async {
            loop {
                let frame = poll_fn(|cx| {
                    let mut frame = pin!(body.frame());
                    if let Poll::Ready(frame) = frame.as_mut().poll(cx) {
                        return Poll::Ready(frame);
                    }
                    self.drive(cx);
                    frame.poll(cx)
                })
                .await;
                match frame {
                    None => return true,
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return false,
                }
            }
        };
        timeout_at(deadline, rest).await.unwrap_or(false)
    }
}

impl Sender {
    fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>> {
        match self {
            Sender::Http1(sender) => Box::pin(sender.send_request(request)),
            Sender::Http2(sender) => Box::pin(sender.send_request(request)),
        }
    }
}

/// How long an exchange may take, and who may end it.
#[derive(Clone, Copy, Debug)]
pub struct Waits<'a> {
    /// By time.
    pub timeouts: Timeouts,
    /// By will.
    pub cancel: &'a CancellationToken,
}

/// The deadlines of an exchange on one timer: content moves a deadline later without touching the timer, which
/// looks again when it fires.
struct Patience<'a> {
    timeouts: Timeouts,
    begun: Instant,
    last_content: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    cancel: &'a CancellationToken,
    /// One for the whole exchange: each has a place in the token's list.
    cancelled: Pin<Box<WaitForCancellationFuture<'a>>>,
}

impl<'a> Patience<'a> {
    fn new(waits: Waits<'a>, begun: Instant) -> Patience<'a> {
        let mut patience = Patience {
            timeouts: waits.timeouts,
            begun,
            last_content: None,
            timer: Box::pin(sleep_until(begun)),
            cancel: waits.cancel,
            cancelled: Box::pin(waits.cancel.cancelled()),
        };
        let (deadline, _) = patience.deadline();
        patience.timer.as_mut().reset(deadline);
        patience
    }

    fn content_arrived(&mut self, at: Instant) {
        self.last_content = Some(at);
        let (deadline, _) = self.deadline();
        if deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
    }

    fn deadline(&self) -> (Instant, Wait) {
        let total = (self.begun + self.timeouts.total, Wait::Total);
        let content = match self.last_content {
            None => (self.begun + self.timeouts.first_token, Wait::FirstToken),
            Some(at) => (at + self.timeouts.next_token, Wait::NextToken),
        };
        if content.0 < total.0 { content } else { total }
    }

    /// Why nobody waits any more at `now`.
    fn over_at(&self, now: Instant) -> Option<StreamEnd> {
        if self.cancel.is_cancelled() {
            return Some(StreamEnd::Cancelled);
        }
        let (deadline, wait) = self.deadline();
        (deadline <= now).then_some(StreamEnd::TimedOut(wait))
    }

    /// The same, as soon as it is so.
    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> Poll<StreamEnd> {
        if self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(StreamEnd::Cancelled);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if let Some(end) = self.over_at(Instant::now()) {
                return Poll::Ready(end);
            }
            let (deadline, _) = self.deadline();
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// Milliseconds in the queue, as some servers tell in a header.
fn queue_header(response: &Response<Incoming>) -> Option<f64> {
    let header = response.headers().get("x-queue-time")?;
    header.to_str().ok()?.trim().parse().ok()
}

/// One event of a megabyte must pass, and its head with it.
const READ_BYTES_MAX: usize = 1 << 20;
/// So that the server never waits for a window: the load is the answer, not the client's flow control.
const WINDOW_BYTES: u32 = 4 << 20;
