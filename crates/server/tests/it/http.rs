//! A client that hides nothing: it writes bytes, and shows status, headers and body as
//! they came. One request per connection, blocking, every wait with a deadline.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// No answer within this is a failed test.
const DEADLINE: Duration = Duration::from_secs(30);

/// A response, or the part of one that was read so far.
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
}

/// Sends a request and reads the response's head.
pub fn send(address: SocketAddr, head: &str, body: &[u8]) -> Reply {
    try_send(address, head, body).expect("an answer")
}

/// As [`send`], where the server may close the connection instead.
pub fn try_send(address: SocketAddr, head: &str, body: &[u8]) -> std::io::Result<Reply> {
    let mut socket = connect(address);
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("content-length: {}\r\n", body.len())
    };
    let head = format!("{head}\r\nhost: test\r\nconnection: close\r\n{length}\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)?;
    read_head(socket)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("the server listens");
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.set_write_timeout(Some(DEADLINE)).unwrap();
    socket
}

/// Reads a response's head from a connection.
pub fn read_head(socket: TcpStream) -> std::io::Result<Reply> {
    let mut reader = BufReader::new(socket);
    let status_line = read_line(&mut reader)?;
    let status = status_line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status =
        status.ok_or_else(|| std::io::Error::other(format!("no status: {status_line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(&mut reader)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Reply {
        status,
        headers,
        reader,
    })
}

fn read_line(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding") == Some("chunked")
    }

    /// The next part of the body, `None` at its end, an error if it breaks off.
    fn part(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if !self.is_chunked() {
            let mut rest = Vec::new();
            self.reader.read_to_end(&mut rest)?;
            return Ok((!rest.is_empty()).then_some(rest));
        }
        let size = read_line(&mut self.reader)?;
        let size = usize::from_str_radix(&size, 16).map_err(std::io::Error::other)?;
        let mut part = vec![0; size];
        self.reader.read_exact(&mut part)?;
        read_line(&mut self.reader)?;
        Ok((size > 0).then_some(part))
    }

    /// The whole body, which must be UTF-8.
    pub fn text(mut self) -> String {
        let mut bytes = Vec::new();
        while let Some(part) = self.part().expect("the body ends properly") {
            bytes.extend(part);
        }
        String::from_utf8(bytes).expect("bodies are UTF-8")
    }

    pub fn json(self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The body as server-sent events.
    pub fn events(self) -> Events {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        Events {
            reply: self,
            pending: Vec::new(),
        }
    }
}

/// Server-sent events as they come. Dropping it closes the connection.
pub struct Events {
    reply: Reply,
    pending: Vec<u8>,
}

/// One frame of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// `data: {…}`.
    Json(Value),
    /// `event: NAME`, then `data: {…}`.
    Event(String, Value),
    /// `data: [DONE]`.
    Done,
    /// `: …`.
    Comment(String),
}

impl Events {
    /// The next frame; `None` at the end of the body.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let end = self.pending.windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let frame: Vec<u8> = self.pending.drain(..end + 2).collect();
                return Some(frame_of(&frame[..end]));
            }
            match self.reply.part().expect("the stream ends properly") {
                Some(part) => self.pending.extend(part),
                None => {
                    assert!(self.pending.is_empty(), "half a frame at the end");
                    return None;
                }
            }
        }
    }

    /// The next frame that is no comment.
    pub fn next_json(&mut self) -> Option<Value> {
        loop {
            match self.next_frame()? {
                Frame::Json(value) | Frame::Event(_, value) => return Some(value),
                Frame::Done => return None,
                Frame::Comment(_) => {}
            }
        }
    }

    /// All frames to the end of the body.
    pub fn all(mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }
}

fn frame_of(bytes: &[u8]) -> Frame {
    // A frame on its own must be UTF-8: no character is cut between two.
    let text = std::str::from_utf8(bytes).expect("frames are UTF-8");
    if let Some(comment) = text.strip_prefix(':') {
        return Frame::Comment(comment.trim().to_owned());
    }
    if let Some(event) = text.strip_prefix("event: ") {
        let (name, rest) = event.split_once('\n').expect("data follows the name");
        return match frame_of(rest.as_bytes()) {
            Frame::Json(value) => Frame::Event(name.to_owned(), value),
            other => panic!("a named event has JSON: {other:?}"),
        };
    }
    match text
        .strip_prefix("data: ")
        .unwrap_or_else(|| panic!("a strange frame: {text:?}"))
    {
        "[DONE]" => Frame::Done,
        json => Frame::Json(
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}")),
        ),
    }
}
