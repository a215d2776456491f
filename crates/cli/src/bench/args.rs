//! What can be typed after `fulcrum bench`.

use std::path::PathBuf;

use bench::client::Api;
use bench::slo::{Slo, SloError};
use clap::{Args, Subcommand, ValueEnum};

use crate::args::ComputeArgs;

/// Flags of `fulcrum bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct BenchArgs {
    /// What else than to measure one endpoint.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// The server: http://HOST:PORT, with or without /v1 or the route.
    #[arg(value_name = "URL", env = "FULCRUM_BENCH_URL")]
    pub url: Option<String>,
    /// How much load, of what, for how long.
    #[command(flatten)]
    pub load: LoadArgs,
    /// What becomes of the results.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What else than to measure one endpoint.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Compare two runs request by request: what changed, and how sure that is.
    Diff(DiffArgs),
    /// Measure two endpoints in turn (A B B A), so that drift of the machine does not decide, and print ratios.
    Abba(Box<AbbaArgs>),
    /// Show a finished or broken-off run again, in any format.
    Report(ReportArgs),
    /// Measure the engine without HTTP, as a share of what the machine allows.
    Raw(RawArgs),
}

/// How much load, of what, for how long.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Closed loop: levels of so many users who wait for each answer [default: 1,8,32,64, then on as the results say].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with_all = ["rate", "trace"])]
    pub users: Vec<u32>,
    /// Open loop: levels of so many conversations a second (requests, where they have one turn) that wait for nobody.
    #[arg(long, value_name = "R,…", value_delimiter = ',', value_parser = positive, conflicts_with = "trace")]
    pub rate: Vec<f64>,
    /// With --rate: how arrivals are spread.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = ArrivalKind::Poisson)]
    pub arrival: ArrivalKind,
    /// With --arrival gamma: 1 is Poisson, less comes in bunches, more is evener.
    #[arg(long, value_name = "X", value_parser = positive, default_value = "1")]
    pub burstiness: f64,
    /// With --arrival ramp: the rate at the beginning of the level; --rate is the one at its end.
    #[arg(long, value_name = "R", value_parser = not_negative, default_value = "0")]
    pub ramp_from: f64,
    /// Open loop: replay a trace (Mooncake JSONL, Azure or BurstGPT CSV, ShareGPT JSON, prompts JSONL).
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// With --trace: how much faster than it was.
    #[arg(long, value_name = "X", value_parser = positive, default_value = "1")]
    pub speed: f64,
    /// With --trace of Mooncake: whether timestamps count from the beginning or from the request before.
    #[arg(long, value_enum, value_name = "KIND")]
    pub timestamps: Option<TimestampKind>,
    /// What is asked: mixed, shared, chat, rag, agents, summarise, longburst, or a TOML file.
    #[arg(long, value_name = "NAME|FILE", default_value = "mixed")]
    pub workload: String,
    /// Length of each level.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Requests of each level, in a closed or an open loop; each turn of a conversation is one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// End each level when throughput, TTFT p50 and TPOT p50 are known this well (95 %), or after 10m if --duration does not say otherwise [default: 5 %, for the default levels].
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub precision: Option<f64>,
    /// Time for all levels together; with default levels they are chosen to use it well [default there: 10m].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub budget: Option<f64>,
    /// Requests in flight at once, at most; others wait for a place, which is told apart, and in an open loop is in their latency.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_concurrency: u32,
    /// How long a user waits between an answer and the next conversation.
    #[arg(long, value_name = "TIME", value_parser = seconds_or_none, default_value = "0")]
    pub think: f64,
    /// What users were promised, for example ttft:p95<800ms,tpot:p99<80ms: finds the largest load that keeps it.
    #[arg(long, value_name = "SLO", value_parser = slo)]
    pub slo: Option<Slo>,
    /// The model's name in requests [default: the first that the server has].
    #[arg(short, long, value_name = "NAME")]
    pub model: Option<String>,
    /// Which API to ask [default: chat, unless the URL names one].
    #[arg(long, value_enum, value_name = "API")]
    pub api: Option<ApiKind>,
    /// Environment variable that holds the API key.
    #[arg(long, value_name = "VAR")]
    pub api_key_env: Option<String>,
    /// A header of every request, as NAME:VALUE; may be given several times.
    #[arg(long, value_name = "NAME:VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// A field of every request's body, as NAME=JSON; null removes one; may be given several times.
    #[arg(long, value_name = "NAME=JSON", value_parser = field)]
    pub body: Vec<(String, serde_json::Value)>,
    /// Speak HTTP/2 (without TLS by prior knowledge).
    #[arg(long)]
    pub http2: bool,
    /// Believe any TLS certificate.
    #[arg(long)]
    pub insecure: bool,
    /// Count prompt tokens with this tokenizer (tokenizer.json, GGUF or a model folder) instead of asking the server.
    #[arg(long, value_name = "FILE|FOLDER")]
    pub tokenizer: Option<PathBuf>,
    /// What draws lengths, words and arrivals; runs with the same seed pair in `bench diff`.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Ask exactly what another run with this salt asked, even if the server still has it in its cache [default: new words in each run].
    #[arg(long, value_name = "N")]
    pub salt: Option<u64>,
    /// Threads that drive connections; one tells 1,000 streams of 50 tokens/s to the millisecond.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub client_threads: u16,
    /// How long a connection may take to open.
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "10s")]
    pub connect_timeout: f64,
    /// How long the first token may take.
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "5m")]
    pub first_token_timeout: f64,
    /// How long the next token may take.
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "2m")]
    pub idle_timeout: f64,
    /// How long a whole answer may take.
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "1h")]
    pub timeout: f64,
    /// How long answers in flight may go on at the end.
    #[arg(long, value_name = "TIME", value_parser = seconds_or_none, default_value = "1m")]
    pub grace: f64,
    /// Skip the calibration of the client against its own loop-back server.
    #[arg(long)]
    pub no_calibration: bool,
}

/// What becomes of the results.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Folder of the results; never overwritten [default: bench-TIME].
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is printed at the end.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub format: Format,
    /// No live page in the terminal, only lines.
    #[arg(long)]
    pub no_tui: bool,
    /// Read the server's own metrics during the run, from here [default if no value: /metrics of the server].
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    pub prometheus: Option<String>,
}

/// Flags of `fulcrum bench diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The run before: its folder.
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The run after.
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Exit with 3 if this is sure, for example ttft.p95>+5%@95%; may be given several times.
    #[arg(long, value_name = "RULE")]
    pub fail_on: Vec<String>,
    /// Differences below this count as none.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "5%")]
    pub margin: f64,
    /// What is printed.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DiffFormat::Table)]
    pub format: DiffFormat,
    /// Write a JUnit report there as well.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// What draws the resamples.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Flags of `fulcrum bench abba`.
#[derive(Debug, Args)]
pub struct AbbaArgs {
    /// The first endpoint.
    #[arg(long, value_name = "URL")]
    pub a: String,
    /// The second.
    #[arg(long, value_name = "URL")]
    pub b: String,
    /// Rounds of A B B A.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How much load, of what, for how long: one level.
    #[command(flatten)]
    pub load: LoadArgs,
    /// What is printed at the end.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DiffFormat::Table)]
    pub format: DiffFormat,
}

/// Flags of `fulcrum bench report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run's folder.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// What is printed.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub format: Format,
}

/// Flags of `fulcrum bench raw`.
#[derive(Debug, Args)]
pub struct RawArgs {
    /// A GGUF file, a folder, or a name, as for `fulcrum serve`.
    #[arg(short, long, env = "FULCRUM_MODEL", value_name = "FILE|FOLDER|NAME|hf:…", default_value = crate::catalogue::DEFAULT)]
    pub model: String,
    /// How it is computed.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Times that each figure is measured; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
}

/// How arrivals are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArrivalKind {
    /// Independent of each other.
    Poisson,
    /// At equal distances.
    Constant,
    /// In bunches, or at distances: see --burstiness.
    Gamma,
    /// Independent, more and more often: see --ramp-from.
    Ramp,
}

/// What a timestamp counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimestampKind {
    /// The beginning of the trace.
    Cumulative,
    /// The request before.
    Delta,
}

/// Which API to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApiKind {
    /// /v1/chat/completions.
    Chat,
    /// /v1/completions.
    Completions,
}

impl From<ApiKind> for Api {
    fn from(kind: ApiKind) -> Api {
        match kind {
            ApiKind::Chat => Api::Chat,
            ApiKind::Completions => Api::Completions,
        }
    }
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// summary.json.
    Json,
    /// A line for each level.
    Csv,
    /// For an issue or a page.
    Md,
    /// report.html.
    Html,
}

/// How comparisons are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For an issue or a page.
    Md,
}

fn seconds(text: &str) -> Result<f64, String> {
    bench::slo::seconds(text)
        .ok_or_else(|| "expected a time with its unit, for example 30s, 500ms or 10m".to_owned())
}

fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.trim() {
        "0" | "0s" => Ok(0.0),
        text => seconds(text),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text)
        .ok()
        .filter(|&value| value > 0.0)
        .ok_or_else(|| "expected a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.trim().parse().ok();
    value
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| "expected a number, 0 or more".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim();
    let value: Option<f64> = number.parse().ok();
    value
        .filter(|value| *value > 0.0 && *value < 100.0)
        .map(|value| value / 100.0)
        .ok_or_else(|| "expected a percentage between 0 and 100, for example 5%".to_owned())
}

fn slo(text: &str) -> Result<Slo, SloError> {
    text.parse()
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| "expected NAME:VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn field(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| "expected NAME=JSON".to_owned())?;
    let value = serde_json::from_str(value).map_err(|error| {
        format!("{value:?} is no JSON ({error}); text needs quotes: NAME='\"text\"'")
    })?;
    Ok((name.trim().to_owned(), value))
}
