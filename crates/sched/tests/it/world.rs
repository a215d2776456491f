//! Runs any workload against a model of the KV bytes and checks every promise at every step.
//!
//! The one idea: the keys and values of a position depend on *all* tokens up to it, so the model
//! stores for each position the number of the whole text that ends there. Before a step each past
//! position must hold exactly its own text: a block that leaked, was evicted too early, was shared
//! with another prompt or was never computed shows up at once, whatever the mistake.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use sched::{
    AddError, BlockHash, BlockId, Chosen, Group, Limits, PlanItem, PromptRows, Scheduler, SeqId,
    StepPlan, Token,
};

/// What is run.
#[derive(Clone, Debug)]
pub struct Workload {
    pub limits: Limits,
    pub hash: BlockHash,
    pub requests: Vec<Request>,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Request {
    pub arrives_at_step: usize,
    pub prompt: Vec<Token>,
    /// Tokens after which the model stops, at most `max_tokens`.
    pub num_answer: usize,
    pub max_tokens: usize,
    /// Answers to the prompt, all alike, as choosing is without chance here.
    pub num_answers: u32,
    pub prompt_rows: PromptRows,
    pub hangs_up: Option<HangUp>,
}

/// One plain answer, to take fields from.
pub const ALONE: Request = Request {
    arrives_at_step: 0,
    prompt: Vec::new(),
    num_answer: 1,
    max_tokens: 1,
    num_answers: 1,
    prompt_rows: PromptRows::Last,
    hangs_up: None,
};

/// When a client goes away.
#[derive(Clone, Copy, Debug)]
pub struct HangUp {
    pub at_step: usize,
    pub moment: Moment,
    /// Only this answer of several is given up.
    pub only_answer: Option<u32>,
}

/// Where in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    BetweenSteps,
    /// The engine still hands in the token it chose meanwhile.
    MidStepTokenKept,
    /// The engine has dropped the token too.
    MidStepTokenDropped,
}

/// What happened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// For each request that was accepted, an answer that was not cancelled.
    pub answers: Vec<Option<Vec<Token>>>,
    pub plans: Vec<Vec<PlanItem>>,
    pub num_preempted: usize,
    pub num_recomputed: usize,
    pub num_prefix_hit: usize,
    pub num_evicted: usize,
    pub num_planned_tokens: usize,
    pub num_refused: usize,
}

/// The token a model without weights would say after this text. Few different ones, so that
/// answers too begin alike.
pub fn answer_token(tokens: &[Token]) -> Token {
    let mixed = tokens.iter().fold(7u32, |mixed, &token| {
        mixed.wrapping_mul(31).wrapping_add(token)
    });
    (mixed >> 3) % 3
}

/// Runs a workload to its end.
///
/// # Panics
///
/// If a promise is broken.
pub fn run(workload: &Workload) -> Report {
    let mut world = World::new(workload);
    let mut step = 0;
    while !world.is_over(step) {
        world.step(step);
        step += 1;
    }
    world.finish()
}

struct World<'a> {
    workload: &'a Workload,
    scheduler: Scheduler,
    store: KvStore,
    /// Those in the scheduler, oldest first.
    clients: Vec<Client>,
    report: Report,
}

/// What the client of one live sequence knows, and what the checks remember of it.
struct Client {
    request_idx: usize,
    answer_idx: u32,
    id: SeqId,
    /// Prompt and the answer so far, as the client saw it.
    tokens: Vec<Token>,
    num_computed: usize,
    /// Leading positions whose rows were handed out, if they are wanted.
    num_scored: usize,
    was_running: bool,
    num_preempted: usize,
    /// Steps since it owed one token and got none.
    num_passed_over: usize,
}

impl Client {
    /// Each row that is wanted is handed out: those of the prompt but the last, before the answer.
    fn note_rows(&mut self, item: &PlanItem, request: &Request) {
        let wants_rows = request.prompt_rows != PromptRows::Last && self.answer_idx == 0;
        let end = item.num_past + item.num_tokens;
        if item.scores {
            assert!(wants_rows && item.num_past <= self.num_scored);
            self.num_scored = self.num_scored.max(end);
        }
        if wants_rows && item.samples {
            assert!(
                self.num_scored + 1 >= request.prompt.len(),
                "rows are missing"
            );
        }
    }
}

impl<'a> World<'a> {
    fn new(workload: &'a Workload) -> World<'a> {
        World {
            workload,
            scheduler: Scheduler::with_hash(workload.limits.clone(), workload.hash),
            store: KvStore::new(&workload.limits),
            clients: Vec::new(),
            report: Report {
                answers: vec![None; workload.requests.len()],
                ..Report::default()
            },
        }
    }

    fn is_over(&self, step: usize) -> bool {
        self.clients.is_empty()
            && self
                .workload
                .requests
                .iter()
                .all(|r| r.arrives_at_step < step)
    }

    fn step(&mut self, step: usize) {
        let now = Duration::from_millis(step as u64);
        self.arrive(step, now);
        self.hang_up(step, Moment::BetweenSteps);
        let plan = self.scheduler.plan(now);
        self.check_plan(&plan);
        let mut chosen = self.compute(&plan);
        self.hang_up(step, Moment::MidStepTokenKept);
        let gone = self.hang_up(step, Moment::MidStepTokenDropped);
        chosen.retain(|chosen| !gone.contains(&chosen.seq));
        self.report.plans.push(plan.items.clone());
        self.deliver(&plan, &chosen);
        self.scheduler.commit(plan, &chosen, now);
        self.check_state();
    }

    fn arrive(&mut self, step: usize, now: Duration) {
        let limits = &self.workload.limits;
        for (request_idx, request) in self.workload.requests.iter().enumerate() {
            if request.arrives_at_step != step {
                continue;
            }
            let num_waiting = self.scheduler.counts().num_waiting;
            let num_positions = request.prompt.len() + request.max_tokens - 1;
            let num_blocks = num_positions.div_ceil(limits.block_tokens);
            let group = Group {
                prompt: request.prompt.clone(),
                max_tokens: request.max_tokens,
                num_answers: NonZeroU32::new(request.num_answers).expect("at least one"),
                prompt_rows: request.prompt_rows,
            };
            match self.scheduler.add_group(group, now) {
                Ok(ids) => self
                    .clients
                    .extend((0..).zip(ids).map(|(answer_idx, id)| Client {
                        request_idx,
                        answer_idx,
                        id,
                        tokens: request.prompt.clone(),
                        num_computed: 0,
                        num_scored: 0,
                        was_running: false,
                        num_preempted: 0,
                        num_passed_over: 0,
                    })),
                Err(AddError::NeverFits { .. }) => {
                    assert!(
                        num_blocks > limits.num_blocks,
                        "refused though it fits alone"
                    );
                    self.report.num_refused += 1;
                }
                Err(AddError::QueueFull { .. }) => {
                    assert!(
                        num_waiting + request.num_answers as usize > limits.num_waiting_max,
                        "refused though there is a place"
                    );
                    self.report.num_refused += 1;
                }
                Err(AddError::Empty) => panic!("no prompt of a workload is empty"),
            }
        }
    }

    /// Cancels who goes away now and says who that was.
    fn hang_up(&mut self, step: usize, moment: Moment) -> Vec<SeqId> {
        let requests = &self.workload.requests;
        let goes = |client: &Client| {
            let hangs_up = requests[client.request_idx].hangs_up;
            let answer = client.answer_idx;
            hangs_up.is_some_and(|it| {
                it.at_step <= step
                    && it.moment == moment
                    && it.only_answer.is_none_or(|only| only == answer)
            })
        };
        let gone: Vec<SeqId> = self
            .clients
            .iter()
            .filter(|c| goes(c))
            .map(|c| c.id)
            .collect();
        self.clients.retain(|client| !gone.contains(&client.id));
        for &id in &gone {
            self.scheduler.cancel(id);
            self.scheduler.cancel(id); // A second time is no error.
        }
        gone
    }

    /// Whether the rows of its prompt are logits, of which a step holds a bounded number.
    fn wants_logits(&self, seq: SeqId) -> bool {
        let client = self.clients.iter().find(|client| client.id == seq);
        client.is_some_and(|client| {
            self.workload.requests[client.request_idx].prompt_rows == PromptRows::Each
        })
    }

    fn check_plan(&mut self, plan: &StepPlan) {
        let limits = &self.workload.limits;
        let num_tokens: usize = plan.items.iter().map(|item| item.num_tokens).sum();
        assert!(
            num_tokens <= limits.step_tokens_max,
            "the budget is exceeded: {num_tokens}"
        );
        let scored = plan
            .items
            .iter()
            .filter(|item| item.scores && self.wants_logits(item.seq));
        let num_rows: usize = scored.map(|item| item.num_tokens).sum();
        assert!(
            num_rows <= limits.prompt_rows_max,
            "too many rows: {num_rows}"
        );
        assert!(
            num_tokens > 0 || self.clients.is_empty(),
            "work is left alone"
        );
        assert!(
            plan.items.is_sorted_by(|a, b| a.seq < b.seq),
            "oldest first, each once"
        );
        assert!(self.scheduler.counts().num_running <= limits.num_running_max);
        self.report.num_planned_tokens += num_tokens;
        self.report.num_preempted += plan.facts.num_preempted;
        self.report.num_recomputed += plan.facts.num_recomputed;
        self.report.num_prefix_hit += plan.facts.num_prefix_hit;
        self.report.num_evicted += plan.facts.num_evicted;
        self.check_moves(plan);
        self.check_fair(plan);
    }

    /// Who was preempted and who was admitted, read off the block tables.
    fn check_moves(&mut self, plan: &StepPlan) {
        let mut num_preempted = 0;
        let mut num_admitted = 0;
        for client in &mut self.clients {
            let is_running = self.scheduler.is_running(client.id);
            if client.was_running && !is_running {
                client.num_computed = 0;
                client.num_preempted += 1;
                client.num_passed_over = 0;
                num_preempted += 1;
                assert!(
                    client.num_preempted <= 2,
                    "{:?} is preempted again and again",
                    client.id
                );
            }
            num_admitted += usize::from(is_running && !client.was_running);
            client.was_running = is_running;
        }
        assert_eq!(num_preempted, plan.facts.num_preempted);
        assert!(
            num_preempted == 0 || num_admitted == 0,
            "admitted only to be preempted next"
        );
        assert!(
            self.clients
                .is_sorted_by(|a, b| a.was_running >= b.was_running),
            "running are older than waiting"
        );
    }

    /// Nobody who answers pauses for long, and the oldest prompt gets on.
    fn check_fair(&mut self, plan: &StepPlan) {
        let limits = &self.workload.limits;
        let budget = limits.step_tokens_max;
        let share = budget.div_ceil(4);
        // Three quarters of any four steps go round among those who owe one token.
        let rounds = limits.num_running_max.div_ceil((3 * budget).max(1)) + 1;
        let passed_over_max = if limits.num_running_max + share <= budget {
            0
        } else {
            4 * rounds
        };
        let mut is_oldest_prompt = true;
        for client in self.clients.iter_mut().filter(|client| client.was_running) {
            let item = plan.items.iter().find(|item| item.seq == client.id);
            let may_share = limits.prefix_cache || client.answer_idx > 0;
            if item.is_none() && client.num_computed == 0 && may_share {
                continue; // Others may have computed nearly all it owes, or be about to.
            }
            let num_past = item.map_or(client.num_computed, |item| item.num_past);
            let num_owed = client.tokens.len() - num_past;
            let num_tokens = item.map_or(0, |item| item.num_tokens);
            if num_owed > 1 && is_oldest_prompt {
                is_oldest_prompt = false;
                let mut at_least = (budget / 4).div_ceil(2).min(num_owed);
                let prompt_rows = self.workload.requests[client.request_idx].prompt_rows;
                if prompt_rows == PromptRows::Each && item.is_some_and(|item| item.scores) {
                    at_least = at_least.min(limits.prompt_rows_max);
                }
                assert!(
                    num_tokens >= at_least,
                    "the oldest prompt {:?} (of {num_owed}, past {num_past}) gets {num_tokens} of {budget}",
                    client.id
                );
            }
            match (num_owed, num_tokens) {
                (1, 0) => client.num_passed_over += 1,
                _ => client.num_passed_over = 0,
            }
            assert!(
                client.num_passed_over <= passed_over_max,
                "{:?} is passed over",
                client.id
            );
        }
    }

    /// What the engine does: reads the past, writes the new positions, chooses.
    fn compute(&mut self, plan: &StepPlan) -> Vec<Chosen> {
        let mut chosen = Vec::new();
        for item in &plan.items {
            let client = self
                .clients
                .iter_mut()
                .find(|c| c.id == item.seq)
                .expect("alive");
            assert_eq!(
                self.scheduler.tokens(item.seq),
                client.tokens,
                "exactly what the client saw"
            );
            let skips = item.num_past - client.num_computed;
            assert!(skips % self.workload.limits.block_tokens == 0 || client.num_computed == 0);
            let end = item.num_past + item.num_tokens;
            assert!(end <= client.tokens.len());
            assert_eq!(item.samples, end == client.tokens.len());
            self.store
                .compute(item, &client.tokens, self.scheduler.blocks(item.seq));
            client.num_computed = end;
            client.note_rows(item, &self.workload.requests[client.request_idx]);
            if item.samples {
                let request = &self.workload.requests[client.request_idx];
                let num_answer = client.tokens.len() + 1 - request.prompt.len();
                let ends = num_answer == request.num_answer;
                chosen.push(Chosen {
                    seq: item.seq,
                    token: Some(answer_token(&client.tokens)),
                    ends,
                });
            }
        }
        chosen
    }

    /// Sends tokens to the clients that are still there.
    fn deliver(&mut self, plan: &StepPlan, chosen: &[Chosen]) {
        assert!(chosen.len() <= plan.items.len());
        for chosen in chosen {
            let Some(at) = self.clients.iter().position(|c| c.id == chosen.seq) else {
                continue;
            };
            let client = &mut self.clients[at];
            client.tokens.extend(chosen.token);
            if chosen.ends {
                let client = self.clients.remove(at);
                let prompt = self.workload.requests[client.request_idx].prompt.len();
                self.report.answers[client.request_idx] = Some(client.tokens[prompt..].to_vec());
            }
        }
    }

    fn check_state(&self) {
        self.scheduler.check_integrity();
        let counts = self.scheduler.counts();
        assert_eq!(counts.num_running + counts.num_waiting, self.clients.len());
        assert_eq!(
            counts.blocks_held + counts.blocks_cached + counts.blocks_free,
            counts.blocks_total
        );
        assert!(self.workload.limits.prefix_cache || counts.blocks_cached == 0);
        assert_eq!(self.scheduler.is_idle(), self.clients.is_empty());
    }

    fn finish(self) -> Report {
        let counts = self.scheduler.counts();
        assert_eq!(
            (counts.blocks_held, counts.num_waiting_tokens),
            (0, 0),
            "something leaked"
        );
        self.report
    }
}

/// Positions of blocks, each with the number of the text that ends there.
struct KvStore {
    block_tokens: usize,
    texts_at: Vec<Option<u32>>,
    /// (number of a text, next token) to the number of the longer text.
    texts: HashMap<(u32, Token), u32>,
}

impl KvStore {
    fn new(limits: &Limits) -> KvStore {
        KvStore {
            block_tokens: limits.block_tokens,
            texts_at: vec![None; limits.num_blocks * limits.block_tokens],
            texts: HashMap::new(),
        }
    }

    fn compute(&mut self, item: &PlanItem, tokens: &[Token], blocks: &[BlockId]) {
        let mut text = 0;
        for (position, &token) in tokens[..item.num_past + item.num_tokens].iter().enumerate() {
            let num_texts = self.texts.len() as u32;
            text = *self.texts.entry((text, token)).or_insert(num_texts + 1);
            let block = blocks[position / self.block_tokens].0 as usize;
            let slot = &mut self.texts_at[block * self.block_tokens + position % self.block_tokens];
            if position < item.num_past {
                assert_eq!(
                    *slot,
                    Some(text),
                    "{:?} reads foreign bytes at {position}",
                    item.seq
                );
            } else {
                *slot = Some(text);
            }
        }
    }
}
