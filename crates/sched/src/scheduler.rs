//! The state machine: memory first, then tokens.
//!
//! The one idea: [`Scheduler::plan`] settles who has blocks before it shares out a single token, so
//! nothing planned is ever taken back.
//!
//! ```text
//!   oldest ◀────────────────────────────────────────────────────▶ youngest
//!   │ running: hold blocks for all they know │ waiting: hold nothing      │
//!                            preempt from here ┘└ admit from here    add ─┘
//! ```
//!
//! That line is sorted by age at all times, which makes three things simple: the victim of a
//! preemption is the last of `running` and becomes the first of `waiting`; a sequence is found by
//! binary search; and whoever was there first is never hurt by who came later.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::budget::Divider;
use crate::kv::KvBlocks;
use crate::kv::hash::{BlockHash, hash_block};
use crate::limits::{AddError, Limits};
use crate::plan::{Chosen, Counts, Group, PlanFacts, PlanItem, PromptRows, StepPlan};
use crate::sequence::Sequence;
use crate::{BlockId, SeqId, Token};

/// The state machine. Time is an argument wherever it matters.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    hash: BlockHash,
    /// Oldest first. Each holds blocks; after planning, for all the tokens it knows, or, if it follows
    /// another of its group, those of the prompt that are computed.
    running: Vec<Sequence>,
    /// Oldest first, all younger than any running. None holds blocks.
    waiting: VecDeque<Sequence>,
    kv: KvBlocks,
    divider: Divider,
    next_id: SeqId,
    /// Prompt tokens of `waiting`, kept so that a gauge need not walk the queue.
    num_waiting_tokens: usize,
    /// Items of the plan that awaits its commit.
    in_flight: Option<usize>,
}

/// Whether the running sequences found room for all they know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    None,
    Preempted,
}

impl Scheduler {
    /// An idle scheduler.
    ///
    /// # Panics
    ///
    /// If a limit is 0, or `num_blocks` does not fit 32 bits.
    pub fn new(limits: Limits) -> Scheduler {
        Scheduler::with_hash(limits, hash_block)
    }

    /// An idle scheduler that names blocks by `hash`. A bad hash costs speed, never correctness.
    ///
    /// # Panics
    ///
    /// As [`Scheduler::new`].
    pub fn with_hash(limits: Limits, hash: BlockHash) -> Scheduler {
        limits.assert_usable();
        Scheduler {
            hash,
            running: Vec::with_capacity(limits.num_running_max.min(1024)),
            waiting: VecDeque::new(),
            kv: KvBlocks::new(&limits),
            divider: Divider::new(limits.step_tokens_max, limits.prompt_rows_max),
            next_id: SeqId(0),
            num_waiting_tokens: 0,
            in_flight: None,
            limits,
        }
    }

    /// Chooses the work of one step. Empty if there is nothing to do.
    ///
    /// Running sequences come before waiting ones, because stopping an answer midway is worse than
    /// starting one late. If memory ran short nobody new is admitted: they would only be preempted
    /// next. Tokens are shared out last, among sequences that all have room, so this cannot fail.
    ///
    /// A plan that is not empty must come back through [`Scheduler::commit`] before the next one.
    /// `now` is where a time budget will read the clock; a token budget does not.
    ///
    /// # Panics
    ///
    /// If the last plan was not committed.
    ///
    /// # Cost
    ///
    /// Proportional to the running sequences, once more for each that is admitted, plus the prompts of
    /// those.
    pub fn plan(&mut self, _now: Duration) -> StepPlan {
        assert_eq!(self.in_flight, None, "the last plan was not committed");
        let mut facts = PlanFacts::default();
        self.adopt_published();
        self.share_prompts();
        match self.secure_blocks(&mut facts) {
            Pressure::None => self.admit_waiting(),
            Pressure::Preempted => (),
        }
        self.divider.divide(&mut self.running);
        let items = self.write_items(&mut facts);
        facts.num_evicted = self.kv.take_num_evicted();

        self.kv.assert_conserved();
        assert!(
            !items.is_empty() || self.is_idle(),
            "waiting work is never left alone"
        );
        self.in_flight = (!items.is_empty()).then_some(items.len());
        StepPlan { items, facts }
    }

    /// Spares prompts the work that others have published since they were admitted: of many
    /// that begin alike and arrive together, only the first computes the beginning. Comes first,
    /// because it gives back blocks that were reserved for that work.
    fn adopt_published(&mut self) {
        for seq in self.running.iter_mut().filter(|seq| seq.num_due() > 1) {
            self.kv.adopt_cached(seq);
        }
    }

    /// Gives the younger of each group what its oldest running has computed of their prompt, whether
    /// or not there is a prefix cache. They compute the rest of it, less than a block and one token,
    /// themselves: copying it would need a second way to write keys and values, for a step that these
    /// tokens hardly lengthen.
    fn share_prompts(&mut self) {
        for idx in 0..self.running.len() {
            if self.running[idx].table.len() >= self.running[idx].num_shareable {
                self.running[idx].follows = false;
                continue;
            }
            let leader = self.leader_of(&self.running[idx]);
            let (older, seq) = self.running.split_at_mut(idx);
            match leader {
                Some(leader) => self.kv.share(&older[leader], &mut seq[0]),
                None => seq[0].follows = false,
            }
        }
    }

    /// Where in `running` the oldest of a sequence's group is, if that is another one. It never follows
    /// anybody, so whoever follows it gets on.
    fn leader_of(&self, seq: &Sequence) -> Option<usize> {
        let idx = self.running.partition_point(|it| it.id < seq.group);
        let leader = self.running.get(idx)?;
        (leader.group == seq.group && leader.id < seq.id).then_some(idx)
    }

    /// Sees that every running sequence holds blocks for all it knows: oldest first, taking from
    /// the youngest. The oldest always succeeds, since `add` refused what the pool cannot hold.
    fn secure_blocks(&mut self, facts: &mut PlanFacts) -> Pressure {
        let mut pressure = Pressure::None;
        let mut idx = 0;
        while idx < self.running.len() {
            let seq = &mut self.running[idx];
            if seq.follows || self.kv.try_extend(seq) {
                idx += 1;
            } else {
                self.preempt_youngest();
                facts.num_preempted += 1;
                pressure = Pressure::Preempted;
            }
        }
        pressure
    }

    /// Sends the youngest back to the head of the queue. Its tokens stay, so its answer goes on
    /// where it was; its blocks go, so all its tokens are owed again (cached ones cost nothing).
    fn preempt_youngest(&mut self) {
        assert!(
            self.running.len() > 1,
            "a sequence alone always fits: add() checked"
        );
        let mut victim = self.running.pop().expect("more than one runs");
        self.kv.release(&mut victim);
        victim.num_preemptions += 1;
        self.num_waiting_tokens += victim.num_queue_tokens();
        assert!(
            self.waiting.front().is_none_or(|next| victim.id < next.id),
            "the line is sorted"
        );
        self.waiting.push_front(victim);
    }

    /// Gives seats to waiting sequences, first come first served, as long as their KV fits.
    ///
    /// The queue stops at the first that does not fit: letting smaller ones past would starve it.
    /// It also stops when this step could not compute more anyway; who is admitted later finds
    /// more in the cache and meanwhile holds no blocks.
    fn admit_waiting(&mut self) {
        let mut num_backlog = self.num_backlog();
        while self.running.len() < self.limits.num_running_max
            && num_backlog < self.limits.step_tokens_max
        {
            let Some(next) = self.waiting.front() else {
                break;
            };
            let leader = self.leader_of(next);
            if !self.has_room_for(next, leader.is_some()) {
                break;
            }
            let mut seq = self.waiting.pop_front().expect("it was at the front");
            self.num_waiting_tokens -= seq.num_queue_tokens();
            match leader {
                Some(leader) => self.kv.share(&self.running[leader], &mut seq),
                None => self.kv.adopt_cached(&mut seq),
            }
            let extended = seq.follows || self.kv.try_extend(&mut seq);
            assert!(extended, "has_room_for counted the blocks");
            assert!(
                self.running.last().is_none_or(|last| last.id < seq.id),
                "the line is sorted"
            );
            self.running.push(seq);
            num_backlog = self.num_backlog();
        }
    }

    /// Prompt tokens that this step may be asked for beyond those of the oldest prompt: that one only
    /// claims half a step (see `budget.rs`), so however long it is, it must not keep others out.
    fn num_backlog(&self) -> usize {
        let prompts = self.running.iter().filter(|seq| seq.num_due() > 1);
        let useful = |seq: &Sequence| match seq.has_bounded_rows() {
            true => seq.num_due().min(self.limits.prompt_rows_max),
            false => seq.num_due(),
        };
        prompts.skip(1).map(useful).sum()
    }

    /// Whether a waiting sequence can be admitted without soon being preempted: there must be
    /// blocks for all it knows, and beyond that some room for every running answer, and its own, to
    /// grow. Alone it always has room, because growth is capped by what `add` accepted.
    fn has_room_for(&self, seq: &Sequence, is_led: bool) -> bool {
        let room = growth_room_blocks(seq.num_preemptions);
        let line = self.running.iter().chain([seq]);
        let growth: usize = line.map(|seq| self.growth_blocks_max(seq).min(room)).sum();
        let followers = self.running.iter().filter(|seq| seq.follows);
        let unshared: usize = followers.map(|seq| self.unshared_blocks(seq)).sum();
        let growth = growth + unshared;
        let num_available = self.kv.num_available();
        if growth >= num_available {
            return false; // Most steps under pressure end here, without a look into the cache.
        }
        let num_new = if is_led {
            self.unshared_blocks(seq)
        } else {
            let cached = self.kv.cached_prefix(seq);
            self.limits.blocks_for(seq.tokens.len()) - cached.num_blocks + cached.num_idle
        };
        let fits = num_new + growth <= num_available;
        assert!(
            fits || !self.running.is_empty(),
            "alone everybody fits: add() checked"
        );
        fits
    }

    /// Blocks a sequence may still ask for beyond those of the tokens it knows.
    fn growth_blocks_max(&self, seq: &Sequence) -> usize {
        let num_known = self.limits.blocks_for(seq.tokens.len());
        let num_max = self.limits.blocks_for(seq.num_tokens_max - 1);
        assert!(
            num_known <= num_max,
            "commit() ends a sequence at its limit"
        );
        num_max - num_known
    }

    /// Blocks of its known tokens that a sequence cannot share with its group.
    fn unshared_blocks(&self, seq: &Sequence) -> usize {
        self.limits.blocks_for(seq.tokens.len()) - seq.num_shareable
    }

    /// The granted tokens as plan items, oldest first.
    fn write_items(&mut self, facts: &mut PlanFacts) -> Vec<PlanItem> {
        let mut items = Vec::with_capacity(self.running.len());
        for seq in self.running.iter_mut().filter(|seq| seq.granted > 0) {
            let num_past = seq.num_computed;
            let end = num_past + seq.granted;
            assert!(end <= seq.tokens.len(), "granted more than owed");
            let started = (!seq.started).then_some(num_past);
            if !seq.started && self.limits.prefix_cache && !seq.shares {
                facts.num_prefix_queried += seq.num_prompt;
                facts.num_prefix_hit += num_past;
            }
            seq.started = true;
            facts.num_recomputed += end.min(seq.num_computed_peak).saturating_sub(num_past);
            let samples = end == seq.tokens.len();
            items.push(PlanItem {
                seq: seq.id,
                num_past,
                num_tokens: seq.granted,
                samples,
                scores: seq.is_scored(),
                started,
            });
        }
        items
    }

    /// Takes the plan back, done: advances every item, appends the chosen tokens (one for each item with
    /// `samples`, in plan order; items cancelled since are skipped), publishes full blocks to the prefix cache.
    ///
    /// `chosen` may contain or leave out tokens for sequences cancelled since the plan. A step that
    /// failed is committed with `chosen` empty after its sequences are cancelled. `now` is, as in
    /// [`Scheduler::plan`], for a time budget: what the step took will teach it.
    ///
    /// # Panics
    ///
    /// If this is not the plan in flight, a chosen token is missing or surplus, or a sequence goes
    /// on at its limit.
    pub fn commit(&mut self, plan: StepPlan, chosen: &[Chosen], _now: Duration) {
        assert_eq!(
            self.in_flight.take().unwrap_or(0),
            plan.items.len(),
            "not the plan in flight"
        );
        let mut chosen = chosen.iter().peekable();
        for item in &plan.items {
            let token = match item.samples {
                true => chosen.next_if(|chosen| chosen.seq == item.seq),
                false => None,
            };
            let Ok(idx) = self.find_running(item.seq) else {
                continue;
            };
            self.advance(idx, item);
            if item.samples {
                let chosen = token.unwrap_or_else(|| panic!("no token for {:?}", item.seq));
                self.append(idx, chosen);
            }
        }
        assert_eq!(
            chosen.next(),
            None,
            "a token was chosen for a sequence that did not sample"
        );
        self.kv.assert_conserved();
        self.check_integrity_if_idle();
    }

    /// Records an item's positions as computed.
    fn advance(&mut self, idx: usize, item: &PlanItem) {
        let seq = &mut self.running[idx];
        assert_eq!(
            seq.num_computed, item.num_past,
            "{:?} moved since it was planned",
            item.seq
        );
        assert_eq!(
            seq.granted, item.num_tokens,
            "{:?} was planned otherwise",
            item.seq
        );
        seq.granted = 0;
        seq.num_computed += item.num_tokens;
        seq.num_computed_peak = seq.num_computed_peak.max(seq.num_computed);
        assert!(
            seq.num_computed <= seq.table.len() * self.limits.block_tokens,
            "computed without a block"
        );
        self.kv.publish(seq);
    }

    /// Adds an answer token, and ends the sequence if it was the last.
    fn append(&mut self, idx: usize, chosen: &Chosen) {
        let seq = &mut self.running[idx];
        assert_eq!(
            seq.num_computed,
            seq.tokens.len(),
            "sampled before the debt was paid"
        );
        match chosen.token {
            Some(token) => seq.tokens.push(token),
            None => assert!(chosen.ends, "{:?} got no token and goes on", seq.id),
        }
        assert!(
            chosen.ends || seq.tokens.len() < seq.num_tokens_max,
            "{:?} is past its limit",
            seq.id
        );
        if chosen.ends {
            self.kv.release(seq);
            self.running.remove(idx);
        } else if self.limits.prefix_cache {
            seq.hash_full_blocks(self.limits.block_tokens, self.hash);
        }
    }

    /// Queues a sequence of its own. `now` is time since any fixed origin; `max_tokens` bounds the
    /// answer.
    ///
    /// # Errors
    ///
    /// What [`AddError`] lists.
    pub fn add(
        &mut self,
        prompt: Vec<Token>,
        max_tokens: usize,
        now: Duration,
    ) -> Result<SeqId, AddError> {
        let group = Group {
            prompt,
            max_tokens,
            num_answers: NonZeroU32::MIN,
            prompt_rows: PromptRows::Last,
        };
        Ok(self.add_group(group, now)?[0])
    }

    /// Queues all sequences of a group, or none. They have rising ids, start in that order, and end or
    /// are cancelled one by one. While one of them that has computed the prompt runs, those that start
    /// share its full blocks, so that the prompt is computed once; but for the tokens behind its last
    /// full block (at least one), which each computes itself.
    ///
    /// Nothing of a group must run together, so it can finish if one of it alone fits.
    ///
    /// # Errors
    ///
    /// What [`AddError`] lists.
    pub fn add_group(&mut self, group: Group, now: Duration) -> Result<Vec<SeqId>, AddError> {
        let Group {
            prompt,
            max_tokens,
            num_answers,
            prompt_rows,
        } = group;
        let num_answers = num_answers.get() as usize;
        if prompt.is_empty() {
            return Err(AddError::Empty);
        }
        let num_blocks = self
            .limits
            .blocks_for(Limits::positions_max(prompt.len(), max_tokens));
        if num_blocks > self.limits.num_blocks {
            return Err(AddError::NeverFits {
                num_blocks,
                num_blocks_max: self.limits.num_blocks,
            });
        }
        if self.waiting.len() + num_answers > self.limits.num_waiting_max {
            return Err(AddError::QueueFull {
                num_waiting: self.waiting.len(),
            });
        }
        let first = self.next_id;
        let ids: Vec<SeqId> = (first.0..).map(SeqId).take(num_answers).collect();
        self.next_id = SeqId(first.0 + num_answers as u64);
        for &id in &ids {
            let mut seq = Sequence::new(id, prompt.clone(), max_tokens, now);
            seq.group = first;
            if num_answers > 1 {
                // Each computes its last position, to have logits of its own.
                seq.num_shareable = (prompt.len() - 1) / self.limits.block_tokens;
            }
            if id == first {
                seq.prompt_rows = prompt_rows;
            }
            if self.limits.prefix_cache {
                seq.hash_full_blocks(self.limits.block_tokens, self.hash);
            }
            self.num_waiting_tokens += seq.num_queue_tokens();
            self.waiting.push_back(seq);
        }
        Ok(ids)
    }

    /// Forgets a sequence in any state (between a plan and its commit too) and releases its blocks.
    /// One that has ended already is no error: the client and the last token may cross.
    pub fn cancel(&mut self, seq: SeqId) {
        if let Ok(idx) = self.find_running(seq) {
            let mut cancelled = self.running.remove(idx);
            self.kv.release(&mut cancelled);
        } else if let Ok(idx) = self.waiting.binary_search_by_key(&seq, |seq| seq.id) {
            let cancelled = self.waiting.remove(idx).expect("binary search found it");
            self.num_waiting_tokens -= cancelled.num_queue_tokens();
            assert!(
                cancelled.table.is_empty(),
                "waiting sequences hold no blocks"
            );
        }
        self.kv.assert_conserved();
        self.check_integrity_if_idle();
    }

    /// All tokens the sequence knows: prompt, then answer.
    ///
    /// # Panics
    ///
    /// If the sequence has ended or was cancelled.
    pub fn tokens(&self, seq: SeqId) -> &[Token] {
        &self.seq(seq).tokens
    }

    /// Whether the sequence has a seat; else it waits, for the first time or preempted.
    pub fn is_running(&self, seq: SeqId) -> bool {
        self.find_running(seq).is_ok()
    }

    /// The sequence's block table, in position order; empty while it waits. Valid until the next call
    /// that changes the scheduler: blocks are added, and exchanged for equal ones, between steps.
    ///
    /// # Panics
    ///
    /// If the sequence has ended or was cancelled.
    pub fn blocks(&self, seq: SeqId) -> &[BlockId] {
        &self.seq(seq).table
    }

    /// How long the sequence at the head of the queue has waited since it was added.
    pub fn longest_wait(&self, now: Duration) -> Option<Duration> {
        self.waiting
            .front()
            .map(|seq| now.saturating_sub(seq.added))
    }

    /// Counts for gauges. Cost: constant.
    pub fn counts(&self) -> Counts {
        let pool = self.kv.pool();
        Counts {
            num_running: self.running.len(),
            num_waiting: self.waiting.len(),
            num_waiting_tokens: self.num_waiting_tokens,
            blocks_held: pool.num_held(),
            blocks_cached: pool.num_idle(),
            blocks_free: pool.num_free(),
            blocks_total: pool.num_blocks(),
        }
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Recounts every block, list and counter from scratch.
    ///
    /// # Panics
    ///
    /// If anything disagrees.
    ///
    /// # Cost
    ///
    /// Proportional to the pool, all tables and the queue: for tests and idle moments.
    pub fn check_integrity(&self) {
        let line = || self.running.iter().chain(&self.waiting);
        assert!(
            line().map(|seq| seq.id).is_sorted_by(|a, b| a < b),
            "the line is sorted by age"
        );
        assert!(
            self.waiting.iter().all(|seq| seq.table.is_empty()),
            "waiting sequences hold no blocks"
        );
        assert!(
            line().all(|seq| seq.num_computed < seq.tokens.len()),
            "everybody owes"
        );
        let num_waiting_tokens: usize = self.waiting.iter().map(Sequence::num_queue_tokens).sum();
        assert_eq!(self.num_waiting_tokens, num_waiting_tokens);
        self.kv.check_integrity(self.running.iter());
    }

    /// A leak is found when nobody is there to blame it on, and nobody waits for the answer.
    fn check_integrity_if_idle(&self) {
        if self.is_idle() {
            assert_eq!(self.kv.pool().num_held(), 0, "blocks are held by nobody");
            self.check_integrity();
        }
    }

    /// Where a sequence is in `running`.
    fn find_running(&self, id: SeqId) -> Result<usize, usize> {
        self.running.binary_search_by_key(&id, |seq| seq.id)
    }

    fn seq(&self, id: SeqId) -> &Sequence {
        if let Ok(idx) = self.find_running(id) {
            return &self.running[idx];
        }
        match self.waiting.binary_search_by_key(&id, |seq| seq.id) {
            Ok(idx) => &self.waiting[idx],
            Err(_) => panic!("{id:?} has ended or was cancelled"),
        }
    }
}

/// Blocks that each running answer must still be able to take when a sequence is admitted.
///
/// One block each means that nobody is preempted within the next `block_tokens` steps, which pays
/// for the prefill. Who was preempted in spite of it waits for eight; and who was preempted again
/// waits until every answer beside it fits to its end. From then on it *cannot* be preempted: those
/// older than it have their room, those younger go first. So nobody is preempted more than twice,
/// however small the pool and whoever comes (C8).
fn growth_room_blocks(num_preemptions: u32) -> usize {
    match num_preemptions {
        0 => 1,
        1 => 8,
        _ => usize::MAX,
    }
}
