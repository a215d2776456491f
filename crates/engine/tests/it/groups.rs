//! Several answers to one prompt: computed once, each as if it were alone, each ending by itself.

use std::num::NonZeroU32;

use engine::{AdmitError, Fault, FinishReason, PrefixCache};

use crate::lab::*;

const CACHES: [PrefixCache; 2] = [PrefixCache::On, PrefixCache::Off];

fn lab(prefix_cache: PrefixCache) -> Lab {
    let mut lab = Lab::new();
    lab.limits.prefix_cache = prefix_cache;
    lab
}

/// Case D1.
#[test]
fn greedy_answers_of_a_group_are_those_of_a_lone_run() {
    for prefix_cache in CACHES {
        for num_prompt in [1, 15, 16, 17, 40, 200] {
            let tokens = prompt(num_prompt, 3);
            let bench = lab(prefix_cache).start();
            let told = bench.ask_group(request(&tokens, 30), 5);
            let expected = Script::hashed().greedy(&tokens, 30);
            assert!(told.iter().all(|told| told.tokens == expected));
        }
    }
}

#[test]
fn a_groups_prompt_is_computed_once_and_said_so() {
    for prefix_cache in CACHES {
        let bench = lab(prefix_cache).start();
        let told = bench.ask_group(request(&prompt(200, 1), 4), 3);
        let cached: Vec<u32> = told.iter().map(|it| it.finished.usage.num_cached).collect();
        assert_eq!(cached, [0, 192, 192]);
        let num_computed = |happened: &Happened| {
            let shares = happened.batches.iter().flatten();
            shares.map(|(_, num_tokens)| num_tokens).sum::<usize>()
        };
        // The prompt, what follows its last full block twice, and three answers' tokens but the last.
        assert_eq!(bench.log.read(num_computed), 200 + 2 * 8 + 3 * 3);
    }
}

/// Case D2.
#[test]
fn drawn_answers_differ_and_are_the_same_each_time_and_the_first_as_alone() {
    let asked = seeded(&prompt(50, 2), 30, 77);
    let alone = lab(PrefixCache::Off).start().ask(asked.clone());
    let mut groups: Vec<Vec<Vec<u32>>> = Vec::new();
    for (num_sequences_max, num_blocks) in [(32, 512), (2, 512), (32, 14)] {
        for prefix_cache in CACHES {
            let mut lab = lab(prefix_cache);
            lab.limits.num_sequences_max = num_sequences_max;
            lab.num_blocks = num_blocks;
            let told = lab.start().ask_group(asked.clone(), 6);
            groups.push(told.into_iter().map(|told| told.tokens).collect());
        }
    }
    assert_eq!(groups[0][0], alone.tokens);
    for (idx, answer) in groups[0].iter().enumerate() {
        assert!(
            !groups[0][..idx].contains(answer),
            "answer {idx} is another's"
        );
    }
    assert!(groups.iter().all(|group| *group == groups[0]));
}

#[test]
fn a_cancelled_answer_leaves_the_others_of_its_group() {
    for gone in 0..3 {
        for step in [1, 2, 5] {
            let mut lab = lab(PrefixCache::Off);
            lab.gated = true;
            lab.limits.step_tokens_max = 32;
            let bench = lab.start();
            let asked = request(&prompt(70, 4), 20);
            let three = NonZeroU32::new(3).unwrap();
            let mut streams = bench.handle().submit_group(asked, three).unwrap();
            bench.gate.run_to_step(step);
            drop(streams.remove(gone));
            bench.gate.open();
            let expected = Script::hashed().greedy(&prompt(70, 4), 20);
            for told in streams.into_iter().map(read) {
                assert_eq!(told.tokens, expected);
                assert_eq!(told.finished.reason, FinishReason::Length);
            }
            bench.log.wait_for_finished(3);
        }
    }
}

/// Case C8.
#[test]
fn groups_that_preempt_each_other_still_answer_as_alone() {
    for prefix_cache in CACHES {
        let mut lab = lab(prefix_cache);
        lab.num_blocks = 24;
        let bench = lab.start();
        let prompts: Vec<Vec<u32>> = (0..4).map(|idx| prompt(60 + idx, idx as u64)).collect();
        let three = NonZeroU32::new(3).unwrap();
        let streams: Vec<_> = prompts
            .iter()
            .map(|prompt| bench.handle().submit_group(request(prompt, 90), three))
            .collect();
        for (streams, prompt) in streams.into_iter().zip(&prompts) {
            let expected = Script::hashed().greedy(prompt, 90);
            for told in streams.unwrap().into_iter().map(read) {
                assert_eq!(told.tokens, expected);
            }
        }
        let num_preemptions = bench.log.read(|happened| {
            happened
                .steps
                .iter()
                .map(|it| it.num_preemptions)
                .sum::<u32>()
        });
        assert!(num_preemptions > 0, "the small pool was to preempt");
    }
}

#[test]
fn a_group_is_taken_whole_or_refused_whole() {
    let mut lab = Lab {
        gated: true,
        ..Lab::new()
    };
    lab.limits.num_sequences_max = 2;
    lab.limits.num_waiting_max = 3;
    let bench = lab.start();
    let group = |num| {
        let num = NonZeroU32::new(num).unwrap();
        bench.handle().submit_group(request(&prompt(5, 1), 2), num)
    };
    let never = group(6).unwrap_err();
    assert_eq!(never.fault(), Fault::Caller);
    assert!(matches!(
        never,
        AdmitError::TooManyAnswers {
            num_answers_max: 5,
            ..
        }
    ));
    let taken = group(5).unwrap();
    let later = group(1).unwrap_err();
    assert!(matches!(later, AdmitError::QueueFull { .. }));
    bench.gate.open();
    assert!(
        taken
            .into_iter()
            .map(read)
            .all(|told| told.tokens.len() == 2)
    );
    assert_eq!(group(5).unwrap().len(), 5);
}
