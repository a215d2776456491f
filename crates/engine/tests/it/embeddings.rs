//! Prompts as vectors: of each position once, the same bits in any company.

use engine::{AdmitError, EmbedRequest, FinishReason, Pooling, PrefixCache, TokenId};

use crate::lab::*;

/// What the definition says, computed without any cache.
fn expected(prompt: &[u32], pooling: Pooling) -> Vec<f32> {
    let last = state_of(prompt);
    match pooling {
        Pooling::Last => last.to_vec(),
        Pooling::Mean => {
            let mut sums = [0.0_f64; HIDDEN];
            for end in 1..=prompt.len() {
                for (sum, value) in sums.iter_mut().zip(state_of(&prompt[..end])) {
                    *sum += f64::from(value);
                }
            }
            sums.map(|sum| (sum / prompt.len() as f64) as f32).to_vec()
        }
    }
}

fn check(told: &Told, prompt: &[u32], pooling: Pooling) {
    assert_eq!(told.vector, Some(expected(prompt, pooling)), "{pooling:?}");
    assert_eq!(told.finished.reason, FinishReason::Length);
    assert_eq!(told.finished.usage.num_prompt as usize, prompt.len());
    assert!(told.tokens.is_empty() && told.text.is_empty());
}

#[test]
fn a_vector_is_the_same_whatever_is_cached_and_around_it() {
    for (step_tokens_max, prompt_rows_max) in [(512, 512), (64, 7), (5, 1)] {
        let mut lab = Lab::new();
        lab.limits.step_tokens_max = step_tokens_max;
        lab.limits.prompt_rows_max = prompt_rows_max;
        let bench = lab.start();
        let asked: Vec<_> = [1, 2, 16, 17, 33, 150]
            .into_iter()
            .flat_map(|len| [Pooling::Mean, Pooling::Last].map(|it| (prompt(len, 3), it)))
            .collect();
        for _ in 0..2 {
            for (prompt, pooling) in &asked {
                check(&read(bench.embed(prompt, *pooling)), prompt, *pooling);
            }
        }
        let company: Vec<_> = (0..9)
            .map(|idx| bench.submit(seeded(&prompt(30, 50 + idx), 30, idx)))
            .collect();
        let streams: Vec<_> = asked
            .iter()
            .map(|(prompt, pooling)| bench.embed(prompt, *pooling))
            .collect();
        for (stream, (prompt, pooling)) in streams.into_iter().zip(&asked) {
            check(&read(stream), prompt, *pooling);
        }
        company.into_iter().for_each(|stream| drop(read(stream)));
    }
}

#[test]
fn neighbours_of_an_embedding_get_the_tokens_they_would_get_alone() {
    let bench = Lab::new().start();
    let embedded = bench.embed(&prompt(100, 1), Pooling::Mean);
    let asked = prompt(20, 2);
    let told = bench.ask(request(&asked, 40));
    assert_eq!(told.tokens, Script::hashed().greedy(&asked, 40));
    check(&read(embedded), &prompt(100, 1), Pooling::Mean);
}

#[test]
fn a_mean_takes_nothing_from_the_cache_and_leaves_its_blocks_there() {
    let bench = Lab::new().start();
    let asked = prompt(50, 1);
    for (pooling, num_cached) in [(Pooling::Mean, 0), (Pooling::Mean, 0), (Pooling::Last, 48)] {
        let told = read(bench.embed(&asked, pooling));
        assert_eq!(told.num_cached, Some(num_cached), "{pooling:?}");
    }
}

#[test]
fn states_are_short_so_that_a_step_takes_as_many_as_it_may_compute() {
    let mut lab = Lab::new();
    lab.limits.prompt_rows_max = 2;
    lab.limits.step_tokens_max = 64;
    let bench = lab.start();
    read(bench.embed(&prompt(200, 1), Pooling::Mean));
    let num_steps = bench.log.read(|happened| happened.batches.len());
    assert!(num_steps <= 8, "{num_steps} steps for 200 tokens");
}

#[test]
fn a_prompt_preempted_while_it_is_embedded_loses_and_doubles_no_position() {
    for prefix_cache in [PrefixCache::On, PrefixCache::Off] {
        let mut lab = Lab::new();
        lab.limits.step_tokens_max = 4;
        lab.limits.prefix_cache = prefix_cache;
        lab.num_blocks = 17;
        let bench = lab.start();
        let growing = bench.submit(request(&prompt(10, 1), 250));
        let asked = prompt(230, 2);
        let told = read(bench.embed(&asked, Pooling::Mean));
        read(growing);
        check(&told, &asked, Pooling::Mean);
        assert!(
            told.finished.times.num_preemptions > 0,
            "was to be preempted"
        );
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_embedding() {
    let mut lab = Lab::new();
    lab.gated = true;
    lab.limits.step_tokens_max = 16;
    let bench = lab.start();
    let stream = bench.embed(&prompt(500, 1), Pooling::Mean);
    bench.gate.run_to_step(2);
    drop(stream);
    bench.gate.open();
    bench.log.wait_for_finished(1);
    let reason = bench
        .log
        .read(|happened| happened.finished[0].reason.clone());
    assert_eq!(reason, FinishReason::Cancelled);
    assert!(bench.log.read(|happened| happened.batches.len()) <= 4);
    assert_eq!(bench.gauges(), [0, 0, 0, 0]);
}

#[test]
fn a_prompt_may_fill_the_context_but_not_exceed_it() {
    let mut lab = Lab::new();
    lab.limits.context_max = 64;
    let bench = lab.start();
    let full = prompt(64, 1);
    check(
        &read(bench.embed(&full, Pooling::Last)),
        &full,
        Pooling::Last,
    );
    let embed = |len: usize| EmbedRequest {
        prompt: vec![TokenId(1); len],
        pooling: Pooling::Mean,
        arrived: std::time::Instant::now(),
    };
    let refused = bench.handle().embed(embed(65)).expect_err("too long");
    assert!(matches!(
        refused,
        AdmitError::TooLong {
            num_prompt: 65,
            num_tokens_max: 64,
            ..
        }
    ));
    let refused = bench.handle().embed(embed(0)).expect_err("empty");
    assert_eq!(refused, AdmitError::EmptyPrompt);
}
