//! Runs whose difference is known.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;
use crate::observe::Status;
use crate::sample::{AskId, ClassId, GapSketch, LevelId};
use crate::summary::{ClientSummary, WorkloadSummary};

/// A server: what its latencies are multiplied by, and whose luck it has.
#[derive(Clone, Copy)]
struct Server {
    factor: f64,
    luck: u64,
    num_requests: u64,
}

const PLAIN: Server = Server {
    factor: 1.0,
    luck: 1,
    num_requests: 400,
};

/// Prompts differ much (deviation 0.8 of the logarithm) and alike on every server; a server's luck is small (0.1).
fn run(server: Server) -> Run {
    let mut prompts = ChaCha8Rng::seed_from_u64(99);
    let mut luck = ChaCha8Rng::seed_from_u64(server.luck);
    let mut rows = Vec::new();
    for number in 0..server.num_requests {
        let size = (0.8 * normal(&mut prompts)).exp();
        let slow = server.factor * size * (0.1 * normal(&mut luck)).exp();
        let due = 0.1 * number as f64;
        let mut gaps = GapSketch::default();
        (0..5).for_each(|_| gaps.add(0.02 * slow * (0.2 * normal(&mut luck)).exp()));
        rows.push(Row {
            id: AskId {
                conversation: number / 2,
                turn: (number % 2) as u32,
            },
            level: LevelId(0),
            class: ClassId(0),
            status: Status::Ok,
            due,
            held: 0.0,
            lag: 0.0,
            sent: due,
            ended: due,
            connect: None,
            queue: None,
            ttft: Some(0.2 * slow),
            ttfo: None,
            e2e: Some(0.7 * slow),
            tpot: Some(0.02 * slow),
            residual: None,
            num_prompt: None,
            num_cached: None,
            num_output: Some(21),
            num_prompt_wanted: None,
            num_prompt_shared: 0,
            num_output_wanted: None,
            gaps,
        });
    }
    Run {
        name: format!("run <{}> & \"more\"", server.luck),
        summary: summary(0.1 * server.num_requests as f64),
        rows,
    }
}

fn summary(steady_s: f64) -> Summary {
    Summary {
        schema: crate::summary::SCHEMA.to_owned(),
        fulcrum: String::new(),
        started: String::new(),
        duration_s: steady_s,
        command: Vec::new(),
        endpoint: String::new(),
        model: None,
        api: "chat".to_owned(),
        protocol: "http/1.1".to_owned(),
        seed: 5,
        salt: 0,
        workload: WorkloadSummary {
            name: "mixed".to_owned(),
            hash: "0123456789abcdef".to_owned(),
            prompt_tokens_from: "server".to_owned(),
        },
        client: ClientSummary::default(),
        levels: vec![Level {
            users: Some(8),
            steady_s,
            requests_per_s: 10.0,
            output_tokens_per_s: Some(210.0),
            ..Level::default()
        }],
        operating_point: None,
        slo: None,
        server_metrics: Vec::new(),
        warnings: Vec::new(),
    }
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // Twelve uniform values have a variance of one.
    let sum: f64 = (0..12)
        .map(|_| f64::from(rng.next_u32()) / 2_f64.powi(32))
        .sum();
    sum - 6.0
}

fn options(rules: &[&str]) -> DiffOptions {
    DiffOptions {
        margin: 0.05,
        seed: 3,
        fail_on: rules
            .iter()
            .map(|rule| rule.parse().expect("a rule"))
            .collect(),
    }
}

fn compared(a: &Run, b: &Run) -> Comparison {
    diff(a, b, &options(&[]))
}

fn figure(comparison: &Comparison, metric: Measure, stat: Stat) -> &MetricComparison {
    comparison.levels[0]
        .metrics
        .iter()
        .find(|figure| figure.metric == metric && figure.stat == stat)
        .expect("every figure is there")
}

fn width(figure: &MetricComparison) -> f64 {
    let [low, high] = figure.ci95.expect("an interval");
    high - low
}

#[test]
fn a_run_is_equivalent_to_itself() {
    let told = compared(&run(PLAIN), &run(PLAIN));
    for figure in &told.levels[0].metrics {
        if figure.metric.is_rate() {
            assert_eq!(figure.ratio, Some(1.0));
        } else {
            assert_eq!(
                (figure.verdict, figure.ratio),
                (Change::Equivalent, Some(1.0)),
                "{figure:?}"
            );
        }
    }
    assert_eq!(told.warnings, []);
}

#[test]
fn another_run_of_the_same_server_is_neither_better_nor_worse() {
    let told = compared(&run(PLAIN), &run(Server { luck: 2, ..PLAIN }));
    let mean = figure(&told, Measure::Ttft, Stat::Mean);
    assert_eq!(mean.verdict, Change::Equivalent, "{mean:?}");
}

#[test]
fn ten_percent_more_are_found() {
    // One draw; how often intervals hold the truth is asked below.
    let slower = Server {
        factor: 1.1,
        luck: 3,
        ..PLAIN
    };
    let told = compared(&run(PLAIN), &run(slower));
    for metric in [Measure::Ttft, Measure::Tpot, Measure::Itl, Measure::E2e] {
        let mean = figure(&told, metric, Stat::Mean);
        let [low, high] = mean.ci95.expect("an interval");
        assert!(low <= 1.1 && 1.1 <= high, "{mean:?}");
        assert_eq!(mean.verdict, Change::Worse, "{mean:?}");
        let difference = mean.difference.expect("a difference");
        assert!(
            (difference / mean.a.expect("a figure") - 0.1).abs() < 0.03,
            "{mean:?}"
        );
    }
    let faster = compared(&run(slower), &run(PLAIN));
    assert_eq!(
        figure(&faster, Measure::Ttft, Stat::Mean).verdict,
        Change::Better
    );
}

#[test]
fn pairing_narrows_the_interval_many_times() {
    let (a, b) = (
        run(PLAIN),
        run(Server {
            factor: 1.1,
            luck: 2,
            ..PLAIN
        }),
    );
    let mut other_seed = b.clone();
    other_seed.summary.seed = 6;
    let paired = compared(&a, &b);
    let unpaired = compared(&a, &other_seed);
    assert!(paired.levels[0].paired && !unpaired.levels[0].paired);
    for (metric, stat, times) in [
        (Measure::Ttft, Stat::Mean, 3.0),
        (Measure::Itl, Stat::Mean, 3.0),
        (Measure::E2e, Stat::P50, 1.3),
    ] {
        let (narrow, wide) = (
            figure(&paired, metric, stat),
            figure(&unpaired, metric, stat),
        );
        assert!(width(narrow) * times < width(wide), "{narrow:?} {wide:?}");
    }
}

#[test]
fn intervals_cover_the_true_ratio_as_often_as_they_say() {
    let covered = |seed: u64| {
        let of = |factor: f64, luck: u64| {
            run(Server {
                factor,
                luck,
                num_requests: 60,
            })
        };
        let (a, b) = (of(1.0, 2 * seed), of(1.2, 2 * seed + 1));
        let compared = Compared::of((&a, 0), (&b, 0), Pairing::Paired);
        let ([mean, ..], _) = resample::times(&compared, Measure::Ttft, seed);
        let [low, high] = interval(&mean.ratios).expect("an interval");
        low <= 1.2 && 1.2 <= high
    };
    let num = (1..=100).filter(|&seed| covered(seed)).count();
    assert!((88..=99).contains(&num), "{num} of 100");
}

#[test]
fn rates_are_compared_by_the_summaries_and_blocks_of_time() {
    let mut half = run(PLAIN);
    half.rows.retain(|row| row.id.turn == 0);
    half.summary.levels[0].output_tokens_per_s = Some(105.0);
    half.summary.levels[0].requests_per_s = 5.0;
    let told = compared(&run(PLAIN), &half);
    let tokens = figure(&told, Measure::Throughput, Stat::Rate);
    assert_eq!((tokens.ratio, tokens.verdict), (Some(0.5), Change::Worse));
}

#[test]
fn too_few_requests_support_no_percentile() {
    let few = Server {
        num_requests: 100,
        ..PLAIN
    };
    let told = compared(&run(few), &run(few));
    let p99 = figure(&told, Measure::Ttft, Stat::P99);
    assert_eq!((p99.ratio, p99.verdict), (None, Change::Inconclusive));
    assert_eq!(p99.because.as_deref(), Some("100 requests: it takes 368"));
}

/// Case E4: nothing to divide by.
#[test]
fn runs_without_answers_compare_to_nothing() {
    let mut failed = run(PLAIN);
    for row in &mut failed.rows {
        row.status = Status::HttpError;
        (row.ttft, row.tpot, row.e2e) = (None, None, None);
    }
    failed.summary.levels[0].output_tokens_per_s = None;
    failed.summary.levels[0].requests_per_s = 0.0;
    let rules = options(&["ttft.p95>+5%@95%", "throughput<-3%@95%"]);
    for (a, b) in [
        (&failed, &failed),
        (&failed, &run(PLAIN)),
        (&run(PLAIN), &failed),
    ] {
        let told = diff(a, b, &rules);
        assert!(
            told.levels[0]
                .metrics
                .iter()
                .all(|metric| metric.ratio.is_none()),
            "{told:?}"
        );
        assert!(!told.is_failed());
        assert!(!told.to_table().contains("NaN"));
    }
    let told = diff(&run(PLAIN), &failed, &rules);
    assert_eq!(told.fail_on[0].ruling, Ruling::Undecided);
    assert!(
        told.warnings
            .iter()
            .any(|warning| warning.code == "failures_differ"),
        "{:?}",
        told.warnings
    );
}

#[test]
fn what_differs_between_the_runs_is_told() {
    let a = run(PLAIN);
    let codes = |change: &dyn Fn(&mut Summary)| {
        let mut b = run(PLAIN);
        change(&mut b.summary);
        let warnings = compared(&a, &b).warnings;
        warnings
            .into_iter()
            .map(|warning| warning.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(&|b| b.seed = 6), ["seed_differs"]);
    assert_eq!(
        codes(&|b| b.workload.hash = "f".repeat(16)),
        ["workload_differs"]
    );
    assert_eq!(
        codes(&|b| b.levels[0].users = Some(9)),
        ["loads_differ", "no_common_load"]
    );
    assert_eq!(codes(&|b| b.client.bound = true), ["client_bound"]);
}

#[test]
fn rules_read_as_they_print() {
    for text in [
        "ttft.p95>+5%@95%",
        "throughput<-3%@95%",
        "itl.mean>+0.5%@99.9%",
        "e2e.p50<-20%@50%",
    ] {
        assert_eq!(text.parse::<FailOn>().expect(text).to_string(), text);
    }
    let free: FailOn = " tpot.p99 > 5% @ 90% ".parse().expect("a rule");
    assert_eq!(free.to_string(), "tpot.p99>+5%@90%");
}

#[test]
fn what_is_wrong_with_a_rule_is_named() {
    for (text, word) in [
        ("", "METRIC.STAT>+N%@CONFIDENCE%"),
        ("ttft.p95>+5%", "METRIC.STAT>+N%@CONFIDENCE%"),
        ("speed.p95>+5%@95%", "unknown metric \"speed\""),
        ("ttft>+5%@95%", "unknown figure \"\""),
        ("ttft.p42>+5%@95%", "unknown figure \"p42\""),
        ("throughput.p95<-3%@95%", "unknown figure \"p95\""),
        ("ttft.p95>5@95%", "\"5\" is no change"),
        ("ttft.p95>NaN%@95%", "\"NaN%\" is no change"),
        ("ttft.p95<-100%@95%", "\"-100%\" is no change"),
        ("ttft.p95>+5%@100%", "\"100%\" is no confidence"),
        ("ttft.p95>+5%@0.95", "\"0.95\" is no confidence"),
    ] {
        let error = text.parse::<FailOn>().expect_err(text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn a_rule_is_broken_only_beyond_its_whole_bound() {
    let slower = run(Server {
        factor: 1.1,
        luck: 2,
        ..PLAIN
    });
    let ruling = |rule: &str| diff(&run(PLAIN), &slower, &options(&[rule])).fail_on[0].ruling;
    assert_eq!(ruling("ttft.mean>+5%@95%"), Ruling::Broken);
    // The estimate may be over 10 %, the bound is not.
    assert_eq!(ruling("ttft.mean>+10%@99%"), Ruling::Kept);
    assert_eq!(ruling("ttft.mean<-5%@95%"), Ruling::Kept);
    let faster = diff(
        &slower,
        &run(PLAIN),
        &options(&["ttft.mean<-5%@95%", "ttft.p95>+5%@95%"]),
    );
    assert_eq!(faster.fail_on[0].ruling, Ruling::Broken);
    assert_eq!(faster.fail_on[1].ruling, Ruling::Kept);
    assert!(faster.is_failed());
}

#[test]
fn junit_is_well_formed_and_counts_right() {
    let slower = run(Server {
        factor: 1.1,
        luck: 2,
        ..PLAIN
    });
    let rules = options(&["ttft.mean>+5%@95%", "e2e.p50>+50%@95%"]);
    let xml = diff(&run(PLAIN), &slower, &rules).to_junit();
    let document = roxmltree::Document::parse(&xml).expect("well-formed XML");
    let num = |name: &str| {
        let elements = document.descendants();
        elements
            .filter(|node| node.has_tag_name(name))
            .count()
            .to_string()
    };
    let suite = document
        .descendants()
        .find(|node| node.has_tag_name("testsuite"))
        .expect("a suite");
    assert_eq!(suite.attribute("tests"), Some(num("testcase").as_str()));
    assert_eq!(suite.attribute("failures"), Some(num("failure").as_str()));
    assert_eq!(suite.attribute("skipped"), Some(num("skipped").as_str()));
    assert_eq!(
        (num("testcase"), num("failure")),
        ("20".to_owned(), "1".to_owned())
    );
    let rule = document
        .descendants()
        .any(|node| node.attribute("name") == Some("ttft.mean>+5%@95%"));
    assert!(rule, "{xml}");
}

#[test]
fn what_xml_cannot_hold_is_replaced() {
    let mut told = compared(&run(PLAIN), &run(PLAIN));
    told.levels[0].metrics[0].because = Some("a \u{1b}[1m\u{0} \"<&>' \n end".to_owned());
    let xml = told.to_junit();
    roxmltree::Document::parse(&xml).expect("well-formed XML");
}

#[test]
fn markdown_and_table_name_both_runs_and_every_figure() {
    let told = compared(&run(PLAIN), &run(Server { luck: 2, ..PLAIN }));
    for text in [told.to_markdown(), told.to_table()] {
        for word in [
            "load 8, 400 pairs",
            "ttft p95 ms",
            "throughput /s",
            "equivalent",
            "18 intervals of 95 %",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    assert!(
        told.to_markdown().contains("`run &lt;1> & \"more\"`"),
        "{}",
        told.to_markdown()
    );
}

#[test]
fn a_comparison_survives_json() {
    let told = compared(&run(PLAIN), &run(PLAIN));
    let text = serde_json::to_string(&told).expect("it serialises");
    let back: Comparison = serde_json::from_str(&text).expect("it reads");
    // Compared as tables: a float may lose its last bit on the way.
    assert_eq!(back.to_table(), told.to_table());
    assert!(text.contains(r#""metric":"ttft","stat":"p95""#), "{text}");
}

fn round(side: Side, value: f64) -> Round {
    Round {
        side,
        figures: vec![("ttft.p50".to_owned(), value)],
    }
}

#[test]
fn drift_does_not_become_a_difference() {
    // 3 % more with every round, whoever's it is; B is 20 % slower.
    let sides = [Side::A, Side::B, Side::B, Side::A].repeat(2);
    let rounds: Vec<Round> = sides
        .iter()
        .zip(0..)
        .map(|(&side, idx)| {
            let own = if side == Side::B { 1.2 } else { 1.0 };
            round(side, own * 1.03_f64.powi(idx))
        })
        .collect();
    let told = &abba(&rounds).metrics[0];
    assert!((told.mean.expect("pairs") - 1.2).abs() < 1e-9, "{told:?}");
    let [low, high] = told.ci95.expect("pairs");
    assert!(low < 1.2 && 1.2 < high, "{told:?}");
    let drift = told.drift_per_round.expect("rounds");
    assert!(
        (0.04..0.08).contains(&drift),
        "two rounds lie between a side's own: {told:?}"
    );
}

#[test]
fn intervals_of_ratios_cover_the_truth_as_often_as_they_say() {
    let covered = |seed: u64| {
        let mut luck = ChaCha8Rng::seed_from_u64(seed);
        let sides = [Side::A, Side::B, Side::B, Side::A].repeat(2);
        let mut noisy = |side: Side| {
            let own = if side == Side::B { 1.2 } else { 1.0 };
            round(side, own * (0.05 * normal(&mut luck)).exp())
        };
        let rounds: Vec<Round> = sides.iter().map(|&side| noisy(side)).collect();
        let [low, high] = abba(&rounds).metrics[0].ci95.expect("four pairs");
        low <= 1.2 && 1.2 <= high
    };
    let num = (0..400).filter(|&seed| covered(seed)).count();
    assert!((368..=392).contains(&num), "{num} of 400");
}

/// Case E4: nothing to divide by.
#[test]
fn rounds_without_figures_have_no_ratio() {
    assert_eq!(abba(&[]).metrics, []);
    for rounds in [
        vec![round(Side::A, 1.0)],
        vec![round(Side::A, 1.0), round(Side::A, 2.0)],
        vec![round(Side::A, 0.0), round(Side::B, 2.0)],
        vec![round(Side::A, f64::NAN), round(Side::B, 2.0)],
    ] {
        let told = &abba(&rounds).metrics[0];
        assert_eq!(
            (told.median, told.mean, told.ci95),
            (None, None, None),
            "{rounds:?}"
        );
    }
    let one_pair = &abba(&[round(Side::A, 1.0), round(Side::B, 2.0)]).metrics[0];
    assert_eq!((one_pair.median, one_pair.ci95), (Some(2.0), None));
}
