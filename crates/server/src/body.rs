//! Reading a body: bounded in size, in time, and in what all bodies together may take.
//!
//! Bytes are paid for from a shared budget as they arrive, so a thousand slow uploads
//! cannot fill the memory.
//!
//! Not here: what becomes of a body that was refused (`unread.rs`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::errors::Refusal;
use crate::limits::Limits;
use crate::state::Shared;

/// A body, and its share of the budget for as long as it is kept.
pub(crate) struct Received {
    pub bytes: Bytes,
    _budget: Option<OwnedSemaphorePermit>,
}

/// Reads a JSON body.
pub(crate) async fn receive(shared: &Arc<Shared>, request: Request) -> Result<Received, Refusal> {
    let limits = &shared.config.limits;
    let (head, mut body) = request.into_parts();
    declared(&head.headers, limits)?;
    tokio::time::timeout(limits.body_read, collect(shared, &mut body))
        .await
        .unwrap_or(Err(Refusal::BodyIncomplete))
}

/// What the head alone tells.
fn declared(headers: &HeaderMap, limits: &Limits) -> Result<(), Refusal> {
    if !is_json(headers) {
        return Err(Refusal::MediaType);
    }
    if !is_utf8(headers) {
        return Err(Refusal::Charset);
    }
    if let Some(coding) = content_coding(headers) {
        return Err(Refusal::ContentCoding { coding });
    }
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > limits.body_bytes_max as u64 => Err(Refusal::BodyTooLarge {
            bytes_max: limits.body_bytes_max,
        }),
        _ => Ok(()),
    }
}

/// Whether the body is declared as JSON, or not declared at all. Other declared types are
/// what a web page can send without asking (forms, plain text), or a mistake.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let essence = value.to_str().unwrap_or("").split(';').next().unwrap_or("");
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Whether the declared character set, if there is one, is what JSON is written in.
fn is_utf8(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let parameters = value.split(';').skip(1);
    let mut charsets = parameters.filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"'))
    });
    // ASCII is UTF-8, too.
    const SAME: &[&str] = &["utf-8", "utf8", "us-ascii"];
    charsets.all(|charset| SAME.iter().any(|same| charset.eq_ignore_ascii_case(same)))
}

/// How the body is encoded, if it is, in words of ours: text of a request is never repeated.
fn content_coding(headers: &HeaderMap) -> Option<&'static str> {
    const KNOWN: &[&str] = &["gzip", "x-gzip", "deflate", "br", "zstd", "compress"];
    let values = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut codings = values
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    let coding = codings.next()?;
    let same = |known: &&&str| coding.eq_ignore_ascii_case(known.as_bytes());
    Some(KNOWN.iter().find(same).copied().unwrap_or("an unknown one"))
}

async fn collect(shared: &Arc<Shared>, body: &mut Body) -> Result<Received, Refusal> {
    let limits = &shared.config.limits;
    let mut bytes = BytesMut::new();
    let mut budget: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::BodyBroken)?;
        let Ok(part) = frame.into_data() else {
            continue;
        };
        if bytes.len() + part.len() > limits.body_bytes_max {
            return Err(Refusal::BodyTooLarge {
                bytes_max: limits.body_bytes_max,
            });
        }
        let num_bytes = u32::try_from(part.len()).expect("below the bound of a body");
        match Arc::clone(&shared.body_bytes).try_acquire_many_owned(num_bytes) {
            Ok(paid) => match &mut budget {
                Some(budget) => budget.merge(paid),
                None => budget = Some(paid),
            },
            Err(_) => {
                return Err(Refusal::BodiesFull {
                    retry_after: limits.retry_after,
                });
            }
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Received {
        bytes: bytes.freeze(),
        _budget: budget,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case A10.
    #[test]
    fn only_json_or_nothing_is_taken_for_json() {
        let is = |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            }
            is_json(&headers)
        };
        assert!(is(None));
        assert!(is(Some("application/json")));
        assert!(is(Some("Application/JSON; charset=utf-8")));
        assert!(is(Some("application/vnd.api+json")));
        for other in [
            "",
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "json",
        ] {
            assert!(!is(Some(other)), "{other:?}");
        }
    }

    /// Case A10.
    #[test]
    fn a_declared_character_set_is_utf_8_or_part_of_it() {
        let is = |value: &'static str| {
            let value = value.parse().unwrap();
            is_utf8(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)]))
        };
        assert!(is_utf8(&HeaderMap::new()));
        for same in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;version=1; Charset = \"UTF-8\"",
            "application/json; charset=utf8",
            "application/json; charset=US-ASCII",
        ] {
            assert!(is(same), "{same}");
        }
        for other in [
            "application/json; charset=iso-8859-1",
            "application/json; charset=utf-16",
            "application/json; charset=",
            "application/json; charset=utf-8; charset=latin1",
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
