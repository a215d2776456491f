//! Where to ask: a URL as a user types it, taken apart.
//!
//! `http://host:8080`, `https://host/v1` and `http://host/v1/chat/completions` all mean the same server; only the last
//! also says which API. So the base is what stands before `/v1`.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether to speak TLS.
    pub scheme: Scheme,
    /// A name or an address; without brackets if it is IPv6.
    pub host: String,
    /// The port, the scheme's if none was given.
    pub port: u16,
    /// What stands before `/v1`, without a slash at the end.
    pub base_path: String,
    /// The API that the URL named, if it did.
    pub api: Option<Api>,
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// Which API answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Api {
    /// As in `summary.json` and flags.
    pub fn name(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Completions => "completions",
        }
    }

    /// Its route.
    pub fn path(self) -> &'static str {
        match self {
            Api::Chat => "/v1/chat/completions",
            Api::Completions => "/v1/completions",
        }
    }
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL.
    #[error("{url:?} is no URL; write http://HOST:PORT")]
    Form {
        /// As typed.
        url: String,
    },
    /// Neither http nor https.
    #[error("{url:?}: cannot speak {scheme:?}, only http and https")]
    Scheme {
        /// As typed.
        url: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// A query or user, which no request would carry.
    #[error("{url:?}: an endpoint has no {part}; use --header or --api-key-env")]
    Extra {
        /// As typed, without secrets.
        url: String,
        /// What is too much.
        part: &'static str,
    },
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let form = || EndpointError::Form {
            url: text.to_owned(),
        };
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => {
                return Err(EndpointError::Scheme {
                    url: text.to_owned(),
                    scheme: other.to_owned(),
                });
            }
        };
        let uri: Uri = format!("{}://{rest}", scheme.name())
            .parse()
            .map_err(|_| form())?;
        let authority = uri.authority().ok_or_else(form)?;
        let extra = |part| EndpointError::Extra {
            url: format!("{}://{}", scheme.name(), authority.host()),
            part,
        };
        if authority.as_str().contains('@') {
            return Err(extra("user or password"));
        }
        if uri.query().is_some() {
            return Err(extra("query"));
        }
        let host = authority.host().trim_matches(['[', ']']);
        let has_port = authority.as_str().len() > authority.host().len();
        if host.is_empty() || (has_port && authority.port_u16().is_none()) {
            return Err(form());
        }
        let (base_path, api) = base_of(uri.path());
        Ok(Endpoint {
            scheme,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(scheme.port()),
            base_path: base_path.to_owned(),
            api,
        })
    }
}

fn base_of(path: &str) -> (&str, Option<Api>) {
    let path = path.trim_end_matches('/');
    for api in [Api::Chat, Api::Completions] {
        if let Some(base) = path.strip_suffix(api.path()) {
            return (base, Some(api));
        }
    }
    (path.strip_suffix("/v1").unwrap_or(path), None)
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl Endpoint {
    /// `host:port`, as the `Host` header has it.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        if self.port == self.scheme.port() {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The path of `route`, for example `/v1/models`, on this server.
    pub fn path(&self, route: &str) -> String {
        format!("{}{route}", self.base_path)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.scheme.name(), self.authority());
        write!(f, "{scheme}://{authority}{}", self.base_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_address_means_the_server() {
        for (typed, shown, api) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", None),
            ("127.0.0.1:8080/", "http://127.0.0.1:8080", None),
            ("localhost:8080/v1/", "http://localhost:8080", None),
            (
                "HTTPS://api.example.com/v1",
                "https://api.example.com",
                None,
            ),
            ("https://h/llm/v1", "https://h/llm", None),
            ("http://h:80", "http://h", None),
            (
                "http://[::1]:81/v1/completions",
                "http://[::1]:81",
                Some(Api::Completions),
            ),
            ("http://h/v1/chat/completions", "http://h", Some(Api::Chat)),
        ] {
            let endpoint: Endpoint = typed.parse().expect(typed);
            assert_eq!(
                (endpoint.to_string().as_str(), endpoint.api),
                (shown, api),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (typed, word) in [
            ("", "is no URL"),
            ("http://", "is no URL"),
            ("http://:80", "is no URL"),
            ("http://h:", "is no URL"),
            ("http://h:99999", "is no URL"),
            ("ftp://h", "only http and https"),
            ("http://user:secret@h", "no user or password"),
            ("http://h/v1?key=secret", "no query"),
        ] {
            let error = typed.parse::<Endpoint>().expect_err(typed).to_string();
            assert!(error.contains(word), "{typed}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
