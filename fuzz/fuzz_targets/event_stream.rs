//! Bytes to the reader of event streams, whole and in reads: the first byte tells how many bytes are lengths of reads.

#![no_main]

#[path = "../../crates/bench/tests/it/walk.rs"]
#[allow(dead_code)]
mod walk;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&num_lengths, bytes)) = bytes.split_first() else {
        return;
    };
    let (lengths, stream) = bytes.split_at(usize::from(num_lengths % 8).min(bytes.len()));
    walk::events(&walk::cut(stream, lengths));
});
