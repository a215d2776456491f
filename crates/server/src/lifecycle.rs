//! From an open port to an orderly end.
//!
//! ```text
//! bind ─▶ listen, 503 while loading ─▶ ready ─▶ told to stop
//!                                                 │ new requests 503, readiness off
//!                                                 ▼
//!                          running answers go on, at most `drain_limit`
//!                                                 │ the rest ends with an error event,
//!                                                 │ if need be without the engine
//!                                                 ▼
//!                          close the port, flush, cut ─▶ Outcome::Drained
//!
//! told again at any time ─▶ Outcome::Stopped, at once
//! ```
//!
//! The port is open before the model is there, so that whoever waits for readiness gets an
//! answer and not a refused connection; and it stays open while draining, so that
//! readiness can be seen to go.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle as Task;
use tokio_util::sync::CancellationToken;

use crate::accept;
use crate::config::{LoadError, LoadedModel, ServerConfig, Signals};
use crate::metrics::EngineObserver;
use crate::routes;
use crate::state::{Phase, Serving, Shared};

/// Why a server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There must be a name to serve the model under.
    #[error("no served name is configured")]
    NoName,
    /// An allowed origin is not what browsers call an origin, so it would never match.
    #[error(
        "{origin:?} is no origin: as in https://app.example or http://localhost:3000, or * for any"
    )]
    BadOrigin {
        /// As configured.
        origin: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The HTTP threads or the signal handlers cannot be set up.
    #[error("cannot set up {what}")]
    Setup {
        /// Which.
        what: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The model cannot be loaded.
    #[error("cannot load the model")]
    Load {
        /// What the loader says.
        #[source]
        source: LoadError,
    },
    /// The loader panicked.
    #[error("loading the model panicked")]
    LoadPanicked,
    /// The engine thread ended although nobody told it to.
    #[error("the engine thread ended unexpectedly")]
    EngineEnded,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Told to stop; running answers were finished or ended explicitly.
    Drained,
    /// Told twice: ended at once.
    Stopped,
}

/// How urgently the server is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    Drain,
    Now,
}

/// Tells a server to stop. Cheap to clone.
#[derive(Clone)]
pub struct ShutdownHandle {
    stop: watch::Sender<Stop>,
}

impl fmt::Debug for ShutdownHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ShutdownHandle")
    }
}

impl ShutdownHandle {
    /// As a signal does: drains the first time, stops at once the second.
    pub fn signal(&self) {
        self.stop.send_modify(|stop| {
            *stop = match stop {
                Stop::No => Stop::Drain,
                Stop::Drain | Stop::Now => Stop::Now,
            };
        });
    }

    /// Resolves once the server is told to stop at least this urgently.
    async fn told(&self, urgency: Stop) {
        let mut stop = self.stop.subscribe();
        let told = stop.wait_for(|stop| *stop >= urgency).await;
        told.expect("this handle keeps the sender alive");
    }
}

/// A server that has its port and is not running yet.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    shutdown: ShutdownHandle,
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Binds and runs: what `fulcrum serve` does. `load` runs on a thread of its own while the
/// port already answers; `announce` hears of each phase as it begins.
///
/// # Errors
///
/// What [`ServeError`] lists.
pub fn run(
    config: ServerConfig,
    load: impl FnOnce() -> Result<LoadedModel, LoadError> + Send + 'static,
    announce: impl Fn(Phase, SocketAddr) + Send + Sync + 'static,
) -> Result<Outcome, ServeError> {
    Server::bind(config)?.run(load, announce)
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    ///
    /// [`ServeError::NoName`], [`ServeError::BadOrigin`] and [`ServeError::Bind`].
    pub fn bind(config: ServerConfig) -> Result<Server, ServeError> {
        if config.served_names.is_empty() {
            return Err(ServeError::NoName);
        }
        if let Some(origin) = config.allowed_origins.iter().find(|it| !is_origin(it)) {
            let origin = origin.clone();
            return Err(ServeError::BadOrigin { origin });
        }
        let address = config.address;
        let bound = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = bound.map_err(|source| ServeError::Bind { address, source })?;
        Ok(Server {
            listener,
            address,
            shared: Arc::new(Shared::new(config)),
            shutdown: ShutdownHandle {
                stop: watch::Sender::new(Stop::No),
            },
        })
    }

    /// Where it listens; the real port if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells this server to stop, from any thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Serves until told to stop. See [`run`].
    ///
    /// # Errors
    ///
    /// What [`ServeError`] lists.
    pub fn run(
        self,
        load: impl FnOnce() -> Result<LoadedModel, LoadError> + Send + 'static,
        announce: impl Fn(Phase, SocketAddr) + Send + Sync + 'static,
    ) -> Result<Outcome, ServeError> {
        let runtime = http_runtime(self.shared.config.num_http_threads)?;
        let outcome = runtime.block_on(self.serve(load, announce));
        // A loader or an engine that is still busy must not hold up the end.
        runtime.shutdown_background();
        outcome
    }

    async fn serve(
        self,
        load: impl FnOnce() -> Result<LoadedModel, LoadError> + Send + 'static,
        announce: impl Fn(Phase, SocketAddr) + Send + Sync + 'static,
    ) -> Result<Outcome, ServeError> {
        let Server {
            listener,
            address,
            shared,
            shutdown,
        } = self;
        if shared.config.signals == Signals::Drain {
            watch_signals(shutdown.clone())?;
        }
        let front = Front::open(listener, &shared)?;
        announce(Phase::Loading, address);
        let result = tokio::select! {
            result = live(&shared, load, &shutdown, |phase| announce(phase, address)) => result,
            () = shutdown.told(Stop::Now) => Ok(Outcome::Stopped),
        };
        let grace = match result {
            // A dead engine has told every answer that it failed; clients are to hear it.
            Ok(Outcome::Drained) | Err(ServeError::EngineEnded) => Grace::Flush,
            Ok(Outcome::Stopped) | Err(_) => Grace::None,
        };
        tokio::select! {
            () = front.close(grace, &shared) => result,
            () = shutdown.told(Stop::Now) => Ok(Outcome::Stopped),
        }
    }
}

/// `*`, or scheme, host and maybe port with nothing behind: what a browser sends as `Origin`.
fn is_origin(origin: &str) -> bool {
    let host = origin.split_once("://").map(|(_scheme, host)| host);
    origin == "*"
        || host.is_some_and(|host| {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        })
}

/// The HTTP side has its own threads: the engine's never wait for a socket.
fn http_runtime(num_threads: usize) -> Result<Runtime, ServeError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(num_threads.max(1))
        .thread_name("fulcrum-http")
        .enable_all()
        .build()
        .map_err(|source| ServeError::Setup {
            what: "the HTTP threads",
            source,
        })
}

/// Loads, serves, drains; the answering itself happens in the connections' tasks.
async fn live(
    shared: &Arc<Shared>,
    load: impl FnOnce() -> Result<LoadedModel, LoadError> + Send + 'static,
    shutdown: &ShutdownHandle,
    announce: impl Fn(Phase),
) -> Result<Outcome, ServeError> {
    let loading = tokio::task::spawn_blocking(load);
    let loaded = tokio::select! {
        loaded = loading => loaded,
        // Nothing is running that could be finished.
        () = shutdown.told(Stop::Drain) => {
            shared.become_draining();
            announce(Phase::Draining);
            return Ok(Outcome::Drained);
        }
    };
    let model = loaded
        .map_err(|_panicked| ServeError::LoadPanicked)?
        .map_err(|source| ServeError::Load { source })?;
    let (serving, engine_thread) = start(model, shared);
    let engine = serving.engine.clone();
    let mut ended = join(engine_thread);
    shared.become_ready(serving);
    announce(Phase::Ready);
    tokio::select! {
        _ = &mut ended => {
            shared.become_draining();
            return Err(ServeError::EngineEnded);
        }
        () = shutdown.told(Stop::Drain) => {}
    }
    shared.become_draining();
    announce(Phase::Draining);
    engine.drain(shared.config.drain_limit);
    // At its limit the engine ends every answer itself, but only between two steps.
    let config = &shared.config;
    let overdue = config
        .drain_limit
        .saturating_add(config.limits.engine_overdue);
    // Unlike adding to `Instant::now()`, this takes a limit beyond the clock's end for none.
    let _ = tokio::time::timeout(overdue, ended).await;
    shared.cut.cancel();
    Ok(Outcome::Drained)
}

fn start(model: LoadedModel, shared: &Shared) -> (Serving, JoinHandle<()>) {
    let observer = Box::new(EngineObserver::new(shared.metrics.engine.clone()));
    let (engine, thread) = (model.start_engine)(observer);
    (
        Serving::new(model.tokenizer, model.template, engine, model.facts),
        thread,
    )
}

/// A thread's end as a future.
fn join(thread: JoinHandle<()>) -> Task<()> {
    tokio::task::spawn_blocking(move || {
        if thread.join().is_err() {
            tracing::error!("the engine thread panicked");
        }
    })
}

/// How connections are treated at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    /// Answers are complete; their last bytes may leave.
    Flush,
    /// Connections are cut.
    None,
}

/// The open port and its connections.
struct Front {
    accepting: Task<()>,
    closing: CancellationToken,
    cut: CancellationToken,
}

impl Front {
    fn open(listener: std::net::TcpListener, shared: &Arc<Shared>) -> Result<Front, ServeError> {
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(|source| ServeError::Setup {
                what: "the listening socket",
                source,
            })?;
        let router = routes::router(Arc::clone(shared));
        let (closing, cut) = (CancellationToken::new(), CancellationToken::new());
        let accepting = accept::run(
            listener,
            router,
            Arc::clone(shared),
            closing.clone(),
            cut.clone(),
        );
        Ok(Front {
            accepting: tokio::spawn(accepting),
            closing,
            cut,
        })
    }

    async fn close(self, grace: Grace, shared: &Shared) {
        self.closing.cancel();
        let mut accepting = self.accepting;
        if grace == Grace::Flush {
            let flush = shared.config.limits.flush;
            if tokio::time::timeout(flush, &mut accepting).await.is_ok() {
                return;
            }
        }
        self.cut.cancel();
        let _ = accepting.await;
    }
}

/// SIGTERM and SIGINT tell the server to stop.
#[cfg(unix)]
fn watch_signals(shutdown: ShutdownHandle) -> Result<(), ServeError> {
    use tokio::signal::unix::{SignalKind, signal};

    let setup = |source| ServeError::Setup {
        what: "the signal handlers",
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(setup)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(setup)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            shutdown.signal();
        }
    });
    Ok(())
}

/// Ctrl-C tells the server to stop.
#[cfg(not(unix))]
fn watch_signals(shutdown: ShutdownHandle) -> Result<(), ServeError> {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            shutdown.signal();
        }
    });
    Ok(())
}
