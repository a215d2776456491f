//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use crate::errors::Refusal;
use crate::state::Shared;
use crate::{answer, embed};

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (serving, prepared) = answer::receive(&shared, request, embed::prepare).await?;
    embed::respond(&shared, &serving, prepared).await
}
