//! The behaviours of servers as they are, by byte scripts: what each says, and the times it says it at.

// All of them, however they are cut.
mod behaviours;

use std::time::Duration;

use bench::observe::{Flag, LIMITS, Observation, Record, Status, StreamEnd, TokenSource, Wait};
use proptest::prelude::*;
use serde_json::Value;

use crate::walk::{self, timeless};

/// Observes an answer of status 200, delivered in `reads`, one a millisecond.
fn observe_reads<'a>(reads: impl IntoIterator<Item = &'a [u8]>, end: StreamEnd) -> Record {
    let reads: Vec<&[u8]> = reads.into_iter().collect();
    walk::observe(200, &reads, &end, LIMITS)
}

/// The record of `text`, without times.
fn observe(text: &str, end: StreamEnd) -> Record {
    timeless(&observe_reads([text.as_bytes()], end))
}

fn event(json: &str) -> String {
    format!("data: {json}\n\n")
}

fn delta(delta: &str) -> String {
    event(&format!(
        r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#
    ))
}

fn text(text: &str) -> String {
    delta(&format!(r#"{{"content":{}}}"#, Value::from(text)))
}

fn finish(reason: &str) -> String {
    event(&format!(
        r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#
    ))
}

fn usage(num_tokens: i64) -> String {
    event(&format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":{num_tokens}}}}}"#
    ))
}

const DONE_EVENT: &str = "data: [DONE]\n\n";

fn role() -> String {
    delta(r#"{"role":"assistant","content":""}"#)
}

fn joined(parts: &[String]) -> String {
    parts.concat() + DONE_EVENT
}

#[test]
fn a_role_chunk_is_no_token() {
    let reads = [
        role(),
        text("a"),
        text("b"),
        finish("stop"),
        usage(2),
        DONE_EVENT.to_owned(),
    ];
    let record = observe_reads(reads.iter().map(|read| read.as_bytes()), StreamEnd::Closed);
    assert_eq!(record.status, Status::Ok);
    assert_eq!(record.first_byte, Some(Duration::ZERO));
    assert_eq!(record.first_token, Some(Duration::from_millis(1)));
    assert_eq!(record.last_token, Some(Duration::from_millis(2)));
    assert_eq!(record.done, Some(Duration::from_millis(5)));
    assert_eq!(
        (record.num_tokens, record.token_source),
        (Some(2), TokenSource::Usage)
    );
    assert_eq!(record.tpot(), Some(0.001));
    assert_eq!(record.token_gaps().collect::<Vec<_>>(), [0.001]);
}

#[test]
fn usage_stands_alone_or_beside_the_end_or_in_every_chunk_and_is_never_summed() {
    let beside = event(
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}"#,
    );
    let record = observe(&joined(&[text("a"), text("b"), beside]), StreamEnd::Closed);
    assert_eq!((record.status, record.num_tokens), (Status::Ok, Some(2)));
    let growing = |text: &str, num: u64| {
        event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}],"usage":{{"completion_tokens":{num}}}}}"#
        ))
    };
    let record = observe(
        &joined(&[growing("a", 1), growing("bcd", 4), finish("stop"), usage(4)]),
        StreamEnd::Closed,
    );
    assert_eq!(record.num_tokens, Some(4));
    assert_eq!(
        record
            .marks
            .iter()
            .map(|mark| mark.num_tokens)
            .collect::<Vec<_>>(),
        [Some(1), Some(3)]
    );
}

#[test]
fn without_usage_tokens_are_counted_by_their_ids_or_not_at_all() {
    let record = observe(&joined(&[text("a b c"), finish("stop")]), StreamEnd::Closed);
    assert_eq!(
        (record.num_tokens, record.token_source),
        (None, TokenSource::None)
    );
    assert_eq!(record.tpot(), None);
    let ids = event(r#"{"choices":[{"index":0,"delta":{"content":"ab"},"token_ids":[5,6]}]}"#);
    let record = observe(&joined(&[ids, finish("stop")]), StreamEnd::Closed);
    assert_eq!(
        (record.num_tokens, record.token_source),
        (Some(2), TokenSource::Events)
    );
}

#[test]
fn nonsense_in_usage_is_flagged() {
    for num in [0, -5, 1] {
        let record = observe(
            &joined(&[text("a"), text("b"), finish("stop"), usage(num)]),
            StreamEnd::Closed,
        );
        assert!(record.flags.contains(&Flag::UsageSuspect), "{num}");
        assert_eq!(record.status, Status::Ok);
    }
}

#[test]
fn several_tokens_in_an_event_share_its_gap_and_the_first_ones_are_no_decode() {
    let ids = |text: &str, ids: &str| {
        event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"token_ids":{ids}}}]}}"#
        ))
    };
    let reads = [
        ids("abc", "[1,2,3]"),
        ids("de", "[4,5]"),
        finish("stop"),
        usage(5),
        DONE_EVENT.to_owned(),
    ];
    let record = observe_reads(reads.iter().map(|read| read.as_bytes()), StreamEnd::Closed);
    assert_eq!(record.num_first(), 3);
    assert_eq!(record.tpot(), Some(0.0005));
    assert_eq!(record.token_gaps().collect::<Vec<_>>(), [0.0005, 0.0005]);
    assert_eq!(record.residual(0.0005), Some(0.0));
}

#[test]
fn events_that_share_a_read_have_a_gap_of_zero() {
    let record = observe_reads(
        [joined(&[text("a"), text("b"), finish("stop"), usage(2)]).as_bytes()],
        StreamEnd::Closed,
    );
    assert_eq!(record.num_coalesced, 1);
    assert_eq!(record.token_gaps().collect::<Vec<_>>(), [0.0]);
}

#[test]
fn spaces_comments_and_other_fields_change_nothing() {
    let plain = observe(
        &joined(&[text("a"), finish("stop"), usage(1)]),
        StreamEnd::Closed,
    );
    let dressed = joined(&[
        ": ping\n\n".to_owned(),
        format!(
            "event: message\nid: 1\nretry: 5\n{}",
            text("a").replace("data: ", "data:")
        ),
        finish("stop").replace(r#","delta""#, ",\ndata: \"delta\""),
        usage(1),
    ])
    .replace("data: [DONE]", "data:[DONE]");
    let mut dressed = observe(&dressed, StreamEnd::Closed);
    assert_eq!(std::mem::take(&mut dressed.num_comments), 1);
    assert_eq!(dressed, plain);
}

#[test]
fn an_error_in_the_stream_is_no_success_whatever_surrounds_it() {
    let error = event(r#"{"error":{"message":"out of memory","code":500}}"#);
    let named = "event: error\ndata: {\"message\":\"overloaded\"}\n\n".to_owned();
    for error in [
        error,
        named,
        "event: error\ndata: plain words\n\n".to_owned(),
    ] {
        let record = observe(
            &joined(&[text("a"), error, finish("stop")]),
            StreamEnd::Closed,
        );
        assert_eq!(record.status, Status::ErrorEvent, "{record:?}");
        assert!(record.error.is_some());
    }
    for reason in ["error", "abort"] {
        let record = observe(&joined(&[text("a"), finish(reason)]), StreamEnd::Closed);
        assert_eq!(record.status, Status::ErrorEvent);
    }
    let null = event(
        r#"{"error":null,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
    );
    assert_eq!(
        observe(&joined(&[null]), StreamEnd::Closed).status,
        Status::Ok
    );
}

#[test]
fn an_answer_that_stops_without_a_reason_is_truncated() {
    assert_eq!(
        observe(&text("a"), StreamEnd::Reset).status,
        Status::Truncated
    );
    assert_eq!(
        observe(&text("a"), StreamEnd::Closed).status,
        Status::Truncated
    );
    assert_eq!(
        observe(&joined(&[text("a")]), StreamEnd::Closed).status,
        Status::Truncated
    );
}

#[test]
fn an_answer_with_a_reason_is_whole_although_the_end_is_missing() {
    let record = observe(&[text("a"), finish("stop")].concat(), StreamEnd::Closed);
    assert_eq!(record.status, Status::Ok);
    assert!(record.flags.contains(&Flag::MissingDone));
    let cut = [text("a"), finish("stop")].concat();
    let record = observe(cut.trim_end(), StreamEnd::Closed);
    assert_eq!(
        record.status,
        Status::Ok,
        "the last event counts without its empty line"
    );
}

#[test]
fn nothing_after_the_end_belongs_to_the_answer() {
    let record = observe(
        &(joined(&[text("a"), finish("stop"), usage(1)]) + &text("late") + &usage(9)),
        StreamEnd::Closed,
    );
    assert_eq!(
        (record.status, record.num_tokens, record.marks.len()),
        (Status::Ok, Some(1), 1)
    );
}

#[test]
fn an_empty_answer_is_ok_only_if_the_server_says_that_it_has_no_tokens() {
    assert_eq!(observe(DONE_EVENT, StreamEnd::Closed).status, Status::Empty);
    assert_eq!(observe("", StreamEnd::Closed).status, Status::Empty);
    assert_eq!(
        observe(&joined(&[role(), finish("stop")]), StreamEnd::Closed).status,
        Status::Empty
    );
    let told = observe(
        &joined(&[role(), finish("stop"), usage(0)]),
        StreamEnd::Closed,
    );
    assert_eq!((told.status, told.first_token), (Status::Ok, None));
}

#[test]
fn reasoning_is_output_and_the_answer_begins_after_it() {
    let reasoning = delta(r#"{"reasoning":"hm","reasoning_content":"hm"}"#);
    let reads = [reasoning, text("a"), finish("stop"), DONE_EVENT.to_owned()];
    let record = observe_reads(reads.iter().map(|read| read.as_bytes()), StreamEnd::Closed);
    assert_eq!(record.first_token, Some(Duration::ZERO));
    assert_eq!(record.first_answer, Some(Duration::from_millis(1)));
    assert_eq!(record.num_content_bytes, 3, "the same text twice is one");
    for parts in [
        &["<think>hm</think>", "\n\n", "a"][..],
        &["<th", "ink>h", "m</thi", "nk>\n", "a"],
    ] {
        let mut reads: Vec<String> = parts.iter().map(|part| text(part)).collect();
        reads.push(finish("stop"));
        let record = observe_reads(reads.iter().map(|read| read.as_bytes()), StreamEnd::Closed);
        assert_eq!(record.first_token, Some(Duration::ZERO));
        assert_eq!(
            record.first_answer,
            Some(Duration::from_millis(parts.len() as u64 - 1)),
            "{parts:?}"
        );
    }
}

#[test]
fn tool_calls_are_output_and_odd_shapes_are_nothing() {
    let call = delta(
        r#"{"content":null,"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}"#,
    );
    let odd = [
        r#"{"choices":null}"#,
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"new":{"x":1}}"#,
        r#"{"choices":[7]}"#,
        "null",
        "[]",
    ];
    let mut parts: Vec<String> = odd.iter().map(|json| event(json)).collect();
    parts.extend([call, finish("tool_calls"), usage(4)]);
    let record = observe(&joined(&parts), StreamEnd::Closed);
    assert_eq!(
        (record.status, record.marks.len(), record.num_content_bytes),
        (Status::Ok, 1, 3)
    );
}

#[test]
fn a_document_instead_of_a_stream_has_no_first_token() {
    let body = r#"{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}"#;
    let record = observe(body, StreamEnd::Closed);
    assert_eq!(
        (record.status, record.first_token, record.num_tokens),
        (Status::Ok, None, Some(2))
    );
    assert_eq!(record.flags, [Flag::NotStreamed]);
    assert_eq!(record.tpot(), None);
}

#[test]
fn an_answer_that_arrives_at_once_is_flagged() {
    let parts: Vec<String> = (0..20)
        .map(|_| text("a"))
        .chain([finish("stop"), usage(20)])
        .collect();
    let record = observe_reads([joined(&parts).as_bytes()], StreamEnd::Closed);
    assert!(record.flags.contains(&Flag::Buffered));
    let steady: Vec<String> = parts.into_iter().chain([DONE_EVENT.to_owned()]).collect();
    let record = observe_reads(steady.iter().map(|read| read.as_bytes()), StreamEnd::Closed);
    assert!(record.flags.is_empty(), "{:?}", record.flags);
}

#[test]
fn refusals_pages_and_silence_are_told_apart() {
    let answered = |status: u16, body: &str, end: StreamEnd| {
        let mut observation = Observation::new(LIMITS);
        observation.head(status, Duration::ZERO);
        observation.read(body.as_bytes(), Duration::ZERO);
        observation.finish(end, Duration::ZERO)
    };
    let busy = answered(
        503,
        r#"{"error":{"message":"queue full"}}"#,
        StreamEnd::Closed,
    );
    assert_eq!(
        (busy.status, busy.error.as_deref()),
        (Status::HttpError, Some("queue full"))
    );
    assert_eq!(
        answered(429, "slow down", StreamEnd::Closed).status,
        Status::HttpError
    );
    assert_eq!(
        answered(200, "<html>login</html>", StreamEnd::Closed).status,
        Status::Protocol
    );
    assert_eq!(
        answered(200, "data: {not json\n\n", StreamEnd::Closed).status,
        Status::Protocol
    );
    let late =
        Observation::new(LIMITS).finish(StreamEnd::TimedOut(Wait::FirstToken), Duration::ZERO);
    assert_eq!(late.status, Status::Timeout);
    assert_eq!(
        Observation::new(LIMITS)
            .finish(StreamEnd::NotConnected, Duration::ZERO)
            .status,
        Status::Connect
    );
    assert_eq!(
        Observation::new(LIMITS)
            .finish(StreamEnd::Reset, Duration::ZERO)
            .status,
        Status::Connect
    );
}

#[test]
fn a_stall_keeps_what_was_there() {
    let mut observation = Observation::new(LIMITS);
    observation.head(200, Duration::ZERO);
    observation.read(text("a").as_bytes(), Duration::from_millis(3));
    let record = observation.finish(StreamEnd::TimedOut(Wait::NextToken), Duration::ZERO);
    assert_eq!(
        (record.status, record.first_token),
        (Status::Timeout, Some(Duration::from_millis(3)))
    );
}

#[test]
fn every_choice_has_to_end() {
    let second = event(r#"{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}"#);
    let record = observe(
        &joined(&[text("a"), second, finish("stop")]),
        StreamEnd::Closed,
    );
    assert_eq!(record.status, Status::Truncated);
}

#[test]
fn odd_letters_and_a_huge_event_are_content_like_any_other() {
    let long = "x".repeat(1 << 20);
    let record = observe_reads(
        [joined(&[text(&long), finish("length")]).as_bytes()],
        StreamEnd::Closed,
    );
    assert_eq!(
        (record.status, record.num_content_bytes),
        (Status::Ok, 1 << 20)
    );
    let record = observe(
        &joined(&[text("\u{2028}\u{0}\u{1f600}"), finish("stop")]),
        StreamEnd::Closed,
    );
    assert_eq!((record.status, record.num_content_bytes), (Status::Ok, 8));
}

/// Pieces of streams, so that random ones get past the first line.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        b"data:", b"data: ", b"event: error", b"id: 1", b": ping", b"\n", b"\n", b"\r", b"\r\n", b"\n\n", b" ",
        b"\xEF\xBB\xBF", b"\xF0\x9F", b"[DONE]", b"{", b"}", b"[", b"<html>", b"null", b"{\"error\":\"x\"}",
        b"{\"choices\":[{\"delta\":{\"content\":\"<think>a\"}}]}",
        b"{\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"usage\":{\"completion_tokens\":9223372036854775807}}",
        b"{\"choices\":[{\"index\":9,\"text\":\"c\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":0}}",
    ];
    prop_oneof![
        6 => proptest::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..9),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What the fuzz targets do, without a special compiler.
    #[test]
    fn cuts_change_times_only_whatever_the_bytes(
        pieces in proptest::collection::vec(piece(), 0..40),
        lengths in proptest::collection::vec(0u8..40, 0..8),
        status in prop_oneof![3 => Just(200u16), 1 => 0u16..1000],
        end in prop_oneof![
            Just(StreamEnd::Closed), Just(StreamEnd::Reset), Just(StreamEnd::Cancelled),
            Just(StreamEnd::TimedOut(Wait::Total)),
        ],
    ) {
        let stream = pieces.concat();
        let reads = walk::cut(&stream, &lengths);
        walk::events(&reads);
        walk::answer(status, &reads, &end);
    }
}
