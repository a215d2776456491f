//! TLS: the platform's certificates, or none at all with `--insecure`.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio_rustls::TlsConnector;

use super::connection::Protocol;

/// Whom to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that the platform believes.
    Platform,
    /// Anybody: for servers with certificates of their own making.
    Anybody,
}

/// What opens TLS connections for `protocol`.
///
/// # Errors
///
/// If the platform's certificates cannot be read.
pub fn connector(trust: Trust, protocol: Protocol) -> io::Result<TlsConnector> {
    // Whoever installed one before is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = match trust {
        Trust::Platform => ClientConfig::with_platform_verifier().map_err(io::Error::other)?,
        Trust::Anybody => {
            let provider = CryptoProvider::get_default()
                .cloned()
                .ok_or_else(|| io::Error::other("no cryptography is installed"))?;
            ClientConfig::builder()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(BelieveAnybody(provider)))
                .with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The host as TLS wants it.
///
/// # Errors
///
/// If it is neither a name nor an address.
pub fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(io::Error::other)
}

/// Makes sure that the server agreed to speak `protocol`.
///
/// # Errors
///
/// If it did not: HTTP/2 must be agreed on, while a server that says nothing speaks HTTP/1.1.
pub fn expect_agreed<S>(
    stream: &tokio_rustls::client::TlsStream<S>,
    protocol: Protocol,
) -> io::Result<()> {
    let (_, session) = stream.get_ref();
    if protocol == Protocol::Http2 && session.alpn_protocol() != Some(b"h2") {
        let words = "the server does not offer HTTP/2 over TLS";
        return Err(io::Error::new(io::ErrorKind::Unsupported, words));
    }
    Ok(())
}

/// Checks signatures, but not who signed.
#[derive(Debug)]
struct BelieveAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for BelieveAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
