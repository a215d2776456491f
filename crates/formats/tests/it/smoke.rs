//! A fuzzer for every run: some thousand seeded mutations of sound files, walked as in the fuzz targets of `fuzz/`.
//!
//! It finds less than coverage guidance would and needs no special compiler. Each run is the same; a failing round is
//! printed and can be run again alone.

use formats::{GgmlType, Limits};
use testkit::Random;
use testkit::encode::Encoding;
use testkit::gguf::Builder;

use super::safetensors_hostile::file;
use super::walk;

/// Numbers that have broken parsers before.
const INTERESTING: [u64; 12] = [
    0,
    1,
    31,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    1 << 61,
    1 << 63,
    u64::MAX,
];

#[test]
fn mutated_gguf_files_are_refused_or_read_but_never_panic() {
    let sound = Builder::new()
        .with("general.architecture", "llama")
        .with("general.alignment", 32u32)
        .with("flag", true)
        .with("tokens", vec!["one".to_owned(), "two".to_owned()])
        .with("scores", vec![0.0f32, -1.0])
        .tensor("norm", &[4], 0, Encoding::F32.encode(&[1.0; 4]))
        .tensor("a", &[64, 3], 8, Encoding::Q8_0.encode(&[0.5; 192]))
        .tensor("b", &[256, 1, 1, 1], 14, vec![0x5a; 210])
        .build()
        .bytes;
    check(sound, 6000, |bytes| walk::gguf(bytes, &Limits::STANDARD));
}

#[test]
fn mutated_safetensors_files_are_refused_or_read_but_never_panic() {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},
        "b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}"#;
    check(file(header, &[7; 16]), 6000, |bytes| {
        walk::safetensors(bytes, &Limits::STANDARD)
    });
}

#[test]
fn random_blocks_of_every_type_decode_without_panic() {
    let mut random = Random::new(0xb10c);
    for ty in GgmlType::all() {
        for _ in 0..50 {
            let num_blocks = random.below(9);
            walk::decode(ty, &random.bytes(num_blocks * ty.block_bytes()));
        }
    }
}

/// Walks `num_rounds` mutations of a sound file. Some must be accepted and some refused, or the mutations are too
/// tame or too wild to reach anything.
fn check(sound: Vec<u8>, num_rounds: u64, accepts: impl Fn(Vec<u8>) -> bool) {
    assert!(accepts(sound.clone()));
    let mut num_accepted = 0;
    for round in 0..num_rounds {
        let mut random = Random::new(round);
        let mut bytes = sound.clone();
        for _ in 0..1 + random.below(3) {
            mutate(&mut bytes, &mut random);
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| accepts(bytes)));
        match outcome {
            Ok(accepted) => num_accepted += u64::from(accepted),
            Err(_) => panic!("round {round} panicked"),
        }
    }
    assert!(
        num_accepted > num_rounds / 50,
        "only {num_accepted} of {num_rounds} accepted"
    );
    assert!(
        num_accepted < num_rounds * 49 / 50,
        "{num_accepted} of {num_rounds} accepted"
    );
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len().max(1));
    match random.below(6) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.bits() as u8,
        2 | 3 => {
            let number = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
            let len = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&number[..len]);
        }
        4 => bytes.truncate(bytes.len() - random.below(bytes.len().clamp(1, 40))),
        _ => {
            let piece = bytes[at..(at + 1 + random.below(16)).min(bytes.len())].to_vec();
            let to = random.below(bytes.len().max(1));
            bytes.splice(to..to, piece);
        }
    }
}
