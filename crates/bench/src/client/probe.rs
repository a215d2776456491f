//! What the endpoint is able to do, asked before anything is measured.
//!
//! Three questions: which model, which fields beyond the standard it takes, and whether it counts tokens. A server
//! that refuses a field is asked without it, because a run must not fail for a nicety.

use std::io;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::body::{Asked, Dialect};
use super::connection::{Connection, Waits};
use super::{Api, Client};
use crate::observe::{LIMITS, Observation, Record, Status};
use crate::workload::{Message, OutputLength, Role};

/// What the endpoint turned out to be.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The model's name: as asked for, or the first that the server has; none if it does not tell.
    pub model: Option<String>,
    /// What it takes.
    pub dialect: Dialect,
    /// Whether it offers `/tokenize`.
    pub tokenizes: Tokenizes,
    /// The trial request's outcome.
    pub trial: Record,
}

/// Whose `/tokenize` it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizes {
    /// vLLM's: `prompt` in, `count` out.
    Prompt,
    /// llama.cpp's: `content` in, `tokens` out.
    Content,
    /// Nobody's.
    No,
}

/// Why an endpoint cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Nobody listens, or nobody answers.
    #[error("cannot reach {endpoint}: {source}")]
    Unreachable {
        /// The address.
        endpoint: String,
        /// Why.
        source: io::Error,
    },
    /// The key is missing or wrong.
    #[error(
        "{endpoint} answers {status}: it wants a key; name the variable that holds it with --api-key-env"
    )]
    Key {
        /// The address.
        endpoint: String,
        /// 401 or 403.
        status: u16,
    },
    /// It has several models and none was named, or not the one that was.
    #[error("{endpoint} has no model {asked:?}; it has {known}")]
    Model {
        /// The address.
        endpoint: String,
        /// As asked for.
        asked: String,
        /// What it has.
        known: String,
    },
    /// The trial request did not succeed.
    #[error("{endpoint} did not answer a trial request: {why}")]
    Trial {
        /// The address.
        endpoint: String,
        /// What happened, with the server's words.
        why: String,
    },
    /// A header of the run is none.
    #[error(transparent)]
    Header(#[from] super::HeaderError),
}

/// Short, and answered by any model.
const TRIAL: &str = "Count to three.";
/// Bytes of an answer to a question that is not measured.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Asks the endpoint what it is; `body` has the fields that every request of the run will have.
///
/// # Errors
///
/// If it cannot be reached, or does not answer a trial request.
///
/// # Cost
///
/// Some requests, one of which generates up to four tokens.
pub async fn probe(
    client: &Client,
    model: Option<&str>,
    api: Option<Api>,
    body: &Map<String, Value>,
) -> Result<Probed, ProbeError> {
    let mut desk = Desk::open(client).await?;
    let model = desk.model(model).await?;
    let api = api.or(client.endpoint.api).unwrap_or(Api::Chat);
    let (dialect, trial) = desk.dialect(model.as_deref(), api, body).await?;
    let tokenizes = desk.tokenizes(model.as_deref()).await;
    Ok(Probed {
        model,
        dialect,
        tokenizes,
        trial,
    })
}

/// How many tokens each of `texts` has by the server's own count; none if it stops telling.
///
/// # Errors
///
/// If the server cannot be reached any more.
///
/// # Cost
///
/// A request for each text.
pub async fn count_tokens(
    client: &Client,
    probed: &Probed,
    texts: &[String],
) -> Result<Option<Vec<u64>>, ProbeError> {
    let mut desk = Desk::open(client).await?;
    let mut counts = Vec::with_capacity(texts.len());
    for text in texts {
        match desk
            .count(probed.tokenizes, probed.model.as_deref(), text)
            .await
        {
            Some(num) => counts.push(num),
            None => return Ok(None),
        }
    }
    Ok(Some(counts))
}

/// How many prompt tokens each of `chats` has, by the usage of an answer of one token; none if the server does not
/// tell.
///
/// # Errors
///
/// If the server cannot be reached any more.
///
/// # Cost
///
/// A request for each chat.
pub async fn count_chats(
    client: &Client,
    probed: &Probed,
    chats: &[Vec<Message>],
    body: &Map<String, Value>,
) -> Result<Option<Vec<u64>>, ProbeError> {
    let mut desk = Desk::open(client).await?;
    let mut counts = Vec::with_capacity(chats.len());
    for messages in chats {
        let asked = Asked {
            model: probed.model.as_deref(),
            messages,
            num_output_tokens: Some(1),
            output: OutputLength::AtMost,
            extra: &[body],
        };
        let record = desk.ask(&asked, probed.dialect).await?;
        match record.num_prompt_tokens {
            Some(num) => counts.push(num),
            None => return Ok(None),
        }
    }
    Ok(Some(counts))
}

/// A connection for questions, reopened when the server closes it.
struct Desk<'a> {
    client: &'a Client,
    connection: Option<Connection>,
    never: CancellationToken,
}

impl Desk<'_> {
    async fn open(client: &Client) -> Result<Desk<'_>, ProbeError> {
        let (connection, _) = client
            .connect()
            .await
            .map_err(|source| unreachable(client, source))?;
        Ok(Desk {
            client,
            connection: Some(connection),
            never: CancellationToken::new(),
        })
    }

    async fn connection(&mut self) -> Result<Connection, ProbeError> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_usable().await
        {
            return Ok(connection);
        }
        let opened = self.client.connect().await;
        let (connection, _) = opened.map_err(|source| unreachable(self.client, source))?;
        Ok(connection)
    }

    /// The answer to a question, whatever its status.
    async fn fetch(
        &mut self,
        route: &str,
        body: Option<Value>,
    ) -> Result<(u16, Value), ProbeError> {
        let request = match body {
            None => self.client.get(route)?,
            Some(body) => self
                .client
                .post(route, &[], Bytes::from(body.to_string()))?,
        };
        let mut connection = self.connection().await?;
        let never = self.never.clone();
        let waits = Waits {
            timeouts: self.client.timeouts,
            cancel: &never,
        };
        let fetched = connection.fetch(request, ANSWER_BYTES_MAX, waits).await;
        let (status, bytes) = fetched.map_err(|source| unreachable(self.client, source))?;
        self.connection = Some(connection);
        Ok((
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        ))
    }

    async fn model(&mut self, asked: Option<&str>) -> Result<Option<String>, ProbeError> {
        let endpoint = self.client.endpoint.to_string();
        let (status, list) = self.fetch("/v1/models", None).await?;
        if matches!(status, 401 | 403) {
            return Err(ProbeError::Key { endpoint, status });
        }
        let known: Vec<&str> = list["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|model| model["id"].as_str())
            .collect();
        match asked {
            // A server may know more names than it lists only if it lists none.
            Some(asked) if !known.is_empty() && !known.contains(&asked) => Err(ProbeError::Model {
                endpoint,
                asked: asked.to_owned(),
                known: known.join(", "),
            }),
            Some(asked) => Ok(Some(asked.to_owned())),
            None => Ok(known.first().map(|name| (*name).to_owned())),
        }
    }

    /// The richest dialect that a trial request survives.
    async fn dialect(
        &mut self,
        model: Option<&str>,
        api: Api,
        body: &Map<String, Value>,
    ) -> Result<(Dialect, Record), ProbeError> {
        let all = Dialect {
            api,
            ignores_end: true,
            counts_events: true,
        };
        let attempts = [
            all,
            Dialect {
                counts_events: false,
                ..all
            },
            Dialect {
                ignores_end: false,
                ..all
            },
            Dialect {
                ignores_end: false,
                counts_events: false,
                ..all
            },
        ];
        let trial = [Message {
            role: Role::User,
            text: TRIAL.into(),
        }];
        let mut last = None;
        for dialect in attempts {
            let asked = Asked {
                model,
                messages: &trial,
                num_output_tokens: Some(4),
                output: OutputLength::Exact,
                extra: &[body],
            };
            let record = self.ask(&asked, dialect).await?;
            match record.status {
                Status::Ok => return Ok((dialect, record)),
                // Only a refused field is a reason to ask with fewer.
                Status::HttpError if matches!(record.http_status, Some(400 | 422)) => {
                    last = Some(record)
                }
                _ => {
                    last = Some(record);
                    break;
                }
            }
        }
        let record = last.unwrap_or_default();
        Err(ProbeError::Trial {
            endpoint: self.client.endpoint.to_string(),
            why: words(&record),
        })
    }

    async fn ask(&mut self, asked: &Asked<'_>, dialect: Dialect) -> Result<Record, ProbeError> {
        let body = asked.body(dialect);
        let request = self.client.post(dialect.api.path(), &[], body)?;
        let connection = self.connection().await?;
        let never = self.never.clone();
        let waits = Waits {
            timeouts: self.client.timeouts,
            cancel: &never,
        };
        let exchanged = connection
            .exchange(request, Observation::new(LIMITS), waits, |_| {})
            .await;
        self.connection = exchanged.connection;
        Ok(exchanged.record)
    }

    async fn tokenizes(&mut self, model: Option<&str>) -> Tokenizes {
        for kind in [Tokenizes::Prompt, Tokenizes::Content] {
            if self
                .count(kind, model, " of the time")
                .await
                .is_some_and(|num| num > 0)
            {
                return kind;
            }
        }
        Tokenizes::No
    }

    async fn count(&mut self, kind: Tokenizes, model: Option<&str>, text: &str) -> Option<u64> {
        let mut body = match kind {
            Tokenizes::Prompt => json!({"prompt": text, "add_special_tokens": false}),
            Tokenizes::Content => json!({"content": text}),
            Tokenizes::No => return None,
        };
        if let (Tokenizes::Prompt, Some(model)) = (kind, model) {
            body["model"] = json!(model);
        }
        self.count_of(body).await
    }

    async fn count_of(&mut self, body: Value) -> Option<u64> {
        let (status, answer) = self.fetch("/tokenize", Some(body)).await.ok()?;
        let counted = answer["count"].as_u64();
        let listed = answer["tokens"]
            .as_array()
            .map(|tokens| tokens.len() as u64);
        counted.or(listed).filter(|_| (200..300).contains(&status))
    }
}

fn unreachable(client: &Client, source: io::Error) -> ProbeError {
    ProbeError::Unreachable {
        endpoint: client.endpoint.to_string(),
        source,
    }
}

/// What went wrong, in a line.
fn words(record: &Record) -> String {
    let status = match (record.status, record.http_status) {
        (Status::HttpError, Some(status)) => format!("status {status}"),
        (status, _) => format!("{status:?}").to_lowercase(),
    };
    match &record.error {
        Some(error) => format!("{status}: {}", error.trim()),
        None => status,
    }
}
