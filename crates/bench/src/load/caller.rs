//! Who holds a conversation: a user of a closed loop, or an arrival of an open one.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Shared, Target};
use crate::sample::{LevelId, Pacing};

/// What differs between the two.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller<'a> {
    /// Goes on into the next level, if that wants as many users.
    User {
        idx: u32,
        target: &'a watch::Receiver<Target>,
    },
    /// Belongs to one level, and begins nothing after it.
    Arrival {
        target: &'a Target,
        over: &'a CancellationToken,
    },
}

impl<'a> Caller<'a> {
    pub(super) fn pacing(self) -> Pacing {
        match self {
            Caller::User { .. } => Pacing::Closed,
            Caller::Arrival { .. } => Pacing::Open,
        }
    }

    /// What ends its waiting.
    pub(super) fn until(self, shared: &'a Shared) -> &'a CancellationToken {
        match self {
            Caller::User { .. } => &shared.cancel,
            Caller::Arrival { over, .. } => over,
        }
    }

    /// Which level a question asked now belongs to, counted in its quota; none if there is none for it.
    pub(super) fn level(self) -> Option<LevelId> {
        match self {
            Caller::User { idx, target, .. } => {
                let now = target.borrow();
                let asks = !now.is_over && idx < now.users && now.takes_quota();
                asks.then_some(now.level)
            }
            Caller::Arrival { target, over } => {
                let asks = !over.is_cancelled() && target.takes_quota();
                asks.then_some(target.level)
            }
        }
    }
}
