//! The same over HTTP/2 with prior knowledge, as proxies speak it.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::harness::{Setup, chat};

#[test]
fn a_stream_over_http2_is_whole_and_a_dropped_one_is_cancelled() {
    let running = Setup::new().start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut body = chat();
    body["stream"] = true.into();
    let request = || {
        Request::post(format!("http://{}/v1/chat/completions", running.address))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap()
    };
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(running.address)
            .await
            .unwrap();
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let response = client.send_request(request()).await.unwrap();
        assert_eq!(response.status(), 200);
        let whole = response.into_body().collect().await.unwrap().to_bytes();
        assert!(whole.ends_with(b"data: [DONE]\n\n"));
        running.gate.allow(Some(2));
        let mut response = client.send_request(request()).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        drop(response);
        // The connection stays, and carries the next request.
        let alive = Request::get(format!("http://{}/livez", running.address));
        let alive = alive.body(Full::default()).unwrap();
        assert_eq!(client.send_request(alive).await.unwrap().status(), 200);
        assert!(!connection.is_finished());
    });
    running.gate.allow(Some(20));
    running.until(
        "vllm:request_success_total{model_name=\"tiny\",engine=\"0\",finished_reason=\"abort\"}",
        1.0,
    );
    running.gate.allow(None);
    running.canary();
}
