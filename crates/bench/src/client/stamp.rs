//! What a connection knows of its times: when the bytes read last arrived, when the first byte was written.
//!
//! The one idea: time is taken below HTTP and TLS, at the read itself or before it (`socket`), before anybody has parsed
//! a byte. What the client then does with the bytes, and when it gets to it, no longer changes the figure.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Whatever carries bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// The times of one socket, in nanoseconds since `epoch`, plus 1: 0 is never.
#[derive(Debug)]
pub struct Stamps {
    epoch: Instant,
    last_read: AtomicU64,
    first_write: AtomicU64,
}

impl Stamps {
    /// No read, no write.
    pub fn new(epoch: Instant) -> Arc<Stamps> {
        Arc::new(Stamps {
            epoch,
            last_read: AtomicU64::new(0),
            first_write: AtomicU64::new(0),
        })
    }

    /// When the bytes that were read last arrived.
    pub fn last_read(&self) -> Option<Instant> {
        self.instant(&self.last_read)
    }

    /// When the first byte was written since [`Stamps::forget_write`].
    pub fn first_write(&self) -> Option<Instant> {
        self.instant(&self.first_write)
    }

    /// Bytes were read that arrived at `at`.
    pub fn read_at(&self, at: Instant) {
        self.last_read.store(self.stamp(at), Ordering::Relaxed);
    }

    /// Bytes are written now; only the first write since the last request counts.
    pub fn written(&self) {
        if self.first_write.load(Ordering::Relaxed) == 0 {
            let now = self.stamp(Instant::now());
            self.first_write.store(now, Ordering::Relaxed);
        }
    }

    /// A new request begins.
    pub fn forget_write(&self) {
        self.first_write.store(0, Ordering::Relaxed);
    }

    fn instant(&self, stamp: &AtomicU64) -> Option<Instant> {
        match stamp.load(Ordering::Relaxed) {
            0 => None,
            stamp => Some(self.epoch + std::time::Duration::from_nanos(stamp - 1)),
        }
    }

    fn stamp(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos() + 1).unwrap_or(u64::MAX)
    }
}

/// Anything that carries bytes, stamped when it is read.
#[derive(Debug)]
pub struct Stamped<S> {
    inner: S,
    stamps: Arc<Stamps>,
}

impl<S> Stamped<S> {
    /// Stamps what passes through `inner`.
    pub fn new(inner: S, stamps: Arc<Stamps>) -> Stamped<S> {
        Stamped { inner, stamps }
    }
}

impl<S: Io> AsyncRead for Stamped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let num_before = buffer.filled().len();
        let outcome = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > num_before {
            self.stamps.read_at(Instant::now());
        }
        outcome
    }
}

impl<S: Io> AsyncWrite for Stamped<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stamps.written();
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stamps.written();
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
