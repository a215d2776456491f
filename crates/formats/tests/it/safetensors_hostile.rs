//! Safetensors files and indices with one thing wrong. All of it is case S4.

use crate::told;
use std::path::Path;

use formats::Limits;
use formats::safetensors::{Dtype, NewTensor, Safetensors, write_safetensors};
use proptest::prelude::*;
use testkit::Random;

use super::walk;

/// A file of this header and data.
pub(super) fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

const SOUND: &str = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}"#;

fn sound() -> Vec<u8> {
    file(SOUND, &[7; 11])
}

fn check_bytes(bytes: Vec<u8>, message_has: &[&str]) {
    let error = told(Safetensors::parse(bytes).expect_err("the file must be refused"));
    assert!(!error.contains('\n'), "{error}");
    for part in message_has {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

/// Replaces one part of the sound header and checks what the message says.
fn check(part: &str, replacement: &str, message_has: &[&str]) {
    Safetensors::parse(sound()).expect("it is sound before it is broken");
    assert!(SOUND.contains(part), "{part}");
    check_bytes(
        file(&SOUND.replacen(part, replacement, 1), &[7; 11]),
        message_has,
    );
}

/// Case S4.
#[test]
fn a_header_longer_than_the_file_is_refused() {
    let with_length = |len: u64| [&len.to_le_bytes(), &sound()[8..]].concat();
    for len in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32] {
        check_bytes(with_length(len), &["header", &len.to_string(), "limit"]);
    }
    check_bytes(with_length(1 << 20), &["truncated", "header"]);
    check_bytes(
        with_length(sound().len() as u64 - 7),
        &["truncated", "header"],
    );
    check_bytes(with_length(0), &["header is not valid"]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = sound();
    for cut in 0..whole.len() {
        check_bytes(whole[..cut].to_vec(), &["truncated"]);
    }
}

/// Case S4.
#[test]
fn ranges_that_are_reversed_overlap_leave_holes_or_pass_the_end_are_refused() {
    check("[8,11]", "[11,8]", &["\"b\"", "backwards"]);
    check(
        "[8,11]",
        "[7,10]",
        &["\"b\"", "starts at byte 7", "ends at 8"],
    );
    check(
        "[8,11]",
        "[0,3]",
        &["\"a\"", "starts at byte 0", "ends at 3"],
    );
    check("[8,11]", "[9,12]", &["\"b\"", "truncated"]);
    check(
        r#""shape":[3],"data_offsets":[8,11]"#,
        r#""shape":[4],"data_offsets":[8,12]"#,
        &["\"b\"", "truncated"],
    );
    check(
        "[8,11]",
        "[18446744073709551612,18446744073709551615]",
        &["\"b\"", "truncated"],
    );
    check(
        r#""shape":[3],"data_offsets":[8,11]"#,
        r#""shape":[2],"data_offsets":[8,10]"#,
        &["1 bytes after the last"],
    );
    check(
        r#""shape":[3],"data_offsets":[8,11]"#,
        r#""shape":[2],"data_offsets":[9,11]"#,
        &["\"b\"", "byte 9"],
    );
}

/// Case S4.
#[test]
fn a_shape_that_does_not_take_its_range_is_refused() {
    check("[2]", "[3]", &["\"a\"", "F32", "[3]", "8 bytes"]);
    check("[2]", "[2,0]", &["\"a\"", "8 bytes"]);
    check("[2]", "[4294967296,4294967296]", &["\"a\"", "8 bytes"]);
    check("[2]", "[18446744073709551615]", &["\"a\"", "8 bytes"]);
    check("[2]", "[4611686018427387906]", &["\"a\"", "8 bytes"]);
    check(
        "[2]",
        "[1,1,1,1,1,1,1,1,2]",
        &["\"a\"", "at most 8 dimensions"],
    );
    check("[2]", "[-2]", &["\"a\"", "-2"]);
    check("[2]", "[2.0]", &["\"a\""]);
    check("[2]", "[18446744073709551616]", &["\"a\""]);
}

/// Case S4.
#[test]
fn an_unknown_type_is_refused_with_the_known_ones() {
    check("F32", "F33", &["\"a\"", "\"F33\"", "BF16", "I64"]);
    check("F32", "f32", &["\"a\"", "\"f32\""]);
    check("F32", &"x".repeat(100_000), &["\"a\"", "unknown type"]);
}

/// Case S4.
#[test]
fn a_name_that_appears_twice_is_refused() {
    check("\"b\"", "\"a\"", &["\"a\" appears twice"]);
    check(
        r#""dtype":"U8""#,
        r#""dtype":"U8","dtype":"U8""#,
        &["\"b\"", "duplicate field `dtype`"],
    );
}

#[test]
fn a_header_that_is_no_object_of_tensors_is_refused() {
    for header in [
        "",
        "[]",
        "null",
        "{",
        "{}x",
        r#"{"a":1}"#,
        r#"{"a":{"dtype":"F32"}}"#,
        "\u{0}",
        "{\"a\":\n{}}",
    ] {
        check_bytes(file(header, &[]), &["header is not valid"]);
    }
    check_bytes(file(&"[".repeat(100_000), &[]), &["header is not valid"]);
    check_bytes(
        file(&format!("{{\"a\":{}", "{\"a\":".repeat(100_000)), &[]),
        &["header is not valid"],
    );
    check_bytes(
        file(&format!("{{\"__metadata__\":{}", "[".repeat(100_000)), &[]),
        &["header is not valid"],
    );
    check_bytes(
        [&3u64.to_le_bytes()[..], &[0xff; 3]].concat(),
        &["header is not valid"],
    );
}

#[test]
fn every_limit_is_a_limit() {
    let standard = Limits::STANDARD;
    let narrowed = [
        (
            Limits {
                json_bytes_max: 64,
                ..standard
            },
            "over the limit of 64",
        ),
        (
            Limits {
                num_tensors_max: 1,
                ..standard
            },
            "more than 1 tensors",
        ),
        (
            Limits {
                name_bytes_max: 0,
                ..standard
            },
            "too long",
        ),
    ];
    for (limits, expected) in narrowed {
        let error =
            told(Safetensors::parse_within(sound(), &limits).expect_err("it is over the limit"));
        assert!(error.contains(expected), "{error}");
    }
}

/// Writes shard `one.safetensors` with tensor `a`, then an index, and gives the message that opening it ends with.
fn index_refusal(folder: &Path, index: &str) -> String {
    let tensor = NewTensor {
        name: "a",
        dtype: Dtype::U8,
        shape: &[1],
        bytes: &[1],
    };
    write_safetensors(&folder.join("one.safetensors"), &[tensor]).unwrap();
    let path = folder.join("model.safetensors.index.json");
    std::fs::write(&path, index).unwrap();
    told(Safetensors::open(&path).expect_err("the index must be refused"))
}

/// Case S4.
#[test]
fn an_index_cannot_name_a_file_outside_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::copy("Cargo.toml", folder.path().join("outside.safetensors")).unwrap();
    let absolute = folder
        .path()
        .join("outside.safetensors")
        .display()
        .to_string();
    let names = [
        "../outside.safetensors",
        absolute.as_str(),
        "inner/../../x",
        "..",
        ".",
        "",
        "./one.safetensors",
        r"..\\x",
        "c:x",
    ];
    for name in names {
        let message = index_refusal(&inner, &format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#));
        assert!(
            message.contains("only plain file names") && message.contains("\"a\""),
            "{name}: {message}"
        );
    }
}

/// Case S4.
#[test]
fn an_index_that_contradicts_its_shards_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            r#"{"weight_map":{"a":"two.safetensors"}}"#,
            &["\"two.safetensors\"", "\"a\"", "cannot be opened"][..],
        ),
        (
            r#"{"weight_map":{"a":"one.safetensors","b":"one.safetensors"}}"#,
            &["\"b\" is not in shard"],
        ),
        (
            r#"{"weight_map":{"a":"one.safetensors","a":"one.safetensors"}}"#,
            &["\"a\" appears twice"],
        ),
        (
            r#"{"weight_map":{"a":7}}"#,
            &["index is not valid", "\"a\""],
        ),
        (r#"{"weight_map":[]}"#, &["index is not valid"]),
        ("{}", &["index is not valid", "weight_map"]),
        ("", &["index is not valid"]),
    ];
    for (index, message_has) in cases {
        let message = index_refusal(folder.path(), index);
        for part in message_has {
            assert!(message.contains(part), "{part:?} is not in: {message}");
        }
    }
    std::fs::write(folder.path().join("broken.safetensors"), &sound()[..20]).unwrap();
    let message = index_refusal(
        folder.path(),
        r#"{"weight_map":{"a":"broken.safetensors"}}"#,
    );
    assert!(
        message.contains("\"broken.safetensors\" is not sound: file is truncated"),
        "{message}"
    );
}

#[test]
fn random_cuts_and_flips_never_cause_a_panic() {
    let mut random = Random::new(0x54);
    for _ in 0..2000 {
        let mut bytes = sound();
        let at = random.below(bytes.len());
        bytes[at] = random.bits() as u8;
        walk::safetensors(bytes, &Limits::STANDARD);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_bytes_never_cause_a_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sound();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        walk::safetensors(bytes, &Limits::STANDARD);
    }
}
