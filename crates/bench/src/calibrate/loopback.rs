//! A server of streams with time stamps, as fast as a socket allows: it parses no more of HTTP than where a request
//! ends.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// What every answer is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Content events of an answer.
    pub num_events: u32,
    /// From one to the next; zero sends all in one write.
    pub gap: Duration,
}

impl Pattern {
    /// From the request to the last event.
    pub fn duration(&self) -> Duration {
        self.gap * self.num_events
    }
}

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct Loopback {
    address: SocketAddr,
    epoch: Instant,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Serves `pattern` on a free port of the loop-back address, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If there is no port or no thread.
    pub fn start(pattern: Pattern) -> io::Result<Loopback> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let epoch = Instant::now();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serving = async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            let mut num_streams: u32 = 0;
            while let Some(Ok((stream, _))) = stopped.run_until_cancelled(listener.accept()).await {
                num_streams = num_streams.wrapping_add(1);
                // Streams that all write at the same moment would measure a burst that no server makes.
                let phase = pattern.gap * (num_streams % PHASES) / PHASES;
                let answering = answer_all(stream, pattern, phase, epoch);
                let stopped = stopped.clone();
                tokio::spawn(async move { stopped.run_until_cancelled(answering).await });
            }
        };
        let thread = std::thread::Builder::new()
            .name("loop-back".to_owned())
            .spawn(move || {
                keep_to(Processor::Last);
                runtime.block_on(serving);
            })?;
        Ok(Loopback {
            address,
            epoch,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its stamps are nanoseconds since.
    pub fn epoch(&self) -> Instant {
        self.epoch
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It ends at its next wake-up; a panic in it has been told already.
            let _ = thread.join();
        }
    }
}

/// A processor of those that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// The first.
    First,
    /// The last; the first one's other if there are two.
    Last,
}

/// Keeps the thread that calls to one processor; with a single one there is nothing to choose. Schedulers like to wake
/// a reader beside its writer, on the same processor: each then waits for the other, which no client and server on two
/// machines do.
pub fn keep_to(processor: Processor) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(usable) = sched_getaffinity(None) else {
        return;
    };
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&idx| usable.is_set(idx));
    let chosen = match processor {
        Processor::First => usable.next(),
        Processor::Last => usable.next_back(),
    };
    if let Some(idx) = chosen {
        let mut only = CpuSet::new();
        only.set(idx);
        // Without it the measurement is a worse one, not a wrong one.
        let _ = sched_setaffinity(None, &only);
    }
}

const PHASES: u32 = 64;
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const REQUEST_BYTES_MAX: usize = 1 << 20;

async fn answer_all(
    mut stream: TcpStream,
    pattern: Pattern,
    phase: Duration,
    epoch: Instant,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    while next_request(&mut stream, &mut received).await? {
        let mut out = HEAD.to_vec();
        let begun = Instant::now() + phase;
        for idx in 0..pattern.num_events {
            if !pattern.gap.is_zero() {
                sleep_until(begun + pattern.gap * idx).await;
            }
            push_event(&mut out, epoch.elapsed().as_nanos());
            if !pattern.gap.is_zero() {
                stream.write_all(&out).await?;
                out.clear();
            }
        }
        push_chunk(
            &mut out,
            &format!(
                "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"length\"}}],\"usage\":\
                 {{\"prompt_tokens\":1,\"completion_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
                pattern.num_events
            ),
        );
        push_chunk(&mut out, "");
        stream.write_all(&out).await?;
    }
    Ok(())
}

/// An event of a usual size whose text is the time.
fn push_event(out: &mut Vec<u8>, nanos: u128) {
    push_chunk(
        out,
        &format!(
            "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":0,\
             \"model\":\"loop-back\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{nanos} \"}},\
             \"finish_reason\":null}}]}}\n\n"
        ),
    );
}

fn push_chunk(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
}

/// Reads to the end of a request; false if there is no more.
async fn next_request(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<bool> {
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
