//! Every route but health needs a key, however it is spelled. Case F1.

use serde_json::json;

use crate::harness::{Running, Setup, chat, refusal};
use crate::http::{self, Reply};

const ROUTES: &[(&str, &str)] = &[
    ("POST", "/v1/chat/completions"),
    ("POST", "/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/version"),
    ("GET", "/metrics"),
];

fn ask(running: &Running, method: &str, path: &str, headers: &str) -> Reply {
    let body = if method == "POST" {
        chat().to_string()
    } else {
        String::new()
    };
    let head = format!("{method} {path} HTTP/1.1\r\ncontent-type: application/json{headers}");
    http::send(running.address, &head, body.as_bytes())
}

/// Case F1.
#[test]
fn every_route_but_health_needs_a_key() {
    let running = Setup::new().with_keys(&["sk-one", "sk-two"]).start();
    for (method, path) in ROUTES {
        for headers in [
            "",
            "\r\nauthorization: Bearer wrong",
            "\r\nauthorization: Bearer sk-on",
            "\r\nauthorization: Bearer sk-one2",
            "\r\nauthorization: Bearer",
            "\r\nauthorization: Bearer ",
            "\r\nauthorization: sk-one",
            "\r\nauthorization: Basic sk-one",
            "\r\nauthorization: Bearer sk-one\r\nauthorization: Bearer sk-one",
            "\r\nx-api-key: ",
            "\r\nx-api-key: wrong",
            "\r\nx-api-key: wrong\r\nauthorization: Bearer sk-one",
        ] {
            let (status, _, code) = refusal(ask(&running, method, path, headers));
            assert_eq!(
                (status, code.as_str()),
                (401, "invalid_api_key"),
                "{path} {headers:?}"
            );
        }
        for headers in [
            "\r\nauthorization: Bearer sk-one",
            "\r\nauthorization: bearer sk-two",
            "\r\nAUTHORIZATION: BEARER sk-two",
            "\r\nx-api-key: sk-one",
        ] {
            assert_ne!(
                ask(&running, method, path, headers).status,
                401,
                "{path} {headers:?}"
            );
        }
        let in_query = format!("{path}?api_key=sk-one&key=sk-one");
        assert_eq!(ask(&running, method, &in_query, "").status, 401);
    }
}

/// Case F1.
#[test]
fn no_operation_that_the_server_lists_answers_without_a_key() {
    let running = Setup::new().with_keys(&["sk-one"]).start();
    let key = "\r\nauthorization: Bearer sk-one";
    let document = ask(&running, "GET", "/openapi.json", key).json();
    let mut num_asked = 0;
    for (path, operations) in document["paths"].as_object().expect("paths") {
        if server::PUBLIC_PATHS.contains(&path.as_str()) {
            continue;
        }
        let path = path
            .replace("{response_id}", "resp_1")
            .replace("{model}", "tiny");
        for method in operations.as_object().expect("operations").keys() {
            let method = method.to_uppercase();
            for headers in [
                "",
                "\r\nauthorization: Bearer wrong",
                "\r\nx-api-key: sk-on",
            ] {
                assert_eq!(
                    ask(&running, &method, &path, headers).status,
                    401,
                    "{method} {path}"
                );
            }
            assert_ne!(
                ask(&running, &method, &path, key).status,
                401,
                "{method} {path}"
            );
            num_asked += 1;
        }
    }
    assert!(num_asked > ROUTES.len(), "{num_asked}");
}

#[test]
fn the_reference_page_names_every_route_and_marks_the_open_ones() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/http-api.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    let row = |path: &str| {
        let name = format!("`{path}`");
        let found = page
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&name));
        found
            .unwrap_or_else(|| panic!("{path} is documented"))
            .to_owned()
    };
    for (_, path) in ROUTES.iter().filter(|(_, path)| !path.ends_with("/tiny")) {
        assert!(row(path).ends_with("| yes |"), "{path}");
    }
    for path in server::PUBLIC_PATHS {
        assert!(row(path).ends_with("| no |"), "{path}");
    }
}

/// Case F1.
#[test]
fn health_needs_no_key() {
    let running = Setup::new().with_keys(&["sk-one"]).start();
    for path in server::PUBLIC_PATHS {
        assert_eq!(running.get(path).status, 200, "{path}");
    }
    let mut listed = server::PUBLIC_PATHS.to_vec();
    listed.sort_unstable();
    assert_eq!(listed, ["/health", "/livez", "/ping", "/ready", "/readyz"]);
}

/// Case F1.
#[test]
fn another_spelling_of_a_path_opens_nothing() {
    let running = Setup::new().with_keys(&["sk-one"]).start();
    let spellings = [
        "//v1/models",
        "/v1//models",
        "/v1/models/",
        "/v1/%6dodels",
        "/V1/models",
        "/v1/./models",
        "/health/../v1/models",
        "/health/../metrics",
        "/livez/",
        "//livez",
        "/%6civez",
        "/livez%2f..%2fmetrics",
        "/metrics/",
        "/metrics;x",
        "/nothing",
        "/",
        "/health%00",
        "/docs",
        "/openapi.json",
        "/slots",
        "/props",
    ];
    for path in spellings {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "PUT", "TRACE"] {
            let reply = ask(&running, method, path, "");
            assert_eq!(reply.status, 401, "{method} {path}");
        }
    }
    for (_, path) in ROUTES {
        for method in ["HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"] {
            assert_eq!(
                ask(&running, method, path, "").status,
                401,
                "{method} {path}"
            );
        }
    }
    // With the key they are what they are: no such route.
    assert_eq!(
        ask(&running, "GET", "/v1/models/", "\r\nx-api-key: sk-one").status,
        404
    );
    assert_eq!(
        ask(&running, "GET", "/nothing", "\r\nx-api-key: sk-one").status,
        404
    );
}

/// Case F1.
#[test]
fn a_request_target_with_an_authority_opens_nothing() {
    let running = Setup::new().with_keys(&["sk-one"]).start();
    let reply = ask(&running, "GET", "http://test/v1/models", "");
    assert_eq!(reply.status, 401);
}

#[test]
fn without_keys_everything_is_open() {
    let running = Setup::new().start();
    assert_eq!(running.get("/v1/models").status, 200);
    let body = json!({"prompt": "5", "temperature": 0});
    assert_eq!(running.post("/v1/completions", &body).status, 200);
}
