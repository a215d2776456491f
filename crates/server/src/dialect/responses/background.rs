//! A response that nobody waits for: it is made by a task of its own, kept, and asked for
//! later. A bounded number at once; a client can end it.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::Responses;
use crate::answer::Ask;
use crate::choices::{Choices, Happening};
use crate::dialect::{Dialect, to_json};
use crate::errors::Refusal;
use crate::state::{Serving, Shared};
use crate::stream::Out;

/// Starts the work and answers at once with what will become of it.
pub(crate) fn start(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    ask: Ask,
    dialect: Responses,
) -> Result<Response, Refusal> {
    let place = Arc::clone(&shared.background).try_acquire_owned();
    let place = place.map_err(|_full| Refusal::BackgroundFull {
        retry_after: shared.config.limits.retry_after,
    })?;
    let choices = Choices::submit(shared, serving, ask)?;
    let cancel = CancellationToken::new();
    let (response, conversation) = (dialect.response.clone(), dialect.conversation());
    let document = to_json(&response);
    shared.kept.begin(response, conversation, cancel.clone());
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        // Dropping the work, which is what cancelling it does, ends it in the engine too.
        tokio::select! {
            () = work(&shared, dialect, choices, place) => {}
            () = cancel.cancelled() => {}
        }
    });
    let mut response = Response::new(Body::from(document));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

async fn work(
    shared: &Arc<Shared>,
    mut dialect: Responses,
    mut choices: Choices,
    _place: OwnedSemaphorePermit,
) {
    let id = dialect.response.id.clone();
    while let Some((idx, happening)) = choices.next().await {
        shared.kept.progress(&id);
        let usage = choices.usage();
        // Nobody hears it; the response is put together all the same.
        let mut unheard = Out::default();
        match happening {
            Happening::Started | Happening::Prompt(_) => {}
            Happening::News(news) => dialect.news(idx, news, usage, &mut unheard),
            Happening::Ended(ended) => dialect.ended(idx, ended, usage, &mut unheard),
            Happening::Broken(broken) => {
                let refusal = broken.refusal(shared);
                shared.metrics.broken(&refusal);
                return dialect.broken(&[idx], &refusal, usage, &mut unheard);
            }
        }
    }
    dialect.close(choices.usage(), &mut Out::default());
}
