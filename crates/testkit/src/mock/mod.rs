//! A server that plays scripts: bytes, each after a while. It answers well, badly or not at all.
//!
//! The one idea: it runs over anything that carries bytes, and its only clock is the runtime's. So over a pipe in
//! memory under a paused clock, an hour of load takes a second, and every measured time has a known truth.
//!
//! Not here: what a model would say.

// Servers with queues, slots and limits of their own.
pub mod queueing;

// A whole small endpoint.
pub mod endpoint;

// On a port.
pub mod tcp;

// Pieces of OpenAI's streams.
pub mod wire;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes, `after` a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long to wait first.
    pub after: Duration,
    /// What to write then.
    pub bytes: Vec<u8>,
}

/// What happens when all steps are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection waits for the next request.
    KeepOpen,
    /// The connection is closed.
    Close,
    /// Nothing ever happens again.
    Hang,
}

/// One answer.
#[derive(Debug)]
pub struct Script {
    /// In order.
    pub steps: Vec<Step>,
    /// After them.
    pub end: End,
    /// Let go of when the steps are played: a place in a server's queue, for example.
    pub held: Option<Box<dyn std::any::Any + Send>>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How many requests this server had before.
    pub number: usize,
    /// Request line and headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Asked {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }

    /// Whether the request is for `route`.
    pub fn is_for(&self, route: &str) -> bool {
        self.head.split(' ').nth(1) == Some(route)
    }
}

/// A server: what it answers, on every connection.
pub struct Mock<F> {
    answer: F,
    num_asked: AtomicUsize,
}

impl<F, A> Mock<F>
where
    F: Fn(Asked) -> A + Send + Sync + 'static,
    A: Future<Output = Script> + Send + 'static,
{
    /// A server that answers by `answer`.
    pub fn new(answer: F) -> Arc<Mock<F>> {
        Arc::new(Mock {
            answer,
            num_asked: AtomicUsize::new(0),
        })
    }

    /// One end of a new connection in memory; the other is served.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub fn connect(self: &Arc<Self>) -> tokio::io::DuplexStream {
        let (near, far) = tokio::io::duplex(1 << 20);
        let server = Arc::clone(self);
        tokio::spawn(async move { server.serve(far).await });
        near
    }

    /// Answers requests on `stream` until one of the two sides has enough.
    pub async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut received = Vec::new();
        while let Some(asked) = self.next_request(&mut stream, &mut received).await {
            let mut script = (self.answer)(asked).await;
            for step in &script.steps {
                if !step.after.is_zero() {
                    tokio::time::sleep(step.after).await;
                }
                let written = stream.write_all(&step.bytes).await;
                if written.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
            script.held = None;
            match script.end {
                End::KeepOpen => {}
                End::Close => return,
                End::Hang => std::future::pending().await,
            }
        }
    }

    async fn next_request(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        received: &mut Vec<u8>,
    ) -> Option<Asked> {
        loop {
            if let Some(at) = find(received, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&received[..at]).into_owned();
                let num_body_bytes = content_length(&head);
                if received.len() >= at + 4 + num_body_bytes {
                    let body = received[at + 4..at + 4 + num_body_bytes].to_vec();
                    received.drain(..at + 4 + num_body_bytes);
                    let number = self.num_asked.fetch_add(1, Ordering::Relaxed);
                    return Some(Asked { number, head, body });
                }
            }
            if stream.read_buf(received).await.ok()? == 0 {
                return None;
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn content_length(head: &str) -> usize {
    let mut lines = head.lines();
    lines
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().ok())?
        })
        .unwrap_or(0)
}
