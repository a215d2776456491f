//! A connection's socket with two clocks that HTTP itself does not keep: the first bytes
//! must come soon (the protocol is guessed from them, and the guess waits for ever), and
//! a client must take what is written to it.
//!
//! Everything between, an idle or slow request head, is the HTTP library's own clock.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// Bytes after which the protocol is known: the HTTP/2 preface.
const PREFACE_BYTES: usize = 24;

/// The socket.
pub(crate) struct Socket {
    stream: TcpStream,
    /// Bytes read so far, as long as they are few.
    num_preface: usize,
    first_bytes: Pin<Box<Sleep>>,
    stall_limit: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// Needs a runtime with a clock.
    pub fn new(stream: TcpStream, first_bytes: Duration, stall_limit: Duration) -> Socket {
        Socket {
            stream,
            num_preface: 0,
            first_bytes: Box::pin(tokio::time::sleep(first_bytes)),
            stall_limit,
            stalled: None,
        }
    }

    /// Starts or stops the stall clock by how a write went.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let due = Instant::now() + self.stall_limit;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        std::task::ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes nothing",
        )))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let num_before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.num_preface >= PREFACE_BYTES {
            return read;
        }
        self.num_preface += buffer.filled().len() - num_before;
        if read.is_ready() {
            return read;
        }
        std::task::ready!(self.first_bytes.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client says nothing",
        )))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
