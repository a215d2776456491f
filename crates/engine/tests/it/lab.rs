//! A fake runner, and what tests need around it.
//!
//! The one idea: the fake keeps tokens where a model keeps keys and values, and computes logits from
//! the history it *reads back through the block table*. So a wrong block, a position computed twice
//! or not at all, or another's prefix changes the answer, and a plain loop without any cache
//! ([`Script::greedy`]) says what the answer must be.
//!
//! A [`Gate`] stops the runner inside a step, so that tests decide what happens between which steps
//! and never wait for time to pass.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{
    AdmitError, ControlText, EmbedRequest, EngineHandle, EngineLimits, Event, EventStream,
    FinishReason, Finished, Logprobs, Observer, Parts, Pooling, PrefixCache, Request, RequestFacts,
    Sampling, Stats, StepFacts, Stop, TokenId, TokenLogprobs, Vocabulary,
};
use model::runner::{BLOCK_TOKENS, Batch, LogitRows, Logits, Runner, RunnerError, RunnerShape};

pub const VOCAB: usize = 64;
/// Values of a hidden state.
pub const HIDDEN: usize = 3;
/// The model's own end token, and a second one.
pub const END: u32 = 0;
pub const END_2: u32 = 63;
/// A control token that ends nothing.
pub const TOOL: u32 = 62;
/// Nothing but a test's own script gives it a number.
const UNWRITTEN: u32 = u32::MAX;

/// Letters, then pieces whose text crosses token borders: the two bytes of `é`, and `ab`.
pub struct Alphabet {
    pieces: Vec<Vec<u8>>,
    end_tokens: Vec<TokenId>,
}

pub const E_ACUTE_1: u32 = 54;
pub const E_ACUTE_2: u32 = 55;

impl Alphabet {
    pub fn new() -> Alphabet {
        let mut pieces = vec![Vec::new()];
        pieces.extend((b'a'..=b'z').chain(b'A'..=b'Z').map(|letter| vec![letter]));
        pieces.push(b" ".to_vec());
        pieces.push(vec![0xc3]);
        pieces.push(vec![0xa9]);
        pieces.push(b"ab".to_vec());
        pieces.extend((b'0'..=b'4').map(|digit| vec![digit]));
        pieces.extend([Vec::new(), Vec::new()]);
        assert_eq!(pieces.len(), VOCAB);
        Alphabet {
            pieces,
            end_tokens: vec![TokenId(END), TokenId(END_2)],
        }
    }
}

impl Vocabulary for Alphabet {
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.pieces.get(token.0 as usize).map(Vec::as_slice)
    }
    fn control_text(&self, token: TokenId) -> Option<&str> {
        match token.0 {
            END => Some("<end>"),
            END_2 => Some("<stop>"),
            TOOL => Some("<tool>"),
            _ => None,
        }
    }
    fn end_tokens(&self) -> &[TokenId] {
        &self.end_tokens
    }
    fn vocab(&self) -> usize {
        VOCAB
    }
}

/// Writes the logits (second) that follow all tokens so far (first).
type Logic = dyn Fn(&[u32], &mut [f32]) + Send + Sync;

/// Logits as a function of all tokens so far.
#[derive(Clone)]
pub struct Script(Arc<Logic>);

impl Script {
    pub fn new(logits: impl Fn(&[u32], &mut [f32]) + Send + Sync + 'static) -> Script {
        Script(Arc::new(logits))
    }

    /// Every history has its own logits; end tokens are never likely.
    pub fn hashed() -> Script {
        Script::new(|history, row| {
            // FNV-1a over the tokens, then a mixing step for each id.
            let seed = history
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &token| {
                    (hash ^ u64::from(token)).wrapping_mul(0x100_0000_01b3)
                });
            for (id, logit) in row.iter_mut().enumerate() {
                let mixed = (seed ^ id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                *logit = (mixed >> 40) as f32 / (1 << 24) as f32 * 6.0;
            }
            row[END as usize] = -9.0;
            row[END_2 as usize] = -9.0;
        })
    }

    /// After a prompt that ends with token `n`, says `answer[n]` token by token and then ends.
    /// The prompt must hold no other token of that number: histories are told apart by it.
    pub fn saying(num_prompt: usize, answer: Vec<u32>) -> Script {
        Script::new(move |history, row| {
            row.fill(0.0);
            let next = answer
                .get(history.len().saturating_sub(num_prompt))
                .copied();
            row[next.unwrap_or(END) as usize] = 10.0;
        })
    }

    /// The logits after `history`.
    pub fn fill(&self, history: &[u32], row: &mut [f32]) {
        (self.0)(history, row);
    }

    /// What a greedy request without an end must get, computed without any cache.
    pub fn greedy(&self, prompt: &[u32], num_tokens: usize) -> Vec<u32> {
        let mut history = prompt.to_vec();
        for _ in 0..num_tokens {
            let mut row = vec![0.0; VOCAB];
            self.fill(&history, &mut row);
            let best = (0..VOCAB).rev().max_by(|&a, &b| row[a].total_cmp(&row[b]));
            history.push(best.expect("some token") as u32);
        }
        history.split_off(prompt.len())
    }
}

/// Lets steps through, all of them or one by one.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    num_entered: usize,
    num_allowed: usize,
    is_open: bool,
}

impl Gate {
    /// Lets the steps before number `num` (1 is the first) finish, and waits until that one is
    /// inside the runner, its plan made.
    pub fn run_to_step(&self, num: usize) {
        self.change(|state| state.num_allowed = num - 1);
        let (state, changed) = &*self.0;
        let state = state.lock().expect("no panic under the lock");
        drop(
            changed
                .wait_while(state, |state| state.num_entered < num)
                .expect("no panic"),
        );
    }

    /// Lets all steps through from now on.
    pub fn open(&self) {
        self.change(|state| state.is_open = true);
    }

    fn enter(&self) {
        self.change(|state| state.num_entered += 1);
        let (state, changed) = &*self.0;
        let state = state.lock().expect("no panic under the lock");
        let closed =
            |state: &mut GateState| !state.is_open && state.num_allowed < state.num_entered;
        drop(changed.wait_while(state, closed).expect("no panic"));
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let (state, changed) = &*self.0;
        change(&mut state.lock().expect("no panic under the lock"));
        changed.notify_all();
    }
}

/// What happened, told by the runner and the observer.
#[derive(Clone, Default)]
pub struct Log(Arc<(Mutex<Happened>, Condvar)>);

#[derive(Default)]
pub struct Happened {
    /// Of each step, each sequence's (past, tokens).
    pub batches: Vec<Vec<(usize, usize)>>,
    pub steps: Vec<StepFacts>,
    pub finished: Vec<RequestFacts>,
    pub num_first_tokens: usize,
    pub num_next_tokens: usize,
}

impl Log {
    fn note(&self, note: impl FnOnce(&mut Happened)) {
        note(&mut self.0.0.lock().expect("no panic under the lock"));
        self.0.1.notify_all();
    }

    pub fn read<T>(&self, read: impl FnOnce(&Happened) -> T) -> T {
        read(&self.0.0.lock().expect("no panic under the lock"))
    }

    /// Waits until `num` requests have finished.
    pub fn wait_for_finished(&self, num: usize) {
        let happened = self.0.0.lock().expect("no panic under the lock");
        let waiting = |happened: &mut Happened| happened.finished.len() < num;
        drop(self.0.1.wait_while(happened, waiting).expect("no panic"));
    }
}

impl Observer for Log {
    fn step(&mut self, step: &StepFacts) {
        self.note(|happened| happened.steps.push(*step));
    }
    fn first_token(&mut self, _: Duration) {
        self.note(|happened| happened.num_first_tokens += 1);
    }
    fn next_token(&mut self, _: Duration) {
        self.note(|happened| happened.num_next_tokens += 1);
    }
    fn finished(&mut self, request: &RequestFacts) {
        self.note(|happened| happened.finished.push(request.clone()));
    }
}

/// What the runner does at a step besides computing.
pub enum Accident {
    Error,
    Panic,
}

struct FakeRunner {
    shape: RunnerShape,
    /// Tokens in place of keys and values: `[num_blocks][BLOCK_TOKENS]`.
    cache: Vec<[u32; BLOCK_TOKENS]>,
    logits: Vec<f32>,
    states: Vec<f32>,
    script: Script,
    gate: Gate,
    log: Log,
    accident: Option<(usize, Accident)>,
    num_steps: usize,
}

impl Runner for FakeRunner {
    fn shape(&self) -> &RunnerShape {
        &self.shape
    }

    fn forward(&mut self, batch: &Batch) -> Result<Logits<'_>, RunnerError> {
        self.num_steps += 1;
        self.log.note(|happened| {
            let shares = batch.sequences.iter().map(|s| (s.num_past, s.num_tokens));
            happened.batches.push(shares.collect());
        });
        self.gate.enter();
        match &self.accident {
            Some((step, Accident::Error)) if *step == self.num_steps => {
                return Err(RunnerError::BadBatch {
                    reason: "as the test asked".to_owned(),
                });
            }
            Some((step, Accident::Panic)) if *step == self.num_steps => panic!("as the test asked"),
            _ => (),
        }
        self.compute(batch);
        Ok(Logits {
            values: &mut self.logits,
            vocab: VOCAB,
            states: &self.states,
            hidden: HIDDEN,
        })
    }
}

impl FakeRunner {
    fn compute(&mut self, batch: &Batch) {
        self.logits.clear();
        self.states.clear();
        let mut first_row = 0;
        for sequence in &batch.sequences {
            let place = |position: usize| {
                (
                    sequence.blocks[position / BLOCK_TOKENS] as usize,
                    position % BLOCK_TOKENS,
                )
            };
            let end = sequence.num_past + sequence.num_tokens;
            for position in sequence.num_past..end {
                let (block, slot) = place(position);
                self.cache[block][slot] = batch.tokens[first_row + position - sequence.num_past];
            }
            first_row += sequence.num_tokens;
            let rows = match sequence.logits {
                LogitRows::None => end..end,
                LogitRows::Last | LogitRows::LastState => end - 1..end,
                LogitRows::All | LogitRows::AllStates => sequence.num_past..end,
            };
            for position in rows {
                let history: Vec<u32> = (0..=position)
                    .map(|position| {
                        let (block, slot) = place(position);
                        self.cache[block][slot]
                    })
                    .collect();
                assert!(!history.contains(&UNWRITTEN), "reads what nobody wrote");
                if let LogitRows::LastState | LogitRows::AllStates = sequence.logits {
                    self.states.extend(state_of(&history));
                    continue;
                }
                let row_start = self.logits.len();
                self.logits.resize(row_start + VOCAB, 0.0);
                self.script.fill(&history, &mut self.logits[row_start..]);
            }
        }
        assert_eq!(first_row, batch.tokens.len());
    }
}

/// The state behind `history`, of values that no sum in `f32` would keep.
pub fn state_of(history: &[u32]) -> [f32; HIDDEN] {
    let hash = history.iter().fold(7_u32, |hash, token| {
        (hash ^ token).wrapping_mul(0x9e37_79b1).rotate_left(11)
    });
    let value = |shift: u32| (hash.rotate_left(shift) % 20011) as f32 / 7.0 - 1000.0;
    [value(0), value(9), value(20)]
}

/// How to build an engine for a test.
pub struct Lab {
    pub limits: EngineLimits,
    pub num_blocks: usize,
    pub script: Script,
    pub gated: bool,
    pub accident: Option<(usize, Accident)>,
    pub first_seed: u64,
    /// In place of the log.
    pub observer: Option<Box<dyn Observer>>,
}

impl Lab {
    pub fn new() -> Lab {
        Lab {
            limits: EngineLimits {
                prompt_rows_max: 64,
                step_tokens_max: 64,
                num_sequences_max: 32,
                context_max: 1024,
                num_waiting_max: 256,
                num_waiting_tokens_max: 100_000,
                prefix_cache: PrefixCache::On,
            },
            num_blocks: 512,
            script: Script::hashed(),
            gated: false,
            accident: None,
            first_seed: 1000,
            observer: None,
        }
    }

    pub fn start(self) -> Bench {
        let (gate, log) = (Gate::default(), Log::default());
        if !self.gated {
            gate.open();
        }
        let runner = FakeRunner {
            shape: RunnerShape {
                vocab: VOCAB,
                hidden: HIDDEN,
                context_max: 1024,
                num_blocks: self.num_blocks,
                block_bytes: BLOCK_TOKENS * size_of::<u32>(),
                fingerprint: "fake".to_owned(),
            },
            cache: vec![[UNWRITTEN; BLOCK_TOKENS]; self.num_blocks],
            logits: Vec::new(),
            states: Vec::new(),
            script: self.script,
            gate: gate.clone(),
            log: log.clone(),
            accident: self.accident,
            num_steps: 0,
        };
        let mut next_seed = self.first_seed;
        let seeds = move || {
            next_seed += 1;
            next_seed
        };
        let started = engine::start_parts(Parts {
            runner: Box::new(runner),
            vocabulary: Arc::new(Alphabet::new()),
            limits: self.limits,
            observer: self.observer.unwrap_or_else(|| Box::new(log.clone())),
            seeds: Box::new(seeds),
        });
        Bench::new(started, gate, log)
    }
}

/// A running engine. Its drop ends the engine, and checks that nothing leaked.
pub struct Bench {
    pub handle: Option<EngineHandle>,
    pub thread: Option<JoinHandle<()>>,
    pub stats: Arc<Stats>,
    pub gate: Gate,
    pub log: Log,
}

impl Bench {
    pub fn new(started: (EngineHandle, JoinHandle<()>), gate: Gate, log: Log) -> Bench {
        let (handle, thread) = started;
        let stats = Arc::clone(handle.stats());
        Bench {
            handle: Some(handle),
            thread: Some(thread),
            stats,
            gate,
            log,
        }
    }

    pub fn handle(&self) -> &EngineHandle {
        self.handle.as_ref().expect("not ended")
    }

    pub fn submit(&self, request: Request) -> EventStream {
        self.handle().submit(request).expect("admitted")
    }

    pub fn try_submit(&self, request: Request) -> Result<EventStream, AdmitError> {
        self.handle().submit(request)
    }

    /// Submits a group and reads all answers to their ends.
    pub fn ask_group(&self, request: Request, num_answers: u32) -> Vec<Told> {
        let num_answers = NonZeroU32::new(num_answers).expect("at least one");
        let streams = self.handle().submit_group(request, num_answers);
        streams.expect("admitted").into_iter().map(read).collect()
    }

    /// Queues a prompt to be embedded.
    pub fn embed(&self, prompt: &[u32], pooling: Pooling) -> EventStream {
        let request = EmbedRequest {
            prompt: prompt.iter().copied().map(TokenId).collect(),
            pooling,
            arrived: Instant::now(),
        };
        self.handle().embed(request).expect("admitted")
    }

    /// Submits and reads to the end.
    pub fn ask(&self, request: Request) -> Told {
        read(self.submit(request))
    }

    /// Submits all before reading any.
    pub fn ask_all(&self, requests: Vec<Request>) -> Vec<Told> {
        let streams: Vec<EventStream> = requests.into_iter().map(|r| self.submit(r)).collect();
        streams.into_iter().map(read).collect()
    }

    /// Running, waiting, held and leaked blocks.
    pub fn gauges(&self) -> [u64; 4] {
        let stats = &self.stats;
        let gauges = [
            &stats.num_running,
            &stats.num_waiting,
            &stats.blocks_held,
            &stats.blocks_leaked,
        ];
        gauges.map(|gauge| gauge.load(Ordering::Relaxed))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.gate.open();
        drop(self.handle.take());
        if std::thread::panicking() {
            return;
        }
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok(), "the engine thread panicked");
        }
        assert_eq!(self.gauges()[3], 0, "blocks that belong to nobody");
    }
}

/// Everything that one request was told.
#[derive(Clone, Debug)]
pub struct Told {
    pub num_cached: Option<u32>,
    /// The texts of all events joined, and all tokens.
    pub text: String,
    pub tokens: Vec<u32>,
    /// Of the prompt, if asked for.
    pub prompt_logprobs: Option<Vec<TokenLogprobs>>,
    /// Of an embedding.
    pub vector: Option<Vec<f32>>,
    /// Of `tokens`, if asked for.
    pub logprobs: Vec<TokenLogprobs>,
    pub finished: Finished,
}

/// Reads to the end and checks the order of events: `Started`, `Text`*, one `Finished`.
pub fn read(mut stream: EventStream) -> Told {
    let mut num_cached = None;
    let (mut prompt_logprobs, mut vector) = (None, None);
    let (mut text, mut tokens, mut logprobs) = (String::new(), Vec::new(), Vec::new());
    while let Some(event) = stream.next_blocking() {
        match event {
            Event::Started { num_cached: num } => {
                assert_eq!(num_cached, None, "started twice");
                num_cached = Some(num);
            }
            Event::Text {
                text: more,
                tokens: more_tokens,
                logprobs: more_logprobs,
            } => {
                assert!(num_cached.is_some(), "text before the start");
                assert!(!more_tokens.is_empty());
                let num_logprobs = more_logprobs.len();
                assert!(num_logprobs == 0 || num_logprobs == more_tokens.len());
                logprobs.extend(more_logprobs);
                text.push_str(&more);
                tokens.extend(more_tokens.iter().map(|token| token.0));
            }
            Event::Prompt { logprobs } => {
                assert!(num_cached.is_some() && tokens.is_empty());
                assert!(prompt_logprobs.replace(logprobs).is_none(), "told twice");
            }
            Event::Embedding { vector: told } => {
                assert!(num_cached.is_some() && tokens.is_empty());
                assert!(vector.replace(told).is_none(), "told twice");
            }
            Event::Finished(finished) => {
                assert_eq!(stream.next_blocking(), None, "events after the end");
                text.push_str(&finished.text);
                // An engine that dies may do so between counting and telling.
                if !matches!(finished.reason, FinishReason::Failed { .. }) {
                    assert_eq!(finished.usage.num_completion as usize, tokens.len());
                }
                return Told {
                    num_cached,
                    text,
                    tokens,
                    prompt_logprobs,
                    vector,
                    logprobs,
                    finished,
                };
            }
        }
    }
    panic!("no end");
}

/// `num` letters, different for each `seed`.
pub fn prompt(num: usize, seed: u64) -> Vec<u32> {
    let mut random = testkit::Random::new(seed);
    (0..num).map(|_| 1 + random.below(52) as u32).collect()
}

/// A greedy request without any extras.
pub fn request(prompt: &[u32], max_tokens: u32) -> Request {
    Request {
        prompt: prompt.iter().copied().map(TokenId).collect(),
        sampling: Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            allowed: None,
            bad_words: Vec::new(),
            seed: None,
        },
        stop: Stop {
            max_tokens,
            min_tokens: 0,
            strings: Vec::new(),
            token_ids: Vec::new(),
            ignore_eos: false,
        },
        logprobs: Logprobs::default(),
        constraint: None,
        control_text: ControlText::Dropped,
        arrived: Instant::now(),
    }
}

/// A request that draws, with a seed of its own.
pub fn seeded(prompt: &[u32], max_tokens: u32, seed: u64) -> Request {
    let mut request = request(prompt, max_tokens);
    request.sampling.temperature = 1.0;
    request.sampling.top_p = 0.95;
    request.sampling.presence_penalty = 0.5;
    request.sampling.seed = Some(seed);
    request
}
