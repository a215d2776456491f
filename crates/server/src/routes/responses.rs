//! `/v1/responses` and what becomes of a response afterwards.

use std::sync::Arc;

use api::RequestError;
use api::responses::answer::{Deleted, ItemList};
use api::responses::{Attendance, expect_includable};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::answer;
use crate::demand;
use crate::dialect::responses::{self, background};
use crate::errors::Refusal;
use crate::kept::NotCancelled;
use crate::state::Shared;

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (serving, prepared) = answer::receive(&shared, request, responses::prepare).await?;
    let responses::Prepared {
        mut ask,
        dialect,
        mode,
        attendance,
    } = prepared;
    demand::meet(&shared, &serving, &mut ask).await?;
    match attendance {
        Attendance::Background => background::start(&shared, &serving, ask, dialect),
        Attendance::Attended => {
            let dialect = Box::new(dialect);
            let prepared = answer::Prepared { ask, dialect, mode };
            answer::respond(&shared, &serving, prepared).await
        }
    }
}

type Pairs = Vec<(String, String)>;

pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<Pairs>, QueryRejection>,
) -> Result<Response, Refusal> {
    let mut unknown = Vec::new();
    for (key, value) in pairs(query)? {
        match (key.as_str(), value.as_str()) {
            ("stream", "false") => {}
            // Only what is still being made could be streamed, and it has no client.
            ("stream" | "starting_after" | "include_obfuscation", _) => {
                return Err(not_built(key));
            }
            ("include" | "include[]", part) => expect_includable("include", part)?,
            _ => unknown.push(key),
        }
    }
    // As those of a body.
    shared.note_unknown(&unknown);
    let document = shared.kept.document(&known(id)?);
    Ok(json(document.ok_or(Refusal::UnknownResponse)?.into()))
}

pub(super) async fn cancel(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    match shared.kept.cancel(&known(id)?) {
        Ok(document) => Ok(json(document.into())),
        Err(NotCancelled::Unknown) => Err(Refusal::UnknownResponse),
        Err(NotCancelled::Attended) => Err(Refusal::ForModel {
            param: "response_id".to_owned(),
            reason: "names a response that was not made in the background".to_owned(),
        }),
    }
}

pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = known(id)?;
    if !shared.kept.delete(&id) {
        return Err(Refusal::UnknownResponse);
    }
    let deleted = Deleted {
        id: &id,
        object: "response",
        deleted: true,
    };
    Ok(Json(deleted).into_response())
}

/// The request's own items, newest first unless asked otherwise.
pub(super) async fn input_items(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<Pairs>, QueryRejection>,
) -> Result<Response, Refusal> {
    let page = Page::read(pairs(query)?)?;
    shared.note_unknown(&page.unknown);
    let conversation = shared.kept.conversation(&known(id)?);
    let conversation = conversation.ok_or(Refusal::UnknownResponse)?;
    let items = conversation.items();
    let mut items: Vec<&Value> = items[conversation.input.clone()].iter().collect();
    if page.newest_first {
        items.reverse();
    }
    let begin = match &page.after {
        None => 0,
        Some(after) => {
            let found = items.iter().position(|item| item["id"] == after.as_str());
            found.ok_or_else(|| invalid("after", "the id of an item of this response"))? + 1
        }
    };
    let rest = &items[begin..];
    let data: Vec<&Value> = rest.iter().copied().take(page.limit).collect();
    let list = ItemList {
        object: "list",
        first_id: data.first().and_then(|item| item["id"].as_str()),
        last_id: data.last().and_then(|item| item["id"].as_str()),
        has_more: data.len() < rest.len(),
        data,
    };
    Ok(Json(list).into_response())
}

/// Which items, and in which order.
struct Page {
    after: Option<String>,
    limit: usize,
    newest_first: bool,
    /// Keys nobody knows, for the log.
    unknown: Vec<String>,
}

impl Page {
    fn read(pairs: Pairs) -> Result<Page, Refusal> {
        let mut page = Page {
            after: None,
            limit: 20,
            newest_first: true,
            unknown: Vec::new(),
        };
        for (key, value) in pairs {
            match key.as_str() {
                "after" => page.after = Some(value),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=100).contains(limit));
                    let says = "an integer from 1 to 100";
                    page.limit = limit.ok_or_else(|| invalid("limit", says))?;
                }
                "order" => {
                    page.newest_first = match value.as_str() {
                        "asc" => false,
                        "desc" => true,
                        _ => return Err(invalid("order", "\"asc\" or \"desc\"")),
                    }
                }
                "before" => return Err(not_built(key)),
                "include" | "include[]" => expect_includable("include", &value)?,
                _ => page.unknown.push(key),
            }
        }
        Ok(page)
    }
}

fn pairs(query: Result<Query<Pairs>, QueryRejection>) -> Result<Pairs, Refusal> {
    let Query(pairs) = query.map_err(|_| invalid("query", "pairs of names and values"))?;
    Ok(pairs)
}

/// An id that is no text is nobody's.
fn known(id: Result<Path<String>, PathRejection>) -> Result<String, Refusal> {
    let Path(id) = id.map_err(|_not_utf8| Refusal::UnknownResponse)?;
    Ok(id)
}

fn invalid(param: &str, expected: &str) -> Refusal {
    Refusal::Request(RequestError::Invalid {
        param: param.to_owned(),
        expected: expected.to_owned(),
        got: "another value".to_owned(),
    })
}

fn not_built(param: String) -> Refusal {
    Refusal::Request(RequestError::Unsupported {
        param,
        accepted: String::new(),
    })
}

fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
