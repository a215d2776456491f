//! The books of a run: samples go in, [`summary::Level`]s come out, at any time and in bounded memory.
//!
//! The one idea: rates and latencies ask different questions. *Rates* count what arrived while a level ran, whoever
//! asked for it: tokens, answers, requests in flight go into one run-wide timeline by the moment at which they came.
//! *Latencies* ask what became of the requests that were sent while a level was steady, however late they end: rows go
//! into the level's sample. So neither what is in flight when a level ends nor what it took over from the last one
//! distorts either.
//!
//! ```text
//!            level begins    steady from          stops sending
//! time       |---- warm-up ----|======= window =======|- - grace - ->
//! rates                         count arrivals here
//! latencies                     of requests sent here, ending until there
//! ```
//!
//! Not here: what an answer's stream tells (`observe`), what numbers support (`stats`).

// What arrived when.
mod timeline;
// Where the tokens of an answer fall.
mod spread;
// Whether a request was good.
mod goods;
// A bounded sample of requests.
mod reservoir;
// One level's own books.
mod book;
// Which part of a level is steady.
mod window;
// Distributions.
mod figure;
// The gaps of many requests.
mod gaps;
// The requests of a level's steady window.
mod view;
// A level's summary.
mod level;
// What a picture shows.
mod curves;

#[cfg(test)]
mod tests;

use crate::operating_point::LoadPoint;
use crate::sample::{ClassId, LevelId, Pacing, Sample};
use crate::slo::{Objective, Slo};
use crate::stats::Resampler;
use crate::summary::{self, StoppedBy};
use crate::workload::Class;

use self::book::{Book, Dropped};
use self::goods::Kept;
use self::level::Detail;
use self::spread::arrivals_of;
use self::timeline::{Arrivals, Timeline};

/// Bounds of a run's books.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests of a level whose rows are kept; beyond, a uniform sample of them.
    pub level_rows_max: usize,
    /// Rows that all levels keep; beyond, the largest sample is halved.
    pub rows_max: usize,
    /// Different error texts of a level that are counted; further ones are counted as one.
    pub errors_max: usize,
    /// Bytes of an error text.
    pub error_bytes_max: usize,
}

/// The bounds in force: about 60 MB of rows.
pub const LIMITS: Limits = Limits {
    level_rows_max: 20_000,
    rows_max: 60_000,
    errors_max: 256,
    error_bytes_max: 200,
};

/// What is known before a run.
#[derive(Clone, Debug)]
pub struct LedgerConfig {
    /// The workload's classes; at least one.
    pub classes: Vec<Class>,
    /// What every class without its own was promised.
    pub slo: Slo,
    /// What draws samples and resamples.
    pub seed: u64,
}

/// How much load a level offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Closed loop: users who wait for each answer.
    Users(u32),
    /// Open loop: conversations a second that are due.
    Rate(f64),
    /// Open loop: the same, growing or falling.
    Ramp(Ramp),
}

/// A rate that goes in a straight line from one to another, and stays there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// A second, at the beginning.
    pub from: f64,
    /// A second, at the end.
    pub to: f64,
    /// How long it takes.
    pub seconds: f64,
}

impl Ramp {
    /// The mean rate between two moments of its level.
    fn mean(self, [begin, end]: [f64; 2]) -> f64 {
        if end > begin {
            (self.num_due(end) - self.num_due(begin)) / (end - begin)
        } else {
            (self.from + self.to) / 2.0
        }
    }

    /// Arrivals to be expected until then.
    fn num_due(self, at: f64) -> f64 {
        let within = at.min(self.seconds);
        let slope = (self.to - self.from) / self.seconds;
        self.from * within + slope * within * within / 2.0 + self.to * (at - within)
    }
}

impl Load {
    /// Users or conversations a second; of a ramp, on average over it.
    pub fn value(self) -> f64 {
        match self {
            Load::Users(users) => f64::from(users),
            Load::Rate(rate) => rate,
            Load::Ramp(ramp) => ramp.mean([0.0, ramp.seconds]),
        }
    }

    /// The same over a stretch, told in seconds since its level began.
    pub fn value_within(self, stretch: [f64; 2]) -> f64 {
        match self {
            Load::Users(_) | Load::Rate(_) => self.value(),
            Load::Ramp(ramp) => ramp.mean(stretch),
        }
    }

    /// Which of the two.
    pub fn pacing(self) -> Pacing {
        match self {
            Load::Users(_) => Pacing::Closed,
            Load::Rate(_) | Load::Ramp(_) => Pacing::Open,
        }
    }
}

/// What those who ask know about a level's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelFlag {
    /// Requests of an earlier level that were still in flight when it began.
    CarriedOver,
    /// Conversations that its end cut off between two turns. No request that was due is lost by that.
    ConversationsCut,
}

impl LevelFlag {
    /// As in `summary.json`.
    pub fn name(self) -> &'static str {
        match self {
            LevelFlag::CarriedOver => "carried_over",
            LevelFlag::ConversationsCut => "conversations_cut",
        }
    }
}

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// How fast tokens and answers come, right now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The end of the stretch, in seconds since the run began.
    pub at: f64,
    /// Tokens a second; none if nobody counts tokens.
    pub tokens_per_s: Option<f64>,
    /// Whole answers a second.
    pub requests_per_s: f64,
    /// Requests in flight on average.
    pub in_flight: f64,
}

/// A run's books.
#[derive(Clone, Debug)]
pub struct Ledger {
    config: LedgerConfig,
    timeline: Timeline,
    books: Vec<Book>,
    chance: Resampler,
    /// The latest moment that anything told of.
    latest: f64,
    /// Tokens and content events of requests that have a count, for those that have only events; none before there is
    /// such a request.
    counted: Option<(f64, f64)>,
}

impl Ledger {
    /// Empty books.
    ///
    /// # Panics
    ///
    /// If there is no class.
    pub fn new(config: LedgerConfig) -> Ledger {
        assert!(!config.classes.is_empty(), "a request is of some class");
        Ledger {
            timeline: Timeline::new(config.classes.len()),
            books: Vec::new(),
            chance: Resampler::new(config.seed),
            latest: 0.0,
            counted: None,
            config,
        }
    }

    /// A level begins, `at` seconds after the run did. The one before may still have requests in flight.
    pub fn begin_level(&mut self, load: Load, at: f64) -> LevelId {
        self.latest = self.latest.max(at);
        self.books
            .push(Book::new(load, at, self.config.classes.len()));
        LevelId(self.books.len() as u32 - 1)
    }

    /// A level stops sending. Requests that it has in flight go on.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn end_level(&mut self, id: LevelId, at: f64, stopped_by: StoppedBy) {
        self.latest = self.latest.max(at);
        let book = &mut self.books[id.0 as usize];
        book.end = Some(at.max(book.start));
        book.stopped_by = stopped_by;
    }

    /// A request of `class` was due at `due`, and its level ended before it could be sent: it was attempted.
    ///
    /// # Panics
    ///
    /// If there is no such level or class.
    pub fn dropped(&mut self, level: LevelId, class: ClassId, due: f64) {
        let class = usize::from(class.0);
        let book = &mut self.books[level.0 as usize];
        book.drop(Dropped { class, due }, &mut self.chance);
    }

    /// Something to know about a level's figures, `num` times.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn raise(&mut self, level: LevelId, flag: LevelFlag, num: u64) {
        self.books[level.0 as usize].raise(flag.name(), num);
    }

    /// A request was handed over: once for each that [`Ledger::take`] gets later, at its `told`.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn sent(&mut self, level: LevelId, at: f64) {
        self.latest = self.latest.max(at);
        self.books[level.0 as usize].num_sent += 1;
        self.timeline.open(at);
    }

    /// A request ended, however it did. Its level may have ended long ago.
    ///
    /// # Panics
    ///
    /// If there is no such level or class.
    ///
    /// # Cost
    ///
    /// Linear in the events of its answer.
    pub fn take(&mut self, sample: &Sample) {
        let row = sample.row();
        self.latest = self.latest.max(row.ended);
        let kept = goods::is_good(&row, self.slo_of(row.class));
        self.count_arrivals(sample, kept);
        self.timeline.close(sample.told, row.ended);
        self.books[row.level.0 as usize].take(sample, row, kept, &mut self.chance);
        self.bound_rows();
    }

    /// A level's figures, also in the middle of it.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    ///
    /// # Cost
    ///
    /// Some hundred milliseconds with many requests: for a live page see [`Ledger::glance`].
    pub fn level(&self, id: LevelId) -> summary::Level {
        self.summarise(id, Detail::Full)
    }

    /// A level's figures without the intervals that take resampling, and without classes.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn glance(&self, id: LevelId) -> summary::Level {
        self.summarise(id, Detail::Glance)
    }

    /// The largest relative half-width of the 95 % intervals of throughput, TTFT p50 and TPOT p50; none as long as one
    /// of them has no interval.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn precision(&self, id: LevelId, now: f64) -> Option<f64> {
        self.precision_at(id, now)
    }

    /// What the operating point is found from.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn points(&self, id: LevelId) -> LoadPoint {
        self.load_point(id)
    }

    /// What an objective is about, in seconds, over the level's steady window; for one class, or for all. None if too
    /// few requests support it.
    ///
    /// # Panics
    ///
    /// If there is no such level.
    pub fn estimate(
        &self,
        id: LevelId,
        class: Option<ClassId>,
        objective: &Objective,
    ) -> Option<Estimate> {
        self.estimate_of(id, class, objective)
    }

    /// The run so far in `num` stretches from `from` to `to`, for pictures.
    pub fn moments(&self, from: f64, to: f64, num: usize) -> Vec<Moment> {
        let step = (to - from) / num as f64;
        let in_flight = self.timeline.in_flight(from, to, num);
        self.timeline
            .sums(None, from, to, num)
            .iter()
            .zip(in_flight)
            .zip(1..)
            .map(|((sum, in_flight), idx)| Moment {
                at: from + step * f64::from(idx),
                tokens_per_s: self.tokens_of(sum).map(|tokens| tokens / step),
                requests_per_s: sum.whole / step,
                in_flight,
            })
            .collect()
    }

    /// Requests in flight now.
    pub fn num_in_flight(&self) -> u64 {
        self.timeline.num_open() as u64
    }

    /// The promises of a class.
    fn slo_of(&self, class: ClassId) -> &Slo {
        let own = &self.config.classes[usize::from(class.0)].slo;
        if own.objectives.is_empty() {
            &self.config.slo
        } else {
            own
        }
    }

    fn count_arrivals(&mut self, sample: &Sample, kept: Kept) {
        let record = &sample.record;
        let class = usize::from(sample.class.0);
        if let Some(num_tokens) = record.num_tokens {
            let (tokens, events) = self.counted.get_or_insert((0.0, 0.0));
            // An answer that came in one piece says that tokens are counted, but not how many an event has.
            if !record.marks.is_empty() {
                *tokens += num_tokens as f64;
                *events += record.marks.len() as f64;
            }
        }
        for arrival in arrivals_of(record) {
            let what = Arrivals {
                tokens: arrival.tokens.unwrap_or(0.0),
                uncounted: if arrival.tokens.is_none() { 1.0 } else { 0.0 },
                events: if record.marks.is_empty() { 0.0 } else { 1.0 },
                ..Arrivals::default()
            };
            self.timeline.add(class, sample.sent + arrival.at, &what);
        }
        if let (Some(prompt), Some(at)) = (
            record.num_prompt_tokens,
            record.first_token.or(record.last_token),
        ) {
            let what = Arrivals {
                prompt: prompt as f64,
                ..Arrivals::default()
            };
            self.timeline
                .add(class, sample.sent + at.as_secs_f64(), &what);
        }
        if record.status == crate::observe::Status::Ok {
            let what = Arrivals {
                whole: 1.0,
                good: if kept == Kept::Yes { 1.0 } else { 0.0 },
                ..Arrivals::default()
            };
            let ended = sample.sent + record.ended.as_secs_f64();
            self.timeline.add(class, ended, &what);
        }
    }

    /// Tokens, with those of requests that ended before anybody told their count estimated from their events; none if
    /// nobody counts tokens.
    fn tokens_of(&self, sum: &Arrivals) -> Option<f64> {
        let (tokens, events) = self.counted?;
        let tokens_an_event = if events > 0.0 { tokens / events } else { 1.0 };
        Some(sum.tokens + sum.uncounted * tokens_an_event)
    }

    fn bound_rows(&mut self) {
        let num_rows: usize = self.books.iter().map(Book::num_rows).sum();
        if num_rows > LIMITS.rows_max
            && let Some(largest) = self.books.iter_mut().max_by_key(|book| book.num_rows())
        {
            largest.halve(&mut self.chance);
        }
    }
}
