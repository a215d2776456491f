//! The order of levels, and when each ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::arrivals::Schedule;
use super::numbers::Numbers;
use super::told::Books;
use super::users::user;
use super::{Counters, Hands, LIMITS, Target, Told};
use crate::arrival::{Arrivals, Process, Sequence};
use crate::ledger::{Ledger, LevelFlag, Load, Ramp};
use crate::sample::{ClassId, LevelId, Sample};
use crate::summary::StoppedBy;
use crate::workload::Workload;

/// How a level is paced.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop.
    Users(u32),
    /// Open loop.
    Arrivals(Process),
}

impl Pace {
    /// In the terms of the books.
    pub fn load(&self) -> Load {
        match self {
            Pace::Users(users) => Load::Users(*users),
            &Pace::Arrivals(Process::Ramp { from, to, seconds }) => {
                Load::Ramp(Ramp { from, to, seconds })
            }
            Pace::Arrivals(process) => Load::Rate(process.mean_rate().unwrap_or(0.0)),
        }
    }

    /// Whether its requests in flight end before the next level begins.
    fn drains(&self) -> bool {
        matches!(self, Pace::Arrivals(_))
    }
}

/// When a level ends: as soon as one of these is true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// After so many seconds; none is no bound.
    pub duration_s: Option<f64>,
    /// After so many requests, each turn of a conversation being one, when all are answered.
    pub requests: Option<u64>,
    /// When every 95 % interval is narrower than this share of its value, half-width.
    pub precision: Option<f64>,
    /// Precision is not looked at earlier, in seconds: the beginning of a level is no sample of it.
    pub precision_from_s: f64,
    /// Nor before so many whole answers: a promise about p99 takes more of them than a median's interval.
    pub precision_answers_min: u64,
}

/// A level to come.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelPlan {
    /// Its load.
    pub pace: Pace,
    /// Its end.
    pub stop: Stop,
}

/// Rules of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conduct {
    /// How long requests in flight may go on when nothing more is asked.
    pub grace_s: f64,
    /// The run's end, in seconds since its beginning; none is no bound.
    pub budget_s: Option<f64>,
}

/// What those who watch want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Go on.
    GoOn,
    /// End the run now, and keep what there is.
    End,
}

/// What a run does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The level asks.
    Asking,
    /// It does not any more; what is in flight ends.
    Draining,
}

/// The state of affairs, some times a second.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// Seconds since the run began.
    pub at: f64,
    /// The level.
    pub level: LevelId,
    /// When it began.
    pub level_start: f64,
    /// Its plan.
    pub plan: &'a LevelPlan,
    /// How far it is.
    pub stage: Stage,
    /// Requests in flight.
    pub in_flight: u64,
    /// Content events since the run began.
    pub num_events: u64,
}

/// Those who watch a run. What they cannot do ends it.
pub trait Audience {
    /// A level begins.
    ///
    /// # Errors
    ///
    /// If it cannot be written down.
    fn begun(&mut self, level: LevelId, plan: &LevelPlan, at: f64) -> io::Result<()>;

    /// A request ended.
    ///
    /// # Errors
    ///
    /// If it cannot be written down.
    fn heard(&mut self, sample: &Sample) -> io::Result<()>;

    /// Some time has passed: also while requests in flight end, after [`Audience::ended`].
    ///
    /// # Errors
    ///
    /// If it cannot be shown or written down.
    fn tick(&mut self, ledger: &Ledger, now: Now<'_>) -> io::Result<Wish>;

    /// A level ended, at `at`.
    ///
    /// # Errors
    ///
    /// If it cannot be written down.
    fn ended(&mut self, ledger: &Ledger, level: LevelId, at: f64) -> io::Result<()>;
}

/// Says which level comes next, from what is known at a moment; none ends the run.
pub type Next<'a> = dyn FnMut(&Ledger, f64) -> Option<LevelPlan> + Send + 'a;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every level was run.
    Complete,
    /// Its time was over.
    Budget,
    /// Somebody wished so.
    Interrupted,
}

/// Watchers look so often.
const TICK: Duration = Duration::from_millis(100);
/// Precision costs a resampling; it does not change faster.
const PRECISION_INTERVAL_S: f64 = 1.0;
/// Cancelled requests tell their end at once; what has not by then is lost.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Messages heard in one go.
const TOLD_AT_ONCE: usize = 256;

/// Runs levels until there are no more, and keeps the books.
///
/// # Errors
///
/// What the audience cannot do. The books then hold all that was heard.
pub async fn conduct(
    hands: Hands,
    ledger: &mut Ledger,
    next: &mut Next<'_>,
    audience: &mut dyn Audience,
    rules: Conduct,
) -> io::Result<Ended> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut head = Head {
        hands,
        books: Books::new(ledger),
        audience,
        rules,
        numbers: Numbers::default(),
        running: None,
        ticks,
        heard: Vec::with_capacity(TOLD_AT_ONCE),
    };
    let ended = head.run_levels(next).await;
    head.finish(ended).await
}

struct Head<'a> {
    hands: Hands,
    books: Books<'a>,
    audience: &'a mut dyn Audience,
    rules: Conduct,
    numbers: Numbers,
    /// The level that runs, or ran last.
    running: Option<Running>,
    ticks: Interval,
    heard: Vec<Told>,
}

/// A level that has begun.
struct Running {
    level: LevelId,
    start: f64,
    plan: LevelPlan,
    stage: Stage,
}

/// Why the head woke up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Woken {
    /// It has heard something.
    Heard,
    /// It is this late, in seconds of the run.
    Ticked(f64),
    /// Those who watch want the end.
    Interrupted,
}

impl Head<'_> {
    async fn run_levels(&mut self, next: &mut Next<'_>) -> io::Result<Ended> {
        loop {
            if self.is_out_of_budget() {
                return Ok(Ended::Budget);
            }
            let now = self.now();
            let Some(plan) = next(self.books.ledger, now) else {
                return Ok(Ended::Complete);
            };
            match self.run_level(plan).await? {
                StoppedBy::Interrupted => return Ok(Ended::Interrupted),
                StoppedBy::Budget => return Ok(Ended::Budget),
                _ => {}
            }
        }
    }

    async fn run_level(&mut self, plan: LevelPlan) -> io::Result<StoppedBy> {
        let start = self.now();
        let level = self.begin_level(&plan, start)?;
        let over = CancellationToken::new();
        let ends_anyway = over.clone().drop_guard();
        self.set_to_work(level, start, &plan, &over)?;
        self.running = Some(Running {
            level,
            start,
            plan: plan.clone(),
            stage: Stage::Asking,
        });
        let stopped_by = self.wait_for_the_end(level, start, &plan).await?;
        let end = match stopped_by {
            // Answers to the last questions belong to the level, but its load had gone before them; unless there
            // was hardly anything but last questions.
            StoppedBy::Requests | StoppedBy::TraceEnd
                if self.books.last_sent - start > (self.now() - start) / 2.0 =>
            {
                self.books.last_sent
            }
            _ => self.now(),
        };
        drop(ends_anyway);
        self.hear_the_last_of_schedules().await?;
        self.books.ledger.end_level(level, end, stopped_by);
        self.audience.ended(self.books.ledger, level, end)?;
        if plan.pace.drains() && stopped_by != StoppedBy::Interrupted {
            self.rest();
            if self.drain(Some(level)).await? == Wish::End {
                return Ok(StoppedBy::Interrupted);
            }
        }
        Ok(stopped_by)
    }

    /// Opens the level's books. What an open loop left behind, or finds, is none of its own load.
    fn begin_level(&mut self, plan: &LevelPlan, start: f64) -> io::Result<LevelId> {
        let drained = |running: &Running| running.plan.pace.drains();
        let hands_over = !plan.pace.drains() && !self.running.as_ref().is_some_and(drained);
        let num_left = self.books.num_in_flight();
        let level = self.books.ledger.begin_level(plan.pace.load(), start);
        self.books.begin();
        if num_left > 0 && !hands_over {
            let flag = LevelFlag::CarriedOver;
            self.books.ledger.raise(level, flag, num_left);
        }
        self.audience.begun(level, plan, start)?;
        Ok(level)
    }

    /// Tells the hands what the level asks of them.
    fn set_to_work(
        &mut self,
        level: LevelId,
        start: f64,
        plan: &LevelPlan,
        over: &CancellationToken,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.hands.shared);
        let users = match plan.pace {
            Pace::Users(users) => users.min(LIMITS.users_max),
            Pace::Arrivals(_) => 0,
        };
        let target = Target {
            level,
            start,
            users,
            first_number: self.numbers.first_of(&plan.pace),
            quota: plan.stop.requests,
            tally: Arc::default(),
            is_over: false,
        };
        self.hands.target.send_replace(target.clone());
        while self.hands.num_users < users {
            let target = self.hands.target.subscribe();
            let asking = user(self.hands.num_users, Arc::clone(&shared), target);
            self.hands.handle.spawn(asking);
            self.hands.num_users += 1;
        }
        for (process, class) in processes(plan, &shared.setting.workload) {
            let sequence = Sequence {
                seed: shared.setting.seed,
                level,
                class,
            };
            let arrivals = Arrivals::new(process, sequence).map_err(io::Error::other)?;
            let schedule = Schedule {
                arrivals: arrivals.peekable(),
                class,
                number: match class {
                    None => target.first_number,
                    Some(class) => Workload::own_number(usize::from(class.0), target.first_number),
                },
                duration_s: plan.stop.duration_s,
                target: target.clone(),
                over: over.clone(),
            };
            self.hands.handle.spawn(schedule.run(Arc::clone(&shared)));
            self.books.num_schedules += 1;
        }
        Ok(())
    }

    async fn wait_for_the_end(
        &mut self,
        level: LevelId,
        start: f64,
        plan: &LevelPlan,
    ) -> io::Result<StoppedBy> {
        self.ticks.reset_immediately();
        let stop = &plan.stop;
        let mut precision_at = start + stop.precision_from_s;
        loop {
            let at = match self.attend().await? {
                Woken::Heard => continue,
                Woken::Interrupted => return Ok(StoppedBy::Interrupted),
                Woken::Ticked(at) => at,
            };
            let is_answered = self.books.num_in_flight_of(level) == 0;
            if is_answered && self.books.has_asked(stop.requests) {
                return Ok(StoppedBy::Requests);
            }
            if is_answered && self.books.is_exhausted(level) {
                return Ok(StoppedBy::TraceEnd);
            }
            if stop
                .duration_s
                .is_some_and(|duration_s| at - start >= duration_s)
            {
                return Ok(StoppedBy::Duration);
            }
            if self.is_out_of_budget() {
                return Ok(StoppedBy::Budget);
            }
            if let Some(precision) = stop.precision
                && at >= precision_at
                && self.books.num_ok >= stop.precision_answers_min
            {
                precision_at = at + PRECISION_INTERVAL_S;
                let reached = self.books.ledger.precision(level, at);
                if reached.is_some_and(|reached| reached <= precision) {
                    return Ok(StoppedBy::Precision);
                }
            }
        }
    }

    /// Hears what is told, or lets those who watch look, whichever comes first.
    async fn attend(&mut self) -> io::Result<Woken> {
        tokio::select! {
            biased;
            at = self.ticks.tick() => {
                let at = self.hands.shared.seconds(at.max(Instant::now()));
                Ok(match self.tick(at)? {
                    Wish::GoOn => Woken::Ticked(at),
                    Wish::End => Woken::Interrupted,
                })
            }
            _ = self.hands.told.recv_many(&mut self.heard, TOLD_AT_ONCE) => {
                for told in self.heard.drain(..) {
                    if let Some(sample) = self.books.note(told) {
                        self.audience.heard(&sample)?;
                    }
                }
                Ok(Woken::Heard)
            }
        }
    }

    fn tick(&mut self, at: f64) -> io::Result<Wish> {
        let Some(running) = &self.running else {
            return Ok(Wish::GoOn);
        };
        let counters: &Counters = &self.hands.shared.counters;
        let now = Now {
            at,
            level: running.level,
            level_start: running.start,
            plan: &running.plan,
            stage: running.stage,
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            num_events: counters.events.load(Ordering::Relaxed),
        };
        self.audience.tick(self.books.ledger, now)
    }

    /// Schedules that end tell what they dropped: it belongs to the level's figures.
    async fn hear_the_last_of_schedules(&mut self) -> io::Result<()> {
        let until = Instant::now() + LAST_WORDS;
        while self.books.num_schedules > 0 && Instant::now() < until {
            // Who wants the end says so again.
            self.attend().await?;
        }
        Ok(())
    }

    /// No user asks until the next level.
    fn rest(&mut self) {
        self.hands.target.send_modify(|target| target.users = 0);
    }

    /// Waits for answers to requests of `level`, or of all, but not for ever; those who watch go on watching.
    async fn drain(&mut self, level: Option<LevelId>) -> io::Result<Wish> {
        if let Some(running) = &mut self.running {
            running.stage = Stage::Draining;
        }
        let until = self.now() + self.rules.grace_s;
        loop {
            let num = match level {
                Some(level) => self.books.num_in_flight_of(level),
                None => self.books.num_in_flight(),
            };
            if num == 0 || self.now() >= until {
                return Ok(Wish::GoOn);
            }
            if self.attend().await? == Woken::Interrupted {
                return Ok(Wish::End);
            }
        }
    }

    /// Lets what is in flight end, within the grace; the rest is cancelled and tells so.
    async fn finish(mut self, ended: io::Result<Ended>) -> io::Result<Ended> {
        self.hands.target.send_modify(|target| {
            target.users = 0;
            target.is_over = true;
        });
        let mut ended = ended;
        if matches!(ended, Ok(Ended::Complete | Ended::Budget)) {
            match self.drain(None).await {
                Ok(Wish::GoOn) => {}
                Ok(Wish::End) => ended = Ok(Ended::Interrupted),
                Err(error) => ended = Err(error),
            }
        }
        let Hands { shared, told, .. } = self.hands;
        shared.cancel.cancel();
        // The hands hold the other senders: when they have let go, everything is told.
        drop(shared);
        let mut told: mpsc::Receiver<Told> = told;
        while let Ok(Some(last)) = timeout(LAST_WORDS, told.recv()).await {
            let sample = self.books.note(last);
            // What could not be written before is not tried again.
            if let (Some(sample), Ok(_)) = (sample, &ended)
                && let Err(error) = self.audience.heard(&sample)
            {
                ended = Err(error);
            }
        }
        ended
    }

    fn now(&self) -> f64 {
        self.hands.shared.seconds(Instant::now())
    }

    fn is_out_of_budget(&self) -> bool {
        self.rules
            .budget_s
            .is_some_and(|budget_s| self.now() >= budget_s)
    }
}

/// The schedules of a level: its own, and those of classes that follow nobody.
fn processes(plan: &LevelPlan, workload: &Workload) -> Vec<(Process, Option<ClassId>)> {
    let mut processes = Vec::new();
    if let Pace::Arrivals(process) = &plan.pace {
        processes.push((process.clone(), None));
    }
    for (idx, class) in workload.classes.iter().enumerate() {
        if let Some(process) = &class.arrivals {
            processes.push((process.clone(), Some(ClassId(idx as u16))));
        }
    }
    processes
}
