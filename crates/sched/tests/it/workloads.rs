//! Thousands of workloads drawn by seed, each run through `world`, which checks every promise at
//! every step. A failing seed is printed; `SCHED_SEED=<n>` runs that one alone.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sched::{BlockHash, Limits, PromptRows, Token, hash_block};

use crate::world::{ALONE, HangUp, Moment, Report, Request, Workload, answer_token, run};

/// Runs `check` for many seeds and names the one that fails.
fn for_seeds(num_seeds: u64, mut check: impl FnMut(u64, &mut ChaCha8Rng)) {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with SCHED_SEED={}", self.0);
            }
        }
    }
    let chosen = std::env::var("SCHED_SEED")
        .ok()
        .map(|seed| seed.parse().expect("a number"));
    for seed in chosen.map_or(0..num_seeds, |seed: u64| seed..seed + 1) {
        let named = Named(seed);
        check(seed, &mut ChaCha8Rng::seed_from_u64(seed));
        std::mem::forget(named);
    }
}

/// Small pools, small budgets, prompts that begin alike and border on blocks, early stops, hang-ups.
fn any_workload(rng: &mut ChaCha8Rng, hash: BlockHash) -> Workload {
    let block_tokens = rng.random_range(1..=5);
    let limits = Limits {
        step_tokens_max: rng.random_range(1..=24),
        prompt_rows_max: rng.random_range(1..=8),
        num_running_max: rng.random_range(1..=8),
        num_waiting_max: rng.random_range(4..=24),
        num_blocks: rng.random_range(1..=32),
        block_tokens,
        prefix_cache: rng.random_bool(0.8),
    };
    let stem: Vec<Token> = (0..64).map(|_| rng.random_range(0..3)).collect();
    let num_requests = rng.random_range(1..=20);
    let requests = (0..num_requests)
        .map(|_| any_request(rng, &stem, &limits))
        .collect();
    Workload {
        limits,
        hash,
        requests,
    }
}

fn any_request(rng: &mut ChaCha8Rng, stem: &[Token], limits: &Limits) -> Request {
    let num_positions = limits.num_blocks * limits.block_tokens;
    let num_stem = match rng.random_range(0..3) {
        // Around a block border.
        0 => (rng.random_range(1..=4) * limits.block_tokens + rng.random_range(0..=2)).max(2) - 1,
        _ => rng.random_range(1..=(num_positions / 2).clamp(1, stem.len())),
    };
    let mut prompt = stem[..num_stem.min(stem.len())].to_vec();
    match rng.random_range(0..4) {
        0 => prompt[0] += 1,
        1 => prompt.extend((0..rng.random_range(0..6)).map(|_| rng.random_range(0..3 as Token))),
        _ => (),
    }
    // Now and then more than fits alone.
    let num_left = (num_positions + 1).saturating_sub(prompt.len());
    let max_tokens = rng.random_range(1..=(num_left + 1).min(60));
    let arrives_at_step = rng.random_range(0..20);
    let num_answers = match rng.random_range(0..4) {
        0 => rng.random_range(2..=5),
        _ => 1,
    };
    let prompt_rows = match rng.random_range(0..16) {
        0 | 1 => PromptRows::Each,
        2 | 3 => PromptRows::EachState,
        _ => PromptRows::Last,
    };
    let hangs_up = rng.random_bool(0.25).then(|| HangUp {
        only_answer: (rng.random_bool(0.7)).then(|| rng.random_range(0..num_answers)),
        at_step: arrives_at_step + rng.random_range(0..30),
        moment: match rng.random_range(0..3) {
            0 => Moment::BetweenSteps,
            1 => Moment::MidStepTokenKept,
            _ => Moment::MidStepTokenDropped,
        },
    });
    Request {
        arrives_at_step,
        prompt,
        num_answer: rng.random_range(1..=max_tokens),
        max_tokens,
        num_answers,
        prompt_rows,
        hangs_up,
    }
}

/// What the request's answer is when it is alone in the world.
fn solo_answer(request: &Request) -> Vec<Token> {
    let mut tokens = request.prompt.clone();
    for _ in 0..request.num_answer {
        tokens.push(answer_token(&tokens));
    }
    tokens.split_off(request.prompt.len())
}

/// Every accepted request ends with its solo answer, after a bounded amount of work.
fn check_answers(workload: &Workload, report: &Report) {
    let mut num_tokens_known = 0;
    for (request, answer) in workload.requests.iter().zip(&report.answers) {
        num_tokens_known +=
            request.num_answers as usize * (request.prompt.len() + request.num_answer);
        if let Some(answer) = answer {
            assert_eq!(
                *answer,
                solo_answer(request),
                "the answer depends on the neighbours"
            );
        }
    }
    let num_answered = report.answers.iter().flatten().count();
    let num_hung_up = workload
        .requests
        .iter()
        .filter(|request| request.hangs_up.is_some())
        .count();
    assert!(num_answered + num_hung_up + report.num_refused >= workload.requests.len());
    assert!(
        report.num_planned_tokens <= 3 * num_tokens_known,
        "nobody is preempted more than twice"
    );
}

/// The kind of hash that makes a cache serve other people's answers: three values in all.
fn three_hashes(parent: Option<u64>, tokens: &[Token]) -> u64 {
    hash_block(parent, tokens) % 3
}

/// Forgets what came before the block.
fn parentless_hash(_parent: Option<u64>, tokens: &[Token]) -> u64 {
    hash_block(None, tokens)
}

/// Blocks everybody else.
fn one_hash(_parent: Option<u64>, _tokens: &[Token]) -> u64 {
    0
}

/// C1, C2, C4, C8: everything `world` checks, over tiny pools and random hang-ups.
#[test]
fn random_workloads_always_finish_with_their_solo_answers() {
    let mut seen = Report::default();
    for_seeds(4000, |_, rng| {
        let workload = any_workload(rng, hash_block);
        let report = run(&workload);
        check_answers(&workload, &report);
        seen.num_preempted += report.num_preempted;
        seen.num_recomputed += report.num_recomputed;
        seen.num_prefix_hit += report.num_prefix_hit;
        seen.num_evicted += report.num_evicted;
        seen.num_refused += report.num_refused;
    });
    println!("{seen:?}");
    if std::env::var_os("SCHED_SEED").is_none() {
        // The test is void if the interesting things do not happen.
        assert!(
            seen.num_preempted > 2000 && seen.num_recomputed > 10_000,
            "{seen:?}"
        );
        assert!(
            seen.num_prefix_hit > 10_000 && seen.num_evicted > 1000,
            "{seen:?}"
        );
        assert!(seen.num_refused > 100, "{seen:?}");
    }
}

/// C4: a collision costs a miss, never another prompt's content.
#[test]
fn colliding_hashes_never_serve_another_prompts_content() {
    for (hash, num_hits_min) in [
        (three_hashes as BlockHash, 100),
        (parentless_hash, 100),
        (one_hash, 10),
    ] {
        let mut num_hits = 0;
        for_seeds(1000, |_, rng| {
            let workload = any_workload(rng, hash);
            let report = run(&workload);
            check_answers(&workload, &report);
            num_hits += report.num_prefix_hit;
        });
        assert!(
            std::env::var_os("SCHED_SEED").is_some() || num_hits > num_hits_min,
            "{num_hits}"
        );
    }
}

#[test]
fn the_same_calls_give_the_same_plans() {
    for_seeds(200, |_, rng| {
        let workload = any_workload(rng, hash_block);
        assert_eq!(run(&workload), run(&workload));
    });
}

/// C4: the prefix cache changes what is computed, never what is answered.
#[test]
fn answers_are_the_same_with_and_without_the_prefix_cache() {
    for_seeds(500, |_, rng| {
        let mut workload = any_workload(rng, hash_block);
        for request in &mut workload.requests {
            request.hangs_up = None;
        }
        let num_answers = |request: &Request| request.num_answers as usize;
        workload.limits.num_waiting_max = workload.requests.iter().map(num_answers).sum();
        let [with, without] = [true, false].map(|prefix_cache| {
            workload.limits.prefix_cache = prefix_cache;
            run(&workload)
        });
        assert_eq!(with.answers, without.answers);
    });
}

/// C8: six requests, room for about two, long answers.
#[test]
fn under_constant_pressure_nobody_is_preempted_more_than_twice() {
    for_seeds(50, |_, rng| {
        let limits = Limits {
            step_tokens_max: 256,
            prompt_rows_max: 64,
            num_running_max: 32,
            num_waiting_max: 64,
            num_blocks: 40,
            block_tokens: 16,
            prefix_cache: rng.random_bool(0.5),
        };
        let requests: Vec<Request> = (0..6)
            .map(|_| Request {
                arrives_at_step: rng.random_range(0..3),
                prompt: (0..rng.random_range(5..40))
                    .map(|_| rng.random_range(0..1000))
                    .collect(),
                num_answer: 300,
                max_tokens: 300,
                ..ALONE
            })
            .collect();
        let workload = Workload {
            limits,
            hash: hash_block,
            requests,
        };
        let report = run(&workload);
        check_answers(&workload, &report);
        assert!(
            report.num_preempted > 0,
            "without pressure the test is void"
        );
        assert!(report.num_preempted < 2 * workload.requests.len());
        let num_steps_in_turn: usize = workload
            .requests
            .iter()
            .map(|request| request.num_answer + 1)
            .sum();
        assert!(
            report.plans.len() < num_steps_in_turn,
            "slower than one after the other"
        );
    });
}

/// C2: each wants three fifths of the pool, and they grow into each other.
#[test]
fn twenty_requests_that_each_want_most_of_the_pool_all_finish() {
    let limits = Limits {
        step_tokens_max: 128,
        prompt_rows_max: 64,
        num_running_max: 32,
        num_waiting_max: 32,
        num_blocks: 20,
        block_tokens: 16,
        prefix_cache: true,
    };
    let requests: Vec<Request> = (0..20)
        .map(|idx| Request {
            arrives_at_step: 0,
            prompt: (0..60).map(|position| idx * 100 + position).collect(),
            num_answer: 132,
            max_tokens: 132,
            ..ALONE
        })
        .collect();
    let workload = Workload {
        limits,
        hash: hash_block,
        requests,
    };
    let report = run(&workload);
    check_answers(&workload, &report);
    assert_eq!(report.num_refused, 0);
    assert!(
        report.num_preempted > 0,
        "without conflict the test is void"
    );
}

/// C3, the opposite starvation: work for more than a whole step arrives in every step.
#[test]
fn steady_short_arrivals_at_most_halve_a_long_prompts_progress() {
    let limits = Limits {
        step_tokens_max: 32,
        prompt_rows_max: 64,
        num_running_max: 64,
        num_waiting_max: 1000,
        num_blocks: 1000,
        block_tokens: 16,
        prefix_cache: false,
    };
    let request = |arrives_at_step, num_prompt, first| Request {
        arrives_at_step,
        prompt: (first..).take(num_prompt).collect(),
        num_answer: 1,
        max_tokens: 1,
        ..ALONE
    };
    let mut requests = vec![request(0, 640, 0)];
    requests.extend((0..200).map(|idx| request(1 + idx / 5, 8, 1000 * (idx as Token + 1))));
    let workload = Workload {
        limits,
        hash: hash_block,
        requests,
    };
    let report = run(&workload);
    check_answers(&workload, &report);
    let mut plans = report.plans.iter();
    let num_steps = 1 + plans
        .position(|items| items[0].samples)
        .expect("it finishes");
    assert!(num_steps <= 640 / 16, "{num_steps} steps");
    let overtaking = report.plans[..num_steps]
        .iter()
        .flatten()
        .filter(|item| item.samples);
    assert!(overtaking.count() > 50, "short prompts overtake meanwhile");
}
