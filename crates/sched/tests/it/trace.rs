//! Draws what a workload does: one line a step, one letter a request in order of arrival.
//!
//! ```text
//!  3: A+1! B+7(16) -C
//! ```
//!
//! In step 3 one token of A is computed and its next one chosen (`!`); B starts with seven tokens
//! after sixteen found in the cache; C was preempted.

use std::fmt::Write;
use std::time::Duration;

use sched::{Chosen, Limits, Scheduler, SeqId, StepPlan, Token};

/// A request that arrives before the given step.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub step: usize,
    pub prompt: Vec<Token>,
    pub num_answer: usize,
    /// The client goes away before this step.
    pub leaves: Option<usize>,
}

impl Arrival {
    pub fn leaves_before(mut self, step: usize) -> Arrival {
        self.leaves = Some(step);
        self
    }
}

/// Requests (step, prompt tokens, answer tokens) whose prompts share nothing.
pub fn unalike<const N: usize>(arrivals: [(usize, usize, usize); N]) -> [Arrival; N] {
    let mut next_token = 0;
    arrivals.map(|(step, num_prompt, num_answer)| {
        let prompt = (next_token..).take(num_prompt).collect();
        next_token += num_prompt as Token;
        Arrival {
            step,
            prompt,
            num_answer,
            leaves: None,
        }
    })
}

/// Requests (step, prompt tokens, answer tokens) whose prompts are all beginnings of one text.
pub fn alike<const N: usize>(arrivals: [(usize, usize, usize); N]) -> [Arrival; N] {
    arrivals.map(|(step, num_prompt, num_answer)| {
        let prompt = (0..num_prompt as Token).collect();
        Arrival {
            step,
            prompt,
            num_answer,
            leaves: None,
        }
    })
}

/// The `nth` answer token of the request with this prompt.
pub fn answer_token(prompt: &[Token], nth: usize) -> Token {
    1_000_000 + prompt[0] * 1000 + nth as Token
}

/// Runs a workload to its end and draws it.
pub fn trace(limits: &Limits, arrivals: &[Arrival]) -> String {
    let mut drawing = Drawing {
        scheduler: Scheduler::new(limits.clone()),
        arrivals,
        requests: Vec::new(),
        drawn: String::new(),
    };
    for step in 0.. {
        assert!(step < 1000, "does not finish:\n{}", drawing.drawn);
        if !drawing.step(step) {
            break;
        }
    }
    drawing.drawn
}

struct Drawing<'a> {
    scheduler: Scheduler,
    arrivals: &'a [Arrival],
    /// In order of `arrivals`, as far as they have arrived.
    requests: Vec<Request>,
    drawn: String,
}

#[derive(Clone, Copy)]
struct Request {
    id: SeqId,
    num_answered: usize,
    is_running: bool,
    is_over: bool,
}

impl Drawing<'_> {
    /// Whether anything was left to do.
    fn step(&mut self, step: usize) -> bool {
        let now = Duration::from_millis(step as u64);
        assert!(self.arrivals.is_sorted_by_key(|arrival| arrival.step));
        for arrival in self.arrivals.iter().filter(|arrival| arrival.step == step) {
            let id = self
                .scheduler
                .add(arrival.prompt.clone(), arrival.num_answer, now)
                .expect("fits");
            self.requests.push(Request {
                id,
                num_answered: 0,
                is_running: false,
                is_over: false,
            });
        }
        for (request, arrival) in self.requests.iter_mut().zip(self.arrivals) {
            if arrival.leaves == Some(step) {
                self.scheduler.cancel(request.id);
                request.is_over = true;
            }
        }
        if self.scheduler.is_idle() && self.requests.len() == self.arrivals.len() {
            return false;
        }
        let plan = self.scheduler.plan(now);
        write!(self.drawn, "{step}:").unwrap();
        let chosen = self.draw(&plan);
        self.drawn.push('\n');
        self.scheduler.commit(plan, &chosen, now);
        self.scheduler.check_integrity();
        true
    }

    /// Draws a plan and chooses the tokens it asks for.
    fn draw(&mut self, plan: &StepPlan) -> Vec<Chosen> {
        let mut chosen = Vec::new();
        for (idx, request) in self
            .requests
            .iter_mut()
            .enumerate()
            .filter(|(_, it)| !it.is_over)
        {
            let name = (b'A' + idx as u8) as char;
            let was_running = std::mem::replace(
                &mut request.is_running,
                !self.scheduler.blocks(request.id).is_empty(),
            );
            if was_running && !request.is_running {
                write!(self.drawn, " -{name}").unwrap();
            }
            let Some(item) = plan.items.iter().find(|item| item.seq == request.id) else {
                continue;
            };
            write!(self.drawn, " {name}+{}", item.num_tokens).unwrap();
            if let Some(num_cached) = item.started.filter(|&num_cached| num_cached > 0) {
                write!(self.drawn, "({num_cached})").unwrap();
            }
            if item.samples {
                self.drawn.push('!');
                let arrival = &self.arrivals[idx];
                request.num_answered += 1;
                request.is_over = request.num_answered == arrival.num_answer;
                let token = answer_token(&arrival.prompt, request.num_answered);
                chosen.push(Chosen {
                    seq: item.seq,
                    token: Some(token),
                    ends: request.is_over,
                });
            }
        }
        chosen
    }
}
