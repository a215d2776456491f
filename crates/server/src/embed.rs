//! From texts, or token ids, to vectors.
//!
//! The one idea: inputs go to the engine a few at a time, so that a request of a thousand inputs needs
//! no thousand places in the queue and leaves places to others. Whoever waits here holds the engine's
//! work: if the client goes away, the streams are dropped, and with them what was not computed.
//!
//! Not here: how hidden states become one vector (`engine`), or its form on the wire (`api`).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::completion::Prompt;
use api::embeddings::{
    Embedding, EmbeddingList, EmbeddingRequest, EmbeddingUsage, Encoding, Vector,
};
use api::params::Delivery;
use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::{EmbedRequest, Event, EventStream, FinishReason};
use futures_core::Stream;
use text::{SpecialText, TokenId};

use crate::admit::Admission;
use crate::answer::Desk;
use crate::enter::Placed;
use crate::errors::Refusal;
use crate::state::{Serving, Shared};
use crate::watch::Watch;

/// A request with everything decided.
pub(crate) struct Prepared {
    requests: Vec<EmbedRequest>,
    encoding: Encoding,
    /// Leading values that are kept of each vector.
    num_kept: usize,
    model: String,
    placed: Placed,
}

/// Reads and checks a body; may take long for a long one.
pub(crate) fn prepare(desk: &Desk, body: &[u8]) -> Result<Prepared, Refusal> {
    let (shared, serving) = (&desk.shared, &desk.serving);
    let request = EmbeddingRequest::parse(body, &shared.config.limits.request)?;
    shared.note_unknown(&request.unknown);
    let model = shared.served_name(request.model.as_deref())?;
    let hidden = serving.facts.hidden;
    let num_kept = request.dimensions.map_or(hidden, |kept| kept as usize);
    if num_kept > hidden {
        let reason = format!("must be at most {hidden}, the width of this model's vectors");
        return Err(for_model("dimensions", reason));
    }
    let placed = desk.place(request.urgency, Delivery::Whole);
    placed.expect_no_timeline()?;
    let admission = desk.admission_of(&placed);
    let num_tokens_max = shared.config.limits.embedding_tokens_max;
    let mut num_tokens = 0_usize;
    let mut requests = Vec::with_capacity(request.inputs.len());
    for input in &request.inputs {
        let prompt = tokens_of(&admission, input, &request)?;
        num_tokens += prompt.len();
        if num_tokens > num_tokens_max {
            let reason = format!("has more than {num_tokens_max} tokens in all; send fewer inputs");
            return Err(for_model("input", reason));
        }
        requests.push(EmbedRequest {
            prompt,
            pooling: shared.config.pooling,
            arrived: desk.arrived,
        });
    }
    Ok(Prepared {
        requests,
        encoding: request.encoding,
        num_kept,
        model: model.to_owned(),
        placed,
    })
}

fn tokens_of(
    admission: &Admission<'_>,
    input: &Prompt,
    request: &EmbeddingRequest,
) -> Result<Vec<TokenId>, Refusal> {
    let tokens = match input {
        Prompt::Ids(ids) => admission.known_tokens("input", ids)?,
        Prompt::Text(text) => {
            if !admission.serving.tokenizer.has_text() {
                let reason = "needs a tokenizer, and this model came without one; send token ids";
                return Err(for_model("input", reason));
            }
            admission.expect_bytes_fit("input", text.len())?;
            admission.encode_text(text, request.bos, SpecialText::AsText)
        }
    };
    if tokens.is_empty() {
        return Err(for_model("input", "has no tokens"));
    }
    let num_tokens_max = admission.sequence_tokens_max();
    if tokens.len() > num_tokens_max {
        let context = admission.context_words();
        let message = format!(
            "{context} However, your input resulted in {} tokens.",
            tokens.len()
        );
        let param = "input".to_owned();
        return Err(Refusal::ContextLength { param, message });
    }
    Ok(tokens)
}

/// Computes all vectors and answers with them, in the order of the inputs.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    prepared: Prepared,
) -> Result<Response, Refusal> {
    let Prepared {
        requests,
        encoding,
        num_kept,
        model,
        placed,
    } = prepared;
    let num_tokens: usize = requests.iter().map(|request| request.prompt.len()).sum();
    let mut data: Vec<Option<Embedding>> = Vec::new();
    data.resize_with(requests.len(), || None);
    let mut work = Work {
        waiting: requests.into_iter().enumerate().collect(),
        running: Vec::new(),
    };
    placed.charge(num_tokens as u64);
    let cut = shared.cut.clone();
    let due = placed.time_left(Instant::now());
    let mut due = std::pin::pin!(until(due));
    loop {
        work.top_up(shared, serving, &placed)?;
        let next = tokio::select! {
            next = std::future::poll_fn(|context| work.poll_next(context)) => next,
            () = cut.cancelled() => return Err(cut_off(shared)),
            () = &mut due => return Err(Refusal::TimedOut { timeout: placed.timeout.unwrap_or_default() }),
        };
        let Some((index, event)) = next else { break };
        match event {
            Some(Event::Embedding { vector }) => {
                data[index] = Some(Embedding {
                    object: "embedding",
                    index,
                    embedding: Vector::new(normalised(vector, num_kept), encoding),
                });
            }
            Some(Event::Finished(finished)) => match finished.reason {
                FinishReason::Cancelled | FinishReason::Aborted => return Err(cut_off(shared)),
                FinishReason::Failed { .. } | FinishReason::OutOfConstraint { .. } => {
                    return Err(Refusal::EngineFailed);
                }
                FinishReason::Stop(_) | FinishReason::Length => (),
            },
            Some(Event::Started { .. } | Event::Text { .. } | Event::Prompt { .. }) => (),
            // A stream without an end: the engine thread is gone.
            None => return Err(Refusal::EngineFailed),
        }
    }
    let data: Option<Vec<Embedding>> = data.into_iter().collect();
    let num_tokens = num_tokens as u64;
    let list = EmbeddingList {
        object: "list",
        data: data.ok_or(Refusal::EngineFailed)?,
        model: &model,
        usage: EmbeddingUsage {
            prompt_tokens: num_tokens,
            total_tokens: num_tokens,
        },
    };
    Ok(Json(list).into_response())
}

/// Resolves when the time is over; without a limit it never is.
async fn until(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

fn cut_off(shared: &Shared) -> Refusal {
    Refusal::CutOff {
        retry_after: shared.config.limits.retry_after,
    }
}

/// The inputs of one request, each with its index, as far as they have not ended.
struct Work {
    waiting: VecDeque<(usize, EmbedRequest)>,
    running: Vec<(usize, EventStream)>,
}

impl Work {
    /// Hands over as many as may be at the engine at once. A full queue is no error while some of them
    /// are there: their ends make room, or show that there is none.
    fn top_up(
        &mut self,
        shared: &Shared,
        serving: &Serving,
        placed: &Placed,
    ) -> Result<(), Refusal> {
        let num_at_once = serving.facts.engine_limits.num_sequences_max;
        while self.running.len() < num_at_once {
            let Some((index, request)) = self.waiting.pop_front() else {
                break;
            };
            let submit = |watch: &dyn Fn() -> Arc<Watch>| {
                serving.engine.embed_watched(request.clone(), watch())
            };
            match placed.queue(shared, serving, 1, submit) {
                Ok(events) => {
                    shared.metrics.arrived();
                    self.running.push((index, events));
                }
                Err(refusal) if self.may_wait(&refusal) => {
                    self.waiting.push_front((index, request));
                    break;
                }
                Err(refusal) => return Err(refusal.renamed(|_| "input".to_owned())),
            }
        }
        Ok(())
    }

    fn may_wait(&self, refusal: &Refusal) -> bool {
        let is_full = matches!(
            refusal,
            Refusal::QueueFull { .. } | Refusal::ClassQueueFull { .. }
        );
        is_full && !self.running.is_empty()
    }

    /// The next event of any input; `None` when nothing runs. An input has left once its end was told.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Option<Event>)>> {
        for place in 0..self.running.len() {
            let (index, events) = &mut self.running[place];
            let index = *index;
            if let Poll::Ready(event) = Pin::new(events).poll_next(context) {
                if matches!(event, None | Some(Event::Finished(_))) {
                    self.running.swap_remove(place);
                }
                return Poll::Ready(Some((index, event)));
            }
        }
        match self.running.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

/// The first `num_kept` values, of length 1 as a whole. All zeros have no direction and stay so.
fn normalised(mut vector: Vec<f32>, num_kept: usize) -> Vec<f32> {
    vector.truncate(num_kept);
    let squares = vector.iter().map(|&value| f64::from(value).powi(2));
    let length = squares.sum::<f64>().sqrt();
    if length > 0.0 {
        for value in &mut vector {
            *value = (f64::from(*value) / length) as f32;
        }
    }
    vector
}

fn for_model(param: &str, reason: impl Into<String>) -> Refusal {
    Refusal::ForModel {
        param: param.to_owned(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_normalised_afterwards() {
        assert_eq!(normalised(vec![3.0, -4.0, 12.0], 2), [0.6, -0.8]);
        assert_eq!(normalised(vec![0.0, 0.0, 1.0], 2), [0.0, 0.0]);
        // Whose squares no f32 could hold.
        let large = 2_f32.powi(100);
        assert_eq!(normalised(vec![3.0 * large, 4.0 * large], 2), [0.6, 0.8]);
    }
}
