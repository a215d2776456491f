//! The real models' tokenizers against ids from an independent implementation.

use formats::gguf::Gguf;
use text::{SpecialText, TokenId, Tokenizer};

/// B10: every row of a fixture in all three columns, and back to the text.
fn check_every_row(model: &str, fixture: &str) {
    let (Some(model), Some(fixtures)) = (testkit::real_model(model), testkit::fixtures()) else {
        return;
    };
    let file = Gguf::open(&model).unwrap();
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    let rows = std::fs::read_to_string(fixtures.join("tokenizer").join(fixture)).unwrap();
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let text = row["text"].as_str().unwrap();
        let expected = |column: &str| -> Vec<TokenId> {
            let ids = row[column].as_array().unwrap();
            ids.iter()
                .map(|id| TokenId(id.as_u64().unwrap() as u32))
                .collect()
        };
        let plain = tokenizer.encode(text, SpecialText::AsText);
        assert_eq!(plain, expected("ids"), "{text:?}");
        let parsed = tokenizer.encode(text, SpecialText::Parse);
        assert_eq!(parsed, expected("ids_special"), "{text:?}");
        let with_bos = tokenizer.encode_with_bos(text, SpecialText::AsText);
        assert_eq!(with_bos, expected("ids_bos"), "{text:?}");
        assert_eq!(tokenizer.decode(&plain, SpecialText::AsText), text);
        assert_eq!(tokenizer.decode(&parsed, SpecialText::Parse), text);
    }
    assert!(rows.lines().count() >= 399);
}

#[test]
fn smollm2_ids_equal_the_reference_in_every_row() {
    check_every_row("smollm2-135m", "smollm2.jsonl");
}

#[test]
fn gemma3_ids_equal_the_reference_in_every_row() {
    check_every_row("gemma3-270m", "gemma3.jsonl");
}
