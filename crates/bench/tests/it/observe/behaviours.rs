//! Twenty-five behaviours of servers, and the traps beside them, as a table: what is sent, and what is to be made of it.
//!
//! Each is read with four line ends, and whole, byte by byte, cut in two at every place, and cut at random places:
//! the record must be the same but for the times.

use bench::observe::{Flag, LIMITS, Status, StreamEnd, Wait};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{DONE_EVENT, delta, event, finish, joined, role, text, usage};
use crate::walk::{self, timeless};

/// A server's conduct and the outcome that is right.
struct Behaviour {
    /// Its number in the list of behaviours; 0 for a trap.
    row: u8,
    what: &'static str,
    http_status: u16,
    sent: Vec<u8>,
    end: StreamEnd,
    status: Status,
    /// Arrivals of content.
    num_marks: usize,
    num_tokens: Option<u64>,
    flags: &'static [Flag],
}

/// A stream that ends as HTTP says, after 200.
fn stream(
    row: u8,
    what: &'static str,
    sent: impl Into<Vec<u8>>,
    (status, num_marks, num_tokens): (Status, usize, Option<u64>),
) -> Behaviour {
    Behaviour {
        row,
        what,
        http_status: 200,
        sent: sent.into(),
        end: StreamEnd::Closed,
        status,
        num_marks,
        num_tokens,
        flags: &[],
    }
}

impl Behaviour {
    fn ending(mut self, end: StreamEnd) -> Behaviour {
        self.end = end;
        self
    }

    fn flagged(mut self, flags: &'static [Flag]) -> Behaviour {
        self.flags = flags;
        self
    }

    fn with_status(mut self, http_status: u16) -> Behaviour {
        self.http_status = http_status;
        self
    }
}

fn two_tokens() -> String {
    joined(&[text("a"), text("b"), finish("stop"), usage(2)])
}

fn good() -> (Status, usize, Option<u64>) {
    (Status::Ok, 2, Some(2))
}

fn counted(content: &str, num_tokens: u64) -> String {
    event(&format!(
        r#"{{"choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":null}}],"usage":{{"completion_tokens":{num_tokens}}}}}"#
    ))
}

fn of_choice(index: u32, content: &str, reason: &str) -> String {
    event(&format!(
        r#"{{"choices":[{{"index":{index},"delta":{{"content":"{content}"}},"finish_reason":{reason}}}]}}"#
    ))
}

/// Rows 1 to 13: what is said, and how the bytes say it.
fn forms() -> Vec<Behaviour> {
    let with_role = joined(&[role(), text("a"), text("b"), finish("stop"), usage(2)]);
    let in_every = joined(&[counted("a", 1), counted("b", 2), finish("stop"), usage(2)]);
    let beside = event(
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}"#,
    );
    let uncounted = joined(&[text("a"), text("b"), finish("stop")]);
    let suspect = |num| joined(&[text("a"), text("b"), finish("stop"), usage(num)]);
    let ids = event(
        r#"{"choices":[{"index":0,"delta":{"content":"abc"},"token_ids":[1,2,3],"finish_reason":"stop"}]}"#,
    );
    let letters = joined(&[
        text("\u{1f600}\r\n\u{e9}"),
        text("b"),
        finish("stop"),
        usage(2),
    ]);
    let pings = joined(&[
        ": ping\n\n".repeat(3),
        text("a"),
        ":\n\n\n\n".to_owned(),
        text("b"),
        ": ping\n".to_owned(),
        finish("stop"),
        usage(2),
    ]);
    let fields = joined(&[
        "event: message\nid: 1\nretry: 5\n".to_owned() + &text("a"),
        "id\nfoo: bar\n".to_owned() + &text("b"),
        finish("stop"),
        usage(2),
    ]);
    let lines = two_tokens().replace(r#","delta""#, ",\ndata: \"delta\"");
    let failed = "event: error\ndata: {\"message\":\"overloaded\"}\n\n".to_owned();
    vec![
        stream(1, "a role first", with_role, good()),
        stream(2, "usage in a chunk of its own", two_tokens(), good()),
        stream(3, "usage in every chunk", in_every, good()),
        stream(
            3,
            "usage beside the end",
            joined(&[text("a"), text("b"), beside]),
            good(),
        ),
        stream(4, "no usage", uncounted, (Status::Ok, 2, None)),
        stream(5, "usage of none", suspect(0), (Status::Ok, 2, Some(0)))
            .flagged(&[Flag::UsageSuspect]),
        stream(5, "usage below none", suspect(-3), (Status::Ok, 2, None))
            .flagged(&[Flag::UsageSuspect]),
        stream(5, "usage of too few", suspect(1), (Status::Ok, 2, Some(1)))
            .flagged(&[Flag::UsageSuspect]),
        stream(
            6,
            "three tokens at once",
            joined(&[ids]),
            (Status::Ok, 1, Some(3)),
        ),
        // Rows 7 to 9 are how every stream is read here: together, in pieces, and with other line ends.
        stream(8, "letters of several bytes", letters, good()),
        stream(
            9,
            "a byte order mark",
            "\u{feff}".to_owned() + &two_tokens(),
            good(),
        ),
        stream(
            9,
            "empty lines first",
            "\n\n".to_owned() + &two_tokens(),
            good(),
        ),
        stream(
            10,
            "no space",
            two_tokens().replace("data: ", "data:"),
            good(),
        ),
        stream(11, "comments", pings, good()),
        stream(12, "other fields", fields, good()),
        stream(
            12,
            "an event that is an error",
            joined(&[text("a"), failed]),
            (Status::ErrorEvent, 1, None),
        ),
        stream(13, "JSON on several lines", lines, good()),
    ]
}

/// Rows 14 to 19: how an answer ends.
fn ends() -> Vec<Behaviour> {
    let error = event(r#"{"error":{"message":"out of memory","code":500}}"#);
    let failed = joined(&[text("a"), error, finish("stop")]);
    let whole = [text("a"), text("b"), finish("stop"), usage(2)].concat();
    let ended = [text("a"), text("b"), finish("stop")].concat();
    let late = two_tokens() + &text("late") + ": ping\n\n" + &usage(9) + "data: {";
    let padded = joined(&[text("a"), text("b"), finish("stop"), role(), usage(2)]);
    let open = StreamEnd::TimedOut(Wait::Total);
    let missing: &[Flag] = &[Flag::MissingDone];
    vec![
        stream(
            14,
            "an error in the middle",
            failed,
            (Status::ErrorEvent, 1, None),
        ),
        stream(
            15,
            "the reason error",
            joined(&[text("a"), finish("error")]),
            (Status::ErrorEvent, 1, None),
        ),
        stream(
            15,
            "the reason abort",
            joined(&[text("a"), finish("abort")]),
            (Status::ErrorEvent, 1, None),
        ),
        stream(
            15,
            "no reason",
            joined(&[text("a")]),
            (Status::Truncated, 1, None),
        ),
        stream(
            15,
            "an empty reason",
            joined(&[of_choice(0, "a", r#""""#)]),
            (Status::Truncated, 1, None),
        ),
        stream(16, "closed after the usage", whole.as_str(), good()).flagged(missing),
        stream(
            16,
            "reset after the reason",
            ended.as_str(),
            (Status::Ok, 2, None),
        )
        .ending(StreamEnd::Reset)
        .flagged(missing),
        stream(
            16,
            "closed within the usage",
            ended + "data: {\"usa",
            (Status::Ok, 2, None),
        )
        .flagged(missing),
        stream(16, "closed within an empty line", whole.trim_end(), good()).flagged(missing),
        stream(
            16,
            "closed before the reason",
            text("a"),
            (Status::Truncated, 1, None),
        ),
        stream(
            16,
            "reset before the reason",
            text("a"),
            (Status::Truncated, 1, None),
        )
        .ending(StreamEnd::Reset),
        stream(
            16,
            "closed within an event",
            text("a") + "data: {\"choi",
            (Status::Truncated, 1, None),
        ),
        stream(17, "left open after the end", two_tokens(), good()).ending(open),
        stream(18, "more after the end", late, good()),
        stream(18, "padding before the end", padded, good()),
        stream(19, "only the end", DONE_EVENT, (Status::Empty, 0, None)),
        stream(19, "nothing", "", (Status::Empty, 0, None)),
        stream(
            19,
            "a reason without a token",
            joined(&[finish("stop")]),
            (Status::Empty, 0, None),
        ),
        stream(
            19,
            "a stop at once",
            joined(&[finish("stop"), usage(0)]),
            (Status::Ok, 0, Some(0)),
        ),
    ]
}

/// Rows 20 to 25: other output, other forms, refusals and silence.
fn others() -> Vec<Behaviour> {
    let reasoning = delta(r#"{"reasoning":"hm","reasoning_content":"hm","content":null}"#);
    let thinking = [text("<thi"), text("nk>hm</think>"), text("b")].concat();
    let call = delta(
        r#"{"content":null,"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}"#,
    );
    let odd = [
        r#"{"choices":null}"#,
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"new":[1]}"#,
        "null",
    ];
    let odd: String = odd.iter().map(|json| event(json)).collect();
    let document = r#"{"choices":[{"index":0,"message":{"content":"ab"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}"#;
    let whole = || stream(22, "a document", document, (Status::Ok, 0, Some(2)));
    let steady: Vec<String> = (0..20)
        .map(|_| text("a"))
        .chain([finish("stop"), usage(20)])
        .collect();
    let refusal = |what, status, body: &str| {
        stream(24, what, body, (Status::HttpError, 0, None)).with_status(status)
    };
    let stalled = |what, sent: String, num_marks, wait| {
        stream(25, what, sent, (Status::Timeout, num_marks, None)).ending(StreamEnd::TimedOut(wait))
    };
    let none = (Status::Protocol, 0, None);
    vec![
        stream(
            20,
            "reasoning",
            joined(&[reasoning, text("a"), finish("stop"), usage(2)]),
            good(),
        ),
        stream(
            20,
            "thinking aloud",
            joined(&[thinking, finish("stop"), usage(3)]),
            (Status::Ok, 3, Some(3)),
        ),
        stream(
            21,
            "tool calls and odd shapes",
            joined(&[odd, call, finish("tool_calls"), usage(4)]),
            (Status::Ok, 1, Some(4)),
        ),
        whole().flagged(&[Flag::NotStreamed]),
        Behaviour {
            sent: format!("\n {document}\n").into_bytes(),
            ..whole().flagged(&[Flag::NotStreamed])
        },
        stream(
            22,
            "half a document",
            &document[..40],
            (Status::Truncated, 0, None),
        )
        .ending(StreamEnd::Reset),
        stream(
            23,
            "everything at once",
            joined(&steady),
            (Status::Ok, 20, Some(20)),
        ),
        refusal(
            "too many requests",
            429,
            r#"{"error":{"message":"slow down"}}"#,
        ),
        refusal("a refusal in words", 503, "slow down"),
        refusal("a refusal that is a stream", 503, "data: {}"),
        refusal("a redirect", 307, ""),
        stream(24, "a page", "<html>log in</html>", none),
        stream(24, "no JSON", "data: {not json\n\n", none),
        stalled("silence", String::new(), 0, Wait::FirstToken),
        stalled("a stall between tokens", text("a"), 1, Wait::NextToken),
        stalled(
            "a stall within an event",
            text("a") + "data: {\"ch",
            1,
            Wait::NextToken,
        ),
    ]
}

/// The traps beside the list.
fn traps() -> Vec<Behaviour> {
    let interleaved = joined(&[
        of_choice(0, "a", "null"),
        of_choice(1, "b", r#""stop""#),
        of_choice(0, "c", r#""stop""#),
        usage(3),
    ]);
    let unfinished = joined(&[of_choice(0, "a", r#""stop""#), of_choice(1, "b", "null")]);
    let twice = joined(&[
        text("a"),
        text("a"),
        finish("stop"),
        finish("stop"),
        usage(2),
    ]);
    let odd_letters = joined(&[
        text("\u{2028}\u{0}\u{85}"),
        text("b"),
        finish("stop"),
        usage(2),
    ]);
    let raw_nul = two_tokens().replace("\"a\"", "\"\u{0}\"");
    let mut no_letters = two_tokens().into_bytes();
    let at = no_letters.windows(3).position(|bytes| bytes == b"\"a\"");
    no_letters[at.expect("the first token") + 1] = 0xF0;
    let boast = joined(&[
        counted("a", 1),
        counted("b", i64::MAX as u64),
        finish("stop"),
        usage(2),
    ]);
    vec![
        stream(0, "choices in turn", interleaved, (Status::Ok, 3, Some(3))),
        stream(
            0,
            "a choice that does not end",
            unfinished,
            (Status::Truncated, 2, None),
        ),
        stream(0, "chunks twice", twice, good()),
        stream(0, "letters that end lines elsewhere", odd_letters, good()),
        stream(
            0,
            "a NUL that JSON forbids",
            raw_nul,
            (Status::Protocol, 1, Some(2)),
        ),
        stream(0, "bytes that are no letters", no_letters, good()),
        stream(0, "more tokens than can be", boast, good()),
    ]
}

fn all() -> Vec<Behaviour> {
    [forms(), ends(), others(), traps()]
        .into_iter()
        .flatten()
        .collect()
}

/// `sent` with `line_ends` for its own, in turn.
fn with_line_ends(sent: &[u8], line_ends: &[&[u8]]) -> Vec<u8> {
    let mut line_ends = line_ends.iter().cycle();
    let mut dressed = Vec::with_capacity(2 * sent.len());
    for &byte in sent {
        match byte {
            b'\n' => dressed.extend_from_slice(line_ends.next().expect("a cycle")),
            byte => dressed.push(byte),
        }
    }
    dressed
}

/// Whole, byte by byte, in two at every place, and eight times at random.
fn all_cuts(bytes: &[u8], mut check: impl FnMut(&[&[u8]])) {
    check(&[bytes]);
    check(&bytes.chunks(1).collect::<Vec<_>>());
    for at in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(at);
        check(&[head, tail]);
    }
    let mut chance = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..8 {
        let lengths: Vec<u8> = (0..64).map(|_| chance.random_range(0..48)).collect();
        check(&walk::cut(bytes, &lengths));
    }
}

#[test]
fn every_behaviour_has_its_outcome_and_cuts_and_line_ends_change_times_only() {
    // A lone return must not stand before a lone feed: together they would be one end.
    let mixed: &[&[u8]] = &[b"\n", b"\r", b"\r\n"];
    for behaviour in all() {
        let Behaviour {
            row,
            what,
            http_status,
            ref sent,
            ref end,
            ..
        } = behaviour;
        let expected = timeless(&walk::observe(http_status, &[sent], end, LIMITS));
        let outcome = (expected.status, expected.marks.len(), expected.num_tokens);
        assert_eq!(
            outcome,
            (behaviour.status, behaviour.num_marks, behaviour.num_tokens),
            "{row}: {what}: {expected:?}"
        );
        assert_eq!(expected.flags, behaviour.flags, "{row}: {what}");
        for line_ends in [&[&b"\n"[..]][..], &[b"\r\n"], &[b"\r"], mixed] {
            let dressed = with_line_ends(sent, line_ends);
            all_cuts(&dressed, |reads| {
                let record = walk::observe(http_status, reads, end, LIMITS);
                assert_eq!(timeless(&record), expected, "{row}: {what}: {reads:?}");
            });
        }
    }
}

#[test]
fn every_row_of_the_list_is_in_the_table() {
    let mut rows: Vec<u8> = all().iter().map(|behaviour| behaviour.row).collect();
    rows.extend([7]); // Every stream is read whole: all its events in one read.
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows, (0..=25).collect::<Vec<u8>>());
}
