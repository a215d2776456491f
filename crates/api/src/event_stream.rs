//! Server-sent events: the reading side.
//!
//! The one idea: bytes go in as sockets deliver them, and what comes out does not depend on where they were
//! cut. So the state is one line, one event, and whether the last byte was a carriage return. Lines end in LF, CR or
//! CRLF, in any mixture; UTF-8 is nobody's business here, because a character may be cut as well.
//!
//! Two departures from the standard, both for the sake of what servers do: an event counts although the
//! stream ends without the empty line after it ([`Reader::finish`]), and comments are told, because they show life.
//!
//! Not here: what an event means. Source: the HTML standard, "Server-sent events".

/// The end of a stream by OpenAI's convention, as data of an event.
pub const DONE: &[u8] = b"[DONE]";

/// What a stream brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event with data.
    Event(Event),
    /// A line that begins with a colon: a sign of life.
    Comment,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field; empty if there was none.
    pub name: Vec<u8>,
    /// The `data:` fields, joined by line feeds.
    pub data: Vec<u8>,
}

/// A line or an event is longer than the reader's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {num_bytes_max} bytes")]
pub struct TooLong {
    /// The bound.
    pub num_bytes_max: usize,
}

/// Reads one stream.
#[derive(Clone, Debug)]
pub struct Reader {
    num_bytes_max: usize,
    line: Vec<u8>,
    event: Event,
    /// At least one `data:` field, maybe an empty one.
    has_data: bool,
    /// The last byte ended a line; a line feed now belongs to it.
    is_after_return: bool,
    /// A byte order mark may stand before the first line only.
    is_first_line: bool,
}

impl Reader {
    /// A reader that holds at most `num_bytes_max` bytes of a line and as many of an event.
    pub fn new(num_bytes_max: usize) -> Reader {
        Reader {
            num_bytes_max,
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            is_after_return: false,
            is_first_line: true,
        }
    }

    /// Takes the next bytes and calls `each` for everything that they complete.
    ///
    /// # Errors
    ///
    /// [`TooLong`]; the stream is then of no more use.
    ///
    /// # Cost
    ///
    /// Linear in `bytes`; one copy.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Item)) -> Result<(), TooLong> {
        let mut rest = bytes;
        if self.is_after_return && !rest.is_empty() {
            self.is_after_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            self.hold(&rest[..end])?;
            let ended_by = rest[end];
            rest = &rest[end + 1..];
            if ended_by == b'\r' {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.is_after_return = true,
                }
            }
            if let Some(item) = self.end_line()? {
                each(item);
            }
        }
        self.hold(rest)
    }

    /// The event that the stream broke off after, if its last line was whole or at least begun.
    pub fn finish(mut self) -> Option<Event> {
        if !self.line.is_empty() {
            // Beyond the bound there is nothing to tell.
            self.end_line().ok()?;
        }
        self.has_data.then_some(self.event)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.expect_room(self.line.len() + bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn expect_room(&self, num_bytes: usize) -> Result<(), TooLong> {
        let num_bytes_max = self.num_bytes_max;
        if num_bytes > num_bytes_max {
            return Err(TooLong { num_bytes_max });
        }
        Ok(())
    }

    /// What the line that is now whole means.
    fn end_line(&mut self) -> Result<Option<Item>, TooLong> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_first_line) && line.starts_with(b"\xEF\xBB\xBF") {
            line.drain(..3);
        }
        let item = match line.as_slice() {
            [] => self.end_event(),
            [b':', ..] => Some(Item::Comment),
            line => {
                self.take_field(line)?;
                None
            }
        };
        // The allocation serves the next line.
        line.clear();
        self.line = line;
        Ok(item)
    }

    /// An event without data is none, and forgets its name.
    fn end_event(&mut self) -> Option<Item> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(Item::Event(event))
    }

    fn take_field(&mut self, line: &[u8]) -> Result<(), TooLong> {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                self.expect_room(self.event.data.len() + 1 + value.len())?;
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.name = value.to_vec(),
            // `id` and `retry` are for reconnecting, which nobody does here; the rest is nobody's.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<Item> {
        let mut reader = Reader::new(1 << 20);
        let mut items = Vec::new();
        for chunk in chunks {
            reader
                .push(chunk, |item| items.push(item))
                .expect("short enough");
        }
        items.extend(reader.finish().map(Item::Event));
        items
    }

    fn data(text: &str) -> Item {
        Item::Event(Event {
            name: Vec::new(),
            data: text.as_bytes().to_vec(),
        })
    }

    #[test]
    fn an_event_is_its_data_up_to_an_empty_line() {
        assert_eq!(
            read(&[b"data: one\n\ndata: two\n\n"]),
            [data("one"), data("two")]
        );
    }

    #[test]
    fn one_space_after_the_colon_is_no_data_and_may_be_left_out() {
        assert_eq!(
            read(&[b"data:{}\n\ndata:  x \n\ndata\n\n"]),
            [data("{}"), data(" x "), data("")]
        );
    }

    #[test]
    fn several_data_lines_are_one_event() {
        assert_eq!(read(&[b"data: {\ndata: }\n\n"]), [data("{\n}")]);
    }

    #[test]
    fn lines_end_in_any_of_three_ways() {
        let expected = [data("a"), Item::Comment, data("b\nc")];
        for text in [
            "data: a\n\n: ping\n\ndata: b\ndata: c\n\n",
            "data: a\r\n\r\n: ping\r\n\r\ndata: b\r\ndata: c\r\n\r\n",
            "data: a\r\r: ping\r\rdata: b\rdata: c\r\r",
            "data: a\r\n\n: ping\n\r\ndata: b\rdata: c\n\r",
        ] {
            assert_eq!(read(&[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn where_the_bytes_are_cut_makes_no_difference() {
        let text = "\u{feff}event: error\r\ndata: {\"a\":\"\u{1f600}\"}\r\n\r\n: ping\r\rid: 7\ndata: x\ny: z\n\nretry: 1\n\ndata: [DONE]";
        let whole = read(&[text.as_bytes()]);
        assert_eq!(whole.len(), 4);
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(&single), whole);
        for at in 0..text.len() {
            let (head, tail) = text.as_bytes().split_at(at);
            assert_eq!(read(&[head, b"", tail]), whole, "cut at {at}");
        }
    }

    #[test]
    fn an_event_has_a_name_and_one_without_data_is_none() {
        let named = Item::Event(Event {
            name: b"error".to_vec(),
            data: b"x".to_vec(),
        });
        assert_eq!(
            read(&[b"event: lost\n\nevent: error\ndata: x\n\ndata: y\n\n"]),
            [named, data("y")]
        );
    }

    #[test]
    fn an_event_that_the_stream_ends_in_is_told() {
        assert_eq!(
            read(&[b"data: a\n\ndata: [DONE]\n"]),
            [data("a"), data("[DONE]")]
        );
        assert_eq!(read(&[b"data: [DONE]"]), [data("[DONE]")]);
        assert_eq!(read(&[b": ping"]), []);
    }

    #[test]
    fn a_line_or_event_without_end_costs_bounded_memory() {
        let mut reader = Reader::new(100);
        let long = reader.push(&[b'x'; 101], |_| {});
        assert_eq!(long, Err(TooLong { num_bytes_max: 100 }));
        let mut reader = Reader::new(100);
        let outcome = (0..100).try_for_each(|_| reader.push(b"data: 0123456789\n", |_| {}));
        assert_eq!(outcome, Err(TooLong { num_bytes_max: 100 }));
    }
}
