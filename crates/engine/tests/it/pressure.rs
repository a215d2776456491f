//! Too little memory for everybody at once: nobody's answer shows it.

use engine::{AdmitError, Request};

use crate::lab::*;

/// Greedy and seeded requests of 300 tokens, two of which fill a pool of 44 blocks.
fn six_long_requests() -> Vec<Request> {
    (0..6)
        .map(|idx| match idx % 2 {
            0 => request(&prompt(20, idx), 300),
            _ => seeded(&prompt(20, idx), 300, idx),
        })
        .collect()
}

/// Case C8.
#[test]
fn preempted_answers_are_those_of_an_engine_with_memory_to_spare() {
    let roomy = Lab::new().start();
    let alone: Vec<Told> = six_long_requests()
        .into_iter()
        .map(|request| roomy.ask(request))
        .collect();

    let tight = Lab {
        num_blocks: 44,
        ..Lab::new()
    }
    .start();
    let told = tight.ask_all(six_long_requests());
    for (told, alone) in told.iter().zip(&alone) {
        assert_eq!(told.tokens, alone.tokens);
        assert_eq!(told.text, alone.text);
        assert_eq!(told.finished.reason, alone.finished.reason);
        assert_eq!(told.finished.usage.num_completion, 300);
    }
    tight.log.wait_for_finished(6);
    tight.log.read(|happened| {
        let in_steps: u32 = happened.steps.iter().map(|step| step.num_preemptions).sum();
        let in_requests: u32 = happened
            .finished
            .iter()
            .map(|facts| facts.times.num_preemptions)
            .sum();
        assert!(in_steps > 0, "void without a preemption");
        assert!(in_steps < 3 * 6, "{in_steps} preemptions");
        assert_eq!(in_steps, in_requests);
    });
}

/// Case C2.
#[test]
fn what_can_never_fit_the_pool_is_refused_at_once_with_the_real_limit() {
    let bench = Lab {
        num_blocks: 4,
        ..Lab::new()
    }
    .start();
    assert_eq!(bench.ask(request(&prompt(60, 1), 4)).tokens.len(), 4);
    let refusal = bench
        .try_submit(request(&prompt(60, 1), 5))
        .expect_err("65 of 64 positions");
    let expected = AdmitError::TooLong {
        num_tokens: 65,
        num_prompt: 60,
        max_tokens: 5,
        num_tokens_max: 64,
    };
    assert_eq!(refusal, expected);
    assert_eq!(refusal.fault(), engine::Fault::Caller);
}

/// Case A7.
#[test]
fn the_context_bounds_prompt_and_answer_together() {
    let mut lab = Lab::new();
    lab.limits.context_max = 100;
    let bench = lab.start();
    for (num_prompt, max_tokens, fits) in [
        (99, 1, true),
        (100, 1, false),
        (50, 50, true),
        (50, 51, false),
        (5, u32::MAX, false),
    ] {
        let outcome = bench.try_submit(request(&prompt(num_prompt, 1), max_tokens));
        assert_eq!(outcome.is_ok(), fits, "{num_prompt} + {max_tokens}");
        outcome.into_iter().for_each(|stream| drop(read(stream)));
    }
}

/// Case C2.
#[test]
fn requests_that_fit_only_one_after_the_other_all_finish() {
    // Each grows to 60 % of the pool.
    let bench = Lab {
        num_blocks: 50,
        ..Lab::new()
    }
    .start();
    let requests = (0..20).map(|idx| request(&prompt(60, idx), 420)).collect();
    for (idx, told) in bench.ask_all(requests).into_iter().enumerate() {
        assert_eq!(
            told.tokens,
            Script::hashed().greedy(&prompt(60, idx as u64), 420)
        );
    }
}

/// Every kind of request and departure on pools from roomy to hardly any, many times over.
#[test]
fn random_workloads_on_tiny_pools_all_get_their_answers() {
    for seed in 0..30 {
        let mut random = testkit::Random::new(seed);
        let mut lab = Lab {
            num_blocks: 8 + random.below(30),
            ..Lab::new()
        };
        lab.limits.step_tokens_max = 1 + random.below(40);
        lab.limits.num_sequences_max = 1 + random.below(8);
        let bench = lab.start();
        let mut kept = Vec::new();
        for _ in 0..20 {
            let tokens = prompt(1 + random.below(60), random.below(4) as u64);
            let num = 1 + random.below(60);
            let stream = bench.submit(request(&tokens, num as u32));
            match random.below(4) {
                0 => drop(stream),
                _ => kept.push((tokens, num, stream)),
            }
        }
        for (tokens, num, stream) in kept {
            assert_eq!(
                read(stream).tokens,
                Script::hashed().greedy(&tokens, num),
                "seed {seed}"
            );
        }
        bench.log.wait_for_finished(20);
    }
}
