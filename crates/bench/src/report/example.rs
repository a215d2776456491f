//! A summary with every key filled, for tests: eight levels of a server that flattens at about 24 users.

use std::collections::BTreeMap;

use super::{LevelEcdf, Series, TimelinePoint};
use crate::slo::Metric;
use crate::summary::{
    CacheShare, ClassFigures, ClientSummary, Counts, Figure, Level, LittlesLaw, OperatingPoint,
    SCHEMA, ServerSeries, SloLevel, SloOutcome, StoppedBy, Summary, Verdict, Warning,
    WorkloadSummary,
};

const USERS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const LEVEL_S: f64 = 30.0;

/// The run.
pub fn summary() -> Summary {
    Summary {
        schema: SCHEMA.to_owned(),
        fulcrum: "0.1.0".to_owned(),
        started: "2026-12-01T04:24:08Z".to_owned(),
        duration_s: 249.2,
        command: ["fulcrum", "bench", "http://127.0.0.1:8080"].map(str::to_owned).to_vec(),
        endpoint: "http://127.0.0.1:8080".to_owned(),
        model: Some("SmolLM2-135M-Instruct".to_owned()),
        api: "chat".to_owned(),
        protocol: "http/1.1".to_owned(),
        seed: 1,
        salt: 7,
        workload: WorkloadSummary {
            name: "mixed".to_owned(),
            hash: "9f86d081884c7d65".to_owned(),
            prompt_tokens_from: "server".to_owned(),
        },
        client: ClientSummary {
            floor_ms_p99: Some(0.31),
            floor_ms_p50: Some(0.08),
            floor_streams: Some(64),
            floor_events_per_s: Some(3_200.0),
            bound: false,
            cpu_s: 9.4,
            cpu_share: 0.038,
            memory_peak_bytes: 41_943_040,
            connections_max: 128,
        },
        levels: USERS.iter().enumerate().map(|(idx, &users)| level(idx, users)).collect(),
        operating_point: Some(OperatingPoint {
            users: Some(24.5),
            rps: None,
            low: 20.0,
            high: 31.0,
            verdict: Verdict::Clear,
            n_star: Some(27.1),
            output_tokens_per_s: Some(301.0),
            output_tokens_per_s_max: Some(333.0),
            ttft_ms_p95: Some(810.0),
            because: "throughput gains less than 5 % per doubling from here, and TTFT p95 has left its light-load level".to_owned(),
        }),
        slo: Some(SloOutcome {
            slo: "ttft:p95<800ms,tpot:p99<80ms".to_owned(),
            largest: Some(16.0),
            estimate: Some(23.0),
            levels: vec![
                SloLevel {
                    load: 16.0,
                    outcome: "met".to_owned(),
                    because: Vec::new(),
                },
                SloLevel {
                    load: 32.0,
                    outcome: "missed".to_owned(),
                    because: vec!["ttft:p95 is 1040 ms".to_owned()],
                },
            ],
        }),
        server_metrics: vec![ServerSeries {
            name: "fulcrum_cache_usage_ratio{model=\"SmolLM2\"}".to_owned(),
            points: (0..25).map(|idx| (f64::from(idx) * 10.0, f64::from(idx) / 30.0)).collect(),
        }],
        warnings: vec![Warning {
            code: "cache_below_declared".to_owned(),
            text: "12.1 % of prompt tokens were found in the cache, but the workload shares 40.0 %".to_owned(),
            advice: "Is prefix caching on, and the cache large enough?".to_owned(),
        }],
    }
}

/// Its curves.
pub fn series() -> Series {
    let level_at = |at_s: f64| ((at_s / LEVEL_S) as usize).min(USERS.len() - 1);
    Series {
        timeline: (0..240)
            .map(|second| {
                let at_s = f64::from(second) + 0.5;
                let users = USERS[level_at(at_s)];
                let ripple = f64::from(second * 37 % 11) - 5.0;
                TimelinePoint {
                    at_s,
                    tokens_per_s: Some(throughput(users) + ripple * 4.0),
                    requests_per_s: throughput(users) / 93.0,
                    in_flight: f64::from(users),
                }
            })
            .collect(),
        ecdf: (0..USERS.len())
            .flat_map(|idx| {
                let ttft = ttft(USERS[idx]);
                let values =
                    move |scale: f64| (1..=100).map(move |rank| (scale * quantile(rank), 1));
                [
                    LevelEcdf::of(idx, Metric::Ttft, values(ttft)),
                    LevelEcdf::of(idx, Metric::Itl, values(tpot(USERS[idx]))),
                ]
            })
            .collect(),
        ..Series::default()
    }
}

fn level(idx: usize, users: u32) -> Level {
    let out = throughput(users);
    let rate = out / 93.0;
    let n = (rate * 24.0) as u64;
    let ttft = figure(n, ttft(users));
    let tpot = figure(n, tpot(users));
    let e2e = figure(
        n,
        ttft.mean.unwrap_or(0.0) + 93.0 * tpot.mean.unwrap_or(0.0),
    );
    let requests = Counts {
        ok: n,
        truncated: 0,
        error_event: 0,
        http_error: 0,
        timeout: u64::from(users / 64),
        connect: 0,
        protocol: 0,
        cancelled: u64::from(users),
        empty: 0,
        dropped: 0,
    };
    let class = |share: f64| ClassFigures {
        requests,
        requests_per_s: rate * share,
        output_tokens_per_s: Some(out * share),
        goodput_rps: rate * share * 0.9,
        attainment: Some(0.93),
        slo: "ttft:p95<800ms".to_owned(),
        ttft_ms: ttft.clone(),
        tpot_ms: tpot.clone(),
        itl_ms: tpot.clone(),
        e2e_ms: e2e.clone(),
        interference: Some(1.4),
    };
    Level {
        users: Some(users),
        offered_rps: None,
        ramp_rps: None,
        achieved_rps: None,
        start_s: idx as f64 * LEVEL_S,
        duration_s: LEVEL_S,
        steady_from_s: 4.0,
        steady_s: 24.0,
        stopped_by: StoppedBy::Duration,
        requests,
        requests_per_s: rate,
        output_tokens_per_s: Some(out),
        input_tokens_per_s: Some(out * 2.6),
        events_per_s: out,
        goodput_rps: rate * 0.9,
        attainment: Some(0.93),
        rates_ci95: BTreeMap::from([
            ("output_tokens_per_s".to_owned(), [out * 0.96, out * 1.04]),
            ("requests_per_s".to_owned(), [rate * 0.95, rate * 1.05]),
        ]),
        ttfo_ms: ttft.clone(),
        service_ttft_ms: ttft.clone(),
        service_e2e_ms: e2e.clone(),
        itl_ms: tpot.clone(),
        lag_ms: figure(n, 0.1),
        held_ms: figure(n, 0.0),
        connect_ms: figure(n, 0.2),
        queue_ms: figure(n, 3.0),
        residual_ms: figure(n, 12.0),
        littles_law: Some(LittlesLaw {
            in_flight: f64::from(users),
            rate_times_time: f64::from(users) * 0.98,
            ratio: 0.98,
        }),
        cache: Some(CacheShare {
            declared: Some(0.4),
            measured: 0.121,
        }),
        classes: BTreeMap::from([
            ("batch".to_owned(), class(0.3)),
            ("interactive".to_owned(), class(0.7)),
        ]),
        ttft_ms: ttft,
        tpot_ms: tpot,
        e2e_ms: e2e,
        flags: vec!["missing_done:3".to_owned()],
        token_source: "usage".to_owned(),
        errors: (users >= 64)
            .then(|| ("idle for 30 s".to_owned(), u64::from(users / 64)))
            .into_iter()
            .collect(),
    }
}

fn throughput(users: u32) -> f64 {
    let users = f64::from(users);
    345.0 * users / (users + 4.0)
}

fn ttft(users: u32) -> f64 {
    190.0 * (1.0 + (f64::from(users) / 24.0).powf(1.6))
}

fn tpot(users: u32) -> f64 {
    f64::from(users) * 1e3 / throughput(users)
}

fn quantile(rank: i32) -> f64 {
    let share = f64::from(rank) / 101.0;
    // A logistic in the logarithm: right-skewed as latencies are.
    (share / (1.0 - share)).powf(0.35)
}

fn figure(n: u64, median: f64) -> Figure {
    let at = |rank: i32| median * quantile(rank);
    let has_tail = n >= 73;
    let told = [
        ("mean", 1.1 * median),
        ("p50", median),
        ("p90", at(91)),
        ("p95", at(96)),
    ];
    Figure {
        n,
        mean: Some(1.1 * median),
        p50: Some(median),
        p90: Some(at(91)),
        p95: has_tail.then(|| at(96)),
        p99: None,
        max: Some(at(100)),
        ci95: told
            .iter()
            .filter(|(name, _)| has_tail || *name != "p95")
            .map(|&(name, value)| (name.to_owned(), [value * 0.9, value * 1.12]))
            .collect(),
        needs: [("p95", 73, has_tail), ("p99", 368, false)]
            .iter()
            .filter(|(_, _, is_there)| !is_there)
            .map(|&(name, num, _)| (name.to_owned(), num))
            .collect(),
    }
}
