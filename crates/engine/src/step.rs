//! One step: plan → lay out → forward → choose → commit, then tell everyone.
//!
//! The one idea: a step touches the scheduler at its two ends only. Between them the plan is
//! fixed, so what fails in the middle (a runner's error, a panic in it) concerns exactly the
//! sequences of the plan: they end, their blocks return unpublished, and the next step goes on
//! with the others.
//!
//! Readers hear last, after the commit and the observer: whoever sees a `Finished` finds its blocks
//! free and the request counted.
//! The scheduler checks its own integrity whenever a commit or a cancellation leaves it idle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use sched::{Chosen, PlanItem, SeqId, StepPlan};

use crate::answer::{Accepted, Answer, NoToken, Pick, Since};
use crate::batch::num_rows;
use crate::engine::{Engine, panic_message};
use crate::masks::Lent;
use crate::request::FinishReason;
use crate::stats::StepFacts;

impl Engine {
    /// Computes some tokens of some sequences, and moves each that was due by one token.
    pub(crate) fn step(&mut self) {
        let began = Instant::now();
        let plan = self.scheduler.plan(self.since_start(began));
        let mut facts = self.facts_of(&plan);
        self.announce(&plan, began);

        let wants_states = |seq| self.answers[&seq].wants_states();
        self.layout.lay_out(&plan, &self.scheduler, wants_states);
        let notices = match self.forward_and_choose(&plan) {
            Ok(choices) => self.commit(plan, choices),
            Err(failure) => {
                facts.num_prefill_tokens = 0;
                self.give_up(plan, &failure)
            }
        };

        facts.num_decode_tokens = notices.iter().filter(|notice| notice.is_token()).count() as u32;
        self.report(facts, began);
        notices.into_iter().for_each(|notice| self.publish(notice));
    }

    /// What the plan says of the step; what was really chosen, and how long it took, come later.
    fn facts_of(&self, plan: &StepPlan) -> StepFacts {
        assert!(
            !plan.items.is_empty(),
            "requests wait, and the scheduler plans nothing"
        );
        let num_prompt_tokens = plan.items.iter().map(|item| {
            let num_prompt = self.answers[&item.seq].num_prompt();
            num_prompt
                .saturating_sub(item.num_past)
                .min(item.num_tokens) as u32
        });
        StepFacts {
            num_prefill_tokens: num_prompt_tokens.sum(),
            num_preemptions: plan.facts.num_preempted as u32,
            num_recomputed_tokens: plan.facts.num_recomputed as u32,
            num_prefix_queried: plan.facts.num_prefix_queried as u32,
            num_prefix_hit: plan.facts.num_prefix_hit as u32,
            num_evicted: plan.facts.num_evicted as u32,
            ..StepFacts::default()
        }
    }

    /// Who starts, who was preempted, and the gauges that follow from it.
    fn announce(&mut self, plan: &StepPlan, began: Instant) {
        if plan.facts.num_preempted > 0 {
            for (&seq, answer) in &mut self.answers {
                if answer.has_started() && !self.scheduler.is_running(seq) {
                    answer.park();
                }
            }
        }
        let mut num_started = 0;
        for item in &plan.items {
            let answer = self
                .answers
                .get_mut(&item.seq)
                .expect("each sequence has its answer");
            answer.resume();
            if let Some(num_cached) = item.started {
                answer.start(num_cached, began);
                num_started += 1;
            }
        }
        self.show_counts(num_started);
    }

    /// The middle of a step. A panic in it is the plan's trouble and not the engine's.
    fn forward_and_choose(&mut self, plan: &StepPlan) -> Result<Vec<Choice>, StepFailure> {
        let Engine {
            runner,
            layout,
            answers,
            scratch,
            masks,
            vocab,
            scheduler,
            ..
        } = self;
        let lend = |item: &PlanItem| {
            let (answer_idx, constrained) = answers.get_mut(&item.seq)?.lend()?;
            Some(Lent {
                seq: item.seq,
                answer_idx,
                constrained,
            })
        };
        let sampling = plan.items.iter().filter(|item| item.samples);
        masks.lend(sampling.filter_map(lend).collect());
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            let mut logits = runner.forward(layout.batch())?;
            for lent in masks.take_back() {
                if let Some(answer) = answers.get_mut(&lent.seq) {
                    answer.give_back(lent.constrained);
                }
            }
            let mut choices = Vec::with_capacity(plan.items.len());
            let (mut end_row, mut end_state) = (0, 0);
            for item in plan.items.iter().filter(|item| num_rows(item) > 0) {
                let answer = answers
                    .get_mut(&item.seq)
                    .expect("each sequence has its answer");
                if answer.wants_states() {
                    let first_state = end_state;
                    end_state += num_rows(item);
                    let states = (first_state..end_state).map(|row_idx| logits.state(row_idx));
                    choices.extend(pool(item, states, answer));
                    continue;
                }
                let first_row = end_row;
                end_row += num_rows(item);
                if item.scores {
                    let tokens = scheduler.tokens(item.seq);
                    for (row_idx, position) in (first_row..end_row).zip(item.num_past..) {
                        answer.score(tokens, position, logits.row_mut(row_idx));
                    }
                }
                if item.samples {
                    let row = logits.row_mut(end_row - 1);
                    choices.push(Choice {
                        seq: item.seq,
                        pick: answer.choose(row, *vocab, scratch).map(Got::from),
                    });
                }
            }
            Ok(choices)
        }));
        // Of a failed forward pass: its answers end, and the thread must be free for the next step.
        drop(masks.take_back());
        match attempt {
            Ok(Ok(choices)) => Ok(choices),
            Ok(Err(error)) => {
                let error: model::runner::RunnerError = error;
                Err(StepFailure {
                    message: error.to_string(),
                })
            }
            Err(panic) => Err(StepFailure {
                message: panic_message(&*panic),
            }),
        }
    }

    /// Adds the chosen tokens to their answers and lets the scheduler advance.
    fn commit(&mut self, plan: StepPlan, choices: Vec<Choice>) -> Vec<Notice> {
        let at = Instant::now();
        let mut chosen = Vec::with_capacity(choices.len());
        let mut notices = Vec::with_capacity(choices.len());
        for Choice { seq, pick } in choices {
            let what = match pick {
                Ok(Got::Prompt { vector }) => {
                    chosen.push(Chosen {
                        seq,
                        token: None,
                        ends: true,
                    });
                    What::Computed { vector }
                }
                Ok(Got::Token(pick)) => {
                    let answer = self
                        .answers
                        .get_mut(&seq)
                        .expect("each sequence has its answer");
                    let accepted = answer.accept(&pick, at, &*self.vocabulary);
                    chosen.push(Chosen {
                        seq,
                        token: Some(pick.token.0),
                        ends: accepted.end.is_some(),
                    });
                    What::Token { pick, accepted }
                }
                Err(error) => {
                    self.scheduler.cancel(seq);
                    What::Failure {
                        reason: error.reason(),
                    }
                }
            };
            notices.push(Notice { seq, what });
        }
        self.scheduler.commit(plan, &chosen, self.since_start(at));
        self.show_counts(0);
        notices
    }

    /// Lets go all sequences of a plan that could not be computed.
    fn give_up(&mut self, plan: StepPlan, failure: &StepFailure) -> Vec<Notice> {
        let failed = |item: &PlanItem| Notice {
            seq: item.seq,
            what: What::Failure {
                reason: FinishReason::Failed {
                    message: failure.message.clone(),
                },
            },
        };
        let notices: Vec<Notice> = plan.items.iter().map(failed).collect();
        for item in &plan.items {
            self.scheduler.cancel(item.seq);
        }
        self.scheduler
            .commit(plan, &[], self.since_start(Instant::now()));
        self.show_counts(0);
        notices
    }

    /// Before anyone hears of the step, so that who counts events finds them counted here as well.
    fn report(&mut self, facts: StepFacts, began: Instant) {
        let ended = Instant::now();
        self.observer.step(&StepFacts {
            duration: ended - began,
            ..facts
        });
        self.beat(ended);
    }

    /// Tells one reader.
    fn publish(&mut self, Notice { seq, what }: Notice) {
        let end = match what {
            What::Token { pick, accepted } => {
                match accepted.since {
                    Since::Arrival(since_arrival) => self.observer.first_token(since_arrival),
                    Since::Token(gap) => self.observer.next_token(gap),
                }
                let answer = self
                    .answers
                    .get_mut(&seq)
                    .expect("each sequence has its answer");
                answer.post_prompt();
                answer.post(accepted.text, pick);
                accepted.end
            }
            What::Computed { vector } => {
                if let Some(answer) = self.answers.get_mut(&seq) {
                    answer.post_prompt();
                    vector
                        .into_iter()
                        .for_each(|vector| answer.post_vector(vector));
                }
                Some(FinishReason::Length)
            }
            What::Failure { reason } => {
                if let FinishReason::Failed { message } = &reason {
                    tracing::error!(message, "a request fails in the engine");
                }
                Some(reason)
            }
        };
        if let Some(reason) = end {
            self.end(seq, reason);
        }
    }
}

/// What a sequence that was due for a token got.
struct Choice {
    seq: SeqId,
    pick: Result<Got, NoToken>,
}

enum Got {
    Token(Pick),
    /// No token was wanted, but perhaps a vector.
    Prompt {
        vector: Option<Vec<f32>>,
    },
}

impl From<Option<Pick>> for Got {
    fn from(pick: Option<Pick>) -> Got {
        pick.map_or(Got::Prompt { vector: None }, Got::Token)
    }
}

/// Takes the states of the last positions of `item` into its vector. Returns the vector if the
/// prompt is computed.
fn pool<'a>(
    item: &PlanItem,
    states: impl ExactSizeIterator<Item = &'a [f32]>,
    answer: &mut Answer,
) -> Option<Choice> {
    let first_position = item.num_past + item.num_tokens - states.len();
    for (position, state) in (first_position..).zip(states) {
        answer.pool(position, state);
    }
    item.samples.then(|| Choice {
        seq: item.seq,
        pick: answer.vector().map(|vector| Got::Prompt { vector }),
    })
}

/// Why no sequence of a plan got anything.
struct StepFailure {
    message: String,
}

/// What the reader of one sequence is to hear of a step.
struct Notice {
    seq: SeqId,
    what: What,
}

impl Notice {
    fn is_token(&self) -> bool {
        matches!(self.what, What::Token { .. })
    }
}

enum What {
    /// The prompt, and no token was wanted behind it.
    Computed {
        vector: Option<Vec<f32>>,
    },
    Token {
        pick: Pick,
        accepted: Accepted,
    },
    Failure {
        reason: FinishReason,
    },
}
