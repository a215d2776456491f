//! What a reader may rely on, drawn (see `trace.rs` for how to read a drawing).

use sched::Limits;

use crate::trace::{Arrival, alike, answer_token, trace, unalike};

/// Small enough to draw: steps of eight tokens, sixteen blocks of four positions.
const LIMITS: Limits = Limits {
    step_tokens_max: 8,
    prompt_rows_max: 4,
    num_running_max: 8,
    num_waiting_max: 8,
    num_blocks: 16,
    block_tokens: 4,
    prefix_cache: true,
};

#[track_caller]
fn check(limits: Limits, arrivals: &[Arrival], expected: &[&str]) {
    let drawn = trace(&limits, arrivals);
    assert_eq!(
        drawn.lines().collect::<Vec<_>>(),
        expected,
        "drawn:\n{drawn}"
    );
}

/// C3.
#[test]
fn a_long_prompt_does_not_stop_the_answers_already_streaming() {
    check(
        LIMITS,
        &unalike([(0, 3, 4), (1, 20, 1)]),
        &["0: A+3!", "1: A+1! B+7", "2: A+1! B+7", "3: A+1! B+6!"],
    );
}

/// C3, the other way round.
#[test]
fn answers_that_would_fill_the_step_leave_a_quarter_to_prompts() {
    let limits = Limits {
        step_tokens_max: 4,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 1, 5), (0, 1, 5), (0, 1, 5), (0, 1, 5), (1, 6, 1)]),
        &[
            "0: A+1! B+1! C+1! D+1!",
            "1: A+1! B+1! C+1! E+1",
            "2: A+1! B+1! D+1! E+1",
            "3: A+1! C+1! D+1! E+1",
            "4: B+1! C+1! D+1! E+1",
            "5: A+1! B+1! C+1! E+1",
            "6: D+1! E+1!",
        ],
    );
}

#[test]
fn answers_take_turns_when_they_are_more_than_a_step_can_hold() {
    let limits = Limits {
        step_tokens_max: 2,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 1, 4), (0, 1, 4), (0, 1, 4)]),
        &[
            "0: A+1! B+1!",
            "1: A+1! C+1!",
            "2: B+1! C+1!",
            "3: A+1! B+1!",
            "4: A+1! C+1!",
            "5: B+1! C+1!",
        ],
    );
}

#[test]
fn a_budget_of_one_token_serves_answers_and_prompts_by_turns() {
    let limits = Limits {
        step_tokens_max: 1,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 1, 5), (1, 3, 1)]),
        &[
            "0: A+1!", "1: A+1!", "2: A+1!", "3: B+1", "4: A+1!", "5: A+1!", "6: B+1", "7: B+1!",
        ],
    );
}

#[test]
fn a_short_prompt_overtakes_a_long_one_which_still_progresses() {
    check(
        LIMITS,
        &unalike([(0, 24, 1), (1, 5, 1)]),
        &["0: A+8", "1: A+4 B+4", "2: A+7 B+1!", "3: A+5!"],
    );
}

#[test]
fn of_equal_prompts_the_first_is_finished_first() {
    check(
        LIMITS,
        &unalike([(0, 12, 1), (0, 12, 1), (0, 12, 1)]),
        &["0: A+8", "1: A+4! B+4", "2: B+8!", "3: C+8", "4: C+4!"],
    );
}

#[test]
fn the_youngest_is_preempted_when_blocks_run_out_and_still_finishes() {
    // Both may grow by one block, then A needs B's.
    let limits = Limits {
        num_blocks: 5,
        prefix_cache: false,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 4, 9), (0, 4, 8)]),
        &[
            "0: A+4! B+4!",
            "1: A+1! B+1!",
            "2: A+1! B+1!",
            "3: A+1! B+1!",
            "4: A+1! B+1!",
            "5: A+1! -B",
            "6: A+1!",
            "7: A+1!",
            "8: A+1!",
            "9: B+8",
            "10: B+1!",
            "11: B+1!",
            "12: B+1!",
        ],
    );
}

/// C8: the second admission waits for more room than the first.
#[test]
fn what_a_preempted_sequence_computed_is_found_again_in_the_cache() {
    let limits = Limits {
        num_blocks: 6,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 4, 9), (0, 8, 8)]),
        &[
            "0: A+4! B+4",
            "1: A+1! B+4!",
            "2: A+1! B+1!",
            "3: A+1! B+1!",
            "4: A+1! B+1!",
            "5: A+1! B+1!",
            "6: A+1! -B",
            "7: A+1!",
            "8: A+1!",
            "9: B+1!",
            "10: B+1!",
            "11: B+1!",
        ],
    );
}

#[test]
fn nobody_is_admitted_who_leaves_running_answers_no_room_to_grow() {
    let limits = Limits {
        num_blocks: 4,
        prefix_cache: false,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 7, 4), (1, 4, 3)]),
        &[
            "0: A+7!", "1: A+1!", "2: A+1!", "3: A+1!", "4: B+4!", "5: B+1!", "6: B+1!",
        ],
    );
}

/// C2: letting C past would starve B if more like C kept coming.
#[test]
fn a_small_request_does_not_overtake_a_large_one_that_waits_for_memory() {
    let limits = Limits {
        num_blocks: 4,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 8, 3), (1, 12, 1), (1, 2, 1)]),
        &["0: A+8!", "1: A+1!", "2: A+1!", "3: B+6 C+2!", "4: B+6!"],
    );
}

#[test]
fn no_more_run_than_the_limit_allows() {
    let limits = Limits {
        num_running_max: 2,
        ..LIMITS
    };
    check(
        limits,
        &unalike([(0, 1, 2), (0, 1, 3), (0, 1, 1), (0, 1, 1)]),
        &["0: A+1! B+1!", "1: A+1! B+1!", "2: B+1! C+1!", "3: D+1!"],
    );
}

#[test]
fn a_repeated_beginning_is_computed_once() {
    check(
        LIMITS,
        &alike([(0, 10, 1), (2, 10, 1), (4, 14, 1)]),
        &["0: A+8", "1: A+2!", "2: B+2(8)!", "3:", "4: C+6(8)!"],
    );
}

#[test]
fn of_prompts_that_arrive_together_and_begin_alike_only_the_first_computes_the_beginning() {
    check(
        LIMITS,
        &alike([(0, 17, 1), (0, 17, 1), (0, 17, 1)]),
        &["0: A+8", "1: A+8", "2: A+1! B+1(16)! C+1(16)!"],
    );
}

#[test]
fn one_token_changed_at_the_start_finds_nothing() {
    let mut arrivals = alike([(0, 9, 1), (2, 9, 1)]);
    arrivals[1].prompt[0] = 77;
    check(
        LIMITS,
        &arrivals,
        &["0: A+8", "1: A+1!", "2: B+8", "3: B+1!"],
    );
}

#[test]
fn the_next_turn_of_a_chat_finds_the_answer_of_the_last() {
    let mut arrivals = unalike([(0, 4, 6), (8, 1, 1)]);
    let first = arrivals[0].prompt.clone();
    let answer = (1..=6).map(|nth| answer_token(&first, nth));
    arrivals[1].prompt = first
        .iter()
        .copied()
        .chain(answer)
        .chain([5, 6, 7])
        .collect();
    check(
        LIMITS,
        &arrivals,
        &[
            "0: A+4!",
            "1: A+1!",
            "2: A+1!",
            "3: A+1!",
            "4: A+1!",
            "5: A+1!",
            "6:",
            "7:",
            "8: B+5(8)!",
        ],
    );
}

#[test]
fn the_end_of_an_old_text_is_evicted_before_its_beginning() {
    // Six blocks: A leaves four cached; C needs four and takes A's last two.
    let limits = Limits {
        num_blocks: 6,
        ..LIMITS
    };
    let mut arrivals = unalike([(0, 17, 1), (4, 16, 1), (8, 17, 1)]);
    arrivals[2].prompt = arrivals[0].prompt.clone();
    check(
        limits,
        &arrivals,
        &[
            "0: A+8",
            "1: A+8",
            "2: A+1!",
            "3:",
            "4: B+8",
            "5: B+8!",
            "6:",
            "7:",
            "8: C+8(8)",
            "9: C+1!",
        ],
    );
}

#[test]
fn without_the_prefix_cache_everything_is_computed() {
    let limits = Limits {
        prefix_cache: false,
        ..LIMITS
    };
    check(
        limits,
        &alike([(0, 8, 1), (1, 8, 1)]),
        &["0: A+8!", "1: B+8!"],
    );
}

/// C1.
#[test]
fn a_client_that_leaves_makes_room_in_the_next_step() {
    let limits = Limits {
        num_running_max: 1,
        ..LIMITS
    };
    let [a, b, c, d] = unalike([(0, 4, 40), (0, 30, 1), (0, 4, 1), (0, 2, 2)]);
    check(
        limits,
        &[
            a.leaves_before(2),
            b.leaves_before(3),
            c.leaves_before(1),
            d,
        ],
        &["0: A+4!", "1: A+1!", "2: B+8", "3: D+2!", "4: D+1!"],
    );
}
