//! What is never accepted, and the border to what is: sizes, queues, and calls in the wrong order.

use std::time::Duration;

use sched::{AddError, Chosen, Limits, Scheduler, SeqId, StepPlan};

const NOW: Duration = Duration::ZERO;

/// Four blocks of four positions: 16 positions, 17 tokens.
const LIMITS: Limits = Limits {
    step_tokens_max: 8,
    prompt_rows_max: 4,
    num_running_max: 2,
    num_waiting_max: 2,
    num_blocks: 4,
    block_tokens: 4,
    prefix_cache: true,
};

fn add(scheduler: &mut Scheduler, num_prompt: usize, max_tokens: usize) -> Result<SeqId, AddError> {
    scheduler.add(vec![1; num_prompt], max_tokens, NOW)
}

/// Token 9 for everyone who samples.
fn choose(plan: &StepPlan) -> Vec<Chosen> {
    let sampling = plan.items.iter().filter(|item| item.samples);
    sampling
        .map(|item| Chosen {
            seq: item.seq,
            token: Some(9),
            ends: false,
        })
        .collect()
}

/// Steps until `seq` has `max_tokens` answer tokens, counting blocks as it goes.
fn run_to_the_limit(scheduler: &mut Scheduler, seq: SeqId, num_tokens_max: usize) {
    while !scheduler.is_idle() {
        let plan = scheduler.plan(NOW);
        let mut chosen = choose(&plan);
        for chosen in &mut chosen {
            assert_eq!(chosen.seq, seq);
            chosen.ends = scheduler.tokens(seq).len() + 1 == num_tokens_max;
        }
        scheduler.commit(plan, &chosen, NOW);
    }
}

/// C2: the last answer token is never computed, so one token more than the pool has positions fits.
#[test]
fn the_pool_to_its_last_position_is_usable_and_not_one_more() {
    assert_eq!(LIMITS.seq_tokens_max(), 17);
    for (num_prompt, max_tokens, fits) in [
        (15, 1, true),
        (16, 1, true),
        (17, 1, false),
        (15, 2, true),
        (15, 3, false),
        (1, 15, true),
        (1, 16, true),
        (1, 17, false),
        (12, 1, true),
        (13, 4, true),
    ] {
        let mut scheduler = Scheduler::new(LIMITS);
        match add(&mut scheduler, num_prompt, max_tokens) {
            Ok(seq) => {
                assert!(fits, "{num_prompt} + {max_tokens}");
                run_to_the_limit(&mut scheduler, seq, num_prompt + max_tokens);
            }
            Err(error) => {
                assert!(!fits, "{num_prompt} + {max_tokens}");
                assert_eq!(
                    error,
                    AddError::NeverFits {
                        num_blocks: 5,
                        num_blocks_max: 4
                    }
                );
                assert_eq!(error.to_string(), "needs 5 KV blocks, the pool has 4");
            }
        }
    }
}

/// C2: what is behind it is served as if it had not been there.
#[test]
fn what_never_fits_blocks_nobody() {
    let mut scheduler = Scheduler::new(LIMITS);
    assert!(add(&mut scheduler, 18, 1).is_err());
    let small = add(&mut scheduler, 1, 1).unwrap();
    assert_eq!(scheduler.plan(NOW).items[0].seq, small);
}

#[test]
fn a_boundless_answer_is_refused_without_overflow() {
    let mut scheduler = Scheduler::new(LIMITS);
    let refused = add(&mut scheduler, 2, usize::MAX);
    assert!(
        matches!(refused, Err(AddError::NeverFits { .. })),
        "{refused:?}"
    );
}

/// A8.
#[test]
fn an_empty_prompt_is_refused() {
    assert_eq!(add(&mut Scheduler::new(LIMITS), 0, 5), Err(AddError::Empty));
}

#[test]
fn an_answer_of_no_tokens_counts_as_one() {
    let mut scheduler = Scheduler::new(LIMITS);
    let seq = add(&mut scheduler, 16, 0).unwrap();
    run_to_the_limit(&mut scheduler, seq, 17);
}

/// F6.
#[test]
fn the_queue_is_bounded_and_counted_in_prompt_tokens() {
    let mut scheduler = Scheduler::new(LIMITS);
    add(&mut scheduler, 5, 1).unwrap();
    let second = add(&mut scheduler, 6, 1).unwrap();
    assert_eq!(
        add(&mut scheduler, 7, 1),
        Err(AddError::QueueFull { num_waiting: 2 })
    );
    let counts = scheduler.counts();
    assert_eq!((counts.num_waiting, counts.num_waiting_tokens), (2, 11));
    scheduler.cancel(second);
    let counts = scheduler.counts();
    assert_eq!((counts.num_waiting, counts.num_waiting_tokens), (1, 5));
    add(&mut scheduler, 7, 1).unwrap();
    let plan = scheduler.plan(NOW);
    assert_eq!(plan.items.len(), 2);
    assert_eq!(scheduler.counts().num_waiting_tokens, 0);
}

#[test]
fn the_longest_wait_is_that_of_the_head_of_the_queue() {
    let mut scheduler = Scheduler::new(Limits {
        num_running_max: 1,
        ..LIMITS
    });
    assert_eq!(scheduler.longest_wait(NOW), None);
    for second in 1..=2 {
        scheduler
            .add(vec![1], 1, Duration::from_secs(second))
            .unwrap();
    }
    assert_eq!(
        scheduler.longest_wait(Duration::from_secs(5)),
        Some(Duration::from_secs(4))
    );
    let _plan = scheduler.plan(Duration::from_secs(5));
    assert_eq!(
        scheduler.longest_wait(Duration::from_secs(5)),
        Some(Duration::from_secs(3))
    );
}

/// C1: a failed step is committed without tokens after its sequences are cancelled.
#[test]
fn a_step_that_failed_can_be_given_up() {
    let mut scheduler = Scheduler::new(LIMITS);
    let seqs = [
        add(&mut scheduler, 3, 2).unwrap(),
        add(&mut scheduler, 9, 2).unwrap(),
    ];
    let plan = scheduler.plan(NOW);
    for seq in seqs {
        scheduler.cancel(seq);
    }
    assert!(scheduler.is_idle());
    scheduler.commit(plan, &[], NOW);
    assert_eq!(scheduler.counts().blocks_held, 0);
    assert!(scheduler.plan(NOW).items.is_empty());
}

/// F8: hits and queries are those of sequences that start, so their ratio is a rate.
#[test]
fn prefix_queries_count_each_prompt_once() {
    let mut scheduler = Scheduler::new(LIMITS);
    let mut facts = Vec::new();
    for _ in 0..2 {
        let seq = add(&mut scheduler, 9, 1).unwrap();
        while !scheduler.is_idle() {
            let plan = scheduler.plan(NOW);
            facts.push((plan.facts.num_prefix_queried, plan.facts.num_prefix_hit));
            let mut chosen = choose(&plan);
            chosen
                .iter_mut()
                .for_each(|chosen| chosen.ends = chosen.seq == seq);
            scheduler.commit(plan, &chosen, NOW);
        }
    }
    assert_eq!(facts, [(9, 0), (0, 0), (9, 8)]);
}

#[test]
#[should_panic(expected = "the last plan was not committed")]
fn planning_twice_is_caught() {
    let mut scheduler = Scheduler::new(LIMITS);
    add(&mut scheduler, 3, 2).unwrap();
    scheduler.plan(NOW);
    scheduler.plan(NOW);
}

#[test]
#[should_panic(expected = "no token for")]
fn a_missing_token_is_caught() {
    let mut scheduler = Scheduler::new(LIMITS);
    add(&mut scheduler, 3, 2).unwrap();
    let plan = scheduler.plan(NOW);
    scheduler.commit(plan, &[], NOW);
}

#[test]
#[should_panic(expected = "a token was chosen for a sequence that did not sample")]
fn a_surplus_token_is_caught() {
    let mut scheduler = Scheduler::new(LIMITS);
    let seq = add(&mut scheduler, 9, 2).unwrap();
    let plan = scheduler.plan(NOW);
    scheduler.commit(
        plan,
        &[Chosen {
            seq,
            token: Some(9),
            ends: false,
        }],
        NOW,
    );
}

#[test]
#[should_panic(expected = "is past its limit")]
fn going_on_at_the_limit_is_caught() {
    let mut scheduler = Scheduler::new(LIMITS);
    let seq = add(&mut scheduler, 3, 1).unwrap();
    let plan = scheduler.plan(NOW);
    scheduler.commit(
        plan,
        &[Chosen {
            seq,
            token: Some(9),
            ends: false,
        }],
        NOW,
    );
}

#[test]
#[should_panic(expected = "has ended or was cancelled")]
fn asking_about_a_cancelled_sequence_is_caught() {
    let mut scheduler = Scheduler::new(LIMITS);
    let seq = add(&mut scheduler, 3, 1).unwrap();
    scheduler.cancel(seq);
    scheduler.tokens(seq);
}
