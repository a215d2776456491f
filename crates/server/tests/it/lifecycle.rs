//! Loading, ready, draining, ended: what each phase answers. Cases F4 and F5.

use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use server::{Outcome, Phase, ServeError};

use crate::harness::{DEADLINE, Running, Setup, chat, refusal};
use crate::http::Frame;

/// A server whose model is there only when the test says so.
pub fn held_in_loading() -> (Running, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel::<()>();
    let Setup { config, model } = Setup::new();
    let gate = std::sync::Arc::clone(&model.gate);
    let running = Running::start(config, gate, move || {
        let _ = released.recv_timeout(DEADLINE);
        Ok(model.load())
    });
    (running, release)
}

/// Case F4.
#[test]
fn while_the_model_loads_the_server_is_alive_but_not_ready() {
    let (running, release) = held_in_loading();
    assert_eq!(running.get("/livez").status, 200);
    for path in ["/readyz", "/health", "/ready", "/ping"] {
        let reply = running.get(path);
        assert_eq!(reply.status, 503, "{path}");
        assert_eq!(reply.header("retry-after"), Some("2"), "{path}");
        assert!(reply.header("retry-after-ms").is_some(), "{path}");
        assert_eq!(reply.json()["error"]["message"], "Loading model");
    }
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/completions/render",
        "/apply-template",
        "/tokenize",
        "/detokenize",
    ] {
        let reply = running.post(path, &chat());
        assert!(reply.header("retry-after").is_some(), "{path}");
        assert!(reply.header("retry-after-ms").is_some(), "{path}");
        let (status, _, code) = refusal(reply);
        assert_eq!((status, code.as_str()), (503, "model_loading"), "{path}");
    }
    assert_eq!(
        running.get("/v1/models").status,
        503,
        "no list rather than an empty one"
    );
    assert_eq!(running.metric("fulcrum_ready"), 0.0);
    release.send(()).unwrap();
    running.wait_for(Phase::Ready);
    assert_eq!(running.get("/readyz").status, 200);
    running.canary();
}

/// Case F5.
#[test]
fn told_to_stop_while_loading_the_server_ends_without_waiting_for_the_model() {
    let (running, release) = held_in_loading();
    assert_eq!(running.get("/livez").status, 200);
    running.shutdown.signal();
    assert_eq!(running.outcome().unwrap(), Outcome::Drained);
    drop(release);
}

#[test]
fn a_model_that_cannot_be_loaded_ends_the_server_with_the_reason() {
    let Setup { config, model } = Setup::new();
    let running = Running::start(config, model.gate, || Err("no such file".into()));
    let error = running.outcome().unwrap_err();
    assert!(matches!(&error, ServeError::Load { source } if source.to_string() == "no such file"));
}

/// Case F5.
#[test]
fn draining_finishes_streams_refuses_new_requests_and_closes_the_port() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    let running = setup.start();
    running.gate.allow(Some(3));
    let mut first = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_running", 1.0);
    let queued = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_waiting{", 1.0);
    running.shutdown.signal();
    running.wait_for(Phase::Draining);
    assert_eq!(running.get("/livez").status, 200);
    assert_eq!(
        running.get("/readyz").json()["error"]["message"],
        "Shutting down"
    );
    let reply = running.post("/v1/chat/completions", &chat());
    assert!(reply.header("retry-after").is_some());
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(refusal(reply).2, "shutting_down");
    running.gate.allow(None);
    let mut text = String::new();
    while let Some(chunk) = first.next_json() {
        text += chunk["choices"][0]["delta"]["content"]
            .as_str()
            .unwrap_or("");
    }
    assert_eq!(
        text, "abcdefghijklmnopqrstuvwxyz",
        "running answers are finished"
    );
    let frames = queued.all();
    assert_eq!(
        frames.len(),
        29,
        "and queued ones: role, letters, end, [DONE]"
    );
    let address = running.address;
    assert_eq!(running.outcome().unwrap(), Outcome::Drained);
    assert!(TcpStream::connect(address).is_err(), "the port is free");
}

/// Case F5.
#[test]
fn past_the_drain_limit_streams_end_with_an_error_and_not_with_half_an_answer() {
    let mut setup = Setup::new().with_endless_context();
    setup.config.drain_limit = Duration::from_millis(50);
    setup.config.limits.answer_tokens_default = u32::MAX;
    let running = setup.start();
    let body = json!({"prompt": "E", "temperature": 0});
    let mut events = running.stream("/v1/completions", &body);
    events.next_json().expect("it is being answered");
    let whole = {
        let address = running.address;
        std::thread::spawn(move || {
            let body = json!({"prompt": "E", "temperature": 0}).to_string();
            let head = "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json";
            crate::http::send(address, head, body.as_bytes())
        })
    };
    running.until("vllm:num_requests_running", 2.0);
    running.shutdown.signal();
    let frames = events.all();
    let [.., Frame::Json(terminal), Frame::Json(error), Frame::Done] = &frames[frames.len() - 4..]
    else {
        panic!("{:?}", &frames[frames.len() - 4..]);
    };
    assert_eq!(terminal["choices"][0]["finish_reason"], "abort");
    assert_eq!(error["error"]["code"], "shutting_down");
    let (status, _, code) = refusal(whole.join().unwrap());
    assert_eq!((status, code.as_str()), (503, "shutting_down"));
    assert_eq!(running.outcome().unwrap(), Outcome::Drained);
}

#[test]
fn answers_end_explicitly_even_if_the_engine_is_stuck_in_a_step() {
    let mut setup = Setup::new();
    setup.config.drain_limit = Duration::from_millis(50);
    let running = setup.start();
    running.gate.allow(Some(2));
    let mut events = running.stream("/v1/chat/completions", &chat());
    let several = json!({"prompt": ["E", "E"], "temperature": 0});
    let queued = running.stream("/v1/completions", &several);
    events.next_json().expect("it is being answered");
    running.until("fulcrum_requests_arrived_total", 3.0);
    running.shutdown.signal();
    for (frames, num_choices) in [(events.all(), 1), (queued.all(), 2)] {
        let [.., Frame::Json(error), Frame::Done] = frames.as_slice() else {
            panic!("{frames:?}");
        };
        assert_eq!(error["error"]["code"], "shutting_down");
        let text = format!("{frames:?}");
        assert_eq!(text.matches("abort").count(), num_choices, "{text}");
    }
    assert_eq!(running.outcome().unwrap(), Outcome::Drained);
}

#[test]
fn a_drain_limit_beyond_all_clocks_is_no_limit() {
    let mut setup = Setup::new();
    setup.config.drain_limit = Duration::MAX;
    let running = setup.start();
    running.gate.allow(Some(2));
    let mut events = running.stream("/v1/chat/completions", &chat());
    events.next_json().expect("it is being answered");
    running.shutdown.signal();
    running.wait_for(Phase::Draining);
    running.gate.allow(None);
    assert_eq!(events.all().last(), Some(&Frame::Done));
    assert_eq!(running.outcome().unwrap(), Outcome::Drained);
}

#[test]
fn when_the_engine_ends_by_itself_answers_end_explicitly_and_the_server_says_why() {
    let Setup { config, model } = Setup::new();
    let gate = std::sync::Arc::clone(&model.gate);
    let (send_engine, engine) = mpsc::channel();
    let running = Running::start(config, gate, move || {
        let mut loaded = model.load();
        let start = loaded.start_engine;
        loaded.start_engine = Box::new(move |observer| {
            let (engine, thread) = start(observer);
            send_engine.send(engine.clone()).unwrap();
            (engine, thread)
        });
        Ok(loaded)
    });
    running.wait_for(Phase::Ready);
    running.gate.allow(Some(2));
    let mut events = running.stream("/v1/chat/completions", &chat());
    events.next_json().expect("it is being answered");
    engine.recv().unwrap().drain(Duration::ZERO);
    running.gate.allow(None);
    let frames = events.all();
    let [.., Frame::Json(_), Frame::Json(error), Frame::Done] = frames.as_slice() else {
        panic!("{frames:?}");
    };
    assert_eq!(error["error"]["type"], "unavailable_error");
    assert!(matches!(running.outcome(), Err(ServeError::EngineEnded)));
}

/// Case F5.
#[test]
fn a_client_that_does_not_read_cannot_hold_up_the_end() {
    let mut setup = Setup::new().with_endless_context();
    setup.config.drain_limit = Duration::from_millis(50);
    setup.config.limits.answer_tokens_default = u32::MAX;
    let running = setup.start();
    let mut events = running.stream("/v1/completions", &json!({"prompt": "E", "temperature": 0}));
    events.next_json().expect("it is being answered");
    running.shutdown.signal();
    let began = Instant::now();
    assert_eq!(running.outcome().unwrap(), Outcome::Drained);
    assert!(began.elapsed() < DEADLINE);
    drop(events);
}

/// Case F5.
#[test]
fn told_twice_the_server_stops_at_once() {
    let running = Setup::new().start();
    running.gate.allow(Some(2));
    let mut events = running.stream("/v1/chat/completions", &chat());
    events.next_json().unwrap();
    running.shutdown.signal();
    running.wait_for(Phase::Draining);
    running.shutdown.signal();
    // The engine is held in a step, and still the server ends.
    assert_eq!(running.outcome().unwrap(), Outcome::Stopped);
}

/// Case F4.
#[test]
fn a_step_that_takes_long_holds_up_neither_health_nor_metrics() {
    let running = Setup::new().start();
    running.gate.allow(Some(0));
    let events: Vec<_> = (0..12)
        .map(|_| running.stream("/v1/chat/completions", &chat()))
        .collect();
    for _ in 0..20 {
        assert_eq!(running.get("/livez").status, 200);
        assert_eq!(running.get("/readyz").status, 200);
        assert_eq!(running.get("/metrics").status, 200);
    }
    running.gate.allow(None);
    for stream in events {
        assert_eq!(stream.all().last(), Some(&Frame::Done));
    }
}

/// Case F4.
#[test]
fn two_hundred_answers_under_way_or_waiting_leave_health_alone() {
    const NUM_STREAMS: usize = 200;
    let mut setup = Setup::new();
    setup.model.limits.num_waiting_max = NUM_STREAMS;
    setup.model.limits.num_waiting_tokens_max = 1 << 20;
    let running = setup.start();
    running.gate.allow(Some(0));
    let open = |_| running.stream("/v1/chat/completions", &chat());
    let streams: Vec<_> = (0..NUM_STREAMS).map(open).collect();
    running.until("fulcrum_http_connections", NUM_STREAMS as f64 + 1.0);
    for path in ["/livez", "/readyz"] {
        assert_eq!(running.get(path).status, 200, "{path}");
    }
    running.gate.allow(None);
    for stream in streams {
        assert_eq!(stream.all().last(), Some(&Frame::Done));
    }
}

#[test]
fn a_step_loop_that_stands_still_turns_health_red_until_it_moves_again() {
    let mut setup = Setup::new();
    setup.config.stall_limit = Duration::from_millis(100);
    let running = setup.start();
    assert_eq!(running.get("/livez").json()["engine"], "idle");
    running.gate.allow(Some(0));
    let events = running.stream("/v1/chat/completions", &chat());
    let began = Instant::now();
    let until = |path: &str, wanted: u16| loop {
        let reply = running.get(path);
        if reply.status == wanted {
            return reply;
        }
        assert!(began.elapsed() < DEADLINE, "{path} is {}", reply.status);
    };
    let red = until("/livez", 503);
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert!(red.header("retry-after").is_some());
    let message = red.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("The engine has work and has ended no step for"),
        "{message}"
    );
    assert_eq!(running.get("/readyz").status, 503);
    // Its client gives up; the work is in the engine's hands all the same.
    drop(events);
    assert_eq!(running.get("/livez").status, 503);
    running.gate.allow(None);
    until("/livez", 200);
    until("/readyz", 200);
    running.canary();
    running.until("fulcrum_last_step_age_seconds", 0.0);
}

#[test]
fn a_server_whose_queue_is_full_is_alive_but_not_ready() {
    let mut setup = Setup::new();
    setup.model.limits.num_sequences_max = 1;
    setup.model.limits.num_waiting_max = 1;
    let running = setup.start();
    running.gate.allow(Some(1));
    let _running_one = running.stream("/v1/chat/completions", &chat());
    running.until("vllm:num_requests_running", 1.0);
    assert_eq!(running.get("/readyz").status, 200);
    let waiting = running.stream("/v1/chat/completions", &chat());
    let reply = running.get("/readyz");
    assert_eq!(reply.status, 503);
    assert!(reply.header("retry-after").is_some());
    assert_eq!(reply.json()["error"]["message"], "The queue is full");
    let live = running.get("/livez");
    assert_eq!(
        (live.status, live.json()["engine"].clone()),
        (200, json!("busy"))
    );
    running.gate.allow(None);
    assert_eq!(waiting.all().last(), Some(&Frame::Done));
    assert_eq!(running.get("/readyz").status, 200);
}

#[test]
fn a_server_without_a_name_for_its_model_does_not_start() {
    let mut config = crate::harness::config();
    config.served_names.clear();
    assert!(matches!(
        server::Server::bind(config),
        Err(ServeError::NoName)
    ));
}

#[test]
fn an_origin_that_could_never_match_is_refused_before_the_start() {
    for origin in [
        "",
        "app.example",
        "https://app.example/",
        "https://",
        "https://ä",
    ] {
        let mut config = crate::harness::config();
        config.allowed_origins = vec!["https://app.example:3000".to_owned(), origin.to_owned()];
        let refused = server::Server::bind(config);
        assert!(
            matches!(&refused, Err(ServeError::BadOrigin { origin: named }) if named == origin),
            "{origin:?}"
        );
    }
}

#[test]
fn an_address_in_use_is_named() {
    let running = Setup::new().start();
    let mut config = crate::harness::config();
    config.address = running.address;
    let error = server::Server::bind(config).unwrap_err();
    assert!(
        error.to_string().contains(&running.address.to_string()),
        "{error}"
    );
}
