//! Bytes to the safetensors reader, then everything it offers.

#![no_main]

#[path = "../../crates/formats/tests/it/walk.rs"]
#[allow(dead_code)]
mod walk;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    walk::safetensors(bytes.to_vec(), &formats::Limits::STANDARD);
});
