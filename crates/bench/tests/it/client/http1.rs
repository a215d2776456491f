//! HTTP/1.1 over sockets.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bench::client::{Client, Connector, Endpoint, Protocol, Timeouts, Trust};
use bench::observe::Status;
use testkit::mock::wire::{STREAM_HEAD, chunk, good_answer, last_event, step, text_event};
use testkit::mock::{End, Mock, Script};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use super::{PATIENT, ask, client, client_of, connect, listen};

/// A client of a server that plays `script` whatever it is asked, and how many connections that took.
async fn serving(
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> (Client, Arc<AtomicUsize>) {
    let server = Mock::new(move |_| std::future::ready(script()));
    let num_connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&num_connections);
    let address = listen("127.0.0.1:0", move |stream| {
        counter.fetch_add(1, Ordering::Relaxed);
        let server = Arc::clone(&server);
        async move { server.serve(stream).await }
    })
    .await;
    let client = client_of(&format!("http://{address}"), Protocol::Http1);
    (client, num_connections)
}

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    let (client, num_connections) = serving(|| good_answer(3, 4, 1.0, 1.0)).await;
    let mut connection = connect(&client).await;
    for _ in 0..5 {
        assert!(connection.is_usable().await);
        let exchanged = ask(&client, connection).await;
        let record = exchanged.record;
        assert_eq!((record.status, record.num_tokens), (Status::Ok, Some(4)));
        connection = exchanged.connection.expect("kept");
    }
    assert_eq!(num_connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_idle_is_not_used_again() {
    let script = || Script {
        end: End::Close,
        ..good_answer(3, 4, 1.0, 1.0)
    };
    let (client, num_connections) = serving(script).await;
    let exchanged = ask(&client, connect(&client).await).await;
    assert_eq!(exchanged.record.status, Status::Ok);
    if let Some(mut connection) = exchanged.connection {
        let noticed = async {
            while connection.is_usable().await {
                tokio::task::yield_now().await;
            }
        };
        let noticed = tokio::time::timeout(PATIENT.total, noticed).await;
        noticed.expect("the end of the stream arrives");
    }
    let exchanged = ask(&client, connect(&client).await).await;
    assert_eq!(exchanged.record.status, Status::Ok);
    assert_eq!(num_connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_event_of_a_megabyte_arrives_whole() {
    let script = || {
        let text = text_event(&"x".repeat(1 << 20));
        let rest = chunk(&last_event(1, 9)) + &chunk("data: [DONE]\n\n") + &chunk("");
        Script {
            steps: vec![step(0.0, STREAM_HEAD), step(0.0, chunk(&text) + &rest)],
            end: End::KeepOpen,
            held: None,
        }
    };
    let (client, _) = serving(script).await;
    let exchanged = ask(&client, connect(&client).await).await;
    let record = exchanged.record;
    let outcome = (record.status, record.num_content_bytes, record.marks.len());
    assert_eq!(outcome, (Status::Ok, 1 << 20, 1));
    assert!(exchanged.connection.is_some());
}

#[tokio::test]
async fn what_stands_before_the_answer_is_no_answer() {
    let script = || {
        let mut script = good_answer(3, 2, 0.0, 0.0);
        script
            .steps
            .insert(0, step(0.0, "HTTP/1.1 100 Continue\r\n\r\n"));
        script
    };
    let (client, _) = serving(script).await;
    let record = ask(&client, connect(&client).await).await.record;
    let outcome = (record.status, record.http_status, record.num_tokens);
    assert_eq!(outcome, (Status::Ok, Some(200), Some(2)));
}

/// Says `text` to the first request, and then nothing more, though it goes on listening.
async fn half_close(mut stream: TcpStream, text: String) {
    let mut request = [0; 4096];
    let asked = stream.read(&mut request).await;
    if matches!(asked, Ok(num_bytes) if num_bytes > 0)
        && stream.write_all(text.as_bytes()).await.is_ok()
    {
        // The client may be gone already.
        let _ = stream.shutdown().await;
        while matches!(stream.read(&mut request).await, Ok(num_bytes) if num_bytes > 0) {}
    }
}

#[tokio::test]
async fn a_server_that_only_listens_any_more_has_ended_its_answer() {
    let half = STREAM_HEAD.to_owned() + &chunk(&text_event("a"));
    let whole = half.clone() + &chunk(&last_event(1, 1)) + &chunk("data: [DONE]\n\n") + &chunk("");
    // Without a length, the end of the connection is the end of the answer.
    let until_closed = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n".to_owned()
        + &text_event("a")
        + &last_event(1, 1);
    let cases = [
        (half, Status::Truncated),
        (whole, Status::Ok),
        (until_closed, Status::Ok),
        (String::new(), Status::Connect),
    ];
    for (text, status) in cases {
        let said = text.clone();
        let address = listen("127.0.0.1:0", move |stream| {
            half_close(stream, said.clone())
        })
        .await;
        let client = client_of(&format!("http://{address}"), Protocol::Http1);
        let record = ask(&client, connect(&client).await).await.record;
        assert_eq!(record.status, status, "{text:?}");
    }
}

/// A socket on which there is always more to read once something was asked: its head, and then `said` for ever.
struct Flood {
    is_asked: bool,
    waiting: Option<Waker>,
    said: Vec<u8>,
    rest: Vec<u8>,
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.rest.is_empty() {
            self.rest = self.said.clone();
        }
        let num_bytes = buffer.remaining().min(self.rest.len());
        buffer.put_slice(&self.rest[..num_bytes]);
        self.rest.drain(..num_bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Comments or content without a pause: the client never has to wait, and so its timer no turn.
#[tokio::test]
async fn a_server_that_never_pauses_is_given_up_in_time() {
    for (said, has_content) in [(": ping\n\n".to_owned(), false), (text_event("a"), true)] {
        let said = chunk(&said);
        let connector = Connector::from_fn(move || {
            let (rest, said) = (STREAM_HEAD.into(), said.clone().into_bytes());
            std::future::ready(Ok(Flood {
                is_asked: false,
                waiting: None,
                said,
                rest,
            }))
        });
        let mut client = client("http://mock", Protocol::Http1, connector);
        client.timeouts = Timeouts {
            first_token: Duration::from_millis(40),
            total: Duration::from_millis(80),
            ..PATIENT
        };
        let record = ask(&client, connect(&client).await).await.record;
        assert_eq!(record.status, Status::Timeout);
        assert_eq!(record.first_token.is_some(), has_content);
    }
}

#[tokio::test]
async fn the_new_internet_protocol_is_spoken_too() {
    if tokio::net::TcpListener::bind("[::1]:0").await.is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let server = Mock::new(|_| std::future::ready(good_answer(3, 4, 1.0, 1.0)));
    let address = listen("[::1]:0", move |stream| {
        let server = Arc::clone(&server);
        async move { server.serve(stream).await }
    })
    .await;
    let client = client_of(&format!("http://{address}"), Protocol::Http1);
    let record = ask(&client, connect(&client).await).await.record;
    assert_eq!(record.status, Status::Ok);
}

#[tokio::test]
async fn nobody_at_the_port_is_told_as_such() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = free.local_addr().expect("a bound port");
    drop(free);
    let endpoint: Endpoint = format!("http://{address}").parse().expect("an address");
    let connector = Connector::tcp(&endpoint, Protocol::Http1, Trust::Platform);
    let client = client(
        &endpoint.to_string(),
        Protocol::Http1,
        connector.expect("no certificates are needed"),
    );
    let error = client.connect().await.expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
