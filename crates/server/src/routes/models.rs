//! `GET /v1/models` and `/v1/models/{id}`. While the model loads there is no list, not an
//! empty one.

use std::sync::Arc;

use api::answer::{ModelCard, ModelList, Never};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};

use crate::errors::Refusal;
use crate::state::{Serving, Shared};

pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let serving = shared.loaded()?;
    let data = shared
        .config
        .served_names
        .iter()
        .map(|name| card(name, &shared, serving))
        .collect();
    Ok(Json(ModelList {
        object: "list",
        data,
    })
    .into_response())
}

pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let serving = shared.loaded()?;
    let Path(id) = id.map_err(|_not_utf8| shared.unknown_model())?;
    let name = shared.served_name(Some(&id))?;
    Ok(Json(card(name, &shared, serving)).into_response())
}

/// The root of every name is the first: where the model's file lies is nobody's business.
fn card<'a>(name: &'a str, shared: &'a Shared, serving: &Serving) -> ModelCard<'a> {
    ModelCard {
        id: name,
        object: "model",
        created: serving.created,
        owned_by: "fulcrum",
        root: &shared.config.served_names[0],
        parent: Never,
        max_model_len: serving.sequence_tokens_max(),
    }
}
