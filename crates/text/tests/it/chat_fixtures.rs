//! Twelve models' own templates against Python's jinja2. The templates are read where they lie.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use text::{ChatTemplate, TemplateError};

/// When the fixtures were made: noon of 2026-11-30 UTC.
fn fixture_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_040_000)
}

/// B11.
/// Case B11.
#[test]
fn every_conversation_renders_as_in_python_byte_for_byte() {
    let Some(folder) = testkit::fixtures().map(|fixtures| fixtures.join("chat")) else {
        return;
    };
    let cases = std::fs::read_to_string(folder.join("cases.jsonl")).unwrap();
    let mut templates: BTreeMap<String, ChatTemplate> = BTreeMap::new();
    let mut num_cases = 0;
    for case in cases.lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let name = case["template"].as_str().unwrap();
        let template = templates.entry(name.to_owned()).or_insert_with(|| {
            let path = folder.join("templates").join(format!("{name}.jinja"));
            let source = std::fs::read_to_string(path).unwrap();
            let token = |key: &str| case[key].as_str().unwrap();
            ChatTemplate::compile(&source, token("bos_token"), token("eos_token"), controls())
                .unwrap()
                .with_clock(fixture_time)
        });
        check(template, &case);
        num_cases += 1;
    }
    assert_eq!(num_cases, 192);
}

/// Enough for the conversation that types control tokens to be guarded.
fn controls() -> Vec<String> {
    ["<|im_start|>", "<|im_end|>"].map(str::to_owned).to_vec()
}

fn check(template: &ChatTemplate, case: &Value) {
    let label = format!("{} {}", case["template"], case["name"]);
    let extra = Map::from_iter([("tools".to_owned(), case["tools"].clone())]);
    let rendered = template.render(
        case["messages"].as_array().unwrap(),
        case["add_generation_prompt"].as_bool().unwrap(),
        &extra,
    );
    match (case["expected"].as_str(), rendered) {
        (Some(expected), Ok(rendered)) => assert_eq!(rendered.text, expected, "{label}"),
        (None, Err(TemplateError::Refused { reason })) => {
            // Python names the class of its error; the words after it are the template's own.
            let expected = case["error"].as_str().unwrap();
            if let Some(words) = expected.strip_prefix("TemplateError: ") {
                assert_eq!(reason, words, "{label}");
            }
        }
        (expected, rendered) => panic!("{label}: expected {expected:?}, got {rendered:?}"),
    }
}
