//! Rates over the steady window.

use super::*;

#[test]
fn tokens_count_when_they_arrive_whatever_becomes_of_their_request() {
    // E11: eight streams of ten tokens a second and 100 tokens; what is unfinished is given up.
    let answer = Answer {
        ttft: 0.1,
        gap: 0.1,
        num_tokens: 100,
    };
    for length in [15.0, 20.0, 25.0] {
        let mut ledger = ledger("");
        let level = ledger.begin_level(Load::Users(8), 0.0);
        for _ in 0..8 {
            let mut now = 0.0;
            while now < length {
                let left = length - now;
                let record = if answer.e2e() < left {
                    answer.record()
                } else {
                    given_up(answer, left)
                };
                put(&mut ledger, &sample(level, now, record));
                now += answer.e2e();
            }
        }
        ledger.end_level(level, length, "duration");
        let told = ledger.level(level);
        close(told.output_tokens_per_s, 80.0, 0.02);
        assert_eq!(
            told.requests.ok + told.requests.cancelled,
            ledger.books[0].num_sent
        );
        assert!(
            told.flags.iter().any(|flag| flag.starts_with("censored:")),
            "{:?}",
            told.flags
        );
    }
}
