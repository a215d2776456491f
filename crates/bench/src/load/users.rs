//! Closed loop: each user asks, waits for the answer, thinks, and asks again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::ask::{Line, Moment, Outcome, converse};
use super::{Shared, Target, Told};
use crate::sample::Pacing;

/// After a failure, a user waits a moment: a refusal costs the server nothing, and would otherwise be all that the
/// client does.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// User `idx` of a run: asks whenever the level has more than `idx` users, until the run is over.
pub(super) async fn user(idx: u32, shared: Arc<Shared>, mut target: watch::Receiver<Target>) {
    let mut line = Line::default();
    loop {
        let is_wanted = |target: &Target| target.is_over || idx < target.users;
        let Ok(now) = target.wait_for(is_wanted).await.map(|now| now.clone()) else {
            return;
        };
        if now.is_over {
            return;
        }
        let conversation = shared.conversation(now.next_number());
        let (Some(conversation), true) = (conversation, now.has_quota()) else {
            shared.tell(Told::Exhausted(now.level)).await;
            // Nothing left in this level.
            if target.changed().await.is_err() {
                return;
            }
            continue;
        };
        let outcome = converse(&shared, &mut line, &conversation, || {
            let now = target.borrow();
            let goes_on = !now.is_over && idx < now.users && now.takes_quota();
            goes_on.then_some(Moment {
                level: now.level,
                pacing: Pacing::Closed,
                due: None,
            })
        })
        .await;
        let pause = match outcome {
            Outcome::Answered => Duration::from_secs_f64(shared.setting.think_s),
            Outcome::Failed => {
                PAUSE_AFTER_FAILURE.max(Duration::from_secs_f64(shared.setting.think_s))
            }
        };
        if !pause.is_zero() {
            tokio::select! {
                () = sleep(pause) => {}
                _ = target.wait_for(|target| target.is_over) => return,
            }
        }
    }
}
