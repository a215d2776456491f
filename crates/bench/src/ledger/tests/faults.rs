//! What must not crash, and what must be flagged.

use super::*;

#[test]
fn a_level_of_refusals_has_counts_and_no_latencies() {
    let mut ledger = ledger("ttft:p95<1s");
    let level = ledger.begin_level(Load::Users(1), 0.0);
    for idx in 0..20 {
        let record = failed(Status::HttpError, 0.01);
        put(&mut ledger, &sample(level, f64::from(idx) * 0.01, record));
    }
    ledger.end_level(level, 0.2, "requests");
    let told = ledger.level(level);
    assert_eq!((told.requests.http_error, told.requests.ok), (20, 0));
    assert_eq!((told.attainment, told.goodput_rps), (Some(0.0), 0.0));
    assert_eq!(
        (told.ttft_ms.n, told.ttft_ms.mean, told.output_tokens_per_s),
        (0, None, None)
    );
    assert_eq!(told.errors, [("HTTP 404".to_owned(), 20)]);
}
