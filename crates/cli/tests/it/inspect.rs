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
