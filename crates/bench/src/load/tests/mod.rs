//! Whole runs against servers whose figures are known, under a clock that only moves when everybody waits: an hour of
//! load takes seconds, and every expected value follows from the server's definition.

// What waits, what is dropped, and what is left over.
mod waits;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::mock::queueing::Slots;
use testkit::mock::wire::{STREAM_HEAD, chunk, document, good_answer, step, text_event};
use testkit::mock::{Asked, End, Mock, Script};

use super::*;
use crate::arrival::Process;
use crate::client::{Api, Connector, Endpoint, Protocol, Timeouts};
use crate::ledger::{Ledger, LedgerConfig};
use crate::operating_point::{Criteria, operating_point};
use crate::slo::Slo;
use crate::summary::{Level, StoppedBy, Verdict};

/// Every answer has ten tokens.
const TEN_TOKENS: &str = r#"
version = 1
name = "ten"
description = "Ten tokens each."
[[class]]
name = "default"
prompt = { distribution = "fixed", value = 40 }
output = { distribution = "fixed", value = 10, exact = true }
"#;

/// A run that is to be made.
struct Trial {
    workload: &'static str,
    plans: Vec<LevelPlan>,
    grace_s: f64,
    budget_s: Option<f64>,
    concurrency_max: usize,
    slo: &'static str,
}

impl Trial {
    fn of(plans: Vec<LevelPlan>) -> Trial {
        Trial {
            workload: TEN_TOKENS,
            plans,
            grace_s: 60.0,
            budget_s: None,
            concurrency_max: 10_000,
            slo: "",
        }
    }

    /// Runs it against a server that answers by `answer`.
    async fn run<F, A>(self, answer: F) -> Outcome
    where
        F: Fn(Asked) -> A + Send + Sync + 'static,
        A: Future<Output = Script> + Send + 'static,
    {
        self.run_over(connector_to(answer), Heard::default()).await
    }

    async fn run_over(self, connector: Connector, mut heard: Heard) -> Outcome {
        let workload =
            crate::workload::parse(self.workload, "test", Path::new(".")).expect("a workload");
        let endpoint: Endpoint = "http://mock".parse().expect("an address");
        let slo: Slo = match self.slo {
            "" => Slo::default(),
            slo => slo.parse().expect("an SLO"),
        };
        let mut ledger = Ledger::new(LedgerConfig {
            classes: workload.classes.clone(),
            slo,
            seed: 1,
        });
        let setting = Setting {
            client: Client {
                headers: Client::headers(&endpoint, None, &[]).expect("headers"),
                endpoint,
                connector,
                protocol: Protocol::Http1,
                timeouts: Timeouts {
                    connect: Duration::from_secs(5),
                    first_token: Duration::from_secs(30),
                    next_token: Duration::from_secs(20),
                    total: Duration::from_secs(300),
                },
            },
            dialect: Dialect {
                api: Api::Chat,
                ignores_end: true,
                counts_events: false,
            },
            model: None,
            workload,
            vocabulary: Vocabulary::estimate(),
            seed: 1,
            body: serde_json::Map::new(),
            think_s: 0.0,
            concurrency_max: self.concurrency_max,
            timer: Timer::Runtime,
            epoch: Instant::now(),
        };
        let hands = Hands::new(setting, Handle::current());
        let mut plans = self.plans.into_iter();
        let rules = Conduct {
            grace_s: self.grace_s,
            budget_s: self.budget_s,
        };
        let mut next = |_: &Ledger, _: f64| plans.next();
        let ended = conduct(hands, &mut ledger, &mut next, &mut heard, rules).await;
        Outcome {
            ledger,
            heard,
            ended: ended.expect("an audience that can write"),
        }
    }
}

fn connector_to<F, A>(answer: F) -> Connector
where
    F: Fn(Asked) -> A + Send + Sync + 'static,
    A: Future<Output = Script> + Send + 'static,
{
    let server = Mock::new(answer);
    Connector::from_fn(move || {
        let near = server.connect();
        async move { Ok(near) }
    })
}

struct Outcome {
    ledger: Ledger,
    heard: Heard,
    ended: Ended,
}

impl Outcome {
    fn level(&self, idx: u32) -> Level {
        self.ledger.level(LevelId(idx))
    }
}

/// Remembers what it heard.
#[derive(Default)]
struct Heard {
    samples: Vec<Sample>,
    num_begun: usize,
    num_ended: usize,
    /// Ticks while requests in flight ended.
    num_draining: usize,
    /// Wishes for the end at this moment.
    patience_s: Option<f64>,
}

impl Audience for Heard {
    fn begun(&mut self, _: LevelId, _: &LevelPlan, _: f64) -> std::io::Result<()> {
        self.num_begun += 1;
        Ok(())
    }

    fn heard(&mut self, sample: &Sample) -> std::io::Result<()> {
        self.samples.push(sample.clone());
        Ok(())
    }

    fn tick(&mut self, _: &Ledger, now: Now<'_>) -> std::io::Result<Wish> {
        self.num_draining += usize::from(now.stage == Stage::Draining);
        let is_enough = self
            .patience_s
            .is_some_and(|patience_s| now.at >= patience_s);
        Ok(if is_enough { Wish::End } else { Wish::GoOn })
    }

    fn ended(&mut self, _: &Ledger, _: LevelId, _: f64) -> std::io::Result<()> {
        self.num_ended += 1;
        Ok(())
    }
}

fn stop(duration_s: f64) -> Stop {
    Stop {
        duration_s: Some(duration_s),
        requests: None,
        precision: None,
        precision_from_s: 5.0,
        precision_answers_min: 0,
    }
}

fn users(users: u32, duration_s: f64) -> LevelPlan {
    LevelPlan {
        pace: Pace::Users(users),
        stop: stop(duration_s),
    }
}

fn arrivals(process: Process, duration_s: f64) -> LevelPlan {
    LevelPlan {
        pace: Pace::Arrivals(process),
        stop: stop(duration_s),
    }
}

#[track_caller]
fn assert_near(told: Option<f64>, truth: f64, tolerance: f64) {
    let told = told.expect("a figure");
    let off = (told - truth).abs();
    assert!(off <= tolerance, "{told} is not {truth} (+- {tolerance})");
}

/// Four places; 100 ms to the first token and 10 ms for each other: an answer takes 190 ms.
fn four_slots()
-> impl Fn(Asked) -> std::pin::Pin<Box<dyn Future<Output = Script> + Send>> + Send + Sync {
    let slots = Slots::new(4, 100.0, 10.0);
    move |asked| Box::pin(slots.clone().answer(asked))
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_tells_the_truth_of_a_queueing_server() {
    let outcome = Trial::of(vec![users(1, 60.0), users(8, 60.0)])
        .run(four_slots())
        .await;
    let alone = outcome.level(0);
    assert_near(alone.ttft_ms.p50, 100.0, 1.0);
    assert_near(alone.tpot_ms.p50, 10.0, 0.1);
    assert_near(alone.itl_ms.p99, 10.0, 0.1);
    assert_near(alone.e2e_ms.p50, 190.0, 1.0);
    assert_near(Some(alone.requests_per_s), 1.0 / 0.19, 0.1);
    assert_near(alone.output_tokens_per_s, 10.0 / 0.19, 1.0);
    // Eight users for four places: each waits for one answer of another.
    let queued = outcome.level(1);
    assert_near(queued.ttft_ms.p50, 290.0, 2.0);
    assert_near(queued.e2e_ms.p50, 380.0, 2.0);
    assert_near(queued.tpot_ms.p50, 10.0, 0.1);
    assert_near(Some(queued.requests_per_s), 4.0 / 0.19, 0.5);
    assert_near(queued.littles_law.map(|law| law.in_flight), 8.0, 0.2);
    assert_near(queued.littles_law.map(|law| law.ratio), 1.0, 0.05);
    assert_eq!(outcome.ended, Ended::Complete);
    assert_eq!(queued.stopped_by, StoppedBy::Duration);
    assert_eq!((queued.users, queued.duration_s.round()), (Some(8), 60.0));
}

#[tokio::test(start_paused = true)]
async fn levels_hand_over_without_draining() {
    let outcome = Trial::of(vec![users(4, 10.0), users(4, 10.0)])
        .run(four_slots())
        .await;
    // 20 s of four places that are never idle.
    let num_ok = outcome.level(0).requests.ok + outcome.level(1).requests.ok;
    assert!((415..=425).contains(&num_ok), "{num_ok}");
    let overlap = outcome.heard.samples.iter().filter(|sample| {
        sample.level == LevelId(0) && sample.sent + sample.record.ended.as_secs_f64() > 10.0
    });
    assert_eq!(overlap.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_knee_of_a_queueing_server_is_found() {
    let loads = [1, 2, 4, 8, 16, 32];
    let plans = loads.map(|load| users(load, 60.0)).to_vec();
    let outcome = Trial::of(plans).run(four_slots()).await;
    let points: Vec<_> = outcome
        .ledger
        .level_ids()
        .map(|id| outcome.ledger.points(id))
        .collect();
    let point = operating_point(&points, &Criteria::STANDARD, 1).expect("an operating point");
    assert!(
        matches!(point.verdict, Verdict::Clear | Verdict::Interval),
        "{point:?}"
    );
    assert!(point.low <= 4.5 && point.high >= 3.5, "{point:?}");
    assert_near(point.n_star, 4.0, 0.5);
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_keeps_its_schedule_whatever_the_server_does() {
    let process = Process::Constant { rate: 50.0 };
    let outcome = Trial::of(vec![arrivals(process, 20.0)])
        .run(|asked| {
            std::future::ready(good_answer(
                1,
                asked.json()["max_tokens"].as_u64().unwrap_or(1),
                700.0,
                10.0,
            ))
        })
        .await;
    let level = outcome.level(0);
    assert_eq!(level.requests.ok, 1_000);
    assert_near(level.ttft_ms.p50, 700.0, 2.0);
    assert_near(level.lag_ms.max, 0.0, 1.1);
    assert_near(level.offered_rps, 50.0, 1e-9);
    assert_near(level.achieved_rps, 50.0, 0.5);
}

/// E7: a wait for a place of the client's own is in the latency.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_place_has_waited_since_it_was_due() {
    let mut trial = Trial::of(vec![arrivals(Process::Constant { rate: 10.0 }, 20.0)]);
    // One place for answers of 200 ms: five a second of the ten that are due.
    trial.concurrency_max = 1;
    trial.grace_s = 0.0;
    let outcome = trial
        .run(|_| std::future::ready(good_answer(1, 11, 100.0, 10.0)))
        .await;
    let last = outcome
        .heard
        .samples
        .iter()
        .rfind(|sample| sample.record.status == crate::observe::Status::Ok);
    let row = last.expect("an answer").row();
    // After t seconds, 5 t were sent: the one sent now was due at t / 2.
    assert_near(row.ttft, row.sent - row.due + 0.1, 1e-6);
    assert_near(Some(row.sent - row.due), row.sent / 2.0, 0.3);
    assert!(row.ttft > Some(8.0), "{row:?}");
}

/// E5: one stalled stream does not hang the run.
#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_costs_its_own_time_only() {
    let outcome = Trial::of(vec![users(4, 60.0)])
        .run(|asked| {
            let script = match asked.number % 20 {
                7 => Script {
                    steps: vec![step(0.0, STREAM_HEAD), step(10.0, chunk(&text_event("a")))],
                    end: End::Hang,
                    held: None,
                },
                _ => good_answer(1, 10, 100.0, 10.0),
            };
            std::future::ready(script)
        })
        .await;
    let requests = outcome.level(0).requests;
    assert!(requests.timeout >= 4 && requests.ok > 50, "{requests:?}");
    assert_near(outcome.level(0).ttft_ms.p50, 100.0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_everything_is_not_hammered() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let outcome = Trial::of(vec![users(8, 10.0)])
        .run(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::ready(document(
                503,
                "application/json",
                r#"{"error":{"message":"busy"}}"#,
            ))
        })
        .await;
    let level = outcome.level(0);
    assert_eq!(level.requests.ok, 0);
    assert_eq!(level.requests.http_error, asked.load(Ordering::Relaxed));
    assert!(
        (700..=900).contains(&level.requests.http_error),
        "{:?}",
        level.requests
    );
    assert_eq!(level.attainment, Some(0.0));
    assert_eq!(
        level.errors.first().map(|(text, _)| text.contains("busy")),
        Some(true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_ends_the_run_with_connect_failures() {
    let connector = Connector::from_fn(|| async {
        Err::<tokio::io::DuplexStream, _>(std::io::Error::from(
            std::io::ErrorKind::ConnectionRefused,
        ))
    });
    let outcome = Trial::of(vec![users(2, 5.0)])
        .run_over(connector, Heard::default())
        .await;
    let requests = outcome.level(0).requests;
    assert!(
        requests.connect > 0 && requests.attempted() == requests.connect,
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_number_of_requests_is_exact_and_all_are_answered() {
    let mut plan = users(8, 1_000.0);
    plan.stop.requests = Some(100);
    let outcome = Trial::of(vec![plan.clone(), plan]).run(four_slots()).await;
    for idx in 0..2 {
        let level = outcome.level(idx);
        assert_eq!(
            (level.requests.ok, level.stopped_by),
            (100, StoppedBy::Requests)
        );
    }
    let ids: std::collections::HashSet<_> = outcome
        .heard
        .samples
        .iter()
        .map(|sample| sample.id)
        .collect();
    assert_eq!(
        ids.len(),
        200,
        "no question is asked twice, although the load came twice"
    );
}

#[tokio::test(start_paused = true)]
async fn a_level_ends_when_its_precision_is_reached() {
    let mut plan = users(4, 10_000.0);
    plan.stop.precision = Some(0.05);
    let outcome = Trial::of(vec![plan]).run(four_slots()).await;
    let level = outcome.level(0);
    assert_eq!(level.stopped_by, StoppedBy::Precision);
    assert!(level.duration_s < 60.0, "{}", level.duration_s);
}

#[tokio::test(start_paused = true)]
async fn a_budget_ends_a_run_in_the_middle_of_a_level() {
    let mut trial = Trial::of(vec![users(1, 10.0), users(2, 100.0), users(4, 100.0)]);
    trial.budget_s = Some(30.0);
    let outcome = trial.run(four_slots()).await;
    assert_eq!((outcome.ended, outcome.heard.num_begun), (Ended::Budget, 2));
    assert_eq!(outcome.level(1).stopped_by, StoppedBy::Budget);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_run_keeps_what_it_has() {
    let trial = Trial::of(vec![users(4, 100.0)]);
    let heard = Heard {
        patience_s: Some(20.0),
        ..Heard::default()
    };
    let outcome = trial.run_over(connector_to(four_slots()), heard).await;
    let level = outcome.level(0);
    assert_eq!(
        (outcome.ended, level.stopped_by),
        (Ended::Interrupted, StoppedBy::Interrupted)
    );
    assert_eq!(
        level.requests.cancelled, 4,
        "those in flight tell that they were given up"
    );
    assert!(level.requests.ok > 400);
}

/// E11: requests that the end of the run cuts off do not make the others look slower or faster.
#[tokio::test(start_paused = true)]
async fn answers_that_take_longer_than_the_level_are_waited_for() {
    let outcome = Trial::of(vec![users(2, 10.0)])
        .run(|asked| {
            let slow = asked.number % 2 == 0;
            std::future::ready(good_answer(1, 10, if slow { 8_000.0 } else { 100.0 }, 10.0))
        })
        .await;
    let level = outcome.level(0);
    assert_eq!(level.requests.cancelled, 0);
    assert!(level.requests.ok >= 3, "{:?}", level.requests);
    assert_near(level.ttft_ms.max, 8_000.0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn later_turns_repeat_what_was_said() {
    let bodies = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    let mut trial = Trial::of(vec![users(1, 1_000.0)]);
    trial.workload = r#"
version = 1
name = "talk"
description = "Three turns."
[[class]]
name = "default"
prompt = { distribution = "fixed", value = 40 }
output = { distribution = "fixed", value = 2, exact = true }
turns = { distribution = "fixed", value = 3 }
think = { distribution = "fixed", value = 5 }
history = "answers"
"#;
    trial.plans[0].stop.requests = Some(3);
    let outcome = trial
        .run(move |asked| {
            seen.lock().expect("a list").push(asked.json());
            std::future::ready(good_answer(1, 2, 10.0, 10.0))
        })
        .await;
    let bodies = bodies.lock().expect("a list");
    let last = bodies[2]["messages"].as_array().expect("messages");
    let roles: Vec<_> = last
        .iter()
        .map(|message| message["role"].as_str().unwrap_or(""))
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(last[1]["content"], " word word");
    assert_eq!(
        last[..3],
        bodies[1]["messages"].as_array().expect("messages")[..3]
    );
    let sent: Vec<f64> = outcome
        .heard
        .samples
        .iter()
        .map(|sample| sample.sent)
        .collect();
    assert!(sent[1] - sent[0] >= 5.0, "users think: {sent:?}");
}

#[tokio::test(start_paused = true)]
async fn objectives_make_goodput_and_attainment() {
    let mut trial = Trial::of(vec![users(1, 60.0)]);
    trial.slo = "ttft:p95<500ms";
    let outcome = trial
        .run(|asked| {
            let slow = asked.number % 4 == 0;
            std::future::ready(good_answer(1, 10, if slow { 1_000.0 } else { 100.0 }, 10.0))
        })
        .await;
    let level = outcome.level(0);
    assert_near(level.attainment, 0.75, 0.03);
    assert_near(Some(level.goodput_rps), level.requests_per_s * 0.75, 0.15);
}
