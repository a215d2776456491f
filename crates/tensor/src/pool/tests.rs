//! Every item once, whoever is late, parks, panics or asks at the same time.

use super::*;

fn pool(num_threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(num_threads).expect("at least one"))
}

#[test]
fn every_part_is_run_once_however_many_threads_there_are() {
    for num_threads in [1, 2, 3, 7] {
        let pool = pool(num_threads);
        assert_eq!(pool.num_threads(), num_threads);
        let counts: Vec<AtomicUsize> = (0..num_threads).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..2000 {
            pool.run(&|part_idx| {
                counts[part_idx].fetch_add(1, Ordering::Relaxed);
            });
        }
        for count in counts {
            assert_eq!(count.into_inner(), 2000);
        }
    }
}

#[test]
fn a_closed_gate_lets_nobody_in_and_is_left_at_once_if_nobody_came() {
    let gate = Gate::new();
    assert!(!gate.try_enter());
    gate.open();
    assert_eq!(gate.epoch(), 1);
    gate.close();
    assert!(gate.is_left());
    assert!(!gate.try_enter());
}

#[test]
fn only_the_last_to_leave_a_closed_gate_is_told_so() {
    let gate = Gate::new();
    gate.open();
    assert!(gate.try_enter() && gate.try_enter() && gate.try_enter());
    assert!(
        !gate.leave(),
        "the gate is open: the caller does not wait yet"
    );
    gate.close();
    assert!(!gate.is_left());
    assert!(!gate.leave());
    assert!(gate.leave());
    assert!(gate.is_left());
}

#[test]
fn what_a_task_wrote_is_seen_by_the_next_region_whoever_runs_it() {
    let pool = pool(3);
    let mut values = vec![0_u32; 3];
    for turn in 0..3000_u32 {
        let before = values.clone();
        pool.for_each_row(&mut values, 1, |idx, row| {
            row[0] = before[(idx + 1) % 3] + 1
        });
        assert!(values.iter().all(|&value| value == turn + 1));
    }
}

#[test]
fn workers_that_parked_wake_up_again() {
    let pool = pool(2);
    let ran = AtomicUsize::new(0);
    for _ in 0..20 {
        pool.run(&|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        while !pool.shared.parked[1].load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    assert_eq!(ran.into_inner(), 40);
}

#[test]
fn a_caller_that_waits_long_parks_and_is_woken() {
    let pool = pool(2);
    let caller = std::thread::current().id();
    for _ in 0..20 {
        let worker_has_one = AtomicBool::new(false);
        pool.for_each(2, |_| {
            let done = || {
                if std::thread::current().id() == caller {
                    // So that the worker gets the other item.
                    worker_has_one.load(Ordering::SeqCst)
                } else {
                    worker_has_one.store(true, Ordering::SeqCst);
                    pool.shared.parked[0].load(Ordering::SeqCst)
                }
            };
            while !done() {
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn a_panic_in_any_part_reaches_the_caller_and_the_pool_still_works() {
    let pool = pool(3);
    for culprit in 0..3 {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|part_idx| assert!(part_idx != culprit, "culprit {culprit}"));
        }));
        let payload = result.expect_err("the panic goes on");
        let words = payload
            .downcast_ref::<String>()
            .expect("a formatted message");
        assert!(words.contains(&format!("culprit {culprit}")));
        let ran = AtomicUsize::new(0);
        pool.run(&|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.into_inner(), 3);
    }
}

#[test]
fn a_nested_run_is_refused_instead_of_waiting_for_itself() {
    for num_threads in [1, 2] {
        let pool = pool(num_threads);
        let result = catch_unwind(AssertUnwindSafe(|| pool.run(&|_| pool.run(&|_| ()))));
        assert!(result.is_err());
        pool.run(&|_| ());
    }
}

#[test]
fn several_callers_take_turns() {
    let pool = pool(2);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    pool.run(&|part_idx| {
                        if part_idx == 0 {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn claimed_items_are_each_computed_once() {
    let pool = pool(3);
    for num_items in [0, 1, 2, 100] {
        let counts: Vec<AtomicUsize> = (0..num_items).map(|_| AtomicUsize::new(0)).collect();
        pool.for_each(num_items, |item_idx| {
            counts[item_idx].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.into_iter().all(|count| count.into_inner() == 1));
    }
}

#[test]
fn parts_cover_the_whole_in_order_and_differ_by_one_at_most() {
    for len in 0..50 {
        for num_parts in 1..9 {
            let parts: Vec<_> = (0..num_parts)
                .map(|idx| partition(len, num_parts, idx))
                .collect();
            assert_eq!(
                parts.iter().cloned().flatten().collect::<Vec<_>>(),
                (0..len).collect::<Vec<_>>()
            );
            let shortest = parts.iter().map(Range::len).min();
            let longest = parts.iter().map(Range::len).max();
            assert!(longest <= shortest.map(|len| len + 1));
        }
    }
}
