//! Requests to the hub, its redirects and its errors.
//!
//! The token goes to the hub's own host and to no other: large files are redirected to somebody else's.
//! Redirects are followed by hand for that reason.

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};

use super::layout::is_commit;
use super::name::{HubName, is_file_path};
use super::select::Listed;
use super::settings::Settings;
use crate::words::{WithHint as _, printable};

/// How long a connection, and then an answer's head, may take.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long one answer's body may take; a download that takes longer goes on in another request.
const BODY_WAIT: Duration = Duration::from_secs(600);
/// A list of ten thousand files has about 3 MB.
const LISTING_BYTES_MAX: u64 = 32 << 20;
const NUM_FILES_MAX: usize = 65_536;
const NUM_REDIRECTS_MAX: usize = 5;
/// How often one question is asked of a hub that has trouble of its own.
const NUM_ATTEMPTS: u32 = 3;
/// Before the second attempt; doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The hub did not answer, or not sensibly: what is in the cache may do.
#[derive(Debug)]
pub(super) struct Unreachable {
    endpoint: String,
    reason: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot reach {}: {}",
            self.endpoint,
            printable(&self.reason)
        )
    }
}

impl std::error::Error for Unreachable {}

/// A commit and its files.
pub(super) struct Listing {
    pub commit: String,
    pub files: Vec<Listed>,
}

/// What the hub says of a file before any of it is fetched.
#[derive(Debug)]
pub(super) struct FileFacts {
    /// Names the content; the blob's name in the cache.
    pub etag: String,
    pub num_bytes: u64,
    /// Where the bytes are asked for.
    address: String,
}

/// Speaks with one hub.
pub(super) struct Client<'a> {
    settings: &'a Settings,
    agent: Agent,
}

impl<'a> Client<'a> {
    pub(super) fn new(settings: &'a Settings) -> Client<'a> {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(ANSWER_WAIT))
            .timeout_recv_response(Some(ANSWER_WAIT))
            .timeout_recv_body(Some(BODY_WAIT))
            .user_agent(concat!("fulcrum/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build();
        Client {
            settings,
            agent: config.into(),
        }
    }

    /// The files of a repository at a revision.
    pub(super) fn listing(&self, name: &HubName) -> anyhow::Result<Listing> {
        let address = format!(
            "{}/api/models/{}/revision/{}?blobs=true",
            self.settings.endpoint,
            name.repo,
            encoded(&name.revision, "")
        );
        let response = self.ask(
            name,
            &Question {
                address,
                ..Question::head()
            }
            .with_body(),
        )?;
        let mut text = Vec::new();
        let mut body = response
            .into_body()
            .into_reader()
            .take(LISTING_BYTES_MAX + 1);
        body.read_to_end(&mut text)
            .map_err(|error| self.unreachable(&error))?;
        if text.len() as u64 > LISTING_BYTES_MAX {
            bail!("the hub's list of the files of {name} has more than {LISTING_BYTES_MAX} bytes");
        }
        let listing: Value = serde_json::from_slice(&text).with_context(|| {
            format!(
                "the hub's answer about {name} is not JSON; is {} a hub?",
                self.settings.endpoint
            )
        })?;
        read_listing(&listing)
            .with_context(|| format!("the hub's answer about {name} makes no sense"))
    }

    /// What the hub says of one file.
    pub(super) fn facts(
        &self,
        name: &HubName,
        commit: &str,
        path: &str,
    ) -> anyhow::Result<FileFacts> {
        let address = format!(
            "{}/{}/resolve/{commit}/{}",
            self.settings.endpoint,
            name.repo,
            encoded(path, "/")
        );
        let question = Question {
            address,
            ..Question::head()
        };
        let response = self.ask(name, &question)?;
        let header = |name: &str| {
            response
                .headers()
                .get(name)?
                .to_str()
                .ok()
                .map(str::to_owned)
        };
        let etag = header("x-linked-etag").or_else(|| header("etag"));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
        let Some(etag) = etag.filter(|etag| is_etag(etag)) else {
            bail!(
                "the hub does not say which content {} of {name} has (no ETag)",
                printable(path)
            );
        };
        let num_bytes = header("x-linked-size").or_else(|| header("content-length"));
        let Some(num_bytes) = num_bytes.and_then(|text| text.parse().ok()) else {
            bail!(
                "the hub does not say how large {} of {name} is",
                printable(path)
            );
        };
        Ok(FileFacts {
            etag,
            num_bytes,
            address: question.address,
        })
    }

    /// The bytes of a file from `first_byte` on, as far as this answer brings them. Tells whether it
    /// really begins there: else it begins at 0.
    pub(super) fn bytes(
        &self,
        name: &HubName,
        facts: &FileFacts,
        first_byte: u64,
    ) -> anyhow::Result<(Body, u64)> {
        let question = Question {
            address: facts.address.clone(),
            first_byte,
            ..Question::head()
        }
        .with_body();
        let response = self.ask(name, &question)?;
        let begins_at = match response.status() {
            StatusCode::PARTIAL_CONTENT => first_byte,
            _ => 0,
        };
        Ok((response.into_body(), begins_at))
    }

    /// Asks until there is an answer that is neither trouble of the hub's own nor a redirect to follow.
    fn ask(&self, name: &HubName, question: &Question) -> anyhow::Result<Response<Body>> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let error = match self.follow(question) {
                Ok(response) if has_trouble(response.status()) => Unreachable {
                    endpoint: self.settings.endpoint.clone(),
                    reason: format!("it answers {}", response.status()),
                },
                Ok(response) => return self.expect_found(name, response),
                Err(error) => error.downcast::<Unreachable>()?,
            };
            if attempt == NUM_ATTEMPTS {
                return Err(error.into());
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    fn follow(&self, question: &Question) -> anyhow::Result<Response<Body>> {
        let mut address = question.address.clone();
        for _ in 0..=NUM_REDIRECTS_MAX {
            let response = self.send(question, &address)?;
            let status = response.status();
            if !status.is_redirection() {
                return Ok(response);
            }
            let location = response
                .headers()
                .get(header::LOCATION)
                .and_then(|value| value.to_str().ok());
            let Some(location) = location else {
                bail!("{} redirects to nowhere", printable(&address));
            };
            let target = redirected(&address, location)?;
            // Facts about a large file stand in the redirect; its host knows less about it.
            let is_elsewhere = origin(&target) != origin(&self.settings.endpoint);
            if !question.wants_body && is_elsewhere {
                return Ok(response);
            }
            address = target;
        }
        bail!(
            "more than {NUM_REDIRECTS_MAX} redirects from {}",
            printable(&question.address)
        )
    }

    fn send(&self, question: &Question, address: &str) -> anyhow::Result<Response<Body>> {
        let mut request = match question.wants_body {
            true => self.agent.get(address),
            false => self.agent.head(address),
        };
        if let Some(token) = &self.settings.token
            && origin(address) == origin(&self.settings.endpoint)
        {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if question.first_byte > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", question.first_byte));
        }
        // Lengths and checksums are of the file and not of a compressed form of it.
        let request = request.header(header::ACCEPT_ENCODING, "identity");
        request
            .call()
            .map_err(|error| self.unreachable(&error).into())
    }

    pub(super) fn unreachable(&self, reason: &dyn fmt::Display) -> Unreachable {
        Unreachable {
            endpoint: self.settings.endpoint.clone(),
            reason: reason.to_string(),
        }
    }

    /// Tells the hub's refusals apart.
    fn expect_found(
        &self,
        name: &HubName,
        response: Response<Body>,
    ) -> anyhow::Result<Response<Body>> {
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(response);
        }
        let said = response
            .headers()
            .get("x-error-message")
            .and_then(|value| value.to_str().ok());
        let said = said.map_or_else(|| status.to_string(), printable);
        let refused = anyhow::anyhow!("{} refuses {name}: {said}", self.settings.endpoint);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(refused).hint(|| match self.settings.token {
                None => "a private or gated repository needs a token: set HF_TOKEN (and accept the terms on its page)".to_owned(),
                Some(_) => "the token (HF_TOKEN) has no access to it; a gated repository's terms are accepted on its page".to_owned(),
            }),
            StatusCode::NOT_FOUND => Err(refused).hint(|| {
                "is the name right? Private repositories also look like this without a token (HF_TOKEN)".to_owned()
            }),
            StatusCode::RANGE_NOT_SATISFIABLE => Err(RangeRefused.into()),
            _ => Err(refused),
        }
    }
}

/// The hub has no bytes after those that are here: they are too many.
#[derive(Debug)]
pub(super) struct RangeRefused;

impl fmt::Display for RangeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hub's file is shorter than what is here of it")
    }
}

impl std::error::Error for RangeRefused {}

/// What is asked of an address.
#[derive(Clone)]
struct Question {
    address: String,
    wants_body: bool,
    first_byte: u64,
}

impl Question {
    fn head() -> Question {
        Question {
            address: String::new(),
            wants_body: false,
            first_byte: 0,
        }
    }

    fn with_body(self) -> Question {
        Question {
            wants_body: true,
            ..self
        }
    }
}

fn has_trouble(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

/// What the hub lists, without names that would not stay below a folder.
fn read_listing(listing: &Value) -> anyhow::Result<Listing> {
    let commit = listing
        .get("sha")
        .and_then(Value::as_str)
        .filter(|commit| is_commit(commit));
    let commit = commit.context("it names no commit")?.to_owned();
    let siblings = listing
        .get("siblings")
        .and_then(Value::as_array)
        .context("it lists no files")?;
    if siblings.len() > NUM_FILES_MAX {
        bail!("it lists {} files", siblings.len());
    }
    let file = |sibling: &Value| {
        let path = sibling
            .get("rfilename")?
            .as_str()
            .filter(|path| is_file_path(path))?;
        Some(Listed {
            path: path.to_owned(),
            num_bytes: sibling.get("size").and_then(Value::as_u64),
        })
    };
    Ok(Listing {
        commit,
        files: siblings.iter().filter_map(file).collect(),
    })
}

/// An ETag as a file name.
fn is_etag(etag: &str) -> bool {
    (1..=128).contains(&etag.len())
        && etag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Scheme, host and port.
fn origin(address: &str) -> &str {
    let host_at = address.find("://").map_or(0, |at| at + 3);
    let len = address[host_at..]
        .find(['/', '?', '#'])
        .unwrap_or(address.len() - host_at);
    &address[..host_at + len]
}

/// Where a redirect leads; never from an encrypted connection to a plain one.
fn redirected(from: &str, location: &str) -> anyhow::Result<String> {
    let target = if location.starts_with("https://") || location.starts_with("http://") {
        location.to_owned()
    } else if location.starts_with('/') && !location.starts_with("//") {
        format!("{}{location}", origin(from))
    } else {
        bail!(
            "{} redirects to {}, which is no address",
            printable(from),
            printable(location)
        );
    };
    if from.starts_with("https://") && !target.starts_with("https://") {
        bail!("{} redirects to an unencrypted address", printable(from));
    }
    Ok(target)
}

/// Percent-encodes all but letters, digits, `-._~` and the bytes of `kept`.
fn encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || kept.as_bytes().contains(&byte)
        {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert_eq!(origin("https://a.b:1/c?d"), "https://a.b:1");
        assert_eq!(origin("https://a.b"), "https://a.b");
        assert_ne!(origin("https://a.b.evil/"), origin("https://a.b/"));
    }

    #[test]
    fn a_redirect_never_leaves_encryption_behind() {
        assert_eq!(
            redirected("http://a/b", "/c").expect("same host"),
            "http://a/c"
        );
        assert_eq!(
            redirected("https://a/b", "https://c/d").expect("encrypted"),
            "https://c/d"
        );
        for location in ["http://c/d", "//c/d", "ftp://c", "c"] {
            assert!(redirected("https://a/b", location).is_err(), "{location}");
        }
    }

    #[test]
    fn a_revision_with_slashes_is_one_step_of_an_address() {
        assert_eq!(encoded("refs/pr/1", ""), "refs%2Fpr%2F1");
        assert_eq!(encoded("sub/a b.gguf", "/"), "sub/a%20b.gguf");
    }

    #[test]
    fn a_listing_is_read_without_the_names_that_would_leave_the_folder() {
        let listing = serde_json::json!({"sha": "a".repeat(40), "siblings": [
            {"rfilename": "m.gguf", "size": 5}, {"rfilename": "../../.bashrc"}, {"rfilename": "/etc/x"}, {"name": 1}]});
        let listing = read_listing(&listing).expect("it is sound");
        assert_eq!(
            listing.files,
            [Listed {
                path: "m.gguf".into(),
                num_bytes: Some(5)
            }]
        );
        for broken in [
            serde_json::json!([]),
            serde_json::json!({"sha": "../x", "siblings": []}),
        ] {
            assert!(read_listing(&broken).is_err());
        }
    }
}
