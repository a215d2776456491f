//! Latencies of requests sent in the steady window.

use super::*;

#[test]
fn constant_answers_have_the_figures_they_were_given() {
    let mut ledger = ledger("");
    let answer = Answer {
        ttft: 0.2,
        gap: 0.02,
        num_tokens: 41,
    };
    let level = closed_level(&mut ledger, 8, 0.0, 60.0, |_| answer);
    let told = ledger.level(level);
    assert_eq!(told.ttft_ms.n, 480);
    for (figure, expected) in [
        (&told.ttft_ms, 200.0),
        (&told.tpot_ms, 20.0),
        (&told.e2e_ms, 1000.0),
        (&told.itl_ms, 20.0),
    ] {
        for value in [
            figure.mean,
            figure.p50,
            figure.p90,
            figure.p95,
            figure.p99,
            figure.max,
        ] {
            close(value, expected, 0.006);
        }
    }
    close(told.requests_per_s, 8.0, 0.02);
    close(told.output_tokens_per_s, 8.0 * 41.0, 0.02);
    close(told.input_tokens_per_s, 800.0, 0.02);
    close(told.littles_law.map(|law| law.ratio), 1.0, 0.02);
    close(told.littles_law.map(|law| law.in_flight), 8.0, 0.001);
}
