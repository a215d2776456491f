//! GGUF files as they should be.

use std::io::Write;

use formats::gguf::{Array, Gguf, GgufError, Strings, Value, ValueType};
use formats::{GgmlType, Limits};
use testkit::encode::Encoding;
use testkit::gguf::{Builder, Value as NewValue};

#[test]
fn every_metadata_type_comes_back_as_it_was_written() {
    let file = Builder::new()
        .with("u8", NewValue::U8(u8::MAX))
        .with("i8", i8::MIN)
        .with("u16", u16::MAX)
        .with("i16", i16::MIN)
        .with("u32", u32::MAX)
        .with("i32", i32::MIN)
        .with("f32", 0.1f32)
        .with("bool", true)
        .with("string", "grüß")
        .with("array", vec![1i32, -2, 3])
        .with("u64", u64::MAX)
        .with("i64", i64::MIN)
        .with("f64", 0.1f64)
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    let Some(Value::Array(array)) = gguf.get("array") else {
        panic!("no array")
    };
    assert_eq!(array.element(), ValueType::I32);
    assert_eq!(
        array.iter().collect::<Vec<_>>(),
        [Value::I32(1), Value::I32(-2), Value::I32(3)]
    );
    let values: Vec<_> = gguf.metadata().collect();
    assert_eq!(
        values,
        [
            ("u8", Value::U8(u8::MAX)),
            ("i8", Value::I8(i8::MIN)),
            ("u16", Value::U16(u16::MAX)),
            ("i16", Value::I16(i16::MIN)),
            ("u32", Value::U32(u32::MAX)),
            ("i32", Value::I32(i32::MIN)),
            ("f32", Value::F32(0.1)),
            ("bool", Value::Bool(true)),
            ("string", Value::String("grüß".as_bytes())),
            ("array", Value::Array(array)),
            ("u64", Value::U64(u64::MAX)),
            ("i64", Value::I64(i64::MIN)),
            ("f64", Value::F64(0.1)),
        ]
    );
}

#[test]
fn arrays_of_every_type_but_arrays_can_be_iterated() {
    let arrays: [NewValue; 8] = [
        NewValue::Array(0, vec![NewValue::U8(1), NewValue::U8(2)]),
        vec![1i8, 2].into(),
        vec![1u16, 2].into(),
        vec![1i16, 2].into(),
        vec![1u32, 2].into(),
        vec![1i32, 2].into(),
        vec![1u64, 2].into(),
        vec![1i64, 2].into(),
    ];
    for array in arrays {
        let gguf = Gguf::parse(Builder::new().with("k", array).build().bytes).unwrap();
        assert_eq!(gguf.require::<Vec<u32>>("k").unwrap(), [1, 2]);
        assert_eq!(gguf.require::<Vec<i32>>("k").unwrap(), [1, 2]);
    }
    let file = Builder::new()
        .with("f32", vec![0.5f32, -1.0])
        .with("f64", vec![0.5f64, -1.0])
        .with("bool", vec![true, false])
        .with("string", vec!["a".to_owned(), String::new()])
        .with("none", NewValue::Array(8, Vec::new()))
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    assert_eq!(gguf.require::<Vec<f32>>("f32").unwrap(), [0.5, -1.0]);
    assert_eq!(gguf.require::<Vec<f32>>("f64").unwrap(), [0.5, -1.0]);
    assert_eq!(gguf.require::<Vec<bool>>("bool").unwrap(), [true, false]);
    assert_eq!(
        gguf.require::<Strings>("string")
            .unwrap()
            .collect::<Vec<_>>(),
        [&b"a"[..], b""]
    );
    assert!(gguf.require::<Array>("none").unwrap().is_empty());
}

#[test]
fn integers_convert_between_widths_as_long_as_they_fit() {
    let file = Builder::new()
        .with("wide", 8192u64)
        .with("signed", 7i32)
        .with("negative", -5i32)
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    assert_eq!(gguf.require::<u32>("wide").unwrap(), 8192);
    assert_eq!(gguf.require::<usize>("signed").unwrap(), 7);
    assert_eq!(gguf.require::<i64>("negative").unwrap(), -5);
    let error = gguf.require::<u32>("negative").unwrap_err().to_string();
    assert_eq!(
        error,
        r#"metadata key "negative": expected u32, found i32 -5"#
    );
    let error = gguf.require::<u8>("wide").unwrap_err().to_string();
    assert_eq!(error, r#"metadata key "wide": expected u8, found u64 8192"#);
}

#[test]
fn floats_convert_between_widths_but_do_not_become_infinite() {
    let file = Builder::new()
        .with("wide", 0.1f64)
        .with("huge", 1e300f64)
        .with("infinite", f64::INFINITY)
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    assert_eq!(gguf.require::<f32>("wide").unwrap(), 0.1);
    assert_eq!(gguf.require::<f32>("infinite").unwrap(), f32::INFINITY);
    assert_eq!(gguf.require::<f64>("huge").unwrap(), 1e300);
    assert!(gguf.require::<f32>("huge").is_err());
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_both_types_and_the_key() {
    let file = Builder::new()
        .with("int", 1u32)
        .with("float", 1.0f32)
        .with("text", "eight")
        .with("flags", vec![true])
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    let message = |error: GgufError| error.to_string();
    assert_eq!(
        message(gguf.require::<f32>("int").unwrap_err()),
        r#"metadata key "int": expected f32, found u32 1"#
    );
    assert_eq!(
        message(gguf.require::<u32>("float").unwrap_err()),
        r#"metadata key "float": expected u32, found f32 1"#
    );
    assert_eq!(
        message(gguf.require::<u32>("text").unwrap_err()),
        r#"metadata key "text": expected u32, found string of 5 bytes"#
    );
    assert_eq!(
        message(gguf.require::<Strings>("flags").unwrap_err()),
        r#"metadata key "flags": expected array of string, found array of 1 bool"#
    );
    assert_eq!(
        message(gguf.require::<u32>("absent").unwrap_err()),
        r#"metadata key "absent" is missing"#
    );
    assert_eq!(gguf.find::<u32>("absent").unwrap(), None);
}

#[test]
fn tokens_that_are_not_utf8_keep_their_bytes() {
    let tokens = vec![
        NewValue::String(vec![0xff, 0xfe]),
        NewValue::String(vec![0xe4, 0xbd]),
    ];
    let file = Builder::new()
        .with("tokenizer.ggml.tokens", NewValue::Array(8, tokens))
        .with("general.name", NewValue::String(vec![b'a', 0xff]))
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    let tokens: Vec<&[u8]> = gguf
        .require::<Strings>("tokenizer.ggml.tokens")
        .unwrap()
        .collect();
    assert_eq!(tokens, [&[0xff, 0xfe], &[0xe4, 0xbd]]);
    assert_eq!(gguf.require::<&[u8]>("general.name").unwrap(), b"a\xff");
    let error = gguf
        .require::<&str>("general.name")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"metadata key "general.name": expected UTF-8 string, found string of 2 bytes that is not UTF-8"#
    );
}

#[test]
fn versions_2_and_3_read_alike() {
    for version in [2, 3] {
        let gguf = Gguf::parse(two_tensors().version(version).build().bytes).unwrap();
        assert_eq!(gguf.version(), version);
        assert_two_tensors(&gguf);
    }
}

/// Case B3: a valid alignment other than 32 must give the same content.
#[test]
fn the_alignment_of_a_file_does_not_change_what_is_read() {
    for alignment in [8, 32, 64, 4096] {
        let gguf = Gguf::parse(two_tensors().alignment(alignment).build().bytes).unwrap();
        assert_eq!(gguf.alignment(), alignment);
        assert_two_tensors(&gguf);
    }
}

#[test]
fn a_mapped_file_reads_as_its_bytes_and_still_does_after_its_pages_are_dropped() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&two_tensors().build().bytes).unwrap();
    let gguf = Gguf::open(file.path()).unwrap();
    assert_two_tensors(&gguf);
    gguf.forget(&gguf.tensor("first").unwrap());
    gguf.forget(&gguf.tensor("second").unwrap());
    assert_two_tensors(&gguf);
}

#[test]
fn a_tensor_of_three_axes_is_all_its_rows() {
    let values: Vec<f32> = (0..24u8).map(f32::from).collect();
    let file = Builder::new()
        .tensor("t", &[4, 3, 2], 0, Encoding::F32.encode(&values))
        .build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    let tensor = gguf.tensor("t").unwrap();
    assert_eq!((tensor.row_len(), tensor.num_rows()), (4, 6));
    assert_eq!(
        tensor.row(5),
        Encoding::F32.encode(&[20.0, 21.0, 22.0, 23.0])
    );
}

/// Case B6: that a file lacks a tensor is for the model to judge.
#[test]
fn an_absent_tensor_can_be_asked_about_and_is_named_when_required() {
    let gguf = Gguf::parse(two_tensors().build().bytes).unwrap();
    assert!(!gguf.has_tensor("output.weight"));
    assert!(gguf.find_tensor("output.weight").unwrap().is_none());
    let error = gguf.tensor("output.weight").unwrap_err().to_string();
    assert_eq!(error, r#"tensor "output.weight" is missing"#);
}

#[test]
fn a_file_of_metadata_alone_is_sound() {
    let gguf = Gguf::parse(
        Builder::new()
            .with("general.type", "vocabulary")
            .build()
            .bytes,
    )
    .unwrap();
    assert!(gguf.tensors().is_empty());
    gguf.check_supported().unwrap();
}

#[test]
fn a_large_vocabulary_is_read_in_place() {
    let tokens: Vec<String> = (0..262_144).map(|idx| format!("token{idx}")).collect();
    let file = Builder::new().with("tokens", tokens).build();
    let gguf = Gguf::parse(file.bytes).unwrap();
    let tokens = gguf.require::<Strings>("tokens").unwrap();
    assert_eq!(tokens.len(), 262_144);
    assert_eq!(tokens.last().unwrap(), b"token262143");
}

#[test]
fn the_tiny_models_are_sound() {
    for encoding in Encoding::ALL {
        for model in [
            testkit::tiny::llama(encoding),
            testkit::tiny::gemma3(encoding),
        ] {
            let bytes = model.build().bytes;
            let gguf = Gguf::parse(bytes.clone()).unwrap();
            gguf.check_supported().unwrap();
            let num_tokens = gguf
                .require::<Array>("tokenizer.ggml.tokens")
                .unwrap()
                .len();
            assert_eq!(
                gguf.tensor("token_embd.weight").unwrap().num_rows(),
                num_tokens
            );
            assert!(super::walk::gguf(bytes, &Limits::STANDARD));
        }
    }
}

#[test]
fn the_real_models_are_sound() {
    for (name, num_tensors, num_tokens) in
        [("smollm2-135m", 272, 49_152), ("gemma3-270m", 236, 262_144)]
    {
        let Some(path) = testkit::real_model(name) else {
            continue;
        };
        let gguf = Gguf::open(&path).unwrap();
        gguf.check_supported().unwrap();
        assert_eq!(gguf.tensors().len(), num_tensors);
        assert_eq!(
            gguf.require::<Strings>("tokenizer.ggml.tokens")
                .unwrap()
                .len(),
            num_tokens
        );
        assert_eq!(gguf.tensor("token_embd.weight").unwrap().ty, GgmlType::Q8_0);
    }
}

fn two_tensors() -> Builder {
    Builder::new()
        .with("general.architecture", "llama")
        .tensor("first", &[3], 0, Encoding::F32.encode(&[1.0, 2.0, 3.0]))
        .tensor(
            "second",
            &[2, 2],
            1,
            Encoding::F16.encode(&[4.0, 5.0, 6.0, 7.0]),
        )
}

fn assert_two_tensors(gguf: &Gguf) {
    let first = gguf.tensor("first").unwrap();
    assert_eq!((first.ty, first.dims), (GgmlType::F32, &[3][..]));
    assert_eq!(first.bytes, Encoding::F32.encode(&[1.0, 2.0, 3.0]));
    let second = gguf.tensor("second").unwrap();
    assert_eq!((second.ty, second.dims), (GgmlType::F16, &[2, 2][..]));
    assert_eq!(second.bytes, Encoding::F16.encode(&[4.0, 5.0, 6.0, 7.0]));
}
