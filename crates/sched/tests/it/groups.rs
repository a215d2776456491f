//! Several answers to one prompt: computed once, shared by reference count, with or without a cache.

use std::num::NonZeroU32;
use std::time::Duration;

use sched::{Chosen, Group, Limits, PlanItem, PromptRows, Scheduler, SeqId, hash_block};

use crate::world::{ALONE, Request, Workload, run};

const LIMITS: Limits = Limits {
    step_tokens_max: 64,
    prompt_rows_max: 8,
    num_running_max: 8,
    num_waiting_max: 32,
    num_blocks: 64,
    block_tokens: 4,
    prefix_cache: false,
};

/// Four answers of ten tokens to a prompt of `num_prompt`; whoever computes the same position twice
/// shows in the count of planned tokens.
fn check_planned(limits: Limits, num_prompt: usize, expected: usize) {
    let request = Request {
        prompt: (0..num_prompt as u32).collect(),
        num_answer: 10,
        max_tokens: 10,
        num_answers: 4,
        ..ALONE
    };
    let workload = Workload {
        limits,
        hash: hash_block,
        requests: vec![request],
    };
    assert_eq!(run(&workload).num_planned_tokens, expected, "{num_prompt}");
}

#[test]
fn a_groups_prompt_is_computed_once_but_for_what_follows_its_full_blocks() {
    for prefix_cache in [false, true] {
        let limits = Limits {
            prefix_cache,
            ..LIMITS
        };
        // Nine tokens of each answer are computed, and its own part of the prompt.
        for (num_prompt, num_own) in [(40, 4), (41, 1), (43, 3), (44, 4)] {
            check_planned(limits.clone(), num_prompt, num_prompt + 3 * num_own + 4 * 9);
        }
    }
}

#[test]
fn a_prompt_of_many_steps_is_not_computed_beside_itself() {
    let limits = Limits {
        step_tokens_max: 8,
        ..LIMITS
    };
    check_planned(limits, 43, 43 + 3 * 3 + 4 * 9);
}

/// A scheduler with one group of three answers to ten tokens.
fn group_of_three(limits: Limits, max_tokens: usize) -> (Scheduler, Vec<SeqId>) {
    let mut scheduler = Scheduler::new(limits);
    let group = Group {
        prompt: (0..10).collect(),
        max_tokens,
        num_answers: NonZeroU32::new(3).unwrap(),
        prompt_rows: PromptRows::Last,
    };
    let ids = scheduler.add_group(group, Duration::ZERO).unwrap();
    (scheduler, ids)
}

fn step(scheduler: &mut Scheduler) -> Vec<PlanItem> {
    let plan = scheduler.plan(Duration::ZERO);
    let items = plan.items.clone();
    let sampling = items.iter().filter(|item| item.samples);
    let chosen: Vec<Chosen> = sampling
        .map(|item| Chosen {
            seq: item.seq,
            token: Some(1),
            ends: false,
        })
        .collect();
    scheduler.commit(plan, &chosen, Duration::ZERO);
    scheduler.check_integrity();
    items
}

#[test]
fn answers_hold_the_prompts_full_blocks_together() {
    let (mut scheduler, ids) = group_of_three(LIMITS, 5);
    assert_eq!(scheduler.counts().num_waiting_tokens, 10);
    assert_eq!(step(&mut scheduler).len(), 1);
    step(&mut scheduler);
    let [a, b, c] = [0, 1, 2].map(|idx| scheduler.blocks(ids[idx]).to_vec());
    assert_eq!((&a[..2], &a[..2]), (&b[..2], &c[..2]));
    assert!(a[2] != b[2] && b[2] != c[2] && a[2] != c[2]);
    assert_eq!(scheduler.counts().blocks_held, 2 + 3);
}

#[test]
fn whoever_of_a_group_is_cancelled_the_others_go_on_with_what_was_computed() {
    for gone in 0..3 {
        // In the middle of the prompt, and behind it.
        for num_steps in [1, 3] {
            let limits = Limits {
                step_tokens_max: 4,
                ..LIMITS
            };
            let (mut scheduler, ids) = group_of_three(limits, 3);
            let mut num_planned = 0;
            for _ in 0..num_steps {
                let items = step(&mut scheduler);
                num_planned += items.iter().map(|item| item.num_tokens).sum::<usize>();
            }
            scheduler.cancel(ids[gone]);
            scheduler.check_integrity();
            let left: Vec<SeqId> = ids.iter().copied().filter(|&id| id != ids[gone]).collect();
            while left.iter().any(|&id| scheduler.tokens(id).len() == 10) {
                let items = step(&mut scheduler);
                num_planned += items.iter().map(|item| item.num_tokens).sum::<usize>();
                assert!(num_planned < 30, "computes the prompt again");
            }
            for id in left {
                scheduler.cancel(id);
            }
            assert_eq!(scheduler.counts().blocks_free, LIMITS.num_blocks);
        }
    }
}

#[test]
fn a_group_is_queued_whole_or_not_at_all() {
    let limits = Limits {
        num_waiting_max: 2,
        ..LIMITS
    };
    let mut scheduler = Scheduler::new(limits);
    let group = |num_answers| Group {
        prompt: vec![1, 2],
        max_tokens: 4,
        num_answers: NonZeroU32::new(num_answers).unwrap(),
        prompt_rows: PromptRows::Last,
    };
    assert!(scheduler.add_group(group(3), Duration::ZERO).is_err());
    assert!(scheduler.is_idle());
    assert!(scheduler.add_group(group(2), Duration::ZERO).is_ok());
}

#[test]
fn a_prompt_without_an_answer_ends_when_it_is_computed_and_stays_cached() {
    let limits = Limits {
        prefix_cache: true,
        ..LIMITS
    };
    let mut scheduler = Scheduler::new(limits);
    let id = scheduler.add((0..9).collect(), 0, Duration::ZERO).unwrap();
    let plan = scheduler.plan(Duration::ZERO);
    let chosen = [Chosen {
        seq: id,
        token: None,
        ends: true,
    }];
    scheduler.commit(plan, &chosen, Duration::ZERO);
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.counts().blocks_cached, 2);
}
