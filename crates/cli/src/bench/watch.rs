//! What a run writes and shows while it goes on.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::client::{Client, Endpoint};
use bench::directory::{LevelLine, RunWriter};
use bench::ledger::{Ledger, Load, Ramp};
use bench::load::{Audience, LevelPlan, Now, Stage, Wish};
use bench::report::live::{LiveLevel, LiveTerminal, LiveView, Phase, level_line, line};
use bench::run::Prepared;
use bench::sample::{LevelId, Sample};
use bench::scrape::{self, Scraping};
use bench::summary::{Counts, ServerSeries};

use super::args::{LoadArgs, OutputArgs};
use super::order;

/// The page is drawn so often.
const DRAW_S: f64 = 0.25;
/// Figures are made so often; they cost more than a page.
const FIGURES_S: f64 = 1.0;
/// Lines are written so often.
const LINE_S: f64 = 5.0;
/// Seconds of the throughput that is shown as now.
const RECENT_S: f64 = 2.0;
/// Seconds of throughput before, second by second.
const BEFORE_S: usize = 120;

/// Writes a run down, and shows it.
pub struct Watch {
    writer: RunWriter,
    view: LiveView,
    terminal: Option<LiveTerminal>,
    is_stopped: Arc<AtomicBool>,
    /// Moments and the events until then.
    events: VecDeque<(f64, u64)>,
    next_draw: f64,
    next_figures: f64,
    next_line: f64,
    next_second: f64,
    budget_s: Option<f64>,
}

impl Watch {
    /// A run that will be written by `writer`, and shown as `output` says.
    pub fn new(
        prepared: &Prepared,
        writer: RunWriter,
        output: &OutputArgs,
        is_stopped: Arc<AtomicBool>,
    ) -> io::Result<Watch> {
        let terminal = match !output.no_tui && LiveTerminal::is_there() {
            true => Some(LiveTerminal::enter()?),
            false => None,
        };
        let order = &prepared.order;
        let warnings = prepared.warnings.iter().map(|warning| warning.text.clone());
        Ok(Watch {
            writer,
            view: LiveView {
                endpoint: order.client.endpoint.to_string(),
                model: prepared.probed.model.clone().unwrap_or_default(),
                workload: order.workload.name.clone(),
                phase: Phase::WarmingUp,
                load: String::new(),
                elapsed_s: 0.0,
                level_elapsed_s: 0.0,
                level_planned_s: None,
                left_s: None,
                in_flight: 0,
                requests: Counts::default(),
                tokens_per_s: 0.0,
                tokens_per_s_before: Vec::new(),
                ttft_ms: [None; 2],
                tpot_ms: [None; 2],
                levels: Vec::new(),
                warnings: warnings.collect(),
            },
            terminal,
            is_stopped,
            events: VecDeque::new(),
            next_draw: 0.0,
            next_figures: 0.0,
            next_line: LINE_S,
            next_second: 1.0,
            budget_s: order.rules.budget_s,
        })
    }

    /// Gives the terminal back, and the writer for the end.
    pub fn into_writer(self) -> RunWriter {
        drop(self.terminal);
        self.writer
    }

    fn update(&mut self, ledger: &Ledger, now: Now<'_>) {
        let view = &mut self.view;
        view.elapsed_s = now.at;
        view.level_elapsed_s = now.at - now.level_start;
        view.in_flight = now.in_flight;
        view.left_s = self.budget_s.map(|budget_s| (budget_s - now.at).max(0.0));
        self.events.push_back((now.at, now.num_events));
        while self.events.len() > 2 && now.at - self.events[0].0 > RECENT_S {
            self.events.pop_front();
        }
        let (since, before) = self.events[0];
        let recent = (now.num_events - before) as f64 / (now.at - since).max(0.1);
        view.tokens_per_s = recent;
        if now.at >= self.next_second {
            self.next_second = now.at + 1.0;
            view.tokens_per_s_before.push(recent);
            let num_old = view.tokens_per_s_before.len().saturating_sub(BEFORE_S);
            view.tokens_per_s_before.drain(..num_old);
        }
        if now.at >= self.next_figures {
            self.next_figures = now.at + FIGURES_S;
            let level = ledger.glance(now.level);
            view.requests = level.requests;
            view.ttft_ms = [level.ttft_ms.p50, level.ttft_ms.p95];
            view.tpot_ms = [level.tpot_ms.p50, level.tpot_ms.p95];
            view.phase = match (now.stage, level.ttft_ms.n) {
                (Stage::Draining, _) => Phase::Draining,
                (Stage::Asking, 0) => Phase::WarmingUp,
                (Stage::Asking, _) => Phase::Measuring,
            };
        }
    }
}

impl Audience for Watch {
    fn begun(&mut self, level: LevelId, plan: &LevelPlan, at: f64) -> io::Result<()> {
        let (users, offered_rps, load) = match plan.pace.load() {
            Load::Users(1) => (Some(1), None, "1 user".to_owned()),
            Load::Users(users) => (Some(users), None, format!("{users} users")),
            Load::Rate(rate) => (None, Some(rate), format!("{rate:.3} req/s")),
            load @ Load::Ramp(Ramp { from, to, .. }) => {
                let words = format!("{from:.3} to {to:.3} req/s");
                (None, Some(load.value()), words)
            }
        };
        self.view.load = load;
        self.view.phase = Phase::WarmingUp;
        self.view.requests = Counts::default();
        (self.view.ttft_ms, self.view.tpot_ms) = ([None; 2], [None; 2]);
        self.view.level_planned_s = plan.stop.duration_s;
        let line = LevelLine {
            level,
            users,
            offered_rps,
            start_s: at,
        };
        self.writer.level(&line).map_err(io::Error::other)
    }

    fn heard(&mut self, sample: &Sample) -> io::Result<()> {
        self.writer.request(sample).map_err(io::Error::other)
    }

    fn tick(&mut self, ledger: &Ledger, now: Now<'_>) -> io::Result<Wish> {
        self.writer.tick(now.at).map_err(io::Error::other)?;
        self.update(ledger, now);
        if let Some(terminal) = &mut self.terminal {
            if now.at >= self.next_draw {
                self.next_draw = now.at + DRAW_S;
                terminal.draw(&self.view)?;
            }
            if terminal.wish(Duration::ZERO)?.is_some() {
                self.is_stopped.store(true, Ordering::Relaxed);
            }
        } else if now.at >= self.next_line {
            self.next_line = now.at + LINE_S;
            eprintln!("{}", line(&self.view));
        }
        Ok(match self.is_stopped.load(Ordering::Relaxed) {
            true => Wish::End,
            false => Wish::GoOn,
        })
    }

    fn ended(&mut self, ledger: &Ledger, level: LevelId, _: f64) -> io::Result<()> {
        let level = LiveLevel::of(&ledger.glance(level));
        if self.terminal.is_none() {
            eprintln!("{}", level_line(&level));
        }
        self.view.levels.push(level);
        self.writer.flush().map_err(io::Error::other)
    }
}

/// The server's own metrics, if they are wanted.
pub struct Scrape(Option<Client>);

impl Scrape {
    /// From where `url` says; from the measured server's `/metrics` if it is empty.
    pub fn of(client: &Client, url: Option<&str>, load: &LoadArgs) -> anyhow::Result<Scrape> {
        let Some(url) = url else {
            return Ok(Scrape(None));
        };
        if url.is_empty() {
            let mut client = client.clone();
            client.endpoint.base_path.push_str("/metrics");
            return Ok(Scrape(Some(client)));
        }
        let endpoint: Endpoint = url.parse()?;
        let is_same = endpoint.scheme == client.endpoint.scheme
            && endpoint.authority() == client.endpoint.authority();
        let mut other = order::client_of(endpoint, load)?;
        if !is_same {
            // Keys are for the server that is measured, and for no other.
            other.headers = Client::headers(&other.endpoint, None, &[])?;
        }
        let client = other;
        Ok(Scrape(Some(client)))
    }

    /// Begins to read.
    pub fn start(self) -> ScrapeRunning {
        ScrapeRunning(self.0.map(scrape::start))
    }
}

/// Reading in progress.
pub struct ScrapeRunning(Option<Scraping>);

impl ScrapeRunning {
    /// What was read.
    pub async fn finish(self) -> Vec<ServerSeries> {
        match self.0 {
            None => Vec::new(),
            Some(scraping) => scraping.finish().await,
        }
    }
}
