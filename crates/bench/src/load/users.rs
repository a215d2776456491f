//! Closed loop: each user asks, waits for the answer, thinks, and asks again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ask::Line;
use super::caller::Caller;
use super::converse::{Begin, Outcome, converse};
use super::places::Lines;
use super::{Shared, Target, Told};

/// After a failure, a user waits a moment: a refusal costs the server nothing, and would otherwise be all that the
/// client does.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// User `idx` of a run: asks whenever the level has more than `idx` users, until the run is over.
pub(super) async fn user(idx: u32, shared: Arc<Shared>, mut target: watch::Receiver<Target>) {
    let mut line = Line::default();
    // When this user wants to ask again, in seconds of the run.
    let mut ready = 0.0;
    loop {
        let is_wanted = |target: &Target| target.is_over || idx < target.users;
        let Ok(now) = target.wait_for(is_wanted).await.map(|now| now.clone()) else {
            return;
        };
        if now.is_over {
            return;
        }
        if !now.has_quota() {
            // Nothing left in this level.
            if target.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(conversation) = shared.conversation(now.next_number()) else {
            shared.tell(Told::Exhausted(now.level)).await;
            if target.changed().await.is_err() {
                return;
            }
            continue;
        };
        let begin = Begin {
            // Nobody is wanted before the level begins.
            due: f64::max(ready, now.start),
            place: None,
        };
        let caller = Caller::User {
            idx,
            target: &target,
        };
        let lines = Lines::Own(&mut line);
        let think_s = shared.setting.think_s;
        let (ended, pause_s) = match converse(&shared, caller, lines, &conversation, begin).await {
            Outcome::Answered(ended) => (ended, think_s),
            Outcome::Failed(ended) => (ended, think_s.max(PAUSE_AFTER_FAILURE.as_secs_f64())),
            Outcome::Unasked => (shared.seconds(Instant::now()), 0.0),
        };
        ready = ended + pause_s;
        if pause_s > 0.0 {
            tokio::select! {
                () = sleep_until(shared.instant(ready)) => {}
                _ = target.wait_for(|target| target.is_over) => return,
            }
        }
    }
}
