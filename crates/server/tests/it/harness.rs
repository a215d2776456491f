//! A server under test: its own threads, a free port, a model that says the alphabet.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{EngineLimits, PrefixCache};
use formats::gguf::Gguf;
use serde_json::{Value, json};
use server::class::Traffic;
use server::{
    ApiKeys, Limits, LoadedModel, ModelFacts, Outcome, Phase, SamplingDefaults, ServeError, Server,
    ServerConfig, ShutdownHandle, Signals,
};
use testkit::encode::Encoding;
use text::{ChatTemplate, Tokenizer};

use crate::http::{self, Events, Reply};
use crate::script::{Gate, Script, Shape};

/// What a test can set before the server starts.
pub struct Setup {
    pub config: ServerConfig,
    pub model: Alphabet,
}

/// The model under the server, and its engine.
pub struct Alphabet {
    pub limits: EngineLimits,
    pub num_blocks: usize,
    pub defaults: SamplingDefaults,
    pub gate: Arc<Gate>,
}

impl Setup {
    pub fn new() -> Setup {
        let limits = EngineLimits {
            prompt_rows_max: 64,
            step_tokens_max: 64,
            num_sequences_max: 8,
            context_max: CONTEXT,
            num_waiting_max: 16,
            num_waiting_tokens_max: 4096,
            prefix_cache: PrefixCache::On,
        };
        let defaults = SamplingDefaults::default();
        let model = Alphabet {
            limits,
            num_blocks: 256,
            defaults,
            gate: Gate::open(),
        };
        Setup {
            config: config(),
            model,
        }
    }

    /// Classes, tenants and keys as `fulcrum.toml` has them; the keys' digests are told by name.
    pub fn with_traffic(mut self, text: &str) -> Setup {
        self.config.traffic = Traffic::parse(text, |name| Some(format!("sk-{name}"))).unwrap();
        self
    }

    pub fn with_keys(mut self, keys: &[&str]) -> Setup {
        self.config.api_keys = ApiKeys::new(keys.iter().copied()).unwrap();
        self
    }

    /// Room for answers that no test will see the end of.
    pub fn with_endless_context(mut self) -> Setup {
        self.model.limits.context_max = 1 << 24;
        self.model.num_blocks = 1 << 20;
        self
    }

    /// Starts the server and waits until it is ready.
    pub fn start(self) -> Running {
        let gate = Arc::clone(&self.model.gate);
        let running = Running::start(self.config, gate, || Ok(self.model.load()));
        running.wait_for(Phase::Ready);
        running
    }
}

/// Tokens of context in these tests.
pub const CONTEXT: usize = 512;

/// The model's two names.
pub const MODEL: &str = "tiny";
pub const ALIAS: &str = "org/tiny";

pub fn config() -> ServerConfig {
    ServerConfig {
        address: "127.0.0.1:0".parse().unwrap(),
        served_names: vec![MODEL.to_owned(), ALIAS.to_owned()],
        api_keys: ApiKeys::none(),
        traffic: Traffic::standard(),
        allowed_origins: Vec::new(),
        drain_limit: Duration::from_secs(20),
        stall_limit: Duration::from_secs(30),
        num_http_threads: 2,
        pooling: engine::Pooling::Last,
        debug_endpoints: false,
        signals: Signals::Ignore,
        limits: Limits {
            answer_tokens_default: 64,
            ..Limits::STANDARD
        },
    }
}

/// The tiny llama's tokenizer and template, read once.
pub fn tiny() -> (&'static Arc<Tokenizer>, ChatTemplate) {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| {
        let file = testkit::tiny::llama(Encoding::F32).build();
        let file = Gguf::parse(file.bytes).expect("the tiny model is a file like any other");
        Arc::new(Tokenizer::from_gguf(&file).unwrap())
    });
    (tokenizer, template(tokenizer))
}

pub fn template(tokenizer: &Tokenizer) -> ChatTemplate {
    let text = |token: Option<text::TokenId>| {
        token
            .and_then(|token| tokenizer.token_text(token))
            .unwrap_or("")
            .to_owned()
    };
    let controls = (0..tokenizer.vocab() as u32).map(text::TokenId);
    let controls = controls.filter(|token| tokenizer.is_control(*token));
    let controls = controls.map(|token| text(Some(token))).collect();
    let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
    ChatTemplate::compile(testkit::tiny::CHAT_TEMPLATE, &bos, &eos, controls).unwrap()
}

impl Alphabet {
    pub fn load(self) -> LoadedModel {
        let (tokenizer, template) = tiny();
        let Alphabet {
            limits,
            num_blocks,
            defaults,
            gate,
        } = self;
        let shape = Shape {
            context_max: limits.context_max,
            num_blocks,
        };
        let runner = Script::new(tokenizer, shape, gate);
        let facts = ModelFacts {
            fingerprint: "fp_script".to_owned(),
            context_max: limits.context_max,
            hidden: crate::script::HIDDEN,
            num_blocks,
            block_tokens: model::runner::BLOCK_TOKENS,
            kv_type: "int8",
            engine_limits: limits.clone(),
            defaults,
        };
        let for_engine = Arc::clone(tokenizer);
        LoadedModel {
            tokenizer: Arc::clone(tokenizer),
            template: Some(template),
            facts,
            start_engine: Box::new(move |observer| {
                engine::start(Box::new(runner), for_engine, limits, observer)
            }),
        }
    }
}

/// A running server; stopped when dropped.
pub struct Running {
    pub address: SocketAddr,
    pub gate: Arc<Gate>,
    pub shutdown: ShutdownHandle,
    phases: Mutex<mpsc::Receiver<Phase>>,
    thread: Option<JoinHandle<Result<Outcome, ServeError>>>,
}

/// No phase, gauge or end within this is a failed test.
pub const DEADLINE: Duration = Duration::from_secs(30);

impl Running {
    pub fn start(
        config: ServerConfig,
        gate: Arc<Gate>,
        load: impl FnOnce() -> Result<LoadedModel, server::LoadError> + Send + 'static,
    ) -> Running {
        let server = Server::bind(config).expect("a free port");
        let (address, shutdown) = (server.address(), server.shutdown_handle());
        let (announce, phases) = mpsc::sync_channel(8);
        let thread = std::thread::spawn(move || {
            server.run(load, move |phase, _| announce.send(phase).unwrap_or(()))
        });
        Running {
            address,
            gate,
            shutdown,
            phases: Mutex::new(phases),
            thread: Some(thread),
        }
    }

    pub fn wait_for(&self, wanted: Phase) {
        let phases = self.phases.lock().unwrap();
        while phases.recv_timeout(DEADLINE).expect("the phase comes") != wanted {}
    }

    /// Waits for the end.
    pub fn outcome(mut self) -> Result<Outcome, ServeError> {
        self.thread
            .take()
            .expect("once")
            .join()
            .expect("the server does not panic")
    }

    pub fn get(&self, path: &str) -> Reply {
        http::send(self.address, &format!("GET {path} HTTP/1.1"), b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    pub fn delete(&self, path: &str) -> Reply {
        http::send(self.address, &format!("DELETE {path} HTTP/1.1"), b"")
    }

    pub fn post_bytes(&self, path: &str, body: &[u8]) -> Reply {
        let head = format!("POST {path} HTTP/1.1\r\ncontent-type: application/json");
        http::send(self.address, &head, body)
    }

    /// A completion's text and finish reason.
    pub fn complete(&self, body: &Value) -> (String, String) {
        let reply = self.post("/v1/completions", body);
        assert_eq!(reply.status, 200, "{body}");
        let answer = reply.json();
        let choice = &answer["choices"][0];
        let text = |key: &str| {
            choice[key]
                .as_str()
                .unwrap_or_else(|| panic!("{answer}"))
                .to_owned()
        };
        (text("text"), text("finish_reason"))
    }

    pub fn stream(&self, path: &str, body: &Value) -> Events {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let reply = self.post(path, &body);
        assert_eq!(reply.status, 200, "{body}");
        reply.events()
    }

    /// The server still answers, and as it always did.
    pub fn canary(&self) {
        let body = json!({"prompt": "5", "temperature": 0});
        assert_eq!(self.complete(&body), ("4321".to_owned(), "stop".to_owned()));
    }

    /// The sum of the series whose line starts so.
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.get("/metrics").text();
        let values = text.lines().filter(|line| line.starts_with(series));
        values
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Waits until a metric has a value.
    pub fn until(&self, series: &str, wanted: f64) {
        let began = Instant::now();
        loop {
            let value = self.metric(series);
            if value == wanted {
                return;
            }
            assert!(
                began.elapsed() < DEADLINE,
                "{series} is {value}, not {wanted}"
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.gate.allow(None);
        self.shutdown.signal();
        self.shutdown.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The chat request most tests send: the answer is the alphabet.
pub fn chat() -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "say the alphabet"}], "temperature": 0})
}

/// `error.param` and `error.code` of a refusal, whose shape is checked.
pub fn refusal(reply: Reply) -> (u16, Option<String>, String) {
    let status = reply.status;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let body = reply.json();
    let error = &body["error"];
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "{body}"
    );
    assert!(
        error["type"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("_error")),
        "{body}"
    );
    let param = error["param"].as_str().map(str::to_owned);
    (
        status,
        param,
        error["code"]
            .as_str()
            .unwrap_or_else(|| panic!("{body}"))
            .to_owned(),
    )
}
