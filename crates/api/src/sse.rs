//! Framing of server-sent events: the writing side.
//!
//! A frame is `data: `, one line of JSON, and an empty line. JSON text holds no raw line
//! breaks, so one line is always enough.
//!
//! Source: the HTML standard, "Server-sent events".

use serde::Serialize;

/// The last frame of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A comment: clients skip it, proxies see life.
pub const PING: &[u8] = b": ping\n\n";

/// A document as one frame.
///
/// # Panics
///
/// If the document cannot be JSON; the types of [`crate::answer`] always can.
pub fn frame<T: Serialize>(document: &T) -> Vec<u8> {
    let mut frame = b"data: ".to_vec();
    serde_json::to_writer(&mut frame, document).expect("answers are made of strings and numbers");
    frame.extend_from_slice(b"\n\n");
    frame
}

/// A document as one frame that names its event.
///
/// # Panics
///
/// As [`frame`], and if `name` has a line break.
pub fn event<T: Serialize>(name: &str, document: &T) -> Vec<u8> {
    assert!(
        !name.contains(['\r', '\n']),
        "a line break would end the name"
    );
    let mut event = format!("event: {name}\n").into_bytes();
    event.extend(frame(document));
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_in_the_text_does_not_break_the_frame() {
        let frame = frame(&"one\ntwo\r\n");
        assert_eq!(frame, b"data: \"one\\ntwo\\r\\n\"\n\n");
    }

    #[test]
    fn a_named_event_says_its_name_first() {
        let event = event("message_stop", &1);
        assert_eq!(event, b"event: message_stop\ndata: 1\n\n");
    }
}
