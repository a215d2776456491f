//! A server of streams with time stamps, on a thread and a processor of its own, over the transport of the run that it
//! stands in for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answers::{Answers, serve_http1, serve_http2};
use crate::client::{Client, Protocol, Scheme};

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

/// How bytes travel: what a loop-back server must do as the real one does, for the client's work to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Over which HTTP.
    pub protocol: Protocol,
    /// Whether inside TLS.
    pub scheme: Scheme,
}

impl Transport {
    /// That of a client.
    pub fn of(client: &Client) -> Transport {
        Transport {
            protocol: client.protocol,
            scheme: client.endpoint.scheme,
        }
    }

    /// `HTTP/1.1`, `HTTP/2 over TLS`.
    pub fn name(self) -> &'static str {
        match (self.protocol, self.scheme) {
            (Protocol::Http1, Scheme::Http) => "HTTP/1.1",
            (Protocol::Http1, Scheme::Https) => "HTTP/1.1 over TLS",
            (Protocol::Http2, Scheme::Http) => "HTTP/2",
            (Protocol::Http2, Scheme::Https) => "HTTP/2 over TLS",
        }
    }
}

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct Loopback {
    address: SocketAddr,
    transport: Transport,
    epoch: Instant,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Serves `pattern` on a free port of the loop-back address, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If there is no port, no thread or, for TLS, no certificate.
    pub fn start(pattern: Pattern, transport: Transport) -> io::Result<Loopback> {
        let tls = match transport.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(acceptor(transport.protocol)?),
        };
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
                let answers = Answers {
                    pattern,
                    // Streams that all write at the same moment would measure a burst that no server makes.
                    phase: pattern.gap * (num_streams % PHASES) / PHASES,
                    epoch,
                };
                let answering = answer_all(stream, tls.clone(), transport.protocol, answers);
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
            transport,
            epoch,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it is spoken to.
    pub fn transport(&self) -> Transport {
        self.transport
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

async fn answer_all(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    protocol: Protocol,
    answers: Answers,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match (tls, protocol) {
        (None, Protocol::Http1) => serve_http1(stream, answers).await,
        (None, Protocol::Http2) => serve_http2(stream, answers).await,
        (Some(tls), Protocol::Http1) => serve_http1(tls.accept(stream).await?, answers).await,
        (Some(tls), Protocol::Http2) => serve_http2(tls.accept(stream).await?, answers).await,
    }
}

/// TLS with a certificate that is made for the purpose and forgotten.
fn acceptor(protocol: Protocol) -> io::Result<TlsAcceptor> {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    Ok(TlsAcceptor::from(Arc::new(config)))
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

/// Streams begin at so many different moments of a gap.
const PHASES: u32 = 64;
