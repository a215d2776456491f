//! How things are asked: connections to one endpoint, and requests over them.
//!
//! The one idea: every user has a connection of its own, as browsers and agents do, so no pool of the client's limits
//! the load, and each socket carries its own time stamps.
//!
//! Not here: who asks when (`load`), what answers mean (`observe`).

// Where to ask.
mod endpoint;

// When bytes arrived and when they left.
mod stamp;

// A TCP socket whose reads are stamped by the kernel.
mod socket;

// Futures that are polled together.
mod same_task;

// Whom to believe.
mod tls;

// One connection and the exchanges over it.
mod connection;

// What a request says.
mod body;

// What the endpoint is able to do.
mod probe;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

pub use self::body::{Asked, Dialect};
pub use self::connection::{Connection, Exchanged, Protocol, Timeouts, Waits};
pub use self::endpoint::{Api, Endpoint, EndpointError, Scheme};
pub use self::probe::{ProbeError, Probed, Tokenizes, count_chats, count_tokens, probe};
use self::socket::Socket;
pub use self::stamp::Io;
use self::stamp::{Stamped, Stamps};
pub use self::tls::Trust;

/// Opens sockets; tests put their own here.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn() -> Opening + Send + Sync>);

type Opening = Pin<Box<dyn Future<Output = io::Result<Opened>> + Send>>;

/// An open socket and its stamps.
pub struct Opened {
    io: Box<dyn Io>,
    stamps: Arc<Stamps>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("stamps", &self.stamps)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    /// Whatever `open` opens.
    pub fn from_fn<F, S>(open: impl Fn() -> F + Send + Sync + 'static) -> Connector
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Io + 'static,
    {
        Connector(Arc::new(move || {
            let opening = open();
            Box::pin(async move {
                let stamps = Stamps::new(Instant::now());
                let io = Stamped::new(opening.await?, Arc::clone(&stamps));
                Ok(Opened {
                    io: Box::new(io),
                    stamps,
                })
            })
        }))
    }

    /// Sockets of TCP, with TLS if the endpoint says so. Names are resolved at every opening, and every address
    /// is tried.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn tcp(endpoint: &Endpoint, protocol: Protocol, trust: Trust) -> io::Result<Connector> {
        let address = (endpoint.host.clone(), endpoint.port);
        let tls = match endpoint.scheme {
            Scheme::Http => None,
            Scheme::Https => Some((
                tls::connector(trust, protocol)?,
                tls::server_name(&endpoint.host)?,
            )),
        };
        Ok(Connector(Arc::new(move || {
            let (host, port) = address.clone();
            let tls = tls.clone();
            Box::pin(async move {
                let socket = TcpStream::connect((host.as_str(), port)).await?;
                // Requests are small and users impatient.
                socket.set_nodelay(true)?;
                let stamps = Stamps::new(Instant::now());
                let socket = Socket::new(socket, Arc::clone(&stamps));
                let io: Box<dyn Io> = match tls {
                    None => Box::new(socket),
                    Some((tls, name)) => {
                        let socket = tls.connect(name, socket).await?;
                        tls::expect_agreed(&socket, protocol)?;
                        Box::new(socket)
                    }
                };
                Ok(Opened { io, stamps })
            })
        })))
    }
}

/// Asks one endpoint.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where.
    pub endpoint: Endpoint,
    /// How sockets are opened.
    pub connector: Connector,
    /// Over which HTTP.
    pub protocol: Protocol,
    /// Of every request.
    pub headers: HeaderMap,
    /// How long to wait.
    pub timeouts: Timeouts,
}

impl Client {
    /// Headers of every request: the key as a bearer token, and `extra` over everything else.
    ///
    /// # Errors
    ///
    /// If a name or value is none.
    pub fn headers(
        endpoint: &Endpoint,
        api_key: Option<&str>,
        extra: &[(String, String)],
    ) -> Result<HeaderMap, HeaderError> {
        let mut headers = HeaderMap::new();
        let host = header_value("host", &endpoint.authority())?;
        headers.insert(HOST, host);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let agent = concat!("fulcrum-bench/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Some(key) = api_key {
            let mut value = header_value("authorization", &format!("Bearer {key}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        add_headers(&mut headers, extra)?;
        Ok(headers)
    }

    /// Opens a connection; the second is how long that took.
    ///
    /// # Errors
    ///
    /// If there is none within the time.
    pub async fn connect(&self) -> io::Result<(Connection, std::time::Duration)> {
        let begun = Instant::now();
        let opening = async {
            let socket = (self.connector.0)().await?;
            Connection::begin(socket, self.protocol).await
        };
        let connection = timeout(self.timeouts.connect, opening)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok((connection, begun.elapsed()))
    }

    /// A `POST` of `body` to `route`, with the run's headers and `extra` ones.
    ///
    /// # Errors
    ///
    /// If an extra header is none, or the path no path.
    pub fn post(
        &self,
        route: &str,
        extra: &[(String, String)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, HeaderError> {
        let mut request = Request::post(self.uri(route))
            .body(Full::new(body))
            .map_err(|_| HeaderError {
                name: "path".to_owned(),
                value: self.endpoint.path(route),
            })?;
        *request.headers_mut() = self.headers.clone();
        add_headers(request.headers_mut(), extra)?;
        Ok(request)
    }

    /// A `GET` of `route`.
    ///
    /// # Errors
    ///
    /// If the path is no path.
    pub fn get(&self, route: &str) -> Result<Request<Full<Bytes>>, HeaderError> {
        let mut request = self.post(route, &[], Bytes::new())?;
        *request.method_mut() = hyper::Method::GET;
        request.headers_mut().remove(CONTENT_TYPE);
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static("*/*"));
        Ok(request)
    }

    /// HTTP/2 wants the whole address, HTTP/1.1 the path alone.
    fn uri(&self, route: &str) -> String {
        let path = self.endpoint.path(route);
        match self.protocol {
            Protocol::Http1 => path,
            Protocol::Http2 => {
                let endpoint = &self.endpoint;
                let scheme = match endpoint.scheme {
                    Scheme::Http => "http",
                    Scheme::Https => "https",
                };
                format!("{scheme}://{}{path}", endpoint.authority())
            }
        }
    }
}

/// A header that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} with value {value:?} is no header")]
pub struct HeaderError {
    /// As given.
    pub name: String,
    /// As given, or `(hidden)`.
    pub value: String,
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, HeaderError> {
    HeaderValue::from_str(value).map_err(|_| HeaderError {
        name: name.to_owned(),
        // It may be a key.
        value: "(hidden)".to_owned(),
    })
}

fn add_headers(headers: &mut HeaderMap, extra: &[(String, String)]) -> Result<(), HeaderError> {
    for (name, value) in extra {
        let key =
            hyper::header::HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderError {
                name: name.clone(),
                value: "(hidden)".to_owned(),
            })?;
        headers.insert(key, header_value(name, value)?);
    }
    Ok(())
}
