//! `fulcrum run`: one prompt, or a chat in the terminal, through the same engine that serves.
//!
//! The answer goes to stdout as it comes; words go to stderr. Ctrl-C stops the answer, not
//! the program; Ctrl-D leaves a chat.

use std::future::poll_fn;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use engine::{
    ControlText, EngineHandle, EngineLimits, Event, FinishReason, Finished, Logprobs, Observer,
    PrefixCache, Request, RequestFacts, Sampling, StepFacts, Stop,
};
use serde_json::{Value, json};
use text::{SpecialText, TokenId};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::RunArgs;
use crate::open::{self, KvPositions, TextSide, Wanted};
use crate::weights;
use crate::words::{WithHint as _, print};

/// Longest conversation, in tokens, unless the model's context is shorter or a flag says otherwise.
const CONTEXT_USUAL: usize = 8192;

/// Exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the subcommand.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let session = Session::open(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot set up signal handling")?;
    let outcome = runtime.block_on(async {
        match session.one_prompt()? {
            Some(prompt) => session.answer_once(&prompt).await,
            None => session.chat().await,
        }
    });
    session.close();
    // A reader of standard input may still wait for a line.
    runtime.shutdown_background();
    outcome
}

fn check(args: &RunArgs) -> anyhow::Result<()> {
    if !(0.0..=2.0).contains(&args.temperature) {
        bail!("--temperature {} is not between 0 and 2", args.temperature);
    }
    if !(args.top_p > 0.0 && args.top_p <= 1.0) {
        bail!("--top-p {} is not above 0 and at most 1", args.top_p);
    }
    Ok(())
}

/// A loaded model and its engine, for one user.
struct Session {
    args: RunArgs,
    text: TextSide,
    engine: EngineHandle,
    thread: std::thread::JoinHandle<()>,
    context_max: usize,
}

impl Session {
    fn open(args: RunArgs) -> anyhow::Result<Session> {
        let source = open::source(&Wanted::parse(&args.model.model)?.path()?)?;
        let text = open::text_side(&source)?.with_template_of(args.chat_template.as_deref())?;
        if !text.tokenizer.has_text() {
            return Err(anyhow::anyhow!(
                "this folder has no tokenizer.json, so there is no text to answer"
            ))
            .hint(|| "`fulcrum serve` takes prompts of token ids".to_owned());
        }
        let weights = weights::choose(&source, &args.model.compute)?;
        eprintln!("{}", weights.line());
        let positions = args.context.map_or(CONTEXT_USUAL, NonZeroUsize::get);
        let runner = open::runner(
            &source,
            &args.model.compute,
            weights.precision,
            KvPositions::Exactly(positions),
            NonZeroUsize::new(positions),
        )?;
        drop(source);
        let context_max = open::context_max(&runner, args.context)?;
        let limits = EngineLimits {
            prompt_rows_max: 64,
            step_tokens_max: 512,
            num_sequences_max: 1,
            context_max,
            num_waiting_max: 1,
            num_waiting_tokens_max: context_max,
            prefix_cache: PrefixCache::On,
        };
        let (engine, thread) = engine::start(
            Box::new(runner),
            std::sync::Arc::clone(&text.tokenizer),
            limits,
            Box::new(NobodyListens),
        );
        Ok(Session {
            args,
            text,
            engine,
            thread,
            context_max,
        })
    }

    fn close(self) {
        self.engine.drain(Duration::ZERO);
        // Its panic was reported already; the answer it gave stands.
        let _ = self.thread.join();
    }

    /// The prompt, if there is just one: from the command line, or from a pipe.
    fn one_prompt(&self) -> anyhow::Result<Option<String>> {
        let is_piped = !io::stdin().is_terminal();
        match self.args.prompt.as_deref() {
            Some("-") => read_all().map(Some),
            Some(prompt) => Ok(Some(prompt.to_owned())),
            None if is_piped => read_all().map(Some),
            None => Ok(None),
        }
    }

    async fn answer_once(&self, prompt: &str) -> anyhow::Result<ExitCode> {
        let tokens = if self.args.raw {
            self.text
                .tokenizer
                .encode_with_bos(prompt, SpecialText::Parse)
        } else {
            self.render(&self.opening(prompt))?
        };
        let mut interrupt =
            signal(SignalKind::interrupt()).context("cannot set up signal handling")?;
        let answer = self.answer(tokens, &mut interrupt).await?;
        print("\n")?;
        Ok(if answer.interrupted {
            ExitCode::from(INTERRUPTED)
        } else {
            ExitCode::SUCCESS
        })
    }

    /// A conversation until Ctrl-D.
    async fn chat(&self) -> anyhow::Result<ExitCode> {
        if self.text.template.is_none() {
            bail!("this model has no chat template: give a prompt with --raw");
        }
        eprintln!(
            "{}: Ctrl-C stops an answer, Ctrl-D leaves, /clear starts anew",
            self.args.model.model
        );
        let mut lines = lines_of_stdin();
        let mut interrupt =
            signal(SignalKind::interrupt()).context("cannot set up signal handling")?;
        let mut messages = self.system_message();
        loop {
            prompt_user();
            let line = tokio::select! {
                line = lines.recv() => line,
                _ = interrupt.recv() => {
                    eprintln!("\n(Ctrl-D leaves)");
                    continue;
                }
            };
            let Some(line) = line else { break };
            match line.trim() {
                "" => continue,
                "/clear" => messages = self.system_message(),
                "/exit" | "/quit" | "/bye" => break,
                _ => self.turn(&mut messages, &line, &mut interrupt).await?,
            }
        }
        eprintln!();
        Ok(ExitCode::SUCCESS)
    }

    /// One question and its answer; both become part of the conversation.
    async fn turn(
        &self,
        messages: &mut Vec<Value>,
        line: &str,
        interrupt: &mut Signal,
    ) -> anyhow::Result<()> {
        messages.push(json!({"role": "user", "content": line}));
        let tokens = self.render(messages)?;
        if tokens.len() >= self.context_max {
            messages.pop();
            eprintln!(
                "(the conversation is full: {} of {} tokens; /clear starts anew)",
                tokens.len(),
                self.context_max
            );
            return Ok(());
        }
        let answer = self.answer(tokens, interrupt).await?;
        messages.push(json!({"role": "assistant", "content": answer.text}));
        print("\n")?;
        Ok(())
    }

    fn system_message(&self) -> Vec<Value> {
        self.args
            .system
            .iter()
            .map(|system| json!({"role": "system", "content": system}))
            .collect()
    }

    fn opening(&self, prompt: &str) -> Vec<Value> {
        let mut messages = self.system_message();
        messages.push(json!({"role": "user", "content": prompt}));
        messages
    }

    fn render(&self, messages: &[Value]) -> anyhow::Result<Vec<TokenId>> {
        let template = self
            .text
            .template
            .as_ref()
            .context("this model has no chat template: --raw gives it the prompt as it is")?;
        let rendered = template.render(messages, true, &serde_json::Map::new())?;
        Ok(self.text.tokenizer.encode_chat(&rendered))
    }

    /// Streams one answer to stdout.
    async fn answer(&self, prompt: Vec<TokenId>, interrupt: &mut Signal) -> anyhow::Result<Answer> {
        let num_prompt = prompt.len();
        if num_prompt >= self.context_max {
            bail!(
                "the prompt has {num_prompt} tokens; the context is {}",
                self.context_max
            );
        }
        // Fits: the context is a number of blocks, block ids are u32.
        let room = (self.context_max - num_prompt) as u32;
        let asked = Instant::now();
        let mut events = self.engine.submit(Request {
            prompt,
            sampling: self.sampling(),
            stop: Stop {
                max_tokens: self.args.max_tokens.get().min(room),
                min_tokens: 0,
                strings: Vec::new(),
                token_ids: Vec::new(),
                ignore_eos: false,
            },
            logprobs: Logprobs::default(),
            constraint: None,
            control_text: ControlText::Dropped,
            arrived: asked,
        })?;
        let mut text = String::new();
        let mut first = None;
        loop {
            let event = tokio::select! {
                event = poll_fn(|context| futures_core::Stream::poll_next(std::pin::Pin::new(&mut events), context)) => event,
                _ = interrupt.recv() => {
                    eprintln!(" (stopped)");
                    // Dropping the events ends the work.
                    return Ok(Answer { text, interrupted: true });
                }
            };
            match event {
                Some(Event::Started { .. } | Event::Prompt { .. } | Event::Embedding { .. }) => {}
                Some(Event::Text { text: more, .. }) => {
                    first.get_or_insert_with(|| asked.elapsed());
                    show(&mut text, &more)?;
                }
                Some(Event::Finished(finished)) => {
                    show(&mut text, &finished.text)?;
                    tell_speed(&finished, first)?;
                    return Ok(Answer {
                        text,
                        interrupted: false,
                    });
                }
                None => bail!("the engine ended without an answer"),
            }
        }
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.args.temperature,
            top_k: None,
            top_p: self.args.top_p,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            allowed: None,
            bad_words: Vec::new(),
            seed: self.args.seed,
        }
    }
}

/// What one question got.
struct Answer {
    text: String,
    interrupted: bool,
}

/// Adds to the answer and prints it at once.
fn show(text: &mut String, more: &str) -> anyhow::Result<()> {
    text.push_str(more);
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(more.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write the answer")
}

/// Says how fast it was, to a person only.
fn tell_speed(finished: &Finished, first: Option<Duration>) -> anyhow::Result<()> {
    if let FinishReason::OutOfConstraint { reason } = &finished.reason {
        bail!("the answer cannot go on: {reason}");
    }
    if let FinishReason::Failed { message } = &finished.reason {
        bail!("the engine failed: {message}");
    }
    if !io::stderr().is_terminal() {
        return Ok(());
    }
    let usage = &finished.usage;
    let num_gaps = usage.num_completion.saturating_sub(1);
    let decode = finished.times.decode.as_secs_f64();
    let per_second = if decode > 0.0 {
        f64::from(num_gaps) / decode
    } else {
        0.0
    };
    let first = first.unwrap_or_default().as_millis();
    let length = if finished.reason == FinishReason::Length {
        ", cut at its limit"
    } else {
        ""
    };
    eprint!(
        "\n[{} prompt tokens ({} cached), first token after {first} ms, {} tokens at {per_second:.0} tok/s{length}]",
        usage.num_prompt, usage.num_cached, usage.num_completion,
    );
    Ok(())
}

fn prompt_user() {
    eprint!("> ");
    // A prompt that cannot be shown is no reason to stop listening.
    let _ = io::stderr().flush();
}

fn read_all() -> anyhow::Result<String> {
    /// As much as a request to the server may bring.
    const BYTES_MAX: u64 = 8 << 20;
    let prompt = open::read_text(io::stdin(), BYTES_MAX)
        .context("cannot read the prompt from standard input")?;
    if prompt.trim().is_empty() {
        bail!("the prompt on standard input is empty");
    }
    Ok(prompt)
}

/// Lines as they are typed, read on a thread of their own so that Ctrl-C is heard meanwhile.
fn lines_of_stdin() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// One user in a terminal sees for himself.
struct NobodyListens;

impl Observer for NobodyListens {
    fn step(&mut self, _step: &StepFacts) {}
    fn first_token(&mut self, _since_arrival: Duration) {}
    fn next_token(&mut self, _gap: Duration) {}
    fn finished(&mut self, _request: &RequestFacts) {}
}
