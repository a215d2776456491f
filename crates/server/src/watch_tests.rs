//! Phases and verdicts of answers whose times are given.

use super::*;
use crate::class::Traffic;
use crate::heart::{Heart, Pulse};
use crate::metrics::Metrics;

const MS: Duration = Duration::from_millis(1);

struct Stand {
    metrics: Metrics,
    start: Instant,
    heart: Arc<Heart>,
}

impl Stand {
    fn new() -> Stand {
        let heart = Arc::new(Heart::default());
        Stand {
            metrics: Metrics::new("m", &Traffic::standard(), &heart),
            start: Instant::now(),
            heart,
        }
    }

    fn at(&self, ms: u32) -> Instant {
        self.start + MS * ms
    }

    /// Of the class interactive, arrived at 0, submitted at 10 ms.
    fn watch(&self) -> Watch {
        let traffic = Traffic::standard();
        let class = traffic.class_named("interactive").unwrap();
        let slo = Slo {
            deadline: Some(MS * 3000),
            ..traffic.class(class).slo
        };
        let work = self.heart.begin(self.at(10));
        Watch::new(
            self.metrics.class(class),
            slo,
            self.start,
            self.at(10),
            work,
        )
    }

    fn metric(&self, name: &str, labels: &str) -> f64 {
        let text = self.metrics.render(0);
        let series =
            format!("{name}{{model_name=\"m\",engine=\"0\",class=\"interactive\"{labels}}} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&series));
        found.map_or(0.0, |value| value.parse().unwrap())
    }

    fn missed(&self, slo: &str, cause: &str) -> f64 {
        let labels = format!(",slo=\"{slo}\",cause=\"{cause}\"");
        self.metric("fulcrum_slo_missed_total", &labels)
    }

    fn attained(&self, slo: &str) -> f64 {
        self.metric("fulcrum_slo_attained_total", &format!(",slo=\"{slo}\""))
    }

    fn waiting(&self) -> f64 {
        self.metric("fulcrum_class_waiting", "")
    }
}

#[test]
fn phases_add_up_to_the_time_from_arrival_to_end() {
    let stand = Stand::new();
    let watch = stand.watch();
    watch.stepped();
    watch.started(7, stand.at(100));
    watch.stepped();
    watch.parked(stand.at(150));
    watch.resumed(stand.at(250));
    watch.stepped();
    watch.token(stand.at(400));
    watch.stepped();
    watch.token(stand.at(440));
    watch.parked(stand.at(450));
    watch.resumed(stand.at(650));
    watch.stepped();
    watch.token(stand.at(700));
    watch.ended(&FinishReason::Length, Usage::default(), stand.at(703));
    let phases = watch.phases(stand.at(9999));
    assert_eq!(
        phases,
        Phases {
            prepare: MS * 10,
            queued: MS * 90,
            prefill: MS * 200,
            decode: MS * 103,
            preempted: MS * 300,
            num_preemptions: 2,
            num_prefill_steps: 3,
            num_decode_steps: 2,
            num_cached: 7,
        }
    );
    assert_eq!(phases.sum(), MS * 703);
}

#[test]
fn phases_of_what_ended_early_or_goes_on_add_up_too() {
    let stand = Stand::new();
    let queued = stand.watch();
    assert_eq!(queued.phases(stand.at(50)).sum(), MS * 50);
    queued.ended(&FinishReason::Cancelled, Usage::default(), stand.at(60));
    let phases = queued.phases(stand.at(99));
    assert_eq!((phases.sum(), phases.queued), (MS * 60, MS * 50));
    let parked = stand.watch();
    parked.started(0, stand.at(20));
    parked.parked(stand.at(30));
    let phases = parked.phases(stand.at(80));
    assert_eq!((phases.sum(), phases.preempted), (MS * 80, MS * 50));
}

#[test]
fn a_promise_is_kept_or_missed_for_what_took_longest() {
    let stand = Stand::new();
    let prompt = stand.watch();
    prompt.started(0, stand.at(100));
    prompt.token(stand.at(800));
    assert_eq!(stand.attained("ttft"), 1.0);
    prompt.token(stand.at(920));
    prompt.token(stand.at(1041));
    assert_eq!(
        (stand.attained("itl"), stand.missed("itl", "decode")),
        (1.0, 1.0)
    );
    prompt.parked(stand.at(1050));
    prompt.resumed(stand.at(1400));
    prompt.token(stand.at(1450));
    assert_eq!(stand.missed("itl", "preempt"), 1.0);
    prompt.ended(&FinishReason::Length, Usage::default(), stand.at(1450));
    assert_eq!(stand.attained("deadline"), 1.0);
    let late = stand.watch();
    late.started(0, stand.at(700));
    late.token(stand.at(801));
    assert_eq!(stand.missed("ttft", "queue"), 1.0);
    late.token(stand.at(4000));
    late.ended(&FinishReason::Length, Usage::default(), stand.at(4000));
    assert_eq!(stand.missed("deadline", "decode"), 1.0);
    let slow = stand.watch();
    slow.started(0, stand.at(20));
    slow.token(stand.at(900));
    assert_eq!(stand.missed("ttft", "prefill"), 1.0);
}

#[test]
fn what_waits_is_counted_until_it_starts_ends_or_is_given_up() {
    let stand = Stand::new();
    let [started, ended, given_up] = [stand.watch(), stand.watch(), stand.watch()];
    assert_eq!(stand.waiting(), 3.0);
    started.started(0, stand.at(20));
    ended.ended(&FinishReason::Cancelled, Usage::default(), stand.at(20));
    drop(given_up);
    assert_eq!(stand.waiting(), 0.0);
    started.parked(stand.at(30));
    assert_eq!(stand.waiting(), 1.0);
    started.resumed(stand.at(40));
    let pulse = |ms| stand.heart.pulse(stand.at(ms), MS * 30_000);
    assert_eq!(pulse(50).age(), MS * 40, "the engine has it until it ends");
    started.ended(&FinishReason::Length, Usage::default(), stand.at(50));
    assert_eq!(pulse(60), Pulse::Idle, "whoever still holds the watch");
    drop((started, ended));
    assert_eq!(stand.waiting(), 0.0);
    assert_eq!(
        stand.metric("fulcrum_class_requests_total", ",outcome=\"cancelled\""),
        1.0
    );
}
