//! HTTP/2: by prior knowledge, in memory, with hyper's server, or frame by frame.

use std::convert::Infallible;
use std::time::Duration;

use bench::client::{Connector, Protocol};
use bench::observe::{Flag, Status};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::mock::wire::{last_event, text_event};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};

use super::{ask, client, connect, ms};

/// What happens when all pieces are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Close,
    StayOpen,
    Fail,
}

/// Pieces of a body, each so many ms after the one before.
pub type Pieces = Vec<(u64, String)>;

/// Four tokens, the first after 300 ms, the others every 20 ms.
pub fn good() -> Pieces {
    let first = (300, text_event("a"));
    let more = (0..3).map(|_| (20, text_event("b")));
    let rest = [(0, last_event(7, 4)), (0, "data: [DONE]\n\n".to_owned())];
    [first].into_iter().chain(more).chain(rest).collect()
}

/// Answers every request on `io` with `pieces`.
pub async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    pieces: Pieces,
    end: End,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        assert_eq!(request.version(), hyper::Version::HTTP_2);
        let pieces = pieces.clone().into_iter();
        let body = stream::unfold(pieces, move |mut pieces| async move {
            let Some((after_ms, text)) = pieces.next() else {
                return match end {
                    End::Close => None,
                    End::StayOpen => std::future::pending().await,
                    End::Fail => {
                        // Else the reset overtakes what was said.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        Some((Err(std::io::Error::other("broken")), pieces))
                    }
                };
            };
            if after_ms > 0 {
                tokio::time::sleep(Duration::from_millis(after_ms)).await;
            }
            Some((Ok(Frame::data(Bytes::from(text))), pieces))
        });
        let response = Response::builder().header("content-type", "text/event-stream");
        let response = response.body(StreamBody::new(Box::pin(body)));
        std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    // How a connection ends is what the client is tested for.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(io), service)
        .await;
}

/// A client of what `serve` makes of the other end of a pipe.
fn client_in_memory<F>(
    serve: impl Fn(DuplexStream) -> F + Send + Sync + 'static,
) -> bench::client::Client
where
    F: Future<Output = ()> + Send + 'static,
{
    let connector = Connector::from_fn(move || {
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(far));
        async move { Ok(near) }
    });
    client("http://mock", Protocol::Http2, connector)
}

fn client_of(pieces: Pieces, end: End) -> bench::client::Client {
    client_in_memory(move |far| serve(far, pieces.clone(), end))
}

#[tokio::test(start_paused = true)]
async fn times_are_those_of_the_server_and_the_connection_is_used_again() {
    let client = client_of(good(), End::Close);
    let mut connection = connect(&client).await;
    for _ in 0..3 {
        assert!(connection.is_usable().await);
        let exchanged = ask(&client, connection).await;
        let record = exchanged.record;
        assert_eq!((record.status, record.num_tokens), (Status::Ok, Some(4)));
        let times = (
            ms(record.first_token),
            ms(record.last_token),
            ms(Some(record.ended)),
        );
        assert_eq!(times, (Some(300), Some(360), Some(360)));
        assert!(record.flags.is_empty(), "{:?}", record.flags);
        connection = exchanged.connection.expect("kept");
    }
}

#[tokio::test(start_paused = true)]
async fn done_ends_an_answer_whose_stream_stays_open() {
    let client = client_of(good(), End::StayOpen);
    let exchanged = ask(&client, connect(&client).await).await;
    let record = exchanged.record;
    assert_eq!(
        (record.status, ms(Some(record.ended))),
        (Status::Ok, Some(360))
    );
    assert!(exchanged.connection.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_says_nothing_is_given_up() {
    let client = client_of(vec![], End::StayOpen);
    let record = ask(&client, connect(&client).await).await.record;
    let waited = client.timeouts.first_token.as_millis();
    assert_eq!(
        (record.status, ms(Some(record.ended))),
        (Status::Timeout, Some(waited))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_in_the_middle_is_truncated() {
    let client = client_of(vec![(1, text_event("a"))], End::Fail);
    let record = ask(&client, connect(&client).await).await.record;
    assert_eq!((record.status, record.marks.len()), (Status::Truncated, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_larger_than_any_frame_and_pipe_arrives_whole() {
    let mut pieces = good();
    pieces[1].1 = text_event(&"x".repeat(1 << 20));
    let client = client_of(pieces, End::Close);
    let exchanged = ask(&client, connect(&client).await).await;
    let record = exchanged.record;
    assert_eq!(
        (record.status, record.num_content_bytes),
        (Status::Ok, (1 << 20) + 3)
    );
    assert!(exchanged.connection.is_some());
}

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// Of no error, after stream 0: nothing was processed.
const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Of stream 1, with REFUSED_STREAM.
const REFUSED: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
/// Of stream 1: status 200, by its number in the static table.
const HEADERS: &[u8] = &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];

/// A data frame of stream 1 that ends it.
fn last_data(text: &str) -> Vec<u8> {
    let num_bytes = u32::try_from(text.len())
        .expect("a small frame")
        .to_be_bytes();
    let mut frame = num_bytes[1..].to_vec();
    frame.extend([0, 1, 0, 0, 0, 1]);
    frame.extend(text.as_bytes());
    frame
}

/// Reads until a request has come, says `frames`, and goes on reading.
async fn say(mut far: DuplexStream, frames: Vec<u8>) {
    let mut received = Vec::new();
    let is_asked = |received: &[u8]| {
        let mut rest = received.get(24..).unwrap_or_default();
        while let [a, b, c, kind, _, _, _, _, _, ..] = rest {
            if *kind == 1 {
                return true;
            }
            let num_bytes = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            rest = rest.get(9 + num_bytes..).unwrap_or_default();
        }
        false
    };
    let mut told = far.write_all(SETTINGS).await;
    while told.is_ok() && !is_asked(&received) {
        told = far.read_buf(&mut received).await.map(|_| ());
    }
    if told.is_ok() && far.write_all(&frames).await.is_ok() {
        let mut rest = [0; 4096];
        while matches!(far.read(&mut rest).await, Ok(num_bytes) if num_bytes > 0) {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_server_did_not_begin_with_is_no_answer() {
    for frames in [GOAWAY, REFUSED] {
        let client = client_in_memory(move |far| say(far, frames.to_vec()));
        let exchanged = ask(&client, connect(&client).await).await;
        let record = exchanged.record;
        let outcome = (record.status, record.http_status, record.first_token);
        assert_eq!(outcome, (Status::Connect, None, None), "{frames:?}");
        assert!(exchanged.connection.is_none(), "it is not tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_away_after_an_answer_is_not_asked_again() {
    let mut goaway_after_one = GOAWAY.to_vec();
    goaway_after_one[12] = 1;
    let answer = text_event("a") + &last_event(1, 1) + "data: [DONE]\n\n";
    let frames = [HEADERS, &last_data(&answer), &goaway_after_one].concat();
    let client = client_in_memory(move |far| say(far, frames.clone()));
    let exchanged = ask(&client, connect(&client).await).await;
    assert_eq!(exchanged.record.status, Status::Ok);
    if let Some(mut connection) = exchanged.connection {
        assert!(!connection.is_usable().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_after_the_end_of_the_answer_only_lacks_its_mark() {
    let answer = text_event("a") + &last_event(1, 1);
    let mut frames = [HEADERS, &last_data(&answer)].concat();
    // The stream is left open, and the connection dropped.
    let flags_at = HEADERS.len() + 4;
    frames[flags_at] = 0;
    let client = client_in_memory(move |mut far| {
        let frames = frames.clone();
        async move {
            let mut request = [0; 4096];
            let mut told = far.write_all(SETTINGS).await;
            while told.is_ok() && matches!(far.read(&mut request).await, Ok(num) if num < 60) {}
            told = far.write_all(&frames).await;
            drop((far, told));
        }
    });
    let record = ask(&client, connect(&client).await).await.record;
    assert_eq!(
        (record.status, record.flags),
        (Status::Ok, vec![Flag::MissingDone])
    );
}
