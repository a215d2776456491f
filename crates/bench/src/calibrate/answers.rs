//! What the loop-back server answers: a stream of events of a usual size whose texts are the times at which they were
//! written.
//!
//! HTTP/1.1 is as fast as a socket allows: it parses no more than where a request ends. HTTP/2 needs a library.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep_until};

use super::loopback::Pattern;
use crate::client::Io;

/// All answers of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answers {
    pub pattern: Pattern,
    /// By how much its events come later than those of others.
    pub phase: Duration,
    /// Stamps are nanoseconds since.
    pub epoch: Instant,
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const REQUEST_BYTES_MAX: usize = 1 << 20;

pub(super) async fn serve_http1(mut stream: impl Io + 'static, answers: Answers) -> io::Result<()> {
    let Pattern { num_events, gap } = answers.pattern;
    let mut received = Vec::new();
    while next_request(&mut stream, &mut received).await? {
        let mut out = HEAD.to_vec();
        let begun = Instant::now() + answers.phase;
        for idx in 0..num_events {
            if !gap.is_zero() {
                sleep_until(begun + gap * idx).await;
            }
            push_chunk(&mut out, &answers.event_of_now());
            if !gap.is_zero() {
                stream.write_all(&out).await?;
                // TLS keeps what is not flushed.
                stream.flush().await?;
                out.clear();
            }
        }
        push_chunk(&mut out, &answers.end());
        push_chunk(&mut out, "");
        stream.write_all(&out).await?;
        stream.flush().await?;
    }
    Ok(())
}

pub(super) async fn serve_http2(stream: impl Io + 'static, answers: Answers) -> io::Result<()> {
    let answer = service_fn(move |_: Request<Incoming>| async move {
        let begun = Instant::now() + answers.phase;
        let body = Events {
            answers,
            begun,
            next: Some(0),
            timer: Box::pin(sleep_until(begun)),
        };
        let mut response = Response::new(body);
        let kind = hyper::header::HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok::<_, Infallible>(response)
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), answer)
        .await
        .map_err(io::Error::other)
}

/// The body of one answer over HTTP/2.
struct Events {
    answers: Answers,
    begun: Instant,
    /// The next event; none after the end.
    next: Option<u32>,
    timer: Pin<Box<Sleep>>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(idx) = self.next else {
            return Poll::Ready(None);
        };
        let Pattern { num_events, gap } = self.answers.pattern;
        let text = if idx < num_events {
            if !gap.is_zero() {
                ready!(self.timer.as_mut().poll(cx));
            }
            let then = self.begun + gap * (idx + 1);
            self.timer.as_mut().reset(then);
            self.next = Some(idx + 1);
            self.answers.event_of_now()
        } else {
            self.next = None;
            self.answers.end()
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}

impl Answers {
    fn event_of_now(&self) -> String {
        let nanos = self.epoch.elapsed().as_nanos();
        format!(
            "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":0,\
             \"model\":\"loop-back\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{nanos} \"}},\
             \"finish_reason\":null}}]}}\n\n"
        )
    }

    fn end(&self) -> String {
        let num_events = self.pattern.num_events;
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"length\"}}],\"usage\":\
             {{\"prompt_tokens\":1,\"completion_tokens\":{num_events}}}}}\n\ndata: [DONE]\n\n"
        )
    }
}

fn push_chunk(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
}

/// Reads to the end of a request; false if there is no more.
async fn next_request(
    stream: &mut (impl Io + 'static),
    received: &mut Vec<u8>,
) -> io::Result<bool> {
    loop {
        if let Some(end) = end_of_request(received) {
            received.drain(..end);
            return Ok(true);
        }
        if received.len() > REQUEST_BYTES_MAX || stream.read_buf(received).await? == 0 {
            return Ok(false);
        }
    }
}

/// Where the first request in `received` ends, if all of it is there.
fn end_of_request(received: &[u8]) -> Option<usize> {
    let head_end = received
        .windows(4)
        .position(|window| window == b"\r\n\r\n")?
        + 4;
    let head = String::from_utf8_lossy(&received[..head_end]).to_ascii_lowercase();
    let num_body_bytes: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    let end = head_end + num_body_bytes;
    (received.len() >= end).then_some(end)
}
