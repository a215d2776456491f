//! What an answer contains, and why it ends.

use engine::{FinishReason, StopCause, TokenId};

use crate::lab::*;

const STOP: fn(StopCause) -> FinishReason = FinishReason::Stop;

/// An engine that answers `answer` to a prompt of three tokens, then an end token.
fn saying(answer: &[u32]) -> Bench {
    Lab {
        script: Script::saying(3, answer.to_vec()),
        ..Lab::new()
    }
    .start()
}

/// Tokens of lower-case letters.
fn letters(text: &str) -> Vec<u32> {
    text.bytes()
        .map(|letter| u32::from(letter - b'a') + 1)
        .collect()
}

fn with_stops(max_tokens: u32, stops: &[&str]) -> engine::Request {
    let mut request = request(&prompt(3, 1), max_tokens);
    request.stop.strings = stops.iter().map(|stop| (*stop).to_owned()).collect();
    request
}

#[test]
fn an_answer_ends_at_the_end_token_which_counts_but_has_no_text() {
    let told = saying(&letters("hello")).ask(request(&prompt(3, 1), 100));
    assert_eq!(told.text, "hello");
    assert_eq!(told.tokens, [letters("hello"), vec![END]].concat());
    assert_eq!(told.finished.reason, STOP(StopCause::EndToken));
    assert_eq!(told.finished.usage.num_completion, 6);
    assert_eq!(told.finished.usage.num_prompt, 3);
}

#[test]
fn any_of_several_end_tokens_ends() {
    let told = saying(&[1, 2, END_2, 3]).ask(request(&prompt(3, 1), 100));
    assert_eq!(
        (told.text.as_str(), told.finished.reason),
        ("ab", STOP(StopCause::EndToken))
    );
}

#[test]
fn an_answer_ends_at_max_tokens() {
    for max_tokens in [1, 2, 5] {
        let told = saying(&letters("hello")).ask(request(&prompt(3, 1), max_tokens));
        assert_eq!(told.text, &"hello"[..max_tokens as usize]);
        assert_eq!(told.finished.reason, FinishReason::Length);
        assert_eq!(told.finished.usage.num_completion, max_tokens);
    }
}

/// Case D8: wherever stop and limit fall, the earlier one ends the answer, and a stop wins a tie.
#[test]
fn a_stop_within_the_budget_wins_over_the_length() {
    for stop_at in 1..=32_u32 {
        let answer: Vec<u32> = (1..stop_at).map(|_| 5).chain([7, 5, 5]).collect();
        let bench = saying(&answer);
        for max_tokens in [stop_at.saturating_sub(1).max(1), stop_at, stop_at + 1] {
            let mut by_string = request(&prompt(3, 1), max_tokens);
            by_string.stop.strings = vec!["g".to_owned()];
            let mut by_id = request(&prompt(3, 1), max_tokens);
            by_id.stop.token_ids = vec![TokenId(7)];
            for (request, cause) in [
                (by_string, StopCause::String("g".to_owned())),
                (by_id, StopCause::TokenId(TokenId(7))),
            ] {
                let told = bench.ask(request);
                let expected = if max_tokens >= stop_at {
                    STOP(cause)
                } else {
                    FinishReason::Length
                };
                assert_eq!(
                    told.finished.reason, expected,
                    "stop at {stop_at}, limit {max_tokens}"
                );
                assert_eq!(told.tokens.len() as u32, max_tokens.min(stop_at));
                assert_eq!(told.text, "e".repeat(max_tokens.min(stop_at - 1) as usize));
            }
        }
    }
}

/// Case A2.
#[test]
fn a_stop_string_across_tokens_leaves_only_what_precedes_it() {
    let told = saying(&letters("alphabet")).ask(with_stops(100, &["hab"]));
    assert_eq!(told.text, "alp");
    assert_eq!(
        told.finished.reason,
        STOP(StopCause::String("hab".to_owned()))
    );
    assert_eq!(told.finished.text, "");
    assert_eq!(told.finished.usage.num_completion, 6);
}

/// Case A2.
#[test]
fn a_near_miss_of_a_stop_string_loses_no_text_at_any_end() {
    let near_miss = with_stops(100, &["betx"]);
    assert_eq!(saying(&letters("alphabet")).ask(near_miss).text, "alphabet");
    let cut_by_length = with_stops(8, &["betx"]);
    assert_eq!(
        saying(&letters("alphabetxyz")).ask(cut_by_length).text,
        "alphabet"
    );
}

#[test]
fn an_empty_stop_string_stops_nothing() {
    let told = saying(&letters("hello")).ask(with_stops(100, &["", "l"]));
    assert_eq!(told.text, "he");
    assert_eq!(
        told.finished.reason,
        STOP(StopCause::String("l".to_owned()))
    );
}

/// Case A3.
#[test]
fn a_character_of_two_tokens_arrives_whole_and_its_tokens_as_they_come() {
    let bench = saying(&[1, E_ACUTE_1, E_ACUTE_2, 2]);
    let mut stream = bench.submit(request(&prompt(3, 1), 100));
    let mut events = Vec::new();
    while let Some(event) = stream.next_blocking() {
        if let engine::Event::Text { text, tokens, .. } = event {
            events.push((text, tokens.len()));
        }
    }
    // The reader may be slow; then texts are joined, but never broken.
    assert_eq!(
        events
            .iter()
            .map(|(text, _)| text.as_str())
            .collect::<String>(),
        "aéb"
    );
    assert!(events.iter().all(|(text, _)| !text.contains('\u{fffd}')));
    assert_eq!(events.iter().map(|(_, num)| num).sum::<usize>(), 5);
}

#[test]
fn ignore_eos_goes_on_after_end_tokens() {
    let mut request = request(&prompt(3, 1), 6);
    request.stop.ignore_eos = true;
    let told = saying(&[1, 2, END, 3, END_2, 4]).ask(request);
    assert_eq!(
        (told.text.as_str(), told.finished.reason),
        ("abcd", FinishReason::Length)
    );
    assert_eq!(told.tokens.len(), 6);
}

#[test]
fn stop_ids_work_although_end_tokens_are_ignored() {
    let mut request = request(&prompt(3, 1), 6);
    request.stop.ignore_eos = true;
    request.stop.token_ids = vec![TokenId(END_2)];
    let told = saying(&[1, END, 2, END_2, 4]).ask(request);
    assert_eq!(told.text, "ab");
    assert_eq!(
        told.finished.reason,
        STOP(StopCause::TokenId(TokenId(END_2)))
    );
}

#[test]
fn min_tokens_puts_the_end_off() {
    let always_end = Script::new(|_, row| {
        row.fill(0.0);
        row[END as usize] = 10.0;
        row[7] = 9.0;
        row[3] = 1.0;
    });
    for min_tokens in [0, 1, 5] {
        let bench = Lab {
            script: always_end.clone(),
            ..Lab::new()
        }
        .start();
        let mut request = request(&prompt(3, 1), 20);
        request.stop.min_tokens = min_tokens;
        request.stop.token_ids = vec![TokenId(7)];
        let told = bench.ask(request);
        assert_eq!(told.text, "c".repeat(min_tokens as usize));
        assert_eq!(told.finished.usage.num_completion, min_tokens + 1);
        assert_eq!(told.finished.reason, STOP(StopCause::EndToken));
    }
}

#[test]
fn a_forced_token_comes_each_time_and_a_banned_one_never() {
    let bench = Lab::new().start();
    let mut forced = request(&prompt(3, 1), 10);
    forced.sampling.logit_bias = vec![(TokenId(9), 100.0)];
    assert_eq!(bench.ask(forced).tokens, [9; 10]);

    let first = Script::hashed().greedy(&prompt(3, 1), 1)[0];
    let mut banned = request(&prompt(3, 1), 30);
    banned.sampling.logit_bias = vec![(TokenId(first), -100.0)];
    assert!(!bench.ask(banned).tokens.contains(&first));
}

/// Case D3: worked out by hand. `a` 3.0, `b` 2.5, `c` 1.0, and each occurrence in the answer costs 1.
#[test]
fn penalties_follow_the_answer_and_not_the_prompt() {
    let three_letters = Script::new(|_, row| {
        row.fill(-50.0);
        row[1..=3].copy_from_slice(&[3.0, 2.5, 1.0]);
    });
    let bench = Lab {
        script: three_letters,
        ..Lab::new()
    }
    .start();
    let mut penalised = request(&[1, 1, 1, 1, 2], 7);
    penalised.sampling.frequency_penalty = 1.0;
    assert_eq!(bench.ask(penalised.clone()).text, "ababacb");
    // Once for all occurrences: `a` 2.0, `b` 1.5, `c` 0.0 from the fourth token on.
    penalised.sampling.frequency_penalty = 0.0;
    penalised.sampling.presence_penalty = 1.0;
    assert_eq!(bench.ask(penalised.clone()).text, "abaaaaa");
    // Prompt and answer alike: `a` 1.0, `b` 0.83, and `c` 1.0 until it is used.
    penalised.sampling.presence_penalty = 0.0;
    penalised.sampling.repetition_penalty = 3.5;
    assert_eq!(bench.ask(penalised).text, "caaaaaa");
}

/// Case D2: seeds come from the source that the engine was started with.
#[test]
fn without_a_seed_repeats_differ_and_a_restart_with_the_same_source_repeats_them() {
    let all_texts = || {
        let bench = Lab::new().start();
        (0..10)
            .map(|_| {
                let mut request = seeded(&prompt(5, 2), 20, 0);
                request.sampling.seed = None;
                bench.ask(request).text
            })
            .collect::<Vec<String>>()
    };
    let texts = all_texts();
    let different: std::collections::BTreeSet<_> = texts.iter().collect();
    assert_eq!(different.len(), 10);
    assert_eq!(all_texts(), texts);
}

#[test]
fn the_observer_hears_one_first_token_each_and_every_other_as_a_gap() {
    let bench = Lab::new().start();
    let told = bench.ask_all((1..=4).map(|num| request(&prompt(5, 3), num)).collect());
    assert_eq!(told.len(), 4);
    bench.log.wait_for_finished(4);
    bench.log.read(|happened| {
        assert_eq!(happened.num_first_tokens, 4);
        assert_eq!(happened.num_next_tokens, 1 + 2 + 3);
        assert!(
            happened
                .finished
                .iter()
                .all(|facts| facts.reason == FinishReason::Length)
        );
        for facts in &happened.finished {
            let times = facts.times;
            assert!(times.queued + times.prefill + times.decode <= facts.e2e);
        }
    });
}

#[test]
fn step_facts_count_prompt_and_answer_tokens() {
    let bench = Lab::new().start();
    bench.ask(request(&prompt(100, 4), 7));
    bench.ask(request(&prompt(100, 4), 7));
    bench.log.read(|happened| {
        let sum =
            |count: fn(&engine::StepFacts) -> u32| happened.steps.iter().map(count).sum::<u32>();
        assert_eq!(sum(|step| step.num_prefill_tokens), 100 + 4);
        assert_eq!(sum(|step| step.num_decode_tokens), 14);
        assert_eq!(sum(|step| step.num_prefix_queried), 200);
        assert_eq!(sum(|step| step.num_prefix_hit), 96);
        assert_eq!(sum(|step| step.num_preemptions), 0);
    });
}
