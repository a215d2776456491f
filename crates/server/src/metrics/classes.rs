//! What is counted for each class: waits, outcomes, latencies, and targets kept or missed, with what
//! made them miss. The names of classes are the operator's, so this adds a fixed number of series.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::buckets;

/// The books of one class.
#[derive(Debug)]
pub(crate) struct ClassBooks {
    pub waiting: Gauge,
    pub ttft: Histogram,
    pub inter_token: Histogram,
    name: String,
    families: Families,
    /// Held from counting who waits to taking a place among them.
    door: Mutex<()>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Cancelled,
    Failed,
    Refused,
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Ttft,
    Itl,
    Deadline,
}

/// What took the time when a promise was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Queue,
    Prefill,
    Decode,
    Preempt,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    class: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kept {
    class: String,
    slo: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Missed {
    class: String,
    slo: &'static str,
    cause: &'static str,
}

#[derive(Clone, Debug)]
struct Families {
    waiting: Family<OfClass, Gauge>,
    ended: Family<Ended, Counter>,
    ttft: Family<OfClass, Histogram>,
    inter_token: Family<OfClass, Histogram>,
    attained: Family<Kept, Counter>,
    missed: Family<Missed, Counter>,
}

/// Books for each class, in order; their families are registered.
pub(super) fn books<'a>(
    names: impl IntoIterator<Item = &'a str>,
    registry: &mut Registry,
) -> Vec<Arc<ClassBooks>> {
    let seconds = || Histogram::new(buckets::TTFT_SECONDS);
    let gaps = || Histogram::new(buckets::TOKEN_SECONDS);
    let families = Families {
        waiting: Family::default(),
        ended: Family::default(),
        ttft: Family::new_with_constructor(seconds as fn() -> Histogram),
        inter_token: Family::new_with_constructor(gaps as fn() -> Histogram),
        attained: Family::default(),
        missed: Family::default(),
    };
    families.register(registry);
    let of_class = |name: &str| Arc::new(ClassBooks::new(name, &families));
    names.into_iter().map(of_class).collect()
}

impl Families {
    fn register(&self, registry: &mut Registry) {
        let Families {
            waiting,
            ended,
            ttft,
            inter_token,
            attained,
            missed,
        } = self.clone();
        let help = "Sequences of a class that wait, preempted ones included";
        registry.register("fulcrum_class_waiting", help, waiting);
        let help = "Sequences of a class by what became of them; requests of it that were refused";
        registry.register("fulcrum_class_requests", help, ended);
        let help = "From arrival to the first answer token";
        registry.register("fulcrum_class_ttft_seconds", help, ttft);
        let help = "Between consecutive answer tokens";
        registry.register("fulcrum_class_itl_seconds", help, inter_token);
        let help = "First tokens, gaps and answers that came within their target";
        registry.register("fulcrum_slo_attained", help, attained);
        let help = "Those that did not, by what took the time";
        registry.register("fulcrum_slo_missed", help, missed);
    }
}

impl ClassBooks {
    /// All series of the class exist from the start, so that their first step can be seen.
    fn new(name: &str, families: &Families) -> ClassBooks {
        let class = || OfClass {
            class: name.to_owned(),
        };
        let books = ClassBooks {
            waiting: families.waiting.get_or_create(&class()).clone(),
            ttft: families.ttft.get_or_create(&class()).clone(),
            inter_token: families.inter_token.get_or_create(&class()).clone(),
            name: name.to_owned(),
            families: families.clone(),
            door: Mutex::new(()),
        };
        for outcome in [
            Outcome::Completed,
            Outcome::Cancelled,
            Outcome::Failed,
            Outcome::Refused,
        ] {
            drop(families.ended.get_or_create(&books.of_outcome(outcome)));
        }
        for target in [Target::Ttft, Target::Itl, Target::Deadline] {
            drop(families.attained.get_or_create(&books.of_kept(target)));
        }
        books
    }

    /// Nobody else of the class takes a place in the queue meanwhile.
    pub fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn num_waiting(&self) -> usize {
        usize::try_from(self.waiting.get()).unwrap_or(0)
    }

    pub fn ended(&self, outcome: Outcome) {
        let labels = self.of_outcome(outcome);
        self.families.ended.get_or_create(&labels).inc();
    }

    /// What was promised within `target` took `real`, mostly for `cause`.
    pub fn judge(&self, slo: Target, real: Duration, target: Option<Duration>, cause: Cause) {
        let Some(target) = target else { return };
        if real <= target {
            let labels = self.of_kept(slo);
            self.families.attained.get_or_create(&labels).inc();
            return;
        }
        let labels = Missed {
            class: self.name.clone(),
            slo: slo.word(),
            cause: cause.word(),
        };
        self.families.missed.get_or_create(&labels).inc();
    }

    fn of_outcome(&self, outcome: Outcome) -> Ended {
        Ended {
            class: self.name.clone(),
            outcome: outcome.word(),
        }
    }

    fn of_kept(&self, slo: Target) -> Kept {
        Kept {
            class: self.name.clone(),
            slo: slo.word(),
        }
    }
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Cancelled => "cancelled",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
        }
    }
}

impl Target {
    fn word(self) -> &'static str {
        match self {
            Target::Ttft => "ttft",
            Target::Itl => "itl",
            Target::Deadline => "deadline",
        }
    }
}

impl Cause {
    fn word(self) -> &'static str {
        match self {
            Cause::Queue => "queue",
            Cause::Prefill => "prefill",
            Cause::Decode => "decode",
            Cause::Preempt => "preempt",
        }
    }
}
