//! An answer to an observation, whole and in reads: the first byte selects status and end, and tells how many of the
//! next are lengths of reads.

#![no_main]

use bench::observe::{StreamEnd, Wait};

#[path = "../../crates/bench/tests/it/walk.rs"]
#[allow(dead_code)]
mod walk;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, bytes)) = bytes.split_first() else {
        return;
    };
    let status = [200, 200, 429, 500][usize::from(selector & 3)];
    let end = match selector >> 2 & 3 {
        0 => StreamEnd::Closed,
        1 => StreamEnd::Reset,
        2 => StreamEnd::TimedOut(Wait::NextToken),
        _ => StreamEnd::Cancelled,
    };
    let (lengths, stream) = bytes.split_at(usize::from(selector >> 4).min(bytes.len()));
    walk::answer(status, &walk::cut(stream, lengths), &end);
});
