//! The same request gets the same answer whoever else is there, whatever is cached, however its prompt
//! is cut.

use engine::PrefixCache;

use crate::lab::*;

/// Thirty-one requests of all lengths, some seeded, that begin like `shared` or not at all alike.
fn company(shared: &[u32]) -> Vec<engine::Request> {
    (0..31)
        .map(|idx| {
            let mut tokens = shared[..shared.len() * (idx as usize % 3) / 3].to_vec();
            tokens.extend(prompt(1 + 7 * idx as usize, 100 + idx));
            match idx % 2 {
                0 => request(&tokens, 5 + idx as u32),
                _ => seeded(&tokens, 5 + idx as u32, idx),
            }
        })
        .collect()
}

/// The answers to `requests` in every kind of company, chunk and cache.
fn answers_everywhere(requests: &[engine::Request]) -> Vec<Vec<Vec<u32>>> {
    let mut answers: Vec<Vec<Vec<u32>>> = Vec::new();
    for step_tokens_max in [16, 512] {
        for prefix_cache in [PrefixCache::On, PrefixCache::Off] {
            let mut lab = Lab::new();
            lab.limits.step_tokens_max = step_tokens_max;
            lab.limits.prefix_cache = prefix_cache;
            let bench = lab.start();
            let tokens = |told: Vec<Told>| told.into_iter().map(|told| told.tokens).collect();
            // Alone, each twice: the second time its prompt is in the cache.
            for _ in 0..2 {
                answers.push(
                    requests
                        .iter()
                        .map(|request| bench.ask(request.clone()).tokens)
                        .collect(),
                );
            }
            // All at once, and among others that come before and after.
            answers.push(tokens(bench.ask_all(requests.to_vec())));
            let shared: Vec<u32> = requests[0].prompt.iter().map(|token| token.0).collect();
            let mut mixed = company(&shared);
            let rest = mixed.split_off(15);
            let begins_at = mixed.len();
            mixed.extend(requests.to_vec());
            mixed.extend(rest);
            answers.push(
                tokens(bench.ask_all(mixed))
                    .drain(begins_at..)
                    .take(requests.len())
                    .collect(),
            );
        }
    }
    answers
}

/// Case D1.
#[test]
fn a_greedy_answer_is_the_same_alone_in_company_cached_and_in_any_chunks() {
    let prompts: Vec<Vec<u32>> = [1, 16, 40, 100, 300]
        .map(|num| prompt(num, num as u64))
        .to_vec();
    let requests: Vec<_> = prompts.iter().map(|prompt| request(prompt, 40)).collect();
    let expected: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| Script::hashed().greedy(prompt, 40))
        .collect();
    for answers in answers_everywhere(&requests) {
        assert_eq!(answers, expected);
    }
}

/// Case D2.
#[test]
fn a_seeded_answer_is_the_same_alone_in_company_cached_and_in_any_chunks() {
    let requests: Vec<_> = [3, 33, 130]
        .map(|num| seeded(&prompt(num, num as u64), 40, u64::MAX - num as u64))
        .to_vec();
    let mut answers = answers_everywhere(&requests);
    let first = answers.swap_remove(0);
    assert!(answers.into_iter().all(|others| others == first));
    assert_ne!(
        first[0],
        Script::hashed().greedy(&prompt(3, 3), 40),
        "draws, and is not greedy"
    );
}

/// Case D3.
#[test]
fn a_neighbour_with_penalties_changes_nothing() {
    let bench = Lab::new().start();
    let mut penalised = request(&prompt(20, 1), 60);
    penalised.sampling.repetition_penalty = 1.8;
    penalised.sampling.frequency_penalty = 2.0;
    let told = bench.ask_all(vec![
        penalised.clone(),
        request(&prompt(20, 1), 60),
        penalised,
    ]);
    assert_eq!(told[1].tokens, Script::hashed().greedy(&prompt(20, 1), 60));
    assert_eq!(told[0].tokens, told[2].tokens);
    assert_ne!(told[0].tokens, told[1].tokens);
}

/// Case C7.
#[test]
fn a_prompt_that_is_wholly_cached_answers_as_the_first_time() {
    for num_prompt in [1, 15, 16, 17, 32, 256] {
        let bench = Lab::new().start();
        let tokens = prompt(num_prompt, 9);
        let expected = Script::hashed().greedy(&tokens, 24);
        for repeat in 0..5 {
            let told = bench.ask(request(&tokens, 24));
            assert_eq!(
                told.tokens, expected,
                "{num_prompt} tokens, repeat {repeat}"
            );
            // Whole blocks only, and at least one token is computed.
            let num_cached = if repeat == 0 {
                0
            } else {
                (num_prompt as u32 - 1) / 16 * 16
            };
            assert_eq!(
                told.num_cached,
                Some(num_cached),
                "{num_prompt} tokens, repeat {repeat}"
            );
            assert_eq!(told.finished.usage.num_cached, num_cached);
        }
    }
}

/// Case C4.
#[test]
fn prompts_with_shared_beginnings_never_get_anothers_answer() {
    let base = prompt(200, 5);
    let mut random = testkit::Random::new(11);
    let mut prompts = Vec::new();
    for idx in 0..50 {
        let kept = [0, 15, 16, 17, 31, 32, 33, 64, 199, 200][random.below(10)];
        let mut tokens = base[..kept].to_vec();
        tokens.extend(prompt(random.below(40), idx));
        if tokens.is_empty() || random.below(5) == 0 {
            tokens.insert(0, 1 + random.below(52) as u32);
        }
        prompts.push(tokens);
    }
    let expected: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| Script::hashed().greedy(prompt, 12))
        .collect();
    let requests = || {
        prompts
            .iter()
            .map(|prompt| request(prompt, 12))
            .collect::<Vec<_>>()
    };
    let bench = Lab::new().start();
    for (request, expected) in requests().into_iter().zip(&expected) {
        assert_eq!(bench.ask(request).tokens, *expected);
    }
    for _ in 0..2 {
        let told = bench.ask_all(requests());
        assert!(told.iter().map(|told| &told.tokens).eq(&expected));
    }
}

/// Case C3.
#[test]
fn a_long_prompt_does_not_stop_the_answers_already_streaming() {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.step_tokens_max = 32;
    let bench = lab.start();
    let streaming = bench.submit(request(&prompt(5, 1), 40));
    bench.gate.run_to_step(3);
    let intruder = bench.submit(request(&prompt(600, 2), 1));
    bench.gate.open();
    let (streaming, intruder) = (read(streaming), read(intruder));
    assert_eq!(streaming.tokens, Script::hashed().greedy(&prompt(5, 1), 40));
    assert_eq!(intruder.tokens, Script::hashed().greedy(&prompt(600, 2), 1));
    bench.log.read(|happened| {
        // Positions 5, 6, 7 … of the first request: one in each of the first forty steps.
        let decoded = happened.batches[1..40].iter().enumerate();
        for (idx, batch) in decoded {
            assert_eq!(batch[0], (5 + idx, 1), "step {}", idx + 2);
            assert!(batch.iter().map(|(_, num)| num).sum::<usize>() <= 32);
        }
    });
}
