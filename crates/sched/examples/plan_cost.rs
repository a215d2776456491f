//! What planning costs: microseconds of `plan` + `commit` per step, by workload.
//!
//! ```text
//! cargo run --release -p fulcrum-sched --example plan_cost
//! ```
//!
//! The engine computes nothing meanwhile, so this is the floor under every step. The target is
//! 100 µs with 256 answers over long tables.

use std::time::{Duration, Instant};

use sched::{Chosen, Limits, Scheduler, Token};

const NUM_STEPS: usize = 2000;
const BLOCK_TOKENS: usize = 16;

/// What runs while steps are timed.
struct Case {
    name: &'static str,
    num_running: usize,
    num_prompt: usize,
    waits: Waits,
}

/// Who is at the head of the queue.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Nobody,
    /// A prompt that never fits beside the others.
    ForMemory,
}

fn main() {
    let case = |name, num_running, num_prompt, waits| Case {
        name,
        num_running,
        num_prompt,
        waits,
    };
    let cases = [
        case("1 answer over 8k", 1, 8192, Waits::Nobody),
        case("32 answers over 2k", 32, 2048, Waits::Nobody),
        case("256 answers over 2k", 256, 2048, Waits::Nobody),
        case("256 answers over 8k", 256, 8192, Waits::Nobody),
        case(
            "the same while a long prompt waits for memory",
            256,
            8192,
            Waits::ForMemory,
        ),
    ];
    println!(
        "{:<40} {:>9} {:>9} {:>9}",
        "case", "p50 µs", "p99 µs", "max µs"
    );
    for case in &cases {
        let mut nanos = measure(case);
        nanos.sort_unstable();
        let micros = |permille: usize| nanos[(nanos.len() - 1) * permille / 1000] as f64 / 1000.0;
        let [p50, p99, max] = [500, 990, 1000].map(micros);
        println!("{:<40} {p50:>9.1} {p99:>9.1} {max:>9.1}", case.name);
    }
}

/// Nanoseconds of each step once all answers are under way.
fn measure(case: &Case) -> Vec<u128> {
    let seq_tokens_max = case.num_prompt + 2 * NUM_STEPS;
    let mut scheduler = Scheduler::new(Limits {
        // The cost does not depend on it, and so all prompts are done in a few steps.
        step_tokens_max: 1 << 20,
        prompt_rows_max: 64,
        num_running_max: case.num_running + 1,
        num_waiting_max: case.num_running + 1,
        num_blocks: case.num_running * seq_tokens_max.div_ceil(BLOCK_TOKENS),
        block_tokens: BLOCK_TOKENS,
        prefix_cache: true,
    });
    // Alike for the first quarter, as with a common system prompt.
    let is_common = |position: usize| position < case.num_prompt / 4;
    let token = |idx: usize, position: usize| match is_common(position) {
        true => position as Token,
        false => (idx << 16 | position) as Token,
    };
    let prompt = |idx, num_tokens| {
        (0..num_tokens)
            .map(|position| token(idx, position))
            .collect()
    };
    for idx in 0..case.num_running {
        let added = scheduler.add(prompt(idx, case.num_prompt), 2 * NUM_STEPS, Duration::ZERO);
        added.expect("fits");
    }
    while step(&mut scheduler) < case.num_running {}
    if case.waits == Waits::ForMemory {
        // Begins as the first does, so that its cached part is walked at every attempt.
        let num_tokens = case.num_running * seq_tokens_max / 2;
        scheduler
            .add(prompt(0, num_tokens), 1, Duration::ZERO)
            .expect("fits alone");
        assert_eq!(step(&mut scheduler), case.num_running, "waits");
    }
    let timed = |_| {
        let start = Instant::now();
        step(&mut scheduler);
        start.elapsed().as_nanos()
    };
    (0..NUM_STEPS - 100).map(timed).collect()
}

/// One step without an engine; returns how many sampled.
fn step(scheduler: &mut Scheduler) -> usize {
    let plan = scheduler.plan(Duration::ZERO);
    let sampling = plan.items.iter().filter(|item| item.samples);
    let chosen: Vec<Chosen> = sampling
        .map(|item| Chosen {
            seq: item.seq,
            token: Some(item.num_past as Token),
            ends: false,
        })
        .collect();
    scheduler.commit(plan, &chosen, Duration::ZERO);
    chosen.len()
}
