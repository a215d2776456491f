//! Exchanges with servers that speak HTTP as real ones do. Where time matters they are met in memory, under a clock
//! that only moves when everybody waits; elsewhere over sockets, and nothing is said of time.

// Sockets of HTTP/1.1.
mod http1;
// Streams of HTTP/2.
mod http2;
// Certificates.
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use bench::client::{
    Api, Client, Connection, Connector, Endpoint, Exchanged, Protocol, Timeouts, Trust, Waits,
};
use bench::observe::{LIMITS, Observation};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Longer than any of these tests takes.
const PATIENT: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    first_token: Duration::from_secs(20),
    next_token: Duration::from_secs(20),
    total: Duration::from_secs(30),
};

/// A client of `url`.
fn client(url: &str, protocol: Protocol, connector: Connector) -> Client {
    let endpoint: Endpoint = url.parse().expect("an address");
    Client {
        headers: Client::headers(&endpoint, None, &[]).expect("headers"),
        endpoint,
        connector,
        protocol,
        timeouts: PATIENT,
    }
}

/// A client of a server behind a socket.
fn client_of(url: &str, protocol: Protocol) -> Client {
    let endpoint: Endpoint = url.parse().expect("an address");
    let connector = Connector::tcp(&endpoint, protocol, Trust::Anybody).expect("a connector");
    client(url, protocol, connector)
}

async fn connect(client: &Client) -> Connection {
    client.connect().await.expect("a connection").0
}

/// One request over `connection`.
async fn ask(client: &Client, connection: Connection) -> Exchanged {
    let request = client
        .post(Api::Chat.path(), &[], Bytes::from_static(b"{}"))
        .expect("a request");
    let cancel = CancellationToken::new();
    let waits = Waits {
        timeouts: client.timeouts,
        cancel: &cancel,
    };
    connection
        .exchange(request, Observation::new(LIMITS), waits, |_| {})
        .await
}

/// Gives every connection to `serve`; ends with the test's runtime.
async fn listen<F>(address: &str, serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

fn ms(duration: Option<Duration>) -> Option<u128> {
    duration.map(|duration| duration.as_millis())
}
