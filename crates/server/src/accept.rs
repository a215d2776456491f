//! The accept loop: one task per connection, a bounded number of them.
//!
//! Our own and not axum's, for what that one does not offer: TCP_NODELAY (a token must
//! not wait for the next), a limit on connections with an answer for the one too many,
//! clocks on heads and stalls, and an orderly end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::socket::Socket;
use crate::state::Shared;

/// What the one connection too many hears.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 115\r\n\r\n\
    {\"error\":{\"message\":\"too many connections\",\"type\":\"unavailable_error\",\"param\":null,\"code\":\"too_many_connections\"}}\n";

/// After `accept` fails for want of file descriptors, trying again at once would only
/// burn the processor that could free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// HTTP/1 read buffer; above the head's own limit, so that our answer (with a body) comes
/// before the library's (without).
const READ_BUFFER_BYTES: usize = 256 * 1024;

/// Streams of one HTTP/2 connection: each is a request of its own.
const NUM_STREAMS_MAX: u32 = 128;

/// Accepts until `closing` is cancelled, then lets connections end until `cut` is, and
/// cuts the rest. The listener is closed as soon as the first happens.
pub(crate) async fn run(
    listener: TcpListener,
    router: Router,
    shared: Arc<Shared>,
    closing: CancellationToken,
    cut: CancellationToken,
) {
    let limits = shared.config.limits;
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.num_connections_max));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = closing.cancelled() => break,
            // Reaps finished tasks, so that the set does not grow.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            },
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let connection = Connection {
                    stream,
                    place,
                    router: router.clone(),
                    shared: Arc::clone(&shared),
                    watcher: graceful.watcher(),
                };
                connections.spawn(connection.serve());
            }
            Err(_full) => refuse(stream),
        }
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = cut.cancelled() => {}
    }
    connections.shutdown().await;
}

async fn pause_after(error: &io::Error) {
    // A client that gave up between the handshake and us is no reason to pause.
    let gave_up = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
    ];
    if !gave_up.contains(&error.kind()) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Says why, if the socket takes it at once; waits for nothing.
fn refuse(stream: TcpStream) {
    // A fresh socket's send buffer is empty: this cannot be partial in practice, and if
    // it fails the connection is closed just the same.
    let _ = stream.try_write(FULL);
}

/// One accepted connection and its place among the allowed ones.
struct Connection {
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    router: Router,
    shared: Arc<Shared>,
    watcher: Watcher,
}

impl Connection {
    async fn serve(self) {
        let Connection {
            stream,
            place,
            router,
            shared,
            watcher,
        } = self;
        let limits = &shared.config.limits;
        let open = Open::new(Arc::clone(&shared));
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let socket = Socket::new(stream, limits.header_read, limits.write_stall);
        let http = http(limits);
        let serving = http.serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
        // Clients break connections in every possible way; none of it is news.
        if let Err(error) = watcher.watch(serving.into_owned()).await {
            tracing::debug!(%error, "connection ended");
        }
        drop(open);
        drop(place);
    }
}

fn http(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_buf_size(READ_BUFFER_BYTES);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keep_alive)
        .max_header_list_size(u32::try_from(READ_BUFFER_BYTES).expect("a small constant"))
        .max_concurrent_streams(NUM_STREAMS_MAX);
    http
}

/// Counts a connection while it is open.
struct Open {
    shared: Arc<Shared>,
}

impl Open {
    fn new(shared: Arc<Shared>) -> Open {
        shared.metrics.connection_opened();
        Open { shared }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.metrics.connection_closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_says_how_long_its_body_is() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.split("\r\n").any(|line| line == length), "{length}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
