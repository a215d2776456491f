//! GGUF files with one thing wrong: each is refused, by name, within bounded memory.

use formats::gguf::{Gguf, GgufError};
use formats::{GgmlType, Limits};
use proptest::prelude::*;
use testkit::Random;
use testkit::encode::Encoding;
use testkit::gguf::{Builder, File, Value as NewValue};

use super::walk;

/// A sound file with something of everything.
fn sound() -> Builder {
    Builder::new()
        .with("general.architecture", "llama")
        .with("general.alignment", 32u32)
        .with("general.flag", true)
        .with(
            "tokenizer.ggml.tokens",
            vec!["one".to_owned(), "two".to_owned()],
        )
        .with("tokenizer.ggml.scores", vec![0.0f32, -1.0])
        .tensor("norm", &[4], 0, Encoding::F32.encode(&[1.0; 4]))
        .tensor("matrix", &[64, 3], 8, Encoding::Q8_0.encode(&[0.5; 192]))
}

/// The message that `file` is refused with. It is one line, so that a log or terminal shows all of it.
fn refusal(file: &File) -> String {
    let error = Gguf::parse(file.bytes.clone()).expect_err("the file must be refused");
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// Breaks one field of the sound file and checks what the message says.
fn check(breaks: impl Fn(&mut File), message_has: &[&str]) {
    let mut file = sound().build();
    Gguf::parse(file.bytes.clone()).expect("it is sound before it is broken");
    breaks(&mut file);
    let message = refusal(&file);
    for part in message_has {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// Case B1.
#[test]
fn dimensions_that_multiply_past_64_bits_are_refused_with_the_tensor() {
    let huge_pairs = [
        (1152, (1 << 42) + 1),
        // Just below and above 2^63 and 2^64, as values and as bytes of 4.
        (1 << 32, (1 << 31) - 1),
        (1 << 32, 1 << 31),
        (1 << 32, (1 << 32) - 1),
        (1 << 32, 1 << 32),
        (1 << 31, (1 << 31) - 1),
        (1 << 31, 1 << 31),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1, u64::MAX),
        ((1 << 62) + 1, 4),
    ];
    for (row_len, num_rows) in huge_pairs {
        for ty in [0, 1, 8, 16] {
            let breaks = |file: &mut File| {
                file.set_u64("tensor[matrix].dims[0]", row_len);
                file.set_u64("tensor[matrix].dims[1]", num_rows);
                file.set_u32("tensor[matrix].type", ty);
            };
            let mut file = sound().build();
            breaks(&mut file);
            match Gguf::parse(file.bytes) {
                Err(error) => assert!(error.to_string().contains("\"matrix\""), "{error}"),
                // With a type nobody can size, or rows that are no whole blocks, only this tensor is refused.
                Ok(gguf) => {
                    let error = gguf
                        .tensor("matrix")
                        .expect_err("no such tensor fits a file")
                        .to_string();
                    assert!(error.contains("\"matrix\""), "{error}");
                }
            }
        }
    }
}

/// Case B1.
#[test]
fn counts_and_lengths_are_refused_before_anything_is_allocated_for_them() {
    for count in [1 << 61, u64::MAX, 1 << 32, 1 << 20] {
        check(
            |file| file.set_u64("num_tensors", count),
            &["list of tensors"],
        );
        check(
            |file| file.set_u64("num_keys", count),
            &["list of metadata keys"],
        );
        check(
            |file| file.set_u64("key[general.architecture].name_len", count),
            &["metadata key number 0"],
        );
        check(
            |file| file.set_u64("key[general.architecture].len", count),
            &["\"general.architecture\""],
        );
        check(
            |file| file.set_u64("key[tokenizer.ggml.tokens].len", count),
            &["\"tokenizer.ggml.tokens\""],
        );
        check(
            |file| file.set_u64("key[tokenizer.ggml.tokens][1].len", count),
            &["\"tokenizer.ggml.tokens\""],
        );
        check(
            |file| file.set_u64("key[tokenizer.ggml.scores].len", count),
            &["\"tokenizer.ggml.scores\""],
        );
        check(
            |file| file.set_u64("tensor[matrix].name_len", count),
            &["tensor number 1"],
        );
    }
}

/// Case B1.
#[test]
fn counts_around_what_the_file_could_hold_are_refused() {
    let file = sound().build();
    let smallest_entry = 33;
    let most = file.bytes.len() as u64 / smallest_entry;
    for count in [most - 1, most, most + 1] {
        check(|file| file.set_u64("num_tensors", count), &["tensor"]);
    }
    for count in [3, 4] {
        check(|file| file.set_u64("num_tensors", count), &["tensor"]);
    }
}

/// Case B1.
#[test]
fn tensors_have_at_most_four_axes() {
    for num_dims in [5, 64, u32::MAX] {
        check(
            |file| file.set_u32("tensor[matrix].num_dims", num_dims),
            &["\"matrix\"", "limit of 4 dimensions"],
        );
    }
}

/// Case B1: each tensor alone might fit, their sum wraps.
#[test]
fn two_huge_tensors_are_refused_one_by_one() {
    check(
        |file| {
            for name in ["norm", "matrix"] {
                file.set_u64(&format!("tensor[{name}].dims[0]"), 1 << 61);
                file.set_u32(&format!("tensor[{name}].type"), 0);
            }
            file.set_u64("tensor[matrix].dims[1]", 1);
        },
        &["\"norm\""],
    );
}

/// Case B2.
#[test]
fn a_file_cut_anywhere_is_refused_as_truncated() {
    let file = sound().build();
    let mut cuts: Vec<usize> = file
        .fields()
        .flat_map(|(_, range)| [range.start, range.end])
        .collect();
    let last_byte = file.bytes.len() - 1;
    cuts.extend([last_byte, last_byte / 2]);
    cuts.extend(
        file.fields()
            .map(|(_, range)| range.start + range.len() / 2),
    );
    let mut random = Random::new(0xb2);
    cuts.extend((0..30).map(|_| random.below(file.bytes.len())));
    cuts.retain(|&cut| cut < file.bytes.len());
    assert!(cuts.len() > 100);
    for cut in cuts {
        let error = Gguf::parse(file.bytes[..cut].to_vec())
            .expect_err("a part is not the whole")
            .to_string();
        assert!(
            error.contains("file is truncated: "),
            "cut at {cut}: {error}"
        );
    }
}

/// Case B2, on disk, where a late read of what is not there would be a SIGBUS.
#[test]
fn a_mapped_file_that_ends_too_early_is_refused_when_it_is_opened() {
    let file = sound().build();
    let on_disk = tempfile::NamedTempFile::new().unwrap();
    for cut in [0, 3, 100, file.bytes.len() / 2, file.bytes.len() - 1] {
        std::fs::write(on_disk.path(), &file.bytes[..cut]).unwrap();
        let error = Gguf::open(on_disk.path())
            .expect_err("a part is not the whole")
            .to_string();
        assert!(
            error.contains("file is truncated: "),
            "cut at {cut}: {error}"
        );
    }
}

/// Case B2: offset plus size must not wrap to something small.
#[test]
fn an_offset_past_the_end_is_refused_as_truncated() {
    for offset in [u64::MAX - 31, 1 << 63, 1 << 40, 4096] {
        check(
            |file| file.set_u64("tensor[matrix].offset", offset),
            &["truncated", "\"matrix\""],
        );
    }
}

/// Case B3.
#[test]
fn an_alignment_that_is_no_sane_power_of_two_is_refused() {
    for alignment in [0, 3, 33, 1 << 31, u32::MAX] {
        check(
            |file| file.set_u32("key[general.alignment].value", alignment),
            &[
                "general.alignment is",
                &alignment.to_string(),
                "power of two",
            ],
        );
    }
}

/// Case B3.
#[test]
fn an_alignment_of_another_type_is_refused() {
    let values: [NewValue; 6] = [
        32i32.into(),
        32u64.into(),
        32u16.into(),
        32.0f32.into(),
        "32".into(),
        vec![32u32].into(),
    ];
    for value in values {
        let message = refusal(&sound().with("general.alignment", value).build());
        assert!(
            message.contains("\"general.alignment\": expected u32, found "),
            "{message}"
        );
    }
}

/// Case B3.
#[test]
fn a_tensor_without_values_is_refused() {
    check(
        |file| file.set_u64("tensor[matrix].dims[1]", 0),
        &["\"matrix\"", "dimension of zero", "[64, 0]"],
    );
    check(
        |file| file.set_u64("tensor[norm].dims[0]", 0),
        &["\"norm\"", "dimension of zero"],
    );
    let none = sound().tensor("scalar", &[], 0, vec![0; 4]).build();
    assert!(refusal(&none).contains("\"scalar\""));
}

/// Case B5.
#[test]
fn a_type_we_do_not_read_is_refused_with_tensor_id_name_and_what_we_do_read() {
    let types = [
        (4, "4 (Q4_2, withdrawn)"),
        (5, "5 (Q4_3, withdrawn)"),
        (9, "9 (Q8_1)"),
        (16, "16 (IQ2_XXS)"),
        (24, "24 (I8)"),
        (31, "31 (Q4_0_4_4, withdrawn)"),
        (34, "34 (TQ1_0)"),
        (36, "36 (IQ4_NL_4_4, withdrawn)"),
        (38, "38 (IQ4_NL_8_8, withdrawn)"),
        (40, "40 (NVFP4)"),
        (255, "255 (unknown)"),
        (u32::MAX, "4294967295 (unknown)"),
    ];
    for (id, shown) in types {
        let mut file = sound().build();
        file.set_u32("tensor[matrix].type", id);
        let gguf = Gguf::parse(file.bytes).expect("the container is sound");
        let expected = format!(
            "tensor \"matrix\" has unsupported type {shown}; supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, \
             Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4"
        );
        assert_eq!(gguf.tensor("matrix").unwrap_err().to_string(), expected);
        assert_eq!(
            gguf.find_tensor("matrix").unwrap_err().to_string(),
            expected
        );
        assert_eq!(gguf.check_supported().unwrap_err().to_string(), expected);
        // The rest of the file can still be listed and read.
        let refused: Vec<&str> = gguf
            .refused()
            .map(|(tensor, _)| tensor.name.as_str())
            .collect();
        assert_eq!(refused, ["matrix"]);
        assert_eq!(gguf.tensors().len(), 2);
        gguf.tensor("norm").unwrap();
    }
}

/// Case B5.
#[test]
fn rows_that_are_no_whole_blocks_are_refused_with_both_lengths() {
    for ty in GgmlType::all().filter(|ty| ty.block_len() > 1) {
        let file = Builder::new()
            .tensor("w", &[48, 16], ty.id(), vec![0; 4096])
            .build();
        let gguf = Gguf::parse(file.bytes).expect("the container is sound");
        let error = gguf.tensor("w").unwrap_err();
        assert!(
            matches!(error, GgufError::PartialBlock { row_len: 48, .. }),
            "{error}"
        );
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("tensor \"w\" of type {} ({ty})", ty.id())),
            "{message}"
        );
        assert!(message.contains(&format!(
            "rows of 48 values, not a multiple of its block of {}",
            ty.block_len()
        )));
    }
}

#[test]
fn files_of_other_kinds_are_refused_by_name() {
    check(
        |file| file.set("magic", b"GGML"),
        &["not a GGUF file", "GGML"],
    );
    check(
        |file| file.set("magic", b"\x00\n\xff\x1b"),
        &[r#"begins with "\x00\n\xff\x1b""#],
    );
    check(
        |file| file.set_u32("version", 1),
        &["version 1 is not supported"],
    );
    check(
        |file| file.set_u32("version", 4),
        &["version 4 is not supported"],
    );
    check(
        |file| file.set_u32("version", 0),
        &["version 0 is not supported"],
    );
    check(
        |file| file.set_u32("version", 3u32.swap_bytes()),
        &["big-endian"],
    );
    let split = sound().with("split.count", 3u16).build();
    assert!(refusal(&split).contains("one of 3 parts"));
    let whole = sound().with("split.count", 1u16).build();
    Gguf::parse(whole.bytes).expect("one part is the whole");
}

#[test]
fn a_folder_or_an_absent_file_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("absent.gguf")] {
        let error = Gguf::open(&path).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn names_that_appear_twice_are_refused() {
    let keys = sound()
        .with_duplicate("general.architecture", "gemma3")
        .build();
    assert_eq!(
        refusal(&keys),
        r#"metadata key "general.architecture" appears twice"#
    );
    let tensors = sound().copy_tensor("norm", "norm").build();
    assert_eq!(refusal(&tensors), r#"tensor "norm" appears twice"#);
}

#[test]
fn names_that_are_empty_or_not_utf8_are_refused() {
    check(
        |file| file.set("tensor[norm].name", &[0xff; 4]),
        &["tensor number 0", "not UTF-8"],
    );
    check(
        |file| file.set("key[general.flag].name", &[0xff; 12]),
        &["metadata key number 2", "not UTF-8"],
    );
    assert!(refusal(&sound().with("", 1u32).build()).contains("metadata key number 5"));
    assert!(refusal(&sound().tensor("", &[4], 0, vec![0; 16]).build()).contains("tensor number 2"));
}

#[test]
fn a_name_with_line_breaks_is_shown_on_one_line() {
    let file = sound()
        .tensor("a\nb\u{1b}[31m", &[0], 0, Vec::new())
        .build();
    assert!(refusal(&file).contains(r#"tensor "a\nb\u{1b}[31m""#));
}

#[test]
fn values_of_unknown_or_nested_type_are_refused_with_the_key() {
    for id in [13, 255, u32::MAX] {
        check(
            |file| file.set_u32("key[general.flag].type", id),
            &["\"general.flag\"", &format!("unknown value type {id}")],
        );
        check(
            |file| file.set_u32("key[tokenizer.ggml.tokens].element", id),
            &[
                "\"tokenizer.ggml.tokens\"",
                &format!("unknown value type {id}"),
            ],
        );
    }
    check(
        |file| file.set_u32("key[tokenizer.ggml.tokens].element", 9),
        &["\"tokenizer.ggml.tokens\"", "array of arrays"],
    );
    check(
        |file| file.set("key[general.flag].value", &[2]),
        &["\"general.flag\"", "holds 2", "boolean"],
    );
}

#[test]
fn tensors_that_share_bytes_or_start_off_the_alignment_are_refused() {
    check(
        |file| file.set_u64("tensor[matrix].offset", 0),
        &["\"norm\"", "\"matrix\"", "overlap"],
    );
    check(
        |file| file.set_u64("tensor[matrix].offset", 33),
        &["\"matrix\"", "offset 33", "multiple of the alignment 32"],
    );
}

#[test]
fn every_limit_is_a_limit() {
    let file = sound().build().bytes;
    let standard = Limits::STANDARD;
    let narrowed = [
        (
            Limits {
                num_tensors_max: 1,
                ..standard
            },
            "list of tensors: 2 is over the limit of 1 entries",
        ),
        (
            Limits {
                num_keys_max: 4,
                ..standard
            },
            "list of metadata keys: 5 is over the limit of 4 entries",
        ),
        (
            Limits {
                name_bytes_max: 19,
                ..standard
            },
            "number 0: 20 is over the limit of 19 name bytes",
        ),
        (
            Limits {
                string_bytes_max: 4,
                ..standard
            },
            "\"general.architecture\": 5 is over the limit of 4 string",
        ),
        (
            Limits {
                array_len_max: 1,
                ..standard
            },
            "\"tokenizer.ggml.tokens\": 2 is over the limit of 1 elements",
        ),
        (
            Limits {
                num_dims_max: 1,
                ..standard
            },
            "tensor \"matrix\": 2 is over the limit of 1 dimensions",
        ),
        (
            Limits {
                alignment_max: 16,
                ..standard
            },
            "general.alignment is 32, but must be a power of two up to 16",
        ),
    ];
    for (limits, expected) in narrowed {
        let error = Gguf::parse_within(file.clone(), &limits)
            .expect_err("it is over the limit")
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_bytes_never_cause_a_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sound().build().bytes;
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        walk::gguf(bytes, &Limits::STANDARD);
    }

    #[test]
    fn random_bytes_never_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let with_magic = [b"GGUF\x03\0\0\0".as_slice(), &bytes].concat();
        walk::gguf(bytes, &Limits::STANDARD);
        walk::gguf(with_magic, &Limits::STANDARD);
    }
}
