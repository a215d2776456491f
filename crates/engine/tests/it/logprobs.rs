//! What a request hears of log-probabilities: the model's own, the same in any company.

use engine::{FinishReason, PrefixCache, StopCause, TokenId, TokenLogprobs};

use crate::lab::*;

/// What the definition says of `tokens` where they stand behind `prompt`.
fn expected(prompt: &[u32], tokens: &[u32], num_top: u32) -> Vec<TokenLogprobs> {
    let mut history = prompt.to_vec();
    let entries = tokens.iter().map(|&token| {
        let mut row = vec![0.0; VOCAB];
        Script::hashed().fill(&history, &mut row);
        history.push(token);
        TokenLogprobs::of(&row, TokenId(token), num_top)
    });
    entries.collect()
}

fn with_logprobs(mut request: engine::Request, num_top: u32) -> engine::Request {
    request.logprobs.answer = Some(num_top);
    request
}

/// Case D1: alone, again from the cache, and among others; greedy and drawn; whatever the limits.
#[test]
fn each_token_has_its_logprobs_which_nothing_around_it_changes() {
    for (step_tokens_max, num_blocks) in [(512, 512), (16, 512), (64, 40)] {
        let mut lab = Lab::new();
        lab.limits.step_tokens_max = step_tokens_max;
        lab.num_blocks = num_blocks;
        let bench = lab.start();
        let asked = [
            with_logprobs(request(&prompt(40, 1), 60), 5),
            with_logprobs(seeded(&prompt(33, 2), 60, 9), 0),
            with_logprobs(seeded(&prompt(1, 3), 60, 10), 20),
        ];
        let mut rounds: Vec<Vec<Told>> = (0..2)
            .map(|_| asked.iter().map(|it| bench.ask(it.clone())).collect())
            .collect();
        let company = (0..12).map(|idx| seeded(&prompt(30, 50 + idx), 50, idx));
        let told = bench.ask_all(asked.iter().cloned().chain(company).collect());
        assert!(told[3..].iter().all(|told| told.logprobs.is_empty()));
        assert!(
            told[3..]
                .iter()
                .all(|told| told.finished.logprob_sum == 0.0)
        );
        rounds.push(told[..3].to_vec());
        for told in rounds {
            for (asked, told) in asked.iter().zip(&told) {
                let prompt: Vec<u32> = asked.prompt.iter().map(|token| token.0).collect();
                let num_top = asked.logprobs.answer.expect("asked for");
                let expected = expected(&prompt, &told.tokens, num_top);
                assert_eq!(told.logprobs, expected);
                let sum: f64 = expected.iter().map(|it| f64::from(it.logprob)).sum();
                assert_eq!(told.finished.logprob_sum, sum);
            }
        }
        if num_blocks == 40 {
            let preempted = |happened: &Happened| {
                happened
                    .steps
                    .iter()
                    .map(|step| step.num_preemptions)
                    .sum::<u32>()
            };
            assert!(
                bench.log.read(preempted) > 0,
                "the small pool was to preempt"
            );
        }
    }
}

#[test]
fn an_end_token_has_an_entry_as_it_has_a_place_in_the_tokens() {
    let bench = Lab {
        script: Script::saying(3, vec![1, 2]),
        ..Lab::new()
    }
    .start();
    let told = bench.ask(with_logprobs(request(&prompt(3, 1), 9), 1));
    assert_eq!(
        told.finished.reason,
        FinishReason::Stop(StopCause::EndToken)
    );
    assert_eq!(told.tokens, [1, 2, END]);
    let entries: Vec<u32> = told.logprobs.iter().map(|it| it.token.0).collect();
    assert_eq!(entries, told.tokens);
    assert!(told.logprobs.iter().all(|it| it.rank == 1));
}

/// Bias, bans, penalties and temperature change the choice and not what the model thought of it.
#[test]
fn logprobs_are_those_of_the_model_before_the_request_had_its_say() {
    let mut lab = Lab::new();
    lab.limits.prefix_cache = PrefixCache::Off;
    let bench = lab.start();
    let mut asked = with_logprobs(seeded(&prompt(20, 4), 30, 5), 3);
    asked.sampling.temperature = 1.7;
    asked.sampling.repetition_penalty = 1.5;
    asked.sampling.logit_bias = vec![(TokenId(7), 100.0), (TokenId(9), 100.0)];
    let told = bench.ask(asked);
    assert!(told.tokens.iter().all(|token| [7, 9].contains(token)));
    assert_eq!(told.logprobs, expected(&prompt(20, 4), &told.tokens, 3));
    assert!(told.logprobs.iter().any(|it| it.rank > 2));
}

fn scored(num_prompt: usize, max_tokens: u32, num_top: u32) -> engine::Request {
    let mut request = request(&prompt(num_prompt, num_prompt as u64), max_tokens);
    request.logprobs.prompt = Some(num_top);
    request
}

/// Cases A8, C7 and D1: whole and in chunks, the second time as the first, alone and in company.
#[test]
fn a_prompt_is_scored_the_same_whatever_is_cached_and_around_it() {
    for (step_tokens_max, prompt_rows_max) in [(512, 512), (64, 7), (16, 64)] {
        let mut lab = Lab::new();
        lab.limits.step_tokens_max = step_tokens_max;
        lab.limits.prompt_rows_max = prompt_rows_max;
        let bench = lab.start();
        let asked: Vec<_> = [1, 2, 16, 33, 150]
            .into_iter()
            .flat_map(|num_prompt| [scored(num_prompt, 0, 3), scored(num_prompt, 4, 0)])
            .collect();
        let check = |asked: &engine::Request, told: &Told| {
            let tokens: Vec<u32> = asked.prompt.iter().map(|token| token.0).collect();
            let num_top = asked.logprobs.prompt.expect("asked for");
            let expected = expected(&tokens[..1], &tokens[1..], num_top);
            assert_eq!(told.prompt_logprobs.as_ref(), Some(&expected));
            let max_tokens = asked.stop.max_tokens;
            let greedy = Script::hashed().greedy(&tokens, max_tokens as usize);
            assert_eq!(told.tokens, greedy);
            assert_eq!(told.finished.reason, FinishReason::Length);
            assert_eq!(told.finished.usage.num_completion, max_tokens);
            assert_eq!(told.num_cached, Some(0));
        };
        for _ in 0..2 {
            for asked in &asked {
                check(asked, &bench.ask(asked.clone()));
            }
        }
        let company = (0..9).map(|idx| seeded(&prompt(30, 50 + idx), 30, idx));
        let told = bench.ask_all(asked.iter().cloned().chain(company).collect());
        asked
            .iter()
            .zip(&told)
            .for_each(|(asked, told)| check(asked, told));
        // Plain prompts may well take from the cache what scored ones left there.
        let plain = bench.ask(request(&prompt(150, 150), 1));
        assert_eq!(plain.num_cached, Some(144));
    }
}

#[test]
fn no_step_holds_more_rows_of_prompts_than_it_may() {
    let mut lab = Lab::new();
    lab.limits.prompt_rows_max = 7;
    let bench = lab.start();
    bench.ask(scored(100, 0, 1));
    let largest = |happened: &Happened| happened.batches.iter().flatten().map(|it| it.1).max();
    assert_eq!(bench.log.read(largest), Some(7));
}

#[test]
fn a_prompt_preempted_while_it_is_scored_loses_and_repeats_no_entry() {
    let mut lab = Lab::new();
    lab.limits.prompt_rows_max = 2;
    lab.num_blocks = 17;
    let bench = lab.start();
    let growing = bench.submit(request(&prompt(10, 1), 250));
    let asked = scored(180, 3, 2);
    let told = bench.ask(asked.clone());
    read(growing);
    let tokens: Vec<u32> = asked.prompt.iter().map(|token| token.0).collect();
    assert_eq!(
        told.prompt_logprobs,
        Some(expected(&tokens[..1], &tokens[1..], 2))
    );
    assert!(
        told.finished.times.num_preemptions > 0,
        "was to be preempted"
    );
}

#[test]
fn nothing_but_the_prompt_is_computed_if_no_token_is_wanted() {
    let bench = Lab::new().start();
    let told = bench.ask(request(&prompt(40, 1), 0));
    assert_eq!((told.text.as_str(), told.tokens.len()), ("", 0));
    assert_eq!(told.finished.reason, FinishReason::Length);
    assert_eq!(told.finished.usage.num_prompt, 40);
    assert_eq!(told.prompt_logprobs, None);
    assert_eq!(bench.gauges(), [0, 0, 0, 0]);
}

#[test]
fn of_several_answers_the_first_tells_the_prompt() {
    let bench = Lab::new().start();
    let told = bench.ask_group(scored(40, 5, 1), 3);
    let tells: Vec<bool> = told.iter().map(|it| it.prompt_logprobs.is_some()).collect();
    assert_eq!(tells, [true, false, false]);
    assert_eq!(told[0].tokens, told[2].tokens);
}
