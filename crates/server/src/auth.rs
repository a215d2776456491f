//! Who may call: every path but a short public list needs a key, once there are keys.
//!
//! The check runs around the whole router, its fallback included, and compares the raw
//! path. So an unknown route, another spelling of a public one (`//health`, `/health/`,
//! `/%68ealth`) and a method nobody serves all answer 401 like everything else: a new
//! route is closed until somebody opens it.
//!
//! Keys are compared as SHA-256 digests in constant time: neither a common beginning
//! nor a length can be measured.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::class::{KeyId, NamedKey};
use crate::enter::CallerKey;
use crate::errors::Refusal;
use crate::state::Shared;

/// Paths that answer without a key: liveness and readiness, nothing about anybody's data.
pub const PUBLIC_PATHS: &[&str] = &["/health", "/livez", "/readyz", "/ready", "/ping"];

/// The keys that open the routes, kept as digests. Cheap to clone.
#[derive(Clone)]
pub struct ApiKeys {
    /// The nameless ones first.
    digests: Arc<[[u8; 32]]>,
    num_nameless: usize,
}

/// A key without characters would let everybody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an API key must not be empty or blank")]
pub struct EmptyKey;

impl ApiKeys {
    /// No keys: everything is open.
    pub fn none() -> ApiKeys {
        ApiKeys {
            digests: Arc::new([]),
            num_nameless: 0,
        }
    }

    /// These keys.
    ///
    /// # Errors
    ///
    /// [`EmptyKey`] if one has nothing but blanks.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<ApiKeys, EmptyKey> {
        let digest = |key: &str| match key.trim() {
            "" => Err(EmptyKey),
            key => Ok(digest(key.as_bytes())),
        };
        let digests = keys
            .into_iter()
            .map(digest)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(ApiKeys {
            num_nameless: digests.len(),
            digests: digests.into(),
        })
    }

    /// These, and those that the configuration names.
    #[must_use]
    pub fn with_named(&self, named: &[NamedKey]) -> ApiKeys {
        let nameless = self.digests[..self.num_nameless].iter().copied();
        let named = named.iter().map(|key| key.digest);
        ApiKeys {
            digests: nameless.chain(named).collect(),
            num_nameless: self.num_nameless,
        }
    }

    fn is_open(&self) -> bool {
        self.digests.is_empty()
    }

    /// Which key it is, if it is one: of equals the last, so that a name wins over none.
    fn find(&self, presented: &[u8]) -> Option<Found> {
        let presented = digest(presented);
        let mut is_known = Choice::from(0);
        let mut place = 0_u32;
        // Every key is compared, whichever matches.
        for (key, idx) in self.digests.iter().zip(0_u32..) {
            let matches = key.ct_eq(&presented);
            place.conditional_assign(&idx, matches);
            is_known |= matches;
        }
        let named = (place as usize).checked_sub(self.num_nameless);
        let id = named.and_then(|idx| u16::try_from(idx).ok()).map(KeyId);
        bool::from(is_known).then_some(Found(id))
    }

    /// The key that the headers carry: at most one of each kind, and none but valid ones. Of two
    /// that differ the bearer's counts.
    fn admit(&self, headers: &HeaderMap) -> Option<Found> {
        let bearer =
            single(headers, &header::AUTHORIZATION).map(|value| value.and_then(bearer_token));
        let plain = single(headers, &HeaderName::from_static("x-api-key"));
        match (bearer, plain) {
            (Some(bearer), Some(plain)) => {
                let (bearer, plain) = (self.held(bearer), self.held(plain));
                plain.and(bearer)
            }
            (Some(one), None) | (None, Some(one)) => self.held(one),
            (None, None) => None,
        }
    }

    fn held(&self, presented: Option<&[u8]>) -> Option<Found> {
        presented.and_then(|key| self.find(key))
    }
}

/// A valid key, and which of the named ones it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found(Option<KeyId>);

impl fmt::Debug for ApiKeys {
    /// How many there are, and nothing else.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ApiKeys({})", self.digests.len())
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// A header's value: outer `None` if absent, inner `None` if it stands there twice.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Option<&'h [u8]>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    Some(values.next().is_none().then_some(first.as_bytes()))
}

/// The token of `Bearer TOKEN`; the scheme's case does not matter (RFC 9110, 11.1).
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// The middleware around the whole router.
pub(crate) async fn require_key(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let keys = &shared.keys;
    let public = PUBLIC_PATHS.contains(&request.uri().path());
    if public || keys.is_open() {
        return Ok(next.run(request).await);
    }
    let Found(key) = keys.admit(request.headers()).ok_or(Refusal::Unauthorized)?;
    request.extensions_mut().insert(CallerKey(key));
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    /// Case F1.
    #[test]
    fn only_a_single_whole_key_opens() {
        let keys = ApiKeys::new(["sk-one", "sk-two"]).unwrap();
        let admits = |lines: &[(&'static str, &'static str)]| keys.admit(&headers(lines)).is_some();
        assert!(admits(&[("authorization", "Bearer sk-one")]));
        assert!(admits(&[("authorization", "bearer sk-two")]));
        assert!(admits(&[("authorization", "BEARER sk-two")]));
        assert!(admits(&[("x-api-key", "sk-two")]));
        assert!(admits(&[
            ("x-api-key", "sk-two"),
            ("authorization", "Bearer sk-one")
        ]));
        for refused in [
            &[][..],
            &[("authorization", "Bearer sk-on")],
            &[("authorization", "Bearer sk-onee")],
            &[("authorization", "Bearer SK-ONE")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer")],
            &[("authorization", "")],
            &[("authorization", "sk-one")],
            &[("authorization", "Basic sk-one")],
            &[("authorization", "Bearer sk-one sk-two")],
            &[
                ("authorization", "Bearer sk-one"),
                ("authorization", "Bearer sk-one"),
            ],
            &[("authorization", "Bearer wrong"), ("x-api-key", "sk-one")],
            &[("x-api-key", "")],
            &[("x-api-key", "sk-one"), ("x-api-key", "sk-one")],
        ] {
            assert!(!admits(refused), "{refused:?}");
        }
    }

    #[test]
    fn a_key_with_a_name_is_told_apart() {
        let named = |name: &str, key: &str| NamedKey {
            name: name.to_owned(),
            digest: digest(key.as_bytes()),
            class: None,
            tenant: None,
        };
        let keys = ApiKeys::new(["sk-one", "sk-b"]).unwrap();
        let keys = keys.with_named(&[named("a", "sk-a"), named("b", "sk-b")]);
        let found = |lines: &[(&'static str, &'static str)]| keys.admit(&headers(lines));
        let bearer = |value: &'static str| found(&[("authorization", value)]);
        assert_eq!(bearer("Bearer sk-one"), Some(Found(None)));
        assert_eq!(bearer("Bearer sk-a"), Some(Found(Some(KeyId(0)))));
        assert_eq!(bearer("Bearer sk-b"), Some(Found(Some(KeyId(1)))));
        assert_eq!(bearer("Bearer sk-c"), None);
        let two = [("x-api-key", "sk-b"), ("authorization", "Bearer sk-a")];
        assert_eq!(found(&two), Some(Found(Some(KeyId(0)))));
        let only_named = ApiKeys::none().with_named(&[named("a", "sk-a")]);
        assert!(!only_named.is_open());
        assert_eq!(only_named.admit(&headers(&[])), None);
    }

    #[test]
    fn a_blank_key_is_refused_when_it_is_set() {
        assert_eq!(ApiKeys::new(["sk-one", "  "]).unwrap_err(), EmptyKey);
    }

    #[test]
    fn keys_do_not_appear_in_debug_output() {
        let keys = ApiKeys::new(["sk-one"]).unwrap();
        assert_eq!(format!("{keys:?}"), "ApiKeys(1)");
    }
}
