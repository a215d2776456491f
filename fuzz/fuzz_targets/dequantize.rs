//! Blocks of every type to both decoders: the first byte selects the type.

#![no_main]

#[path = "../../crates/formats/tests/it/walk.rs"]
#[allow(dead_code)]
mod walk;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, bytes)) = bytes.split_first() else {
        return;
    };
    let types: Vec<_> = formats::GgmlType::all().collect();
    let ty = types[usize::from(selector) % types.len()];
    let num_blocks = bytes.len() / ty.block_bytes();
    walk::decode(ty, &bytes[..num_blocks * ty.block_bytes()]);
});
