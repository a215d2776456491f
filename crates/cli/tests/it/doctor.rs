//! `fulcrum doctor`: a sound model passes, and each planted fault is found and named.

use serde_json::{Value, json};
use testkit::gguf::Builder;
use testkit::tiny;

use crate::folders::folder;
use crate::support::{Encoding, Tiny, stderr, stdout};

/// The report on a tiny model that `change` has made ill, and the exit code.
fn examined(change: impl FnOnce(Builder) -> Builder) -> (Value, Option<i32>) {
    let tiny = Tiny::new();
    let path = tiny.path("examined.gguf");
    change(tiny::llama(Encoding::Q4_0)).write(path.as_ref());
    let output = tiny.run(&["doctor", &path, "--json", "--threads", "1"]);
    let report = serde_json::from_str(&stdout(&output));
    let report = report.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (report, output.status.code())
}

/// Checks that just `check` fails, for a reason with `words`.
fn expect_fault(check: &str, words: &str, change: impl FnOnce(Builder) -> Builder) {
    let (report, code) = examined(change);
    let failed: Vec<&Value> = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|finding| finding["verdict"] == "failed")
        .collect();
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(report["sound"], false);
    let reason = failed
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("{check} did not fail: {report:#}"))["reason"]
        .as_str();
    assert!(
        reason.is_some_and(|reason| reason.contains(words)),
        "{report:#}"
    );
}

#[test]
fn a_sound_model_passes_every_check_with_a_line_each() {
    let tiny = Tiny::new();
    let output = tiny.run(&["doctor", tiny.model(), "--threads", "1"]);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    for check in [
        "load",
        "vocabulary",
        "round-trip",
        "special-tokens",
        "template",
        "template-tools",
        "generation-prompt",
        "thinking",
        "double-bos",
        "end-tokens",
        "injection",
        "speed",
    ] {
        assert!(
            said.contains(&format!(" {check}: ")),
            "no {check} in:\n{said}"
        );
    }
    assert!(said.contains("0 failed"), "{said}");
    assert!(said.contains("tokens/s with 1 threads"), "{said}");
}

#[test]
fn a_template_that_writes_bos_twice_is_found() {
    let template = "{{ bos_token }}{{ bos_token }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}";
    expect_fault("double-bos", "2 times", |model| {
        model.with("tokenizer.chat_template", template)
    });
}

#[test]
fn a_template_that_drops_messages_is_found() {
    expect_fault("template", "drops", |model| {
        model.with("tokenizer.chat_template", "hello")
    });
}

#[test]
fn a_template_that_refuses_everything_is_found() {
    let template = "{{ raise_exception('never') }}";
    expect_fault("template", "never", |model| {
        model.with("tokenizer.chat_template", template)
    });
}

#[test]
fn a_marker_that_is_no_token_is_found() {
    let template = "{% for m in messages %}<|turn|>{{ m.content }}<|im_end|>{% endfor %}";
    expect_fault("template-tokens", "<|turn|>", |model| {
        model.with("tokenizer.chat_template", template)
    });
}

#[test]
fn a_turn_that_ends_with_another_token_than_answers_is_found() {
    let template = "{% for m in messages %}{{ m.content }}<|im_start|>{% endfor %}";
    expect_fault("end-tokens", "<|im_start|>", |model| {
        model.with("tokenizer.chat_template", template)
    });
}

#[test]
fn a_tokenizer_that_is_not_known_is_named() {
    expect_fault("tokenizer", "unheard-of", |model| {
        model.with("tokenizer.ggml.pre", "unheard-of")
    });
}

#[test]
fn a_file_that_is_no_model_fails_to_load() {
    let tiny = Tiny::new();
    let path = tiny.path("no-model.gguf");
    std::fs::write(&path, "no model").expect("it can be written");
    let output = tiny.run(&["doctor", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("FAILED   load: "),
        "{}",
        stdout(&output)
    );
}

/// A byte-level `tokenizer.json` with 259 tokens and no merges.
fn tokenizer_json() -> Value {
    let mut spare = 0x100_u32..;
    let mut vocab: serde_json::Map<String, Value> = (0..=255_u32)
        .map(|byte| {
            let is_printed = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let letter = if is_printed {
                byte
            } else {
                spare.next().expect("endless")
            };
            let letter = char::from_u32(letter).expect("no surrogate");
            (letter.to_string(), byte.into())
        })
        .collect();
    let mut added = Vec::new();
    for (id, text) in (256..).zip(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) {
        vocab.insert(text.to_owned(), id.into());
        added.push(json!({"id": id, "content": text, "special": true}));
    }
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false});
    json!({
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    })
}

#[test]
fn an_end_token_outside_the_vocabulary_is_found_without_a_tokenizer() {
    let Some(tiny) = folder("llama") else { return };
    for (ids, verdict, words) in [
        (json!([2, 1_000_000]), "failed", "1000000"),
        // The embedding has 320 rows: the first id that has none, and the last that has one.
        (json!(320), "failed", "[320]"),
        (json!([2, 319]), "ok", "[2, 319]"),
    ] {
        let settings = json!({"eos_token_id": ids}).to_string();
        std::fs::write(tiny.model.join("generation_config.json"), settings)
            .expect("the folder is writable");
        let output = tiny.run(&["doctor", tiny.model(), "--json", "--threads", "1"]);
        let report: Value = serde_json::from_str(&stdout(&output)).expect("one object");
        let findings = report["findings"].as_array().expect("a list");
        let finding = findings.iter().find(|it| it["check"] == "end-tokens");
        let finding = finding.unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!(finding["verdict"], verdict, "{report:#}");
        let reason = finding["reason"].as_str().expect("words");
        assert!(reason.contains(words), "{reason}");
        let is_sound = verdict == "ok";
        assert_eq!(output.status.success(), is_sound, "{report:#}");
        assert_eq!(report["sound"], is_sound);
    }
}

#[test]
fn a_folder_is_examined_as_a_file_is() {
    let Some(tiny) = folder("llama") else { return };
    let examine = || {
        let output = tiny.run(&["doctor", tiny.model(), "--json", "--threads", "1"]);
        let report: Value = serde_json::from_str(&stdout(&output)).expect("one object");
        (report, output.status.code())
    };
    let verdict = |report: &Value, check: &str| {
        let findings = report["findings"].as_array().expect("a list");
        let finding = findings.iter().find(|finding| finding["check"] == check);
        finding.map_or(Value::Null, |finding| finding["verdict"].clone())
    };
    let (report, code) = examine();
    assert_eq!(verdict(&report, "tokenizer"), "warning", "{report:#}");
    assert_eq!(code, Some(0), "{report:#}");

    let write = |name: &str, text: &str| {
        std::fs::write(tiny.model.join(name), text).expect("the folder is writable");
    };
    write("tokenizer.json", &tokenizer_json().to_string());
    write("chat_template.jinja", tiny::CHAT_TEMPLATE);
    let (report, code) = examine();
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(verdict(&report, "round-trip"), "ok", "{report:#}");
    assert_eq!(verdict(&report, "end-tokens"), "ok", "{report:#}");

    write("chat_template.jinja", "{% if %}");
    let (report, code) = examine();
    assert_eq!(verdict(&report, "template"), "failed", "{report:#}");
    assert_eq!(code, Some(1));
}
