//! A stand-in for the Hugging Face hub: two hosts on this machine, the hub itself and the store of its large files.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the stand-in has and how it misbehaves.
#[derive(Clone, Default)]
pub struct Script {
    /// Path to content. Those that end in `.gguf` or `.safetensors` are large: named by SHA-256, kept by the store.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Without this token everything is 401.
    pub token: Option<String>,
    /// The first answer of the store breaks off after so many bytes.
    pub cut_after: Option<usize>,
    /// The first questions of the hub are answered 503.
    pub num_troubled: usize,
    /// The store knows no ranges.
    pub without_ranges: bool,
    /// What the store sends instead of the content.
    pub forged: Option<Vec<u8>>,
}

/// A running stand-in; stops when dropped.
pub struct Hub {
    pub address: SocketAddr,
    hosts: Vec<Host>,
    heads: Arc<Mutex<Vec<String>>>,
}

struct Host {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread from waiting for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Hub {
    pub fn start(script: Script) -> Hub {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let state = Arc::new(Mutex::new(script));
        let store = listen();
        let hub = listen();
        let (store_address, address) = (local(&store), local(&hub));
        let store_state = Arc::clone(&state);
        let hosts = vec![
            serve(store, Arc::clone(&heads), move |head| {
                from_store(&store_state, head)
            }),
            serve(hub, Arc::clone(&heads), move |head| {
                from_hub(&state, store_address, head)
            }),
        ];
        Hub {
            address,
            hosts,
            heads,
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of all requests so far, those of the store marked by `STORE`.
    pub fn heads(&self) -> Vec<String> {
        let store = self.hosts[0].address.to_string();
        let heads = self.heads.lock().expect("nobody panics with it");
        let marked = |head: &String| match head
            .to_ascii_lowercase()
            .contains(&format!("host: {store}"))
        {
            true => format!("STORE {head}"),
            false => head.clone(),
        };
        heads.iter().map(marked).collect()
    }
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("loopback has a free port")
}

fn local(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("it is bound")
}

fn serve(
    listener: TcpListener,
    heads: Arc<Mutex<Vec<String>>>,
    answer: impl Fn(&str) -> Vec<u8> + Send + 'static,
) -> Host {
    let address = local(&listener);
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        for connection in listener.incoming() {
            if seen.load(Ordering::Acquire) {
                return;
            }
            let Ok(mut connection) = connection else {
                return;
            };
            let head = read_head(&mut connection);
            if head.is_empty() {
                continue;
            }
            heads
                .lock()
                .expect("nobody panics with it")
                .push(head.clone());
            // A client that has gone away is its own business.
            let _ = connection.write_all(&answer(&head));
        }
    });
    Host {
        address,
        is_over,
        thread: Some(thread),
    }
}

fn read_head(connection: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|num| num == 1) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap_or_default()
}

fn header(head: &str, name: &str) -> Option<String> {
    let find = |line: &str| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    };
    head.lines().find_map(find)
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn is_large(path: &str) -> bool {
    path.ends_with(".gguf") || path.ends_with(".safetensors")
}

pub fn etag(path: &str, content: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if is_large(path) {
        hex(&Sha256::digest(content))
    } else {
        let header = format!("blob {}\0", content.len());
        hex(&Sha1::digest([header.as_bytes(), content].concat()))
    }
}

fn from_hub(state: &Mutex<Script>, store: SocketAddr, head: &str) -> Vec<u8> {
    let mut script = state.lock().expect("nobody panics with it");
    if script.num_troubled > 0 {
        script.num_troubled -= 1;
        return response("503 Service Unavailable", "Content-Length: 0\r\n", b"");
    }
    if let Some(token) = &script.token
        && header(head, "authorization") != Some(format!("Bearer {token}"))
    {
        let headers = "X-Error-Message: Access to model a/b is restricted\r\nContent-Length: 0\r\n";
        return response("401 Unauthorized", headers, b"");
    }
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if target.starts_with("/api/models/a/b/revision/main") {
        let siblings: Vec<_> = script
            .files
            .iter()
            .map(|(path, content)| serde_json::json!({"rfilename": path, "size": content.len()}))
            .collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        return response(
            "200 OK",
            &format!("Content-Length: {}\r\n", body.len()),
            body.as_bytes(),
        );
    }
    let path = target.strip_prefix(&format!("/a/b/resolve/{COMMIT}/"));
    let Some((path, content)) = path.and_then(|path| script.files.get_key_value(path)) else {
        return response("404 Not Found", "Content-Length: 0\r\n", b"");
    };
    let etag = etag(path, content);
    if is_large(path) {
        let headers = format!(
            "Location: http://{store}/{path}\r\nX-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {}\r\nContent-Length: 0\r\n",
            content.len()
        );
        return response("302 Found", &headers, b"");
    }
    let headers = format!(
        "X-Repo-Commit: {COMMIT}\r\nETag: \"{etag}\"\r\nContent-Length: {}\r\n",
        content.len()
    );
    let body: &[u8] = if method == "HEAD" { b"" } else { content };
    response("200 OK", &headers, body)
}

fn from_store(state: &Mutex<Script>, head: &str) -> Vec<u8> {
    let mut script = state.lock().expect("nobody panics with it");
    let path = head
        .split_whitespace()
        .nth(1)
        .unwrap_or("")
        .trim_start_matches('/');
    let content = script
        .forged
        .clone()
        .or_else(|| script.files.get(path).cloned())
        .unwrap_or_default();
    let range = header(head, "range").and_then(|range| {
        let first = range.strip_prefix("bytes=")?.strip_suffix('-')?;
        first.parse::<usize>().ok()
    });
    let (status, first) = match range {
        Some(first) if !script.without_ranges => ("206 Partial Content", first.min(content.len())),
        _ => ("200 OK", 0),
    };
    let body = &content[first..];
    let headers = format!("Content-Length: {}\r\n", body.len());
    let num_sent = script
        .cut_after
        .take()
        .unwrap_or(body.len())
        .min(body.len());
    response(status, &headers, &body[..num_sent])
}
