//! The order of levels, and when each ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::arrivals::{Pool, Schedule};
use super::users::user;
use super::{Counters, Hands, LIMITS, Target, Told};
use crate::arrival::{Arrivals, Process, Sequence};
use crate::ledger::{Ledger, Load};
use crate::observe::Status;
use crate::sample::{ClassId, LevelId, Sample};
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
            Pace::Arrivals(process) => Load::Rate(process.mean_rate().unwrap_or(0.0)),
        }
    }
}

/// When a level ends: as soon as one of these is true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// After so many seconds.
    pub duration_s: f64,
    /// After so many requests, when all are answered.
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

    /// Some time has passed.
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
    let pool = Pool::new(hands.shared.setting.concurrency_max);
    let mut head = Head {
        hands,
        ledger,
        audience,
        rules,
        pool,
        in_flight: Vec::new(),
        num_ok: 0,
        loads: Vec::new(),
        exhausted: None,
        last_sent: 0.0,
        heard: Vec::with_capacity(TOLD_AT_ONCE),
    };
    let outcome = head.run_levels(next).await;
    head.finish(&outcome).await?;
    outcome
}

struct Head<'a> {
    hands: Hands,
    ledger: &'a mut Ledger,
    audience: &'a mut dyn Audience,
    rules: Conduct,
    pool: Arc<Pool>,
    /// Requests in flight, by level.
    in_flight: Vec<u64>,
    /// Whole answers to questions of the level that runs.
    num_ok: u64,
    /// Loads of the levels so far.
    loads: Vec<Option<u64>>,
    /// The level that has nothing left to ask.
    exhausted: Option<LevelId>,
    /// When the last request was sent.
    last_sent: f64,
    heard: Vec<Told>,
}

impl Head<'_> {
    async fn run_levels(&mut self, next: &mut Next<'_>) -> io::Result<Ended> {
        loop {
            if self.is_out_of_budget() {
                return Ok(Ended::Budget);
            }
            let now = self.now();
            let Some(plan) = next(self.ledger, now) else {
                return Ok(Ended::Complete);
            };
            match self.run_level(&plan).await? {
                Cause::Interrupted => return Ok(Ended::Interrupted),
                Cause::Budget => return Ok(Ended::Budget),
                _ => {}
            }
        }
    }

    async fn run_level(&mut self, plan: &LevelPlan) -> io::Result<Cause> {
        let start = self.now();
        let level = self.ledger.begin_level(plan.pace.load(), start);
        self.in_flight.push(0);
        self.num_ok = 0;
        self.audience.begun(level, plan, start)?;
        let over = CancellationToken::new();
        self.set_to_work(level, start, plan, &over)?;
        let cause = self.wait_for_the_end(level, start, plan).await;
        over.cancel();
        let cause = cause?;
        let end = match cause {
            // Answers to the last questions belong to the level, but its load had gone before them; unless there
            // was hardly anything but last questions.
            Cause::Exhausted if self.last_sent - start > (self.now() - start) / 2.0 => {
                self.last_sent
            }
            _ => self.now(),
        };
        let name = cause.name(plan);
        self.ledger.end_level(level, end, name);
        self.audience.ended(self.ledger, level, end)?;
        if matches!(plan.pace, Pace::Arrivals(_)) && cause != Cause::Interrupted {
            self.rest();
            self.drain(Some(level), self.rules.grace_s).await?;
        }
        Ok(cause)
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
        let key = load_key(&plan.pace);
        let num_before = self.loads.iter().filter(|&&before| before == key).count();
        let first_number = first_number(&plan.pace, num_before as u64);
        self.loads.push(key);
        self.hands.target.send_replace(Target {
            level,
            users,
            first_number,
            quota: plan.stop.requests,
            tally: Arc::default(),
            is_over: false,
        });
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
            let schedule = Schedule {
                level,
                start,
                arrivals: Arrivals::new(process, sequence).map_err(io::Error::other)?,
                first_number: match class {
                    None => first_number,
                    Some(class) => Workload::own_number(usize::from(class.0), first_number),
                },
                duration_s: plan.stop.duration_s,
                is_main: class.is_none(),
                over: over.clone(),
                target: self.hands.target.subscribe(),
            };
            let running = schedule.run(Arc::clone(&shared), Arc::clone(&self.pool));
            self.hands.handle.spawn(running);
        }
        Ok(())
    }

    async fn wait_for_the_end(
        &mut self,
        level: LevelId,
        start: f64,
        plan: &LevelPlan,
    ) -> io::Result<Cause> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut precision_at = start + plan.stop.precision_from_s;
        loop {
            tokio::select! {
                biased;
                at = ticks.tick() => {
                    let at = self.hands.shared.seconds(at.max(Instant::now()));
                    if self.tick(level, start, plan, at)? == Wish::End {
                        return Ok(Cause::Interrupted);
                    }
                    let is_answered = self.in_flight[level.0 as usize] == 0;
                    if self.exhausted == Some(level) && is_answered {
                        return Ok(Cause::Exhausted);
                    }
                    if at - start >= plan.stop.duration_s {
                        return Ok(Cause::Duration);
                    }
                    if self.is_out_of_budget() {
                        return Ok(Cause::Budget);
                    }
                    if let Some(precision) = plan.stop.precision
                        && at >= precision_at
                        && self.num_ok >= plan.stop.precision_answers_min
                    {
                        precision_at = at + PRECISION_INTERVAL_S;
                        let reached = self.ledger.precision(level, at);
                        if reached.is_some_and(|reached| reached <= precision) {
                            return Ok(Cause::Precision);
                        }
                    }
                }
                _ = self.hands.told.recv_many(&mut self.heard, TOLD_AT_ONCE) => self.hear()?,
            }
        }
    }

    fn tick(
        &mut self,
        level: LevelId,
        level_start: f64,
        plan: &LevelPlan,
        at: f64,
    ) -> io::Result<Wish> {
        let counters: &Counters = &self.hands.shared.counters;
        let now = Now {
            at,
            level,
            level_start,
            plan,
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            num_events: counters.events.load(Ordering::Relaxed),
        };
        self.audience.tick(self.ledger, now)
    }

    fn hear(&mut self) -> io::Result<()> {
        for told in self.heard.drain(..) {
            match told {
                Told::Sent(level, at) => {
                    self.in_flight[level.0 as usize] += 1;
                    self.last_sent = self.last_sent.max(at);
                    self.ledger.sent(level, at);
                }
                Told::Ended(sample) => {
                    self.in_flight[sample.level.0 as usize] -= 1;
                    let is_of_now = sample.level.0 as usize + 1 == self.in_flight.len();
                    self.num_ok += u64::from(is_of_now && sample.record.status == Status::Ok);
                    self.ledger.take(&sample);
                    self.audience.heard(&sample)?;
                }
                Told::Exhausted(level) => self.exhausted = Some(level),
            }
        }
        Ok(())
    }

    /// No user asks until the next level.
    fn rest(&mut self) {
        self.hands.target.send_modify(|target| target.users = 0);
    }

    /// Waits for answers to requests of `level`, or of all, but not for ever.
    async fn drain(&mut self, level: Option<LevelId>, grace_s: f64) -> io::Result<()> {
        let until = Instant::now() + Duration::from_secs_f64(grace_s);
        loop {
            let num: u64 = match level {
                Some(level) => self.in_flight[level.0 as usize],
                None => self.in_flight.iter().sum(),
            };
            if num == 0 {
                return Ok(());
            }
            let hearing = self.hands.told.recv_many(&mut self.heard, TOLD_AT_ONCE);
            match tokio::time::timeout_at(until, hearing).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => self.hear()?,
            }
        }
    }

    /// Lets what is in flight end, within the grace; the rest is cancelled and tells so.
    async fn finish(mut self, outcome: &io::Result<Ended>) -> io::Result<()> {
        self.hands.target.send_modify(|target| {
            target.users = 0;
            target.is_over = true;
        });
        if matches!(outcome, Ok(Ended::Complete | Ended::Budget)) {
            self.drain(None, self.rules.grace_s).await?;
        }
        let Hands { shared, told, .. } = self.hands;
        shared.cancel.cancel();
        // The hands hold the other senders: when they have let go, everything is told.
        drop(shared);
        let mut told: mpsc::Receiver<Told> = told;
        while let Ok(Some(last)) = timeout(LAST_WORDS, told.recv()).await {
            match last {
                Told::Sent(level, at) => self.ledger.sent(level, at),
                Told::Ended(sample) => {
                    self.ledger.take(&sample);
                    // What could not be written before is not tried again.
                    if outcome.is_ok() {
                        self.audience.heard(&sample)?;
                    }
                }
                Told::Exhausted(_) => {}
            }
        }
        Ok(())
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

/// Why a level ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Duration,
    Exhausted,
    Precision,
    Budget,
    Interrupted,
}

impl Cause {
    /// As `summary.json` has it.
    fn name(self, plan: &LevelPlan) -> &'static str {
        match (self, plan.stop.requests) {
            (Cause::Duration, _) => "duration",
            (Cause::Exhausted, Some(_)) => "requests",
            (Cause::Exhausted, None) => "trace_end",
            (Cause::Precision, _) => "precision",
            (Cause::Budget, _) => "budget",
            (Cause::Interrupted, _) => "interrupted",
        }
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

/// Where a level's conversations begin: by its load, so that two runs ask the same at the same load, in whatever
/// order; and by how often that load came before, so that no level asks what another did. A replay begins at the
/// beginning.
///
/// ```text
/// bits 37..40: how often before | bits 20..37: the load | bits 0..20: the conversation
/// ```
fn first_number(pace: &Pace, num_before: u64) -> u64 {
    match load_key(pace) {
        None => 0,
        Some(load) => (num_before % 8) << 37 | load << 20,
    }
}

/// A load in 17 bits: users, or hundredths of a request a second.
fn load_key(pace: &Pace) -> Option<u64> {
    match pace {
        Pace::Users(users) => Some(u64::from(*users) % (1 << 16)),
        Pace::Arrivals(Process::Replay { .. }) => None,
        Pace::Arrivals(process) => {
            let rate = process.mean_rate().unwrap_or(0.0);
            Some((1 << 16) + (rate * 100.0).round() as u64 % (1 << 16))
        }
    }
}
