//! `fulcrum bench` as scripts and people meet it, against scripted servers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use testkit::mock::endpoint::{Speed, answer};
use testkit::mock::wire::document;
use testkit::mock::{Asked, Mock, Script, tcp};

use crate::support::fulcrum;

const FAST: Speed = Speed {
    first_ms: 5.0,
    gap_ms: 1.0,
};

/// Two words in, four tokens out.
const SHORT: &str = r#"
version = 1
name = "short"
description = "Short."
[[class]]
name = "default"
prompt = { distribution = "fixed", value = 30 }
output = { distribution = "fixed", value = 4, exact = true }
"#;

/// A folder to run in, with the workload.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::write(folder.path().join("short.toml"), SHORT).expect("it can be written to");
        Bench { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = fulcrum(self.path());
        command
            .current_dir(self.path())
            .arg("bench")
            .args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary starts")
    }

    /// A short run of `users` against `address`, written to `out`.
    fn measure(&self, address: SocketAddr, out: &str, more: &[&str]) -> Output {
        let url = format!("http://{address}");
        let mut arguments = vec![url.as_str(), "--users", "2", "--requests", "40"];
        arguments.extend(["--workload", "short.toml", "--no-calibration", "--out", out]);
        arguments.extend(more);
        self.run(&arguments)
    }

    fn summary(&self, out: &str) -> Value {
        let path = self.path().join(out).join("summary.json");
        let text = std::fs::read_to_string(path).expect("a summary");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn serve(answer: impl Fn(Asked) -> Script + Send + Sync + 'static) -> SocketAddr {
    tcp::serve(Mock::new(move |asked| std::future::ready(answer(asked))))
}

fn fast_server() -> SocketAddr {
    serve(|asked| answer(&asked, FAST))
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
}

#[test]
fn a_run_prints_a_table_and_leaves_every_file() {
    let bench = Bench::new();
    let output = bench.measure(fast_server(), "run", &[]);
    assert_code(&output, 0);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(table.contains("users") && table.contains("TTFT"), "{table}");
    for file in [
        "summary.json",
        "series.json",
        "report.html",
        "requests.jsonl.zst",
    ] {
        assert!(bench.path().join("run").join(file).is_file(), "{file}");
    }
    let summary = bench.summary("run");
    assert_eq!(summary["schema"], "fulcrum.bench/1");
    assert_eq!(summary["model"], "mock");
    assert_eq!(summary["workload"]["prompt_tokens_from"], "server");
    let level = &summary["levels"][0];
    assert_eq!(
        (&level["users"], &level["requests"]["ok"]),
        (&2.into(), &40.into())
    );
    assert_eq!(level["stopped_by"], "requests");
    assert_eq!(
        level["ttft_ms"]["p99"],
        Value::Null,
        "40 requests do not support it"
    );
    assert!(level["ttft_ms"]["p50"].as_f64() >= Some(4.9), "{level}");
    assert_eq!(
        level["flags"],
        serde_json::json!([]),
        "prompts and answers have the lengths meant"
    );
}

#[test]
fn a_report_shows_a_run_again_in_every_format() {
    let bench = Bench::new();
    assert_code(&bench.measure(fast_server(), "run", &[]), 0);
    for (format, word) in [
        ("table", "TTFT"),
        ("json", "\"schema\": \"fulcrum.bench/1\""),
        ("csv", "users,"),
        ("md", "## fulcrum bench"),
        ("html", "<svg"),
    ] {
        let output = bench.run(&["report", "run", "--format", format]);
        assert_code(&output, 0);
        let shown = String::from_utf8(output.stdout).expect("text");
        assert!(shown.contains(word), "{format}: {shown:.300}");
    }
}

#[test]
fn a_run_is_never_written_over_another() {
    let bench = Bench::new();
    let address = fast_server();
    assert_code(&bench.measure(address, "run", &[]), 0);
    assert_code(&bench.measure(address, "run", &[]), 0);
    assert!(bench.path().join("run-2").join("summary.json").is_file());
}

#[test]
fn what_is_wrong_with_the_flags_is_told_with_1() {
    let bench = Bench::new();
    let address = "http://127.0.0.1:9";
    for (arguments, word) in [
        (vec!["ftp://x"], "only http and https"),
        (vec![address, "--workload", "nothing"], "mixed"),
        (vec![address, "--slo", "ttft<1"], "METRIC:pN<LIMIT"),
        (vec![address, "--users", "0"], "0 is not in 1..=65536"),
        (vec![address, "--duration", "5"], "a time with its unit"),
        (
            vec![address, "--users", "1", "--rate", "2"],
            "cannot be used with",
        ),
        (
            vec![address, "--api-key-env", "NO_SUCH_KEY"],
            "\"NO_SUCH_KEY\" is not set",
        ),
        (vec![address, "--header", "nonsense"], "NAME:VALUE"),
        (vec![address, "--trace", "no.jsonl"], "no.jsonl"),
        (vec!["diff", "a", "b", "--fail-on", "speed>1"], "is no rule"),
        (vec!["report", "nowhere"], "nowhere"),
        (
            vec!["abba", "--a", address, "--b", address],
            "one --users or one --rate",
        ),
    ] {
        let output = bench.run(&arguments);
        assert_code(&output, 1);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(word), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn nobody_there_and_nobody_who_answers_are_2() {
    let bench = Bench::new();
    // A port that was free a moment ago.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = closed.local_addr().expect("bound");
    drop(closed);
    let output = bench.measure(address, "run", &[]);
    assert_code(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot reach http://127.0.0.1"));

    let broken = serve(|asked| match asked.is_for("/v1/models") {
        true => answer(&asked, FAST),
        false => document(
            500,
            "application/json",
            r#"{"error":{"message":"out of memory"}}"#,
        ),
    });
    let output = bench.measure(broken, "run", &[]);
    assert_code(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("out of memory"));
    assert!(!bench.path().join("run").exists(), "nothing was measured");
}

#[test]
fn a_server_that_fails_after_the_trial_is_2_and_the_failures_are_kept() {
    let bench = Bench::new();
    let num_chats = Arc::new(Mutex::new(0));
    let address = serve(move |asked| {
        if asked.is_for("/v1/chat/completions") {
            let mut num_chats = num_chats.lock().expect("a number");
            *num_chats += 1;
            // The trial and the three chats that tell the template.
            if *num_chats > 4 {
                return document(
                    429,
                    "application/json",
                    r#"{"error":{"message":"slow down"}}"#,
                );
            }
        }
        answer(&asked, FAST)
    });
    let output = bench.measure(address, "run", &[]);
    assert_code(&output, 2);
    let level = &bench.summary("run")["levels"][0];
    assert_eq!(level["requests"]["http_error"], 40);
    assert_eq!(level["ttft_ms"]["p50"], Value::Null);
}

#[test]
fn a_missed_slo_is_3_and_a_kept_one_0() {
    let bench = Bench::new();
    let address = fast_server();
    assert_code(
        &bench.measure(address, "kept", &["--slo", "ttft:p50<20s"]),
        0,
    );
    assert_eq!(bench.summary("kept")["slo"]["largest"], 2.0);
    assert_code(
        &bench.measure(address, "missed", &["--slo", "ttft:p50<1us"]),
        3,
    );
    assert_eq!(bench.summary("missed")["slo"]["largest"], Value::Null);
}

#[test]
fn the_key_is_sent_and_not_written_down() {
    let bench = Bench::new();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let address = serve(move |asked| {
        seen.lock().expect("a list").push(asked.head.clone());
        answer(&asked, FAST)
    });
    let url = format!("http://{address}");
    let output = bench
        .command(&[
            &url,
            "--users",
            "1",
            "--requests",
            "3",
            "--workload",
            "short.toml",
            "--out",
            "run",
        ])
        .args([
            "--no-calibration",
            "--api-key-env",
            "MY_KEY",
            "--header",
            "x-team: secret-team",
        ])
        .env("MY_KEY", "secret-key")
        .output()
        .expect("the binary starts");
    assert_code(&output, 0);
    for head in heads.lock().expect("a list").iter() {
        assert!(
            head.contains("Bearer secret-key") && head.contains("secret-team"),
            "{head}"
        );
    }
    for file in ["summary.json", "report.html"] {
        let text = std::fs::read_to_string(bench.path().join("run").join(file)).expect("a file");
        assert!(!text.contains("secret"), "{file}");
    }
    assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"));
}

#[test]
fn own_fields_are_in_every_body() {
    let bench = Bench::new();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    let address = serve(move |asked| {
        if asked.is_for("/v1/chat/completions") {
            seen.lock().expect("a list").push(asked.json());
        }
        answer(&asked, FAST)
    });
    let more = [
        "--body",
        "priority=3",
        "--body",
        "temperature=null",
        "--model",
        "mock",
    ];
    assert_code(&bench.measure(address, "run", &more), 0);
    let bodies = bodies.lock().expect("a list");
    let measured = &bodies[bodies.len() - 1];
    assert_eq!(
        (&measured["priority"], measured.get("temperature")),
        (&3.into(), None)
    );
    assert_eq!(
        (&measured["model"], &measured["max_tokens"]),
        (&"mock".into(), &4.into())
    );
}

#[test]
fn a_model_that_is_not_there_is_told_before_anything_is_measured() {
    let bench = Bench::new();
    let output = bench.measure(fast_server(), "run", &["--model", "other"]);
    assert_code(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("it has mock"));
}

#[test]
fn an_open_loop_and_a_trace_are_measured() {
    let bench = Bench::new();
    let url = format!("http://{}", fast_server());
    let arguments = [
        &url,
        "--rate",
        "200",
        "--duration",
        "500ms",
        "--arrival",
        "constant",
        "--workload",
        "short.toml",
    ];
    let output = bench.run(&[&arguments[..], &["--no-calibration", "--out", "open"]].concat());
    assert_code(&output, 0);
    let level = bench.summary("open")["levels"][0].clone();
    assert_eq!(
        (&level["offered_rps"], &level["users"]),
        (&200.0.into(), &Value::Null)
    );
    assert_eq!(level["requests"]["ok"], 100);

    let trace = "{\"timestamp\":0,\"input_length\":40,\"output_length\":3,\"hash_ids\":[1]}\n\
                 {\"timestamp\":50,\"input_length\":40,\"output_length\":3,\"hash_ids\":[1]}\n\
                 {\"timestamp\":100,\"input_length\":60,\"output_length\":2,\"hash_ids\":[2]}\n";
    std::fs::write(bench.path().join("trace.jsonl"), trace).expect("it can be written to");
    let output = bench.run(&[
        &url,
        "--trace",
        "trace.jsonl",
        "--no-calibration",
        "--out",
        "replay",
    ]);
    assert_code(&output, 0);
    let level = bench.summary("replay")["levels"][0].clone();
    assert_eq!(
        (&level["requests"]["ok"], &level["stopped_by"]),
        (&3.into(), &"trace_end".into())
    );
}

#[test]
fn two_runs_are_compared_and_a_rule_decides() {
    let bench = Bench::new();
    let slow = serve(|asked| {
        answer(
            &asked,
            Speed {
                first_ms: 40.0,
                gap_ms: 1.0,
            },
        )
    });
    assert_code(&bench.measure(fast_server(), "before", &[]), 0);
    assert_code(&bench.measure(slow, "after", &[]), 0);
    let output = bench.run(&["diff", "before", "after", "--junit", "junit.xml"]);
    assert_code(&output, 0);
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.contains("ttft"), "{shown}");
    let junit = std::fs::read_to_string(bench.path().join("junit.xml")).expect("a report");
    assert!(junit.contains("<testsuite"), "{junit:.300}");
    let rule = ["--fail-on", "ttft.p50>+100%@95%"];
    assert_code(
        &bench.run(&[&["diff", "before", "after"], &rule[..]].concat()),
        3,
    );
    assert_code(
        &bench.run(&[&["diff", "after", "before"], &rule[..]].concat()),
        0,
    );
}

#[test]
fn endpoints_are_measured_in_turn() {
    let bench = Bench::new();
    let (fast, slow) = (
        fast_server(),
        serve(|asked| {
            answer(
                &asked,
                Speed {
                    first_ms: 40.0,
                    gap_ms: 1.0,
                },
            )
        }),
    );
    let (a, b) = (format!("http://{fast}"), format!("http://{slow}"));
    let arguments = [
        "abba",
        "--a",
        &a,
        "--b",
        &b,
        "--users",
        "2",
        "--requests",
        "40",
        "--rounds",
        "1",
    ];
    let output = bench.run(
        &[
            &arguments[..],
            &[
                "--workload",
                "short.toml",
                "--no-calibration",
                "--format",
                "json",
            ],
        ]
        .concat(),
    );
    assert_code(&output, 0);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let metrics = report["metrics"].as_array().expect("metrics");
    let ttft = metrics
        .iter()
        .find(|metric| metric["metric"] == "ttft.p50")
        .expect("TTFT");
    assert!(ttft["median"].as_f64() > Some(2.0), "{ttft}");
}

#[test]
fn the_servers_own_metrics_are_beside_the_run() {
    let bench = Bench::new();
    let slow = serve(|asked| {
        answer(
            &asked,
            Speed {
                first_ms: 100.0,
                gap_ms: 1.0,
            },
        )
    });
    assert_code(&bench.measure(slow, "run", &["--prometheus"]), 0);
    let metrics = &bench.summary("run")["server_metrics"];
    assert_eq!(metrics[0]["name"], "asked_total", "{metrics}");
}

/// A run that is killed in the middle leaves what it had measured.
#[cfg(unix)]
#[test]
fn a_killed_run_can_be_read() {
    let bench = Bench::new();
    let num_chats = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&num_chats);
    let address = serve(move |asked| {
        if asked.is_for("/v1/chat/completions") {
            *counter.lock().expect("a number") += 1;
        }
        answer(&asked, FAST)
    });
    let url = format!("http://{address}");
    let mut running = bench
        .command(&[
            &url,
            "--users",
            "2",
            "--duration",
            "1h",
            "--workload",
            "short.toml",
        ])
        .args(["--no-calibration", "--no-tui", "--out", "run"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the binary starts");
    // Frames end every second: when the file has grown by one, there is something to read.
    let requests = bench.path().join("run").join("requests.jsonl.zst");
    let size = || std::fs::metadata(&requests).map_or(0, |found| found.len());
    let has_grown = (0..3_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        size() > 2_000
    });
    running.kill().expect("it runs");
    running.wait().expect("it ended");
    assert!(has_grown, "{} bytes", size());
    let output = bench.run(&["report", "run", "--format", "json"]);
    assert_code(&output, 0);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(
        summary["levels"][0]["requests"]["ok"].as_u64() > Some(10),
        "{summary}"
    );
    assert_eq!(summary["warnings"][0]["code"], "killed");
}
