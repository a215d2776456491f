//! What the live page shows.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::report::example;

fn view() -> LiveView {
    LiveView {
        endpoint: "http://127.0.0.1:8080".to_owned(),
        model: "SmolLM2".to_owned(),
        workload: "mixed".to_owned(),
        phase: Phase::Measuring,
        load: "32 users".to_owned(),
        elapsed_s: 102.3,
        level_elapsed_s: 12.0,
        level_planned_s: Some(30.0),
        left_s: Some(78.0),
        in_flight: 32,
        requests: Counts {
            ok: 41,
            timeout: 2,
            ..Counts::default()
        },
        tokens_per_s: 307.4,
        tokens_per_s_before: (0..20).map(|second| f64::from(second) * 16.0).collect(),
        ttft_ms: [Some(491.0), Some(1_381.0)],
        tpot_ms: [Some(104.0), None],
        levels: example::summary().levels[..3]
            .iter()
            .map(LiveLevel::of)
            .collect(),
        warnings: vec!["client-bound: lower the rate\u{1b}[2J".to_owned()],
    }
}

fn drawn(view: &LiveView, [width, height]: [u16; 2]) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a backend in memory");
    terminal.draw(|frame| draw(frame, view)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|cells| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    })
    .collect()
}

#[test]
fn the_page_shows_the_level_and_those_before() {
    let lines = drawn(&view(), [80, 20]);
    let shown = [
        "http://127.0.0.1:8080  SmolLM2  mixed                      1:42, about 1:18 left",
        "┌ 32 users: measuring ─────────────────────────────────────────────────────────┐",
        "│32 in flight   41 ok   2 failed (2 timeout)   307 tok/s                       │",
        "│TTFT p50 491 p95 1381 ms   TPOT p50 104 p95 n/a ms                            │",
        "│0:12 of 0:30 ━━━━━━━━━━━━━━━━━━━━━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄│",
        "└──────────────────────────────────────────────────────────────────────────────┘",
        "tokens/s, at most 304",
        "              ▁▂▄▅▆█",
        "        ▂▃▄▅▇███████",
        " ▁▂▃▅▆▇█████████████",
        "        load   ok/failed   req/s   tok/s  TTFT p50   p95 ms  TPOT p50   p95 ms",
        "      1 user        17/0    0.74    69.0       191      n/a      14.5      n/a",
        "     2 users        29/0    1.24     115       194      n/a      17.4      n/a",
        "     4 users        44/0    1.85     172       201      n/a      23.2      n/a",
        "",
        "",
        "",
        "",
        "warning: client-bound: lower the rate [2J",
        "q or Ctrl-C: stop and report what was measured",
    ];
    assert_eq!(lines, shown);
}

#[test]
fn no_size_and_no_figure_makes_the_page_fail() {
    let mut strange = view();
    strange.level_planned_s = Some(f64::NAN);
    strange.level_elapsed_s = f64::INFINITY;
    strange.tokens_per_s_before = vec![f64::NAN, -1.0, 1e300];
    strange.warnings = vec!["long ".repeat(300); 9];
    for size in [[1, 1], [3, 40], [200, 2], [17, 9], [80, 24]] {
        drawn(&view(), size);
        drawn(&strange, size);
    }
}

#[test]
fn a_foreign_text_moves_no_cursor() {
    let lines = drawn(&view(), [80, 20]);
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')));
}

#[test]
fn a_moment_is_one_line() {
    assert_eq!(
        line(&view()),
        "[1:42] 32 users, measuring: 32 in flight, 41 ok, 2 failed, 307 tok/s, TTFT p50 491 ms, TPOT p50 104 ms, 1:18 left"
    );
    let level = LiveLevel::of(&example::summary().levels[5]);
    assert_eq!(
        level_line(&level),
        "32 users: 79 ok, 0 failed, 3.30 req/s, 307 tok/s, TTFT p50 491 p95 1381 ms, TPOT p50 104 p95 294 ms"
    );
}

#[test]
fn a_clock_shows_hours_only_if_there_are_some() {
    assert_eq!(
        [5.4, 65.0, 3_661.0, -3.0].map(clock),
        ["0:05", "1:05", "1:01:01", "0:00"]
    );
}
