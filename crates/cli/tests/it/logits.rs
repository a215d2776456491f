//! `fulcrum logits`.

use formats::safetensors::{Dtype, Safetensors};

use crate::support::{Encoding, Tiny, stderr};

/// Shape and values of the tensor that was written.
fn read(path: &str) -> (Vec<usize>, Vec<f32>) {
    let file = Safetensors::open(path.as_ref()).expect("the file is sound");
    let tensor = file.tensor("logits").expect("the tensor is called logits");
    assert_eq!(tensor.dtype, Dtype::F32);
    let values = tensor
        .bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    (tensor.shape.to_vec(), values)
}

fn logits(tiny: &Tiny, arguments: &[&str]) -> (Vec<usize>, Vec<f32>) {
    let (ids, out) = (tiny.path("ids.json"), tiny.path("out.safetensors"));
    std::fs::write(&ids, "[1, 5, 9, 20, 7]").expect("the folder is writable");
    let mut all = vec![
        "logits",
        "--model",
        tiny.model(),
        "--ids",
        &ids,
        "--out",
        &out,
    ];
    all.extend(arguments);
    let output = tiny.run(&all);
    assert!(output.status.success(), "{}", stderr(&output));
    read(&out)
}

#[test]
fn every_position_gets_a_row_unless_some_are_asked_for() {
    let tiny = Tiny::new();
    let (shape, all) = logits(&tiny, &[]);
    let vocab = shape[1];
    assert_eq!((shape[0], all.len()), (5, 5 * vocab));
    let (shape, some) = logits(&tiny, &["--rows", "3,0,3"]);
    assert_eq!(shape, [3, vocab]);
    let row = |idx: usize| &all[idx * vocab..][..vocab];
    assert_eq!(some, [row(3), row(0), row(3)].concat());
}

#[test]
fn exact_arithmetic_is_close_to_the_fast_one_but_not_the_same() {
    let tiny = Tiny::new();
    let (_, fast) = logits(&tiny, &[]);
    let (_, exact) = logits(&tiny, &["--exact"]);
    let difference = |a: f32, b: f32| f64::from((a - b).abs());
    let worst = fast
        .iter()
        .zip(&exact)
        .map(|(a, b)| difference(*a, *b))
        .fold(0.0, f64::max);
    let largest = exact
        .iter()
        .map(|value| f64::from(value.abs()))
        .fold(0.0, f64::max);
    assert!(
        worst > 0.0 && worst < 0.2 * largest,
        "worst difference {worst}, largest logit {largest}"
    );
}

#[test]
fn an_int8_cache_is_close_to_the_usual_one_but_not_the_same() {
    let tiny = Tiny::new();
    let (_, usual) = logits(&tiny, &[]);
    let (_, int8) = logits(&tiny, &["--kv-type", "int8"]);
    let pairs = usual.iter().zip(&int8);
    let apart = pairs.map(|(a, b)| f64::from((a - b).abs()));
    let worst = apart.fold(0.0, f64::max);
    let largest = usual
        .iter()
        .fold(0.0, |a, b| f64::max(a, f64::from(b.abs())));
    assert!(
        worst > 0.0 && worst < 0.2 * largest,
        "worst difference {worst}, largest logit {largest}"
    );
}

#[test]
fn an_exact_model_with_a_rounded_cache_is_refused() {
    let tiny = Tiny::new();
    let (ids, out) = (tiny.path("ids.json"), tiny.path("out.safetensors"));
    std::fs::write(&ids, "[1, 5]").expect("the folder is writable");
    let mut all = vec![
        "logits",
        "--model",
        tiny.model(),
        "--ids",
        &ids,
        "--out",
        &out,
    ];
    all.extend(["--exact", "--kv-type", "int8"]);
    let output = tiny.run(&all);
    let words = stderr(&output);
    assert!(!output.status.success());
    for part in ["--kv-type int8", "--exact", "hint:"] {
        assert!(words.contains(part), "no {part:?} in {words}");
    }
}

#[test]
fn the_types_of_the_weights_are_told_with_the_reason() {
    let tiny = Tiny::new();
    let (ids, out) = (tiny.path("ids.json"), tiny.path("out.safetensors"));
    std::fs::write(&ids, "[1, 5]").expect("the folder is writable");
    let wide = tiny.path("wide.gguf");
    testkit::tiny::llama(Encoding::BF16).write(wide.as_ref());
    for (model, flags, held, reason) in [
        (tiny.model(), &[][..], "(Q4_0: ", "as the file has them"),
        (tiny.model(), &["--exact"], "(F32: ", "as --exact asks"),
        (&wide, &[], "(BF16: ", "because they fit in half of"),
        (
            &wide,
            &["--quantize", "q8_0"],
            "Q8_0: ",
            "as --quantize asks",
        ),
    ] {
        let mut all = vec!["logits", "--model", model, "--ids", &ids, "--out", &out];
        all.extend(flags);
        let output = tiny.run(&all);
        let words = stderr(&output);
        assert!(output.status.success(), "{words}");
        assert!(output.stdout.is_empty(), "{flags:?}");
        let line = words.lines().find(|line| line.starts_with("weights take "));
        let line = line.unwrap_or_else(|| panic!("{flags:?}: {words}"));
        assert!(line.contains(held) && line.contains(reason), "{line}");
    }
}

#[test]
fn bad_ids_and_rows_are_refused_and_nothing_is_written() {
    let tiny = Tiny::new();
    let (ids, out) = (tiny.path("ids.json"), tiny.path("out.safetensors"));
    let too_long = format!("[{}1]", "1,".repeat(1_000_000));
    for (content, rows) in [
        ("[1, 99999999]", "0"),
        ("[1, -1]", "0"),
        ("\"a\"", "0"),
        ("[]", "0"),
        ("[1, 2]", "2"),
        (too_long.as_str(), "0"),
    ] {
        std::fs::write(&ids, content).expect("the folder is writable");
        let output = tiny.run(&[
            "logits",
            "--model",
            tiny.model(),
            "--ids",
            &ids,
            "--rows",
            rows,
            "--out",
            &out,
        ]);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{content}: {}",
            stderr(&output)
        );
        assert!(!std::path::Path::new(&out).exists(), "{content}");
    }
}
