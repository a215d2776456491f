//! `fulcrum serve` from start to end. What it answers is tested in the crate `server`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::support::{Tiny, fulcrum, stderr};

/// A server that is ready, ended when dropped.
pub struct Serving {
    child: Child,
    address: SocketAddr,
    words: String,
}

impl Serving {
    pub fn start(tiny: &Tiny, flags: &[&str]) -> Serving {
        let mut child = fulcrum(tiny.folder.path())
            .args(["serve", "--model", tiny.model(), "--port", "0"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it was piped")).lines();
        let mut words = String::new();
        let address = loop {
            let line = lines
                .next()
                .expect("the server says where it is before it ends")
                .expect("stderr is UTF-8");
            words.push_str(&line);
            words.push('\n');
            if let Some(address) = line
                .strip_prefix("metrics: http://")
                .and_then(|rest| rest.strip_suffix("/metrics"))
            {
                break address.parse().expect("it is an address");
            }
        };
        // Somebody has to read what else it says.
        std::thread::spawn(move || lines.for_each(drop));
        Serving {
            child,
            address,
            words,
        }
    }

    /// What it said before it was ready.
    pub fn words(&self) -> &str {
        &self.words
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        .expect("the server reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the server answers");
        answer
    }

    /// The JSON that answers a JSON body.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> serde_json::Value {
        self.answer(path, body, 200)
    }

    /// The JSON that answers a JSON body with this status.
    pub fn answer(&self, path: &str, body: &serde_json::Value, status: u16) -> serde_json::Value {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        let body = body.to_string();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("the server reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the server answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("there is a body");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        serde_json::from_str(body).expect("the body is JSON")
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([name, &self.child.id().to_string()])
            .status()
            .expect("kill exists");
        assert!(status.success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_says_where_it_is_and_what_to_try() {
    let tiny = Tiny::new();
    let serving = Serving::start(&tiny, &[]);
    assert!(serving.address.ip().is_loopback());
    assert!(
        serving.words.contains("curl -N http://"),
        "{}",
        serving.words
    );
    assert!(serving.get("/readyz").starts_with("HTTP/1.1 200"));
    assert!(serving.get("/v1/models").contains("\"tiny\""));
}

#[test]
fn flags_reach_the_server() {
    let tiny = Tiny::new();
    let serving = Serving::start(
        &tiny,
        &[
            "--api-key",
            "k",
            "--served-model-name",
            "a-name",
            "--context",
            "64",
            "--kv-cache-mib",
            "1",
        ],
    );
    assert!(serving.get("/v1/models").starts_with("HTTP/1.1 401"));
    assert!(
        serving.words.contains("context 64 tokens")
            && serving.words.contains("tokens in f16")
            && serving.words.contains("a-name"),
        "{}",
        serving.words
    );
}

#[test]
fn more_cache_than_memory_is_refused_by_its_flag() {
    let tiny = Tiny::new();
    let output = tiny.run(&[
        "serve",
        "--model",
        tiny.model(),
        "--port",
        "0",
        "--kv-cache-mib",
        "4294967295",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("--kv-cache-mib"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_context_that_cannot_be_had_is_refused_and_not_cut() {
    let tiny = Tiny::new();
    let serve = [
        "serve",
        "--model",
        tiny.model(),
        "--port",
        "0",
        "--context",
        "100000",
    ];
    let run = [
        "run",
        "--model",
        tiny.model(),
        "--context",
        "100000",
        "hello",
    ];
    for arguments in [&serve[..], &run[..]] {
        let output = tiny.run(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("--context 100000: the model was made for 2048 tokens"),
            "{said}"
        );
    }
}

/// Case F5.
#[test]
fn a_signal_ends_an_idle_server_with_success() {
    let tiny = Tiny::new();
    for name in ["-TERM", "-INT"] {
        let mut serving = Serving::start(&tiny, &[]);
        serving.signal(name);
        let status = serving.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{name}");
    }
}

#[test]
fn a_taken_port_is_told_before_anything_is_loaded() {
    let tiny = Tiny::new();
    let serving = Serving::start(&tiny, &[]);
    let port = serving.address.port().to_string();
    let output = tiny.run(&["serve", "--model", tiny.model(), "--port", &port]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("cannot listen") && said.contains("hint:") && !said.contains("loading"),
        "{said}"
    );
}

/// Cases B2 and B5: never a signal, never a panic, and readiness never turns green.
#[test]
fn a_truncated_model_ends_the_server_with_a_reason() {
    let tiny = Tiny::new();
    let whole = std::fs::read(&tiny.model).expect("the model was written");
    let path = tiny.path("cut.gguf");
    for len in [whole.len() / 2, whole.len() - 1, 30, 0] {
        std::fs::write(&path, &whole[..len]).expect("the folder is writable");
        let output = tiny.run(&["serve", "--model", &path, "--port", "0"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{len}: {said}");
        assert!(
            said.contains("error: ") && !said.contains("panicked") && !said.contains("ready"),
            "{len}: {said}"
        );
    }
}
