//! Exchanges with scripted servers over pipes in memory, under a clock that only moves when everybody waits: every
//! time is exact.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use testkit::mock::wire::{
    STREAM_HEAD, chunk, document, good_answer, last_event, step, text_event,
};
use testkit::mock::{Asked as Request, End, Mock, Script};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::observe::{Flag, LIMITS, Observation, Record, Status};

const PATIENT: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    first_token: Duration::from_secs(60),
    next_token: Duration::from_secs(30),
    total: Duration::from_secs(600),
};

fn client(answer: impl Fn(Request) -> Script + Send + Sync + 'static) -> Client {
    let server = Mock::new(move |asked| std::future::ready(answer(asked)));
    let endpoint: Endpoint = "http://mock".parse().expect("an address");
    Client {
        headers: Client::headers(&endpoint, None, &[]).expect("headers"),
        endpoint,
        connector: Connector::from_fn(move || {
            let near = server.connect();
            async move { Ok(near) }
        }),
        protocol: Protocol::Http1,
        timeouts: PATIENT,
    }
}

async fn exchange(client: &Client) -> Exchanged {
    let (connection, _) = client.connect().await.expect("a connection");
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

async fn record(answer: impl Fn(Request) -> Script + Send + Sync + 'static) -> Record {
    exchange(&client(answer)).await.record
}

fn stream(steps: Vec<testkit::mock::Step>, end: End) -> Script {
    let mut all = vec![step(0.0, STREAM_HEAD)];
    all.extend(steps);
    Script {
        steps: all,
        end,
        held: None,
    }
}

fn ms(duration: Option<Duration>) -> Option<u128> {
    duration.map(|duration| duration.as_millis())
}

#[tokio::test(start_paused = true)]
async fn times_are_those_of_the_server() {
    let exchanged = exchange(&client(|_| good_answer(12, 5, 300.0, 20.0))).await;
    let record = exchanged.record;
    assert_eq!(
        (record.status, record.num_tokens, record.num_prompt_tokens),
        (Status::Ok, Some(5), Some(12))
    );
    assert_eq!(
        (
            ms(record.head),
            ms(record.first_token),
            ms(record.last_token)
        ),
        (Some(0), Some(300), Some(380))
    );
    assert_eq!(record.tpot().map(|tpot| (tpot * 1e3).round()), Some(20.0));
    assert!(
        exchanged.connection.is_some(),
        "the answer ended as it should, so the connection is good for another"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_used_again() {
    let client = client(|_| good_answer(1, 2, 5.0, 5.0));
    let first = exchange(&client).await.connection.expect("kept");
    let request = client
        .post("/v1/chat/completions", &[], Bytes::new())
        .expect("a request");
    let cancel = CancellationToken::new();
    let waits = Waits {
        timeouts: PATIENT,
        cancel: &cancel,
    };
    let second = first
        .exchange(request, Observation::new(LIMITS), waits, |_| {})
        .await;
    assert_eq!(
        (second.record.status, ms(second.record.first_token)),
        (Status::Ok, Some(5))
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up_at_the_first_token_timeout() {
    let record = record(|_| stream(vec![], End::Hang)).await;
    assert_eq!(
        (record.status, record.first_token, ms(Some(record.ended))),
        (Status::Timeout, None, Some(60_000))
    );
}

#[tokio::test(start_paused = true)]
async fn comments_show_life_but_are_no_token() {
    let pings = (0..100)
        .map(|_| step(10_000.0, chunk(": ping\n\n")))
        .collect();
    let record = record(move |_| stream(Vec::clone(&pings), End::Hang)).await;
    assert_eq!(
        (record.status, ms(Some(record.ended))),
        (Status::Timeout, Some(60_000))
    );
    assert!(record.num_comments >= 5);
}

#[tokio::test(start_paused = true)]
async fn a_stall_between_tokens_ends_at_the_next_token_timeout_and_keeps_what_came() {
    let steps = vec![
        step(100.0, chunk(&text_event("a"))),
        step(100.0, chunk(&text_event("b"))),
    ];
    let record = record(move |_| stream(Vec::clone(&steps), End::Hang)).await;
    assert_eq!(
        (record.status, record.marks.len(), ms(Some(record.ended))),
        (Status::Timeout, 2, Some(30_200))
    );
}

#[tokio::test(start_paused = true)]
async fn a_trickle_ends_at_the_total_timeout() {
    let steps: Vec<_> = (0..1000)
        .map(|_| step(20_000.0, chunk(&text_event("a"))))
        .collect();
    let record = record(move |_| stream(Vec::clone(&steps), End::Hang)).await;
    assert_eq!(
        (record.status, ms(Some(record.ended))),
        (Status::Timeout, Some(600_000))
    );
}

#[tokio::test(start_paused = true)]
async fn done_ends_an_answer_whose_stream_stays_open_and_the_connection_is_left() {
    let steps = vec![
        step(100.0, chunk(&text_event("a"))),
        step(0.0, chunk(&last_event(1, 1)) + &chunk("data: [DONE]\n\n")),
    ];
    let exchanged = exchange(&client(move |_| stream(Vec::clone(&steps), End::Hang))).await;
    assert_eq!(
        (exchanged.record.status, ms(Some(exchanged.record.ended))),
        (Status::Ok, Some(100))
    );
    assert!(exchanged.connection.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_in_the_middle_is_a_truncated_answer() {
    let steps = vec![step(100.0, chunk(&text_event("a")))];
    let record = record(move |_| stream(Vec::clone(&steps), End::Close)).await;
    assert_eq!(record.status, Status::Truncated);
}

#[tokio::test(start_paused = true)]
async fn a_missing_done_is_flagged_if_the_answer_had_ended() {
    let steps = vec![
        step(1.0, chunk(&text_event("a"))),
        step(1.0, chunk(&last_event(1, 1)) + &chunk("")),
    ];
    let record = record(move |_| stream(Vec::clone(&steps), End::Close)).await;
    assert_eq!(
        (record.status, record.flags),
        (Status::Ok, vec![Flag::MissingDone])
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_up_before_answering_is_a_connect_failure() {
    let record = record(|_| Script {
        steps: vec![],
        end: End::Close,
        held: None,
    })
    .await;
    assert_eq!((record.status, record.http_status), (Status::Connect, None));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_http_is_no_answer() {
    let steps = vec![step(0.0, "SSH-2.0-OpenSSH_9.6\r\n")];
    let record = record(move |_| Script {
        steps: steps.clone(),
        end: End::Close,
        held: None,
    })
    .await;
    assert_eq!(record.status, Status::Connect);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_its_status_and_words_and_is_not_retried() {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let record = record(move |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        document(
            429,
            "application/json",
            r#"{"error":{"message":"slow down"}}"#,
        )
    })
    .await;
    assert_eq!(
        (record.status, record.http_status),
        (Status::HttpError, Some(429))
    );
    assert_eq!(record.error.as_deref(), Some("slow down"));
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_exchange_ends_at_once() {
    let client = client(|_| stream(vec![step(50.0, chunk(&text_event("a")))], End::Hang));
    let (connection, _) = client.connect().await.expect("a connection");
    let request = client
        .post(Api::Chat.path(), &[], Bytes::new())
        .expect("a request");
    let cancel = CancellationToken::new();
    let waits = Waits {
        timeouts: PATIENT,
        cancel: &cancel,
    };
    let asking = connection.exchange(request, Observation::new(LIMITS), waits, |_| {});
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(80)).await;
        cancel.cancel();
    };
    let (exchanged, ()) = tokio::join!(asking, cancelling);
    assert_eq!(
        (exchanged.record.status, ms(Some(exchanged.record.ended))),
        (Status::Cancelled, Some(80))
    );
    assert_eq!(exchanged.record.marks.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_accepts_is_given_up_at_the_connect_timeout() {
    let mut client = client(|_| stream(vec![], End::Hang));
    client.connector =
        Connector::from_fn(std::future::pending::<std::io::Result<tokio::io::DuplexStream>>);
    let error = client.connect().await.expect_err("nobody is there");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

/// A server that refuses what it does not know, has one model, and counts words.
fn strict_server(asked: &Request) -> Script {
    let body = asked.json();
    if asked.is_for("/v1/models") {
        return document(200, "application/json", r#"{"data":[{"id":"one"}]}"#);
    }
    if asked.is_for("/tokenize") {
        let num = body["prompt"]
            .as_str()
            .map_or(0, |text| text.split_whitespace().count());
        return document(
            200,
            "application/json",
            &format!(r#"{{"count":{num},"tokens":[]}}"#),
        );
    }
    if body.get("ignore_eos").is_some() {
        return document(
            400,
            "application/json",
            r#"{"error":{"message":"unknown field ignore_eos"}}"#,
        );
    }
    good_answer(13, 4, 1.0, 1.0)
}

#[tokio::test(start_paused = true)]
async fn a_probe_finds_the_model_and_leaves_out_what_is_refused() {
    let client = client(|asked| strict_server(&asked));
    let probed = probe(&client, None, None, &serde_json::Map::new())
        .await
        .expect("an endpoint");
    assert_eq!(probed.model.as_deref(), Some("one"));
    assert_eq!(
        probed.dialect,
        Dialect {
            api: Api::Chat,
            ignores_end: false,
            counts_events: true
        }
    );
    assert_eq!(probed.tokenizes, Tokenizes::Prompt);
    let texts = ["a b".to_owned(), "c".to_owned()];
    let counts = count_tokens(&client, &probed, &texts)
        .await
        .expect("an endpoint");
    assert_eq!(counts, Some(vec![2, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_probe_says_what_is_wrong() {
    let unknown = probe(
        &client(|asked| strict_server(&asked)),
        Some("two"),
        None,
        &serde_json::Map::new(),
    )
    .await;
    let locked = probe(
        &client(|_| document(401, "application/json", "{}")),
        None,
        None,
        &serde_json::Map::new(),
    )
    .await;
    let broken = client(|asked| match asked.is_for("/v1/models") {
        true => document(404, "text/plain", "?"),
        false => document(
            500,
            "application/json",
            r#"{"error":{"message":"out of memory"}}"#,
        ),
    });
    let broken = probe(&broken, None, None, &serde_json::Map::new()).await;
    for (outcome, word) in [
        (unknown, "it has one"),
        (locked, "--api-key-env"),
        (broken, "status 500: out of memory"),
    ] {
        let error = outcome.expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    }
}
