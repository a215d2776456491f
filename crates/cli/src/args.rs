//! What can be typed: every flag's name, environment variable, default and help, once.
//!
//! `docs/reference/flags.md` is generated from here. Names follow the field: where vLLM has
//! a flag for the same thing, its name works here too.

use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use text::output::{CallSyntax, ReasoningSyntax};

/// Serve language models, and know what you get.
#[derive(Debug, Parser)]
#[command(
    name = "fulcrum",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model behind an OpenAI-compatible API.
    Serve(ServeArgs),
    /// Answer one prompt, or chat in the terminal.
    Run(RunArgs),
    /// Fetch a model of the catalogue or of the Hugging Face hub into the cache.
    Pull(PullArgs),
    /// Write a model's logits to a file, for comparing with other engines.
    Logits(LogitsArgs),
    /// Show what a model file holds, and what would be refused and why.
    Inspect(InspectArgs),
    /// Check whether a model is fit to be served: tokenizer, chat template, end tokens, speed.
    Doctor(DoctorArgs),
    /// Measure any OpenAI-compatible endpoint: latencies, throughput, and where to run it.
    Bench(Box<crate::bench::args::BenchArgs>),
    /// Print the flag reference (docs/reference/flags.md).
    #[command(hide = true)]
    FlagReference,
}

/// Which model, and how it is held in memory.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A GGUF file, a folder with config.json and safetensors, or a name of `fulcrum pull --list` or `hf:ORG/REPO[:FILE]` (fetched first if need be).
    #[arg(short, long, env = "FULCRUM_MODEL", value_name = "FILE|FOLDER|NAME|hf:…", default_value = crate::catalogue::DEFAULT)]
    pub model: String,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// How a model is computed.
#[derive(Debug, Args)]
pub struct ComputeArgs {
    /// Compute threads, at most 256 [default: the processors this process may use].
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256),short, long, env = "FULCRUM_THREADS", value_name = "N")]
    pub threads: Option<u16>,
    /// Element type of cached keys and values.
    #[arg(long, env = "FULCRUM_KV_TYPE", value_enum, default_value_t = KvType::F16)]
    pub kv_type: KvType,
    /// Type that weights in F32, F16 or BF16 are held in; embedding and head get at least 8 bits [default: bf16 where it fits half of memory, else the largest type that does].
    #[arg(long, env = "FULCRUM_QUANTIZE", value_enum, value_name = "TYPE")]
    pub quantize: Option<Quantize>,
}

/// What weights are quantised to while they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(non_camel_case_types)]
pub enum Quantize {
    /// 16 bits a value.
    Bf16,
    /// 8.5 bits a value.
    #[value(name = "q8_0")]
    Q8_0,
    /// 5 bits a value.
    #[value(name = "q4_1")]
    Q4_1,
    /// 4.5 bits a value.
    #[value(name = "q4_0")]
    Q4_0,
}

/// Element type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvType {
    /// IEEE half precision.
    F16,
    /// bfloat16: more range, less precision.
    Bf16,
    /// Single precision: twice the memory.
    F32,
    /// 8 bits and a scale for each head: half the memory, less precision.
    Int8,
}

impl KvType {
    /// As the model knows it.
    pub fn element(self) -> model::KvType {
        match self {
            KvType::F16 => model::KvType::F16,
            KvType::Bf16 => model::KvType::Bf16,
            KvType::F32 => model::KvType::F32,
            KvType::Int8 => model::KvType::Int8,
        }
    }
}

/// How the hidden states of an input become its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pooling {
    /// The mean over all its tokens.
    Mean,
    /// That of its last token.
    Last,
}

/// Flags of `fulcrum serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Use the chat template in this file instead of the model's own.
    #[arg(long, env = "FULCRUM_CHAT_TEMPLATE", value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// How reasoning is told from the answer [default: as the chat template shows].
    #[arg(
        long,
        env = "FULCRUM_REASONING_PARSER",
        value_name = "SYNTAX",
        value_parser = reasoning_syntax()
    )]
    pub reasoning_parser: Option<ReasoningSyntax>,
    /// How the model calls tools [default: as the chat template shows].
    #[arg(
        long,
        env = "FULCRUM_TOOL_CALL_PARSER",
        value_name = "SYNTAX",
        value_parser = call_syntax()
    )]
    pub tool_call_parser: Option<CallSyntax>,
    /// Accepted for compatibility: tools are always called as a request's `tool_choice` says.
    #[arg(long, hide = true)]
    pub enable_auto_tool_choice: bool,
    /// Traffic classes, tenants and named keys (TOML); no file is read unless it is named here.
    #[arg(long, env = "FULCRUM_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Longest sequence in tokens, prompt and answer together [default: what the model was made for].
    #[arg(
        long,
        alias = "max-model-len",
        env = "FULCRUM_CONTEXT",
        value_name = "TOKENS"
    )]
    pub context: Option<NonZeroUsize>,
    /// How /v1/embeddings makes one vector of an input's hidden states.
    #[arg(long, env = "FULCRUM_POOLING", value_enum, default_value_t = Pooling::Last)]
    pub pooling: Pooling,

    /// Address to listen on.
    #[arg(
        long,
        env = "FULCRUM_HOST",
        default_value = "127.0.0.1",
        help_heading = "Network"
    )]
    pub host: IpAddr,
    /// Port to listen on; 0 takes any free one.
    #[arg(
        short,
        long,
        env = "FULCRUM_PORT",
        default_value_t = 8080,
        help_heading = "Network"
    )]
    pub port: u16,
    /// Key that requests must bring (Authorization: Bearer, or x-api-key); may be given several times.
    #[arg(
        long,
        env = "FULCRUM_API_KEY",
        value_name = "KEY",
        value_delimiter = ',',
        hide_env_values = true,
        help_heading = "Network"
    )]
    pub api_key: Vec<String>,
    /// Origin that browsers may call from, or `*`; may be given several times. None by default.
    #[arg(
        long,
        env = "FULCRUM_CORS_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    pub cors_origin: Vec<String>,
    /// Name under which requests ask for the model; may be given several times, the first is the one reported [default: the catalogue's name, or the file's].
    #[arg(
        long,
        alias = "alias",
        env = "FULCRUM_SERVED_MODEL_NAME",
        value_name = "NAME",
        value_parser = model_name,
        value_delimiter = ',',
        help_heading = "Network"
    )]
    pub served_model_name: Vec<String>,

    /// Memory for cached keys and values, in MiB [default: what 32,768 tokens or one context need, whichever is more, but at most a quarter of memory].
    #[arg(
        long,
        env = "FULCRUM_KV_CACHE_MIB",
        value_name = "MIB",
        help_heading = "Scheduling"
    )]
    pub kv_cache_mib: Option<NonZeroU32>,
    /// Sequences computed at once.
    #[arg(
        long,
        env = "FULCRUM_MAX_NUM_SEQS",
        value_name = "N",
        default_value = "256",
        help_heading = "Scheduling"
    )]
    pub max_num_seqs: NonZeroU32,
    /// Tokens computed in one step: larger prefills sooner, smaller keeps the gaps between tokens short.
    #[arg(
        long,
        env = "FULCRUM_MAX_NUM_BATCHED_TOKENS",
        value_name = "N",
        default_value = "512",
        help_heading = "Scheduling"
    )]
    pub max_num_batched_tokens: NonZeroU32,
    /// Requests that may wait; one more is refused with 503 and Retry-After.
    #[arg(
        long,
        env = "FULCRUM_MAX_NUM_QUEUED_REQS",
        value_name = "N",
        default_value = "1024",
        help_heading = "Scheduling"
    )]
    pub max_num_queued_reqs: NonZeroU32,
    /// Prompt tokens that may wait; more are refused with 503 and Retry-After.
    #[arg(
        long,
        env = "FULCRUM_MAX_NUM_QUEUED_TOKENS",
        value_name = "N",
        default_value = "1048576",
        help_heading = "Scheduling"
    )]
    pub max_num_queued_tokens: NonZeroU32,
    /// Compute every prompt whole instead of reusing the blocks of earlier ones.
    #[arg(
        long,
        alias = "no-enable-prefix-caching",
        env = "FULCRUM_NO_PREFIX_CACHE",
        help_heading = "Scheduling"
    )]
    pub no_prefix_cache: bool,
    /// Accepted for compatibility: the prefix cache is on unless `--no-prefix-cache` is given.
    #[arg(long, conflicts_with = "no_prefix_cache", hide = true)]
    pub enable_prefix_caching: bool,
    /// Positions of a KV block; only 16 exists.
    #[arg(long, value_name = "N", default_value = "16", value_parser = ["16"], hide = true)]
    pub block_size: String,
    /// Order in which waiting requests start; only first come, first served exists.
    #[arg(long, value_name = "POLICY", default_value = "fcfs", value_parser = ["fcfs"], hide = true)]
    pub scheduling_policy: String,

    /// Seconds that running answers get to finish after SIGTERM or Ctrl-C; a second signal ends at once.
    #[arg(
        long,
        env = "FULCRUM_SHUTDOWN_TIMEOUT",
        value_name = "SECONDS",
        default_value_t = 30,
        help_heading = "Operation"
    )]
    pub shutdown_timeout: u64,
    /// Seconds of work without the end of a step after which /livez and /readyz answer 503; longer than the longest step of the model.
    #[arg(
        long,
        env = "FULCRUM_STALL_LIMIT",
        value_name = "SECONDS",
        default_value = "30",
        help_heading = "Operation"
    )]
    pub stall_limit: NonZeroU64,
    /// Serve /debug/requests: ids, routes and times, no text, of the slowest requests of all callers.
    #[arg(long, env = "FULCRUM_DEBUG_ENDPOINTS", help_heading = "Operation")]
    pub debug_endpoints: bool,
    /// How log lines look.
    #[arg(long, env = "FULCRUM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Operation")]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a filter by module.
    #[arg(
        long,
        env = "FULCRUM_LOG",
        value_name = "FILTER",
        default_value = "info",
        help_heading = "Operation"
    )]
    pub log: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Flags of `fulcrum run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Use the chat template in this file instead of the model's own.
    #[arg(long, env = "FULCRUM_CHAT_TEMPLATE", value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Longest conversation in tokens [default: what the model was made for, at most 8192].
    #[arg(
        long,
        alias = "max-model-len",
        env = "FULCRUM_CONTEXT",
        value_name = "TOKENS"
    )]
    pub context: Option<NonZeroUsize>,
    /// The prompt; without it, a chat starts. `-` reads it from standard input.
    pub prompt: Option<String>,
    /// System message that opens the conversation.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Give the prompt to the model as it is, without the chat template.
    #[arg(long, requires = "prompt", conflicts_with = "system")]
    pub raw: bool,
    /// Answer tokens at most.
    #[arg(short = 'n', long, value_name = "N", default_value = "512")]
    pub max_tokens: NonZeroU32,
    /// 0 always takes the likeliest token.
    #[arg(long, default_value_t = 0.7)]
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this.
    #[arg(long, default_value_t = 0.95)]
    pub top_p: f32,
    /// Same seed, same answer.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Flags of `fulcrum pull`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["name", "list"])))]
pub struct PullArgs {
    /// Name of a model: one of `--list`, or `hf:ORG/REPO[@REVISION][:FILE]`; FILE may be a word that only one GGUF file
    /// has in its name (`Q4_K_M`). Variables of the hub's own tools count: HF_TOKEN, HF_HOME, HF_HUB_CACHE,
    /// HF_ENDPOINT, HF_HUB_OFFLINE.
    #[arg(value_name = "NAME|hf:ORG/REPO[:FILE]")]
    pub name: Option<String>,
    /// Show the models known by name.
    #[arg(long)]
    pub list: bool,
}

/// Flags of `fulcrum logits`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["ids", "prompt"])))]
pub struct LogitsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// File with a JSON list of token ids.
    #[arg(long, value_name = "FILE.json")]
    pub ids: Option<PathBuf>,
    /// Text to encode, with the model's own rule for its first token.
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Positions to write, in this order [default: all].
    #[arg(long, value_name = "0,5,9", value_delimiter = ',')]
    pub rows: Option<Vec<usize>>,
    /// Weights dequantised and all arithmetic in float32, cache included.
    #[arg(long, conflicts_with = "quantize")]
    pub exact: bool,
    /// Where to write the tensor `logits`, float32 `[T, V]` (safetensors).
    #[arg(long, value_name = "F.safetensors")]
    pub out: PathBuf,
}

/// Flags of `fulcrum inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A GGUF file, a folder with config.json and safetensors, or a name of `fulcrum pull --list` or `hf:ORG/REPO[:FILE]`.
    #[arg(value_name = "FILE|FOLDER|NAME|hf:…")]
    pub model: String,
    /// Show what weights in F32, F16 or BF16 would be held in.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub quantize: Option<Quantize>,
    /// Element type of cached keys and values whose size is told.
    #[arg(long, env = "FULCRUM_KV_TYPE", value_enum, default_value_t = KvType::F16)]
    pub kv_type: KvType,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
}

/// Flags of `fulcrum doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A GGUF file, a folder with config.json and safetensors, or a name of `fulcrum pull --list` or `hf:ORG/REPO[:FILE]` (fetched first if need be).
    #[arg(value_name = "FILE|FOLDER|NAME|hf:…")]
    pub model: String,
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Print one JSON object instead of a line for each check.
    #[arg(long)]
    pub json: bool,
}

fn reasoning_syntax() -> impl TypedValueParser<Value = ReasoningSyntax> {
    PossibleValuesParser::new(ReasoningSyntax::WORDS)
        .try_map(|word| ReasoningSyntax::from_word(&word).ok_or("no syntax has this name"))
}

fn call_syntax() -> impl TypedValueParser<Value = CallSyntax> {
    PossibleValuesParser::new(CallSyntax::WORDS)
        .try_map(|word| CallSyntax::from_word(&word).ok_or("no syntax has this name"))
}

/// A name that fits into JSON, a shell line and a metric label as it is.
fn model_name(typed: &str) -> Result<String, String> {
    if typed.trim().is_empty() {
        return Err("a name must not be empty".to_owned());
    }
    let is_odd = |letter: &char| letter.is_control() || "\"'`\\".contains(*letter);
    match typed.chars().find(is_odd) {
        Some(odd) => Err(format!("a name must not contain {odd:?}")),
        None => Ok(typed.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_flags_do_not_contradict_one_another() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_needs_no_flag_at_all() {
        let cli = Cli::try_parse_from(["fulcrum", "serve"]).expect("no flag is required");
        let Command::Serve(args) = cli.command else {
            panic!("serve was asked for")
        };
        assert_eq!(args.model.model, crate::catalogue::DEFAULT);
        assert_eq!((args.host.is_loopback(), args.port), (true, 8080));
    }

    #[test]
    fn flags_of_vllm_mean_the_same_here() {
        let typed = "fulcrum serve --max-model-len 2048 --max-num-seqs 8 --max-num-batched-tokens 256 --served-model-name a \
                     --block-size 16 --scheduling-policy fcfs --enable-prefix-caching --max-num-queued-reqs 4 --enable-auto-tool-choice \
                     --tool-call-parser hermes --reasoning-parser deepseek_r1";
        Cli::try_parse_from(typed.split_whitespace()).expect("each of them exists");
    }

    #[test]
    fn every_syntax_that_the_help_lists_is_taken_and_no_other() {
        let typed = |flag: &str, word: &str| {
            Cli::try_parse_from(["fulcrum", "serve", flag, word]).map_err(|error| error.to_string())
        };
        for (flag, words) in [
            ("--reasoning-parser", ReasoningSyntax::WORDS),
            ("--tool-call-parser", CallSyntax::WORDS),
        ] {
            for word in words {
                assert!(typed(flag, word).is_ok(), "{flag} {word}");
            }
            let error = typed(flag, "pythonic").expect_err("nobody reads that");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn names_that_nobody_could_ask_for_are_refused() {
        let named = |name: &str| {
            let typed = ["fulcrum", "serve", "--served-model-name", name];
            Cli::try_parse_from(typed).map_err(|error| error.to_string())
        };
        for name in ["tiny", "org/tiny-1.5:q4", "größer als", "a,b"] {
            assert!(named(name).is_ok(), "{name:?}");
        }
        for (name, why) in [
            ("", "must not be empty"),
            (" ", "must not be empty"),
            ("a,", "must not be empty"),
            ("a\nb", "must not contain '\\n'"),
            ("a\u{7f}", "must not contain '\\u{7f}'"),
            ("say \"a\"", "must not contain '\"'"),
            ("it's", "must not contain '\\''"),
            ("a\\b", "must not contain '\\\\'"),
        ] {
            let error = named(name).expect_err(name);
            assert!(
                error.contains(why) && error.contains("--served-model-name"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_flag_that_a_subcommand_would_ignore_is_not_one_of_its_flags() {
        let logits = "fulcrum logits --prompt a --out f --context 5";
        assert!(Cli::try_parse_from(logits.split_whitespace()).is_err());
    }

    #[test]
    fn a_block_size_that_does_not_exist_is_refused() {
        assert!(Cli::try_parse_from(["fulcrum", "serve", "--block-size", "32"]).is_err());
        assert!(
            Cli::try_parse_from(["fulcrum", "serve", "--scheduling-policy", "priority"]).is_err()
        );
    }
}
