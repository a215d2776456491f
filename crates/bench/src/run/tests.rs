//! Whole runs, from the probe to the summary, against an endpoint in memory under a clock that only moves when
//! everybody waits.

use std::path::Path;
use std::time::Duration;

use testkit::mock::endpoint::{Speed, answer};
use testkit::mock::queueing::Slots;
use testkit::mock::{Asked, Mock, Script};

use super::*;
use crate::arrival::Process;
use crate::client::{Connector, Endpoint, Protocol, Timeouts};
use crate::load::{LevelPlan, Now, Pace, Stop, Wish};
use crate::sample::Sample;
use crate::summary::Verdict;

const SHORT: &str = r#"
version = 1
name = "short"
description = "Ten tokens each."
[[class]]
name = "default"
prompt = { distribution = "fixed", value = 50 }
output = { distribution = "fixed", value = 10, exact = true }
"#;

const SPEED: Speed = Speed {
    first_ms: 100.0,
    gap_ms: 10.0,
};

fn order<F, A>(levels: Levels, answer: F) -> Order
where
    F: Fn(Asked) -> A + Send + Sync + 'static,
    A: Future<Output = Script> + Send + 'static,
{
    let server = Mock::new(answer);
    let endpoint: Endpoint = "http://mock".parse().expect("an address");
    Order {
        client: Client {
            headers: Client::headers(&endpoint, None, &[]).expect("headers"),
            endpoint,
            connector: Connector::from_fn(move || {
                let near = server.connect();
                async move { Ok(near) }
            }),
            protocol: Protocol::Http1,
            timeouts: Timeouts {
                connect: Duration::from_secs(5),
                first_token: Duration::from_secs(60),
                next_token: Duration::from_secs(60),
                total: Duration::from_secs(600),
            },
        },
        model: None,
        api: None,
        workload: crate::workload::parse(SHORT, "test", Path::new(".")).expect("a workload"),
        vocabulary: None,
        seed: 1,
        salt: 7,
        body: Map::new(),
        think_s: 0.0,
        concurrency_max: 10_000,
        levels,
        slo: Slo::default(),
        rules: Conduct {
            grace_s: 60.0,
            budget_s: Some(600.0),
        },
        calibration: Calibration::Skip,
    }
}

/// Twelve places behind an endpoint that tells its model and counts tokens.
fn twelve_slots()
-> impl Fn(Asked) -> std::pin::Pin<Box<dyn Future<Output = Script> + Send>> + Send + Sync {
    let slots = Slots::new(12, SPEED.first_ms, SPEED.gap_ms);
    move |asked| {
        if asked.is_for("/v1/chat/completions") && asked.json()["max_tokens"] == 10 {
            Box::pin(slots.clone().answer(asked))
        } else {
            Box::pin(std::future::ready(answer(&asked, SPEED)))
        }
    }
}

fn search() -> Levels {
    Levels::Search {
        first: vec![1, 8, 32, 64],
        stop: Stop {
            duration_s: Some(60.0),
            requests: None,
            precision: Some(0.05),
            precision_from_s: 10.0,
            precision_answers_min: 0,
        },
        users_max: 1024,
    }
}

fn listed(users: u32) -> Levels {
    Levels::Listed(vec![LevelPlan {
        pace: Pace::Users(users),
        stop: Stop {
            duration_s: Some(30.0),
            requests: None,
            precision: None,
            precision_from_s: 10.0,
            precision_answers_min: 0,
        },
    }])
}

async fn run(order: Order) -> Summary {
    let hands = Handle::current();
    let prepared = prepare(order, &hands, |_| {}).await.expect("an endpoint");
    let measured = measure(&prepared, hands, &mut Deaf).await;
    assert!(measured.ended.is_ok());
    let frame = Frame {
        started: "2026-01-01T00:00:00Z".to_owned(),
        command: Vec::new(),
    };
    summarise(&prepared, &measured, frame).0
}

struct Deaf;

impl Audience for Deaf {
    fn begun(&mut self, _: LevelId, _: &LevelPlan, _: f64) -> io::Result<()> {
        Ok(())
    }

    fn heard(&mut self, _: &Sample) -> io::Result<()> {
        Ok(())
    }

    fn tick(&mut self, _: &Ledger, _: Now<'_>) -> io::Result<Wish> {
        Ok(Wish::GoOn)
    }

    fn ended(&mut self, _: &Ledger, _: LevelId, _: f64) -> io::Result<()> {
        Ok(())
    }
}

fn codes(summary: &Summary) -> Vec<&str> {
    let warnings = summary.warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_search_goes_on_until_the_knee_is_known() {
    let summary = run(order(search(), twelve_slots())).await;
    let loads: Vec<u32> = summary
        .levels
        .iter()
        .filter_map(|level| level.users)
        .collect();
    assert_eq!(loads[..2], [1, 8]);
    assert!(loads.len() > 4 && loads.len() <= 14, "{loads:?}");
    let mut apart = loads.clone();
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(
        apart.len(),
        loads.len(),
        "no load is measured twice: {loads:?}"
    );
    let point = summary.operating_point.expect("an operating point");
    assert!(
        matches!(point.verdict, Verdict::Clear | Verdict::Interval),
        "{point:?}"
    );
    assert!(point.low <= 12.5 && point.high >= 10.5, "{point:?}");
    assert!(summary.duration_s <= 661.0, "{}", summary.duration_s);
}

#[tokio::test(start_paused = true)]
async fn a_search_for_an_slo_finds_the_largest_load_that_keeps_it() {
    let mut order = order(search(), twelve_slots());
    // Alone 100 ms; with N users beyond twelve, N / 12 * 190 - 90.
    order.slo = "ttft:p95<400ms".parse().expect("an SLO");
    if let Levels::Search { stop, .. } = &mut order.levels {
        stop.precision_answers_min = 72;
    }
    let summary = run(order).await;
    let largest = summary.slo.expect("an outcome").largest.expect("a load");
    assert!((20.0..=31.0).contains(&largest), "{largest}");
}

#[tokio::test(start_paused = true)]
async fn prompts_have_the_length_that_the_server_counts() {
    let server = |asked: Asked| std::future::ready(answer(&asked, SPEED));
    let summary = run(order(listed(4), server)).await;
    assert_eq!(summary.workload.prompt_tokens_from, "server");
    let level = &summary.levels[0];
    assert_eq!(level.flags, Vec::<String>::new());
    assert!(
        !codes(&summary).contains(&"lengths_estimated"),
        "{:?}",
        codes(&summary)
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_count_is_asked_by_estimate_and_that_is_said() {
    let summary = run(order(listed(4), |asked: Asked| {
        let script = match asked.is_for("/tokenize") {
            true => testkit::mock::wire::document(404, "text/plain", "?"),
            false => answer(&asked, SPEED),
        };
        std::future::ready(script)
    }))
    .await;
    assert_eq!(summary.workload.prompt_tokens_from, "estimate");
    assert!(
        codes(&summary).contains(&"lengths_estimated"),
        "{:?}",
        codes(&summary)
    );
}

#[tokio::test(start_paused = true)]
async fn hits_that_nobody_declared_are_told() {
    let summary = run(order(listed(4), |asked: Asked| {
        let mut script = answer(&asked, SPEED);
        for step in &mut script.steps {
            let text = String::from_utf8_lossy(&step.bytes).into_owned();
            // The chunk's length is not looked at by half: it must grow by as much.
            if let Some(at) = text.find("\"completion_tokens\"") {
                let extra = "\"prompt_tokens_details\":{\"cached_tokens\":40},";
                let body =
                    text[text.find("data:").unwrap_or(0)..at].to_owned() + extra + &text[at..];
                let (event, rest) = body.split_at(body.find("\n\n").unwrap_or(0) + 2);
                let event = testkit::mock::wire::chunk(event);
                step.bytes = (event + rest.trim_start_matches("\r\n")).into_bytes();
            }
        }
        std::future::ready(script)
    }))
    .await;
    assert!(
        codes(&summary).contains(&"cache_hits"),
        "{:?}",
        codes(&summary)
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_of_the_same_seed_asks_for_the_same_lengths_in_other_words() {
    let bodies = |salt: u64| async move {
        let bodies = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&bodies);
        let mut order = order(listed(1), move |asked: Asked| {
            if asked.is_for("/v1/chat/completions") && asked.json()["max_tokens"] == 10 {
                seen.lock().expect("a list").push(asked.json());
            }
            std::future::ready(answer(&asked, SPEED))
        });
        order.salt = salt;
        run(order).await;
        bodies.lock().expect("a list").clone()
    };
    let (one, other, again) = (bodies(1).await, bodies(2).await, bodies(1).await);
    assert_eq!(one[0], again[0]);
    assert_ne!(one[0]["messages"], other[0]["messages"]);
    assert_eq!(one[0]["max_tokens"], other[0]["max_tokens"]);
}

#[tokio::test(start_paused = true)]
async fn a_level_that_measured_nothing_decides_nothing() {
    let Levels::Listed(one) = listed(1) else {
        panic!("levels are listed")
    };
    let mut plans = vec![one[0].clone(); 3];
    // Its first arrival would come after some ten seconds.
    plans[1].pace = Pace::Arrivals(Process::Ramp {
        from: 0.0,
        to: 1.0,
        seconds: 1_000.0,
    });
    let mut order = order(Levels::Listed(plans), twelve_slots());
    order.slo = "ttft:p50<400ms".parse().expect("an SLO");
    // Enough for the first level, and for the second to begin.
    order.rules.budget_s = Some(30.05);
    let summary = run(order).await;
    let outcomes = summary.slo.as_ref().expect("an outcome").levels.iter();
    let outcomes: Vec<_> = outcomes
        .map(|level| (level.load, level.outcome.as_str()))
        .collect();
    assert_eq!(outcomes, [(1.0, "met")]);
    let warning = summary
        .warnings
        .iter()
        .find(|warning| warning.code == "not_measured");
    let text = &warning.expect("a warning").text;
    assert!(text.starts_with("2 of 3 levels"), "{text}");
}
