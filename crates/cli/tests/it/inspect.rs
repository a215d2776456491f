//! `fulcrum inspect`.

use testkit::tiny;

use crate::support::{Encoding, Tiny, stderr, stdout};

#[test]
fn a_servable_model_is_described_and_accepted() {
    let tiny = Tiny::new();
    let output = tiny.run(&["inspect", tiny.model()]);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    for part in [
        "llama",
        "Q4_0",
        "can be served",
        "chat template",
        "tokenizer",
    ] {
        assert!(said.contains(part), "no {part:?} in:\n{said}");
    }
}

#[test]
fn json_says_the_same_in_one_object() {
    let tiny = Tiny::new();
    let output = tiny.run(&["inspect", tiny.model(), "--json", "--tensors"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("stdout is JSON");
    assert_eq!(report["architecture"], "llama");
    assert_eq!(report["refusals"], serde_json::json!([]));
    assert!(
        report["tensors"]
            .as_array()
            .is_some_and(|tensors| tensors.len() > 10)
    );
}

#[test]
fn the_size_of_the_cache_is_told_for_the_type_that_is_asked_for() {
    let tiny = Tiny::new();
    let block_bytes = |kv_type: &str| {
        let output = tiny.run(&["inspect", tiny.model(), "--json", "--kv-type", kv_type]);
        let report: serde_json::Value =
            serde_json::from_str(&stdout(&output)).expect("stdout is JSON");
        assert_eq!(report["kv_type"], kv_type);
        report["kv_block_bytes"].as_u64().expect("a decoder")
    };
    let values = block_bytes("f16") / 2;
    assert_eq!(block_bytes("bf16"), 2 * values);
    assert_eq!(block_bytes("f32"), 4 * values);
    // A head of 16 keys and 16 values has two scales of two bytes.
    assert_eq!(block_bytes("int8"), values * 36 / 32);
    let text = stdout(&tiny.run(&["inspect", tiny.model(), "--kv-type", "int8"]));
    assert!(text.contains("kB a token (int8)"), "{text}");
}

/// Case B5.
#[test]
fn a_type_that_cannot_be_read_is_named_with_its_tensor() {
    let tiny = Tiny::new();
    let mut file = tiny::llama(Encoding::F32).build();
    file.set_u32("tensor[blk.0.attn_q.weight].type", 16);
    let path = tiny.path("unsupported.gguf");
    file.write(path.as_ref());
    let output = tiny.run(&["inspect", &path]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}{}", stderr(&output));
    assert!(
        said.contains("blk.0.attn_q.weight") && said.contains("IQ2_XXS"),
        "{said}"
    );
}

#[test]
fn a_weight_that_is_not_a_number_ends_the_load_and_names_its_tensor() {
    let tiny = Tiny::new();
    let mut file = tiny::llama(Encoding::F32).build();
    let start = file.field("tensor[blk.1.ffn_up.weight].data").start;
    file.bytes[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let path = tiny.path("broken.gguf");
    file.write(path.as_ref());
    let output = tiny.run(&[
        "logits",
        "--model",
        &path,
        "--prompt",
        "a",
        "--out",
        &tiny.path("o"),
    ]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("blk.1.ffn_up.weight") && said.contains("row 0"),
        "{said}"
    );
}

#[test]
fn names_in_a_file_cannot_forge_lines() {
    let tiny = Tiny::new();
    let path = tiny.path("forged.gguf");
    let name = "x\n  can be served\u{1b}[2J";
    tiny::llama(Encoding::F32)
        .with("general.name", name)
        .write(path.as_ref());
    let said = stdout(&tiny.run(&["inspect", &path]));
    assert_eq!(
        said.lines()
            .filter(|line| *line == "  can be served")
            .count(),
        1,
        "{said}"
    );
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_reader_that_goes_away_or_a_full_disk_is_no_panic() {
    let tiny = Tiny::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let output = crate::support::fulcrum(tiny.folder.path())
        .args(["inspect", tiny.model(), "--tensors"])
        .stdout(full)
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("error: cannot write to standard output"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_is_no_model_file_is_told_in_one_line_with_a_hint() {
    let tiny = Tiny::new();
    let path = tiny.path("notes.gguf");
    std::fs::write(&path, "these are not the tensors you are looking for")
        .expect("the folder is writable");
    for arguments in [["inspect", &path], ["inspect", "no-such-model"]] {
        let output = tiny.run(&arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("error: ") && !said.contains("panicked"),
            "{said}"
        );
    }
}
