//! TLS with a certificate that the server made itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bench::client::{Client, Connector, Endpoint, Protocol, Trust};
use bench::observe::Status;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use testkit::mock::Mock;
use testkit::mock::wire::good_answer;
use tokio_rustls::TlsAcceptor;

use super::http2::{self, End};
use super::{ask, client, connect, listen};

/// A server with a certificate for `localhost` and its address that agrees to `protocols`.
fn acceptor(protocols: &[&[u8]]) -> TlsAcceptor {
    // Whoever installed one before is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key);
    let mut config = config.expect("the key is the certificate's");
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// A server that speaks what was agreed on.
async fn serving(protocols: &[&[u8]]) -> SocketAddr {
    let acceptor = acceptor(protocols);
    let server = Mock::new(|_| std::future::ready(good_answer(3, 4, 1.0, 1.0)));
    listen("127.0.0.1:0", move |stream| {
        let (acceptor, server) = (acceptor.clone(), Arc::clone(&server));
        async move {
            // A client that does not believe the certificate hangs up here.
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => http2::serve(stream, http2::good(), End::Close).await,
                _ => server.serve(stream).await,
            }
        }
    })
    .await
}

fn trusting(address: SocketAddr, protocol: Protocol, trust: Trust) -> io::Result<Client> {
    let url = format!("https://{address}");
    let endpoint: Endpoint = url.parse().expect("an address");
    Ok(client(
        &url,
        protocol,
        Connector::tcp(&endpoint, protocol, trust)?,
    ))
}

#[tokio::test]
async fn who_made_their_own_certificate_are_believed_only_if_anybody_is() {
    let address = serving(&[b"h2", b"http/1.1"]).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let refused = match trusting(address, protocol, Trust::Platform) {
            Ok(client) => client.connect().await.map(|_| ()),
            // A machine without any certificates believes nobody.
            Err(error) => Err(error),
        };
        let error = refused.expect_err("nobody vouches for it").to_string();
        assert!(error.to_lowercase().contains("certificate"), "{error}");

        let client =
            trusting(address, protocol, Trust::Anybody).expect("no certificates are needed");
        let mut connection = connect(&client).await;
        for _ in 0..2 {
            let exchanged = ask(&client, connection).await;
            let record = exchanged.record;
            assert_eq!(
                (record.status, record.num_tokens),
                (Status::Ok, Some(4)),
                "{protocol:?}"
            );
            connection = exchanged.connection.expect("kept");
        }
    }
}

#[tokio::test]
async fn http2_that_was_not_agreed_on_is_not_spoken() {
    // The first refuses in the handshake, the second does not know of agreements.
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let address = serving(protocols).await;
        let client = trusting(address, Protocol::Http2, Trust::Anybody).expect("a connector");
        client.connect().await.expect_err("it speaks HTTP/1.1 only");
        let client = trusting(address, Protocol::Http1, Trust::Anybody).expect("a connector");
        let record = ask(&client, connect(&client).await).await.record;
        assert_eq!(record.status, Status::Ok);
    }
}
