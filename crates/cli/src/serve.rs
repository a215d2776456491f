//! `fulcrum serve`: flags to a server, and the few lines it prints.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use engine::{EngineLimits, PrefixCache};
use model::runner::{BLOCK_TOKENS, Runner as _};
use server::class::{TEXT_BYTES_MAX, Traffic};
use server::{
    ApiKeys, Limits, LoadedModel, ModelFacts, Outcome, Phase, Server, ServerConfig, Signals,
};

use crate::args::{LogFormat, Pooling, ServeArgs};
use crate::open::{self, KvPositions, TextSide, Wanted};
use crate::syntax::AskedSyntax;
use crate::weights;
use crate::words::{WithHint as _, megabytes};

/// Threads of the HTTP side. They mostly wait; two keep `/metrics` answering while one encodes a long prompt.
const NUM_HTTP_THREADS: usize = 2;

/// Runs the subcommand until it is told to stop.
pub fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    start_logging(&args)?;
    let started = Instant::now();
    let wanted = Wanted::parse(&args.model.model)?;
    let config = config_of(&args, &wanted)?;
    let announced = Announced {
        name: config.served_names[0].clone(),
        has_keys: !args.api_key.is_empty() || !config.traffic.keys().is_empty(),
        started,
        example: Arc::default(),
    };
    // The port first: a taken one should be known before anything is fetched or loaded.
    let server = Server::bind(config)
        .hint(|| "another port: --port 8081, or --port 0 for any free one".to_owned())?;
    // `{:#}` keeps the whole chain of causes in one line.
    let example = Arc::clone(&announced.example);
    let load = move || load(&args, &wanted, &example).map_err(|error| format!("{error:#}").into());
    match server.run(load, move |phase, address| {
        announced.announce(phase, address)
    })? {
        Outcome::Drained => Ok(ExitCode::SUCCESS),
        Outcome::Stopped => {
            eprintln!("stopped at once");
            Ok(ExitCode::from(130))
        }
    }
}

fn start_logging(args: &ServeArgs) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&args.log)
        .with_context(|| format!("--log {:?} is no log filter", args.log))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn config_of(args: &ServeArgs, wanted: &Wanted) -> anyhow::Result<ServerConfig> {
    let served_names = if args.served_model_name.is_empty() {
        vec![wanted.name()]
    } else {
        args.served_model_name.clone()
    };
    let api_keys = if args.api_key.is_empty() {
        ApiKeys::none()
    } else {
        ApiKeys::new(args.api_key.iter().map(String::as_str))
            .hint(|| "leave --api-key and FULCRUM_API_KEY out to serve without keys".to_owned())?
    };
    Ok(ServerConfig {
        address: SocketAddr::new(args.host, args.port),
        served_names,
        api_keys,
        traffic: traffic(args.config.as_deref())?,
        allowed_origins: args.cors_origin.clone(),
        drain_limit: Duration::from_secs(args.shutdown_timeout),
        stall_limit: Duration::from_secs(args.stall_limit.get()),
        num_http_threads: NUM_HTTP_THREADS,
        pooling: match args.pooling {
            Pooling::Mean => engine::Pooling::Mean,
            Pooling::Last => engine::Pooling::Last,
        },
        debug_endpoints: args.debug_endpoints,
        signals: Signals::Drain,
        limits: Limits::STANDARD,
    })
}

/// The classes of a file, or the built-in ones.
fn traffic(path: Option<&Path>) -> anyhow::Result<Traffic> {
    let Some(path) = path else {
        return Ok(Traffic::standard());
    };
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let mut text = String::new();
    let bytes_max = TEXT_BYTES_MAX as u64 + 1;
    let read = file.take(bytes_max).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {shown}"))?;
    let traffic = Traffic::parse(&text, |name| std::env::var(name).ok());
    traffic.with_context(|| format!("{shown} is not what it should be"))
}

/// Fetches, opens and loads the model; runs while the port already answers "loading".
fn load(
    args: &ServeArgs,
    wanted: &Wanted,
    example: &OnceLock<Example>,
) -> anyhow::Result<LoadedModel> {
    let path = wanted.path()?;
    let source = open::source(&path)?;
    let text = open::text_side(&source)?
        .with_template_of(args.chat_template.as_deref())?
        .with_syntax(AskedSyntax {
            reasoning: args.reasoning_parser,
            calls: args.tool_call_parser,
        })?;
    // Loading runs once, so nothing was set before.
    let _ = example.set(Example::for_model(&text));
    let defaults = open::sampling_defaults(&source)?;
    let weights = weights::choose(&source, &args.model.compute)?;
    eprintln!("{}", weights.line());
    if !text.tokenizer.has_text() {
        eprintln!(
            "no tokenizer.json: prompts must be token ids (`prompt: [1, 2, 3]`), and answers are told by `return_token_ids`"
        );
    }
    let positions = args
        .kv_cache_mib
        .map_or(KvPositions::Usual, KvPositions::Mebibytes);
    let runner = open::runner(
        &source,
        &args.model.compute,
        weights.precision,
        positions,
        args.context,
    )?;
    let shape = runner.shape().clone();
    let (num_positions, kv_type) = (shape.num_blocks * BLOCK_TOKENS, runner.kv_type().name());
    let context_max = open::context_max(&runner, args.context)?;
    let prefix_cache = if args.no_prefix_cache {
        PrefixCache::Off
    } else {
        PrefixCache::On
    };
    let limits = EngineLimits {
        prompt_rows_max: 64,
        step_tokens_max: args.max_num_batched_tokens.get() as usize,
        num_sequences_max: args.max_num_seqs.get() as usize,
        context_max,
        num_waiting_max: args.max_num_queued_reqs.get() as usize,
        num_waiting_tokens_max: args.max_num_queued_tokens.get() as usize,
        prefix_cache,
    };
    eprintln!(
        "context {context_max} tokens; KV cache {num_positions} tokens in {kv_type} ({} when full); {}",
        megabytes((shape.num_blocks * shape.block_bytes) as u64),
        shape.fingerprint,
    );
    let facts = ModelFacts {
        fingerprint: shape.fingerprint,
        context_max,
        hidden: shape.hidden,
        num_blocks: shape.num_blocks,
        block_tokens: BLOCK_TOKENS,
        kv_type,
        engine_limits: limits.clone(),
        defaults,
    };
    let tokenizer = std::sync::Arc::clone(&text.tokenizer);
    Ok(LoadedModel {
        tokenizer: text.tokenizer,
        template: text.template,
        facts,
        start_engine: Box::new(move |observer| {
            engine::start(Box::new(runner), tokenizer, limits, observer)
        }),
    })
}

/// What the lines at each phase need to know.
struct Announced {
    name: String,
    has_keys: bool,
    started: Instant,
    /// Known once the model's text side is read.
    example: Arc<OnceLock<Example>>,
}

/// A request that the model can answer.
#[derive(Clone, Copy, Debug)]
enum Example {
    /// A conversation.
    Chat,
    /// A text to go on with: there is no chat template.
    Text,
    /// Token ids to go on with: there is no tokenizer.
    TokenIds,
}

impl Example {
    fn for_model(text: &TextSide) -> Example {
        if !text.tokenizer.has_text() {
            Example::TokenIds
        } else if text.template.is_none() {
            Example::Text
        } else {
            Example::Chat
        }
    }

    fn path(self) -> &'static str {
        match self {
            Example::Chat => "/v1/chat/completions",
            Example::Text | Example::TokenIds => "/v1/completions",
        }
    }

    /// What follows the model's name in the body.
    fn fields(self) -> &'static str {
        match self {
            Example::Chat => {
                r#""stream": true, "messages": [{"role": "user", "content": "Why is the sky blue?"}]"#
            }
            Example::Text => r#""stream": true, "prompt": "The sky is blue because""#,
            Example::TokenIds => {
                r#""prompt": [1, 2, 3], "max_tokens": 16, "return_token_ids": true"#
            }
        }
    }
}

impl Announced {
    fn announce(&self, phase: Phase, address: SocketAddr) {
        match phase {
            Phase::Loading => eprintln!("loading {}", self.name),
            Phase::Ready => self.announce_ready(address),
            Phase::Draining => {
                eprintln!("stopping: running answers may finish; once more to stop at once")
            }
        }
    }

    fn announce_ready(&self, address: SocketAddr) {
        let address = reachable(address);
        let example = self.example.get().copied().unwrap_or(Example::Chat);
        let (path, fields) = (example.path(), example.fields());
        let key = if self.has_keys {
            " -H \"Authorization: Bearer $FULCRUM_API_KEY\""
        } else {
            ""
        };
        eprintln!(
            "\nready after {:.1} s: {} on http://{address}\n\n\
             try it:\n  curl -N http://{address}{path}{key} -H 'Content-Type: application/json' \\\n    \
             -d '{{\"model\": \"{}\", {fields}}}'\n\n\
             metrics: http://{address}/metrics\n",
            self.started.elapsed().as_secs_f64(),
            self.name,
            self.name,
        );
    }
}

/// Where a client on this machine reaches a server that listens at `address`: "all interfaces" is
/// an address to listen at and not one to call.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_is_shown_is_one_that_can_be_called() {
        let shown = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(shown("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(shown("[::]:8080"), "[::1]:8080");
        assert_eq!(shown("127.0.0.1:1"), "127.0.0.1:1");
        assert_eq!(shown("192.0.2.7:1"), "192.0.2.7:1");
    }
}
