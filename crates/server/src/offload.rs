//! Work that takes long, away from the async workers: parsing, rendering and encoding of
//! large bodies. Small ones are cheaper done in place than handed over.

use std::sync::Arc;

use crate::errors::Refusal;
use crate::state::Shared;

/// Does `work` for a body of `num_bytes`: here if it is small, else on a thread for
/// blocking work, a bounded number at once.
pub(crate) async fn run<T: Send + 'static>(
    shared: &Arc<Shared>,
    num_bytes: usize,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let limits = &shared.config.limits;
    if num_bytes <= limits.inline_bytes_max {
        return work();
    }
    let turn = Arc::clone(&shared.preparing).acquire_owned();
    let turn = match tokio::time::timeout(limits.prepare_wait, turn).await {
        Ok(turn) => turn.expect("the semaphore is never closed"),
        Err(_elapsed) => {
            return Err(Refusal::BodiesFull {
                retry_after: limits.retry_after,
            });
        }
    };
    let working = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    working.await.unwrap_or_else(|error| {
        tracing::error!(%error, "preparing a request panicked");
        Err(Refusal::Panicked)
    })
}
