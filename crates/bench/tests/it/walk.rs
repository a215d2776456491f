//! What to look for in any bytes that a server may send: shared by the tests and the targets of `fuzz/`.
//!
//! The one idea: where the bytes were cut must change nothing but times, so every stream is read twice.

use std::time::Duration;

use api::event_stream::{Event, Item, Reader};
use bench::observe::{Flag, Limits, Observation, Progress, Record, StreamEnd};

/// Bounds that short streams reach.
pub const SMALL: Limits = Limits {
    event_bytes_max: 256,
    body_bytes_max: 256,
    marks_max: 8,
};

/// Takes a stream apart: its events must be the same for `reads` as for all of it at once, and within the bound.
///
/// # Panics
///
/// If they are not.
pub fn events(reads: &[&[u8]]) {
    let num_bytes_max = SMALL.event_bytes_max;
    let whole = reads.concat();
    let expected = items(&[&whole], num_bytes_max);
    assert_eq!(items(reads, num_bytes_max), expected);
    for item in expected.0 {
        if let Item::Event(event) = item {
            assert!(event.data.len() <= num_bytes_max && event.name.len() <= num_bytes_max);
        }
    }
}

/// What a reader tells, the event that the stream broke off after, and whether it took all.
fn items(reads: &[&[u8]], num_bytes_max: usize) -> (Vec<Item>, Option<Event>, bool) {
    let mut reader = Reader::new(num_bytes_max);
    let mut items = Vec::new();
    let outcome = reads
        .iter()
        .try_for_each(|bytes| reader.push(bytes, |item| items.push(item)));
    match outcome {
        Ok(()) => (items, reader.finish(), true),
        Err(_) => (items, None, false),
    }
}

/// Observes an answer: its record must be the same for `reads` as for all of it at once, times aside, and its figures
/// must be figures.
///
/// # Panics
///
/// If they are not.
pub fn answer(http_status: u16, reads: &[&[u8]], end: &StreamEnd) {
    let whole = reads.concat();
    let expected = observe(http_status, &[&whole], end, SMALL);
    let record = observe(http_status, reads, end, SMALL);
    assert_eq!(timeless(&record), timeless(&expected));
    for figure in record.token_gaps().chain(record.tpot()) {
        assert!(figure.is_finite() && figure >= 0.0, "{figure}");
    }
}

/// The record of `reads`, one a millisecond from 0 on, and of `end` after them.
pub fn observe(http_status: u16, reads: &[&[u8]], end: &StreamEnd, limits: Limits) -> Record {
    let mut observation = Observation::new(limits);
    observation.keep_text(1 << 20);
    observation.head(http_status, Duration::ZERO);
    let mut at = Duration::ZERO;
    for bytes in reads {
        if observation.read(bytes, at) == Progress::Done {
            return observation.finish(StreamEnd::Done, at);
        }
        at += Duration::from_millis(1);
    }
    observation.finish(end.clone(), at)
}

/// A record without what depends on the reads.
pub fn timeless(record: &Record) -> Record {
    let mut record = record.clone();
    for time in [
        &mut record.first_byte,
        &mut record.first_token,
        &mut record.first_answer,
        &mut record.last_token,
        &mut record.done,
    ] {
        *time = time.map(|_| Duration::ZERO);
    }
    for mark in &mut record.marks {
        mark.at = Duration::ZERO;
    }
    record.num_coalesced = 0;
    record.ended = Duration::ZERO;
    record.flags.retain(|flag| *flag != Flag::Buffered);
    record
}

/// `bytes` cut into reads as long as `lengths` say, in turn and over again; a length of 0 is a read of nothing.
pub fn cut<'a>(bytes: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let mut reads = Vec::new();
    let mut rest = bytes;
    if lengths.iter().any(|&length| length > 0) {
        for &length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (read, later) = rest.split_at(usize::from(length).min(rest.len()));
            reads.push(read);
            rest = later;
        }
    }
    reads.push(rest);
    reads
}
