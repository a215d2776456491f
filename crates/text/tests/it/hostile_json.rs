//! A `tokenizer.json` that contradicts itself, or is none, is refused with what is at fault, never with a panic.

use serde_json::{Value, json};
use text::{TextEnds, TokenId, Tokenizer};

fn file() -> Value {
    json!({
        "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    })
}

fn refusal(json: &[u8]) -> String {
    let read = Tokenizer::from_json(json, &TextEnds::default());
    read.expect_err("it is refused").to_string()
}

/// The refusal of the small file, changed at a place.
fn check(pointer: &str, value: Value, words: &str) {
    let mut file = file();
    *file.pointer_mut(pointer).unwrap() = value;
    let message = refusal(file.to_string().as_bytes());
    assert!(message.contains(words), "{pointer}: {message}");
}

#[test]
fn the_file_that_is_spoilt_here_is_sound() {
    Tokenizer::from_json(file().to_string().as_bytes(), &TextEnds::default()).unwrap();
}

/// B10.
#[test]
fn two_texts_with_one_id_are_refused() {
    check(
        "/model/vocab",
        json!({"a": 0, "b": 1, "ab": 1}),
        "are both token 1",
    );
    check("/added_tokens/0/id", json!(2), "are both token 2");
}

#[test]
fn one_text_with_two_ids_is_refused() {
    let twice = file().to_string().replace(r#""a":0"#, r#""a":0,"a":9"#);
    let message = refusal(twice.as_bytes());
    assert!(message.contains("are both \"a\""), "{message}");
    check(
        "/added_tokens/0/content",
        json!("ab"),
        "\"ab\" is token 3, but 2 in the vocabulary",
    );
    let token = json!({"id": 3, "content": "<s>"});
    check("/added_tokens", json!([token, token]), "has \"<s>\" twice");
}

/// Some vocabularies leave ids out: their rows of the embedding are there all the same.
#[test]
fn ids_that_are_left_out_stand_for_nothing() {
    let mut file = file();
    file["added_tokens"][0]["id"] = json!(9);
    let tokenizer =
        Tokenizer::from_json(file.to_string().as_bytes(), &TextEnds::default()).unwrap();
    assert_eq!(tokenizer.vocab(), 10);
    assert_eq!(tokenizer.token_bytes(TokenId(5)), Some(&b""[..]));
    assert_eq!(tokenizer.token_text(TokenId(9)), Some("<s>"));
}

#[test]
fn an_id_beyond_any_vocabulary_is_refused_before_room_is_made_for_it() {
    check(
        "/added_tokens/0/id",
        json!(4_000_000_000_u32),
        "at most 4194304 ids are supported",
    );
    check("/added_tokens/0/id", json!(-1), "tokenizer.json");
    check("/model/vocab/a", json!(1.5), "tokenizer.json");
}

/// B10.
#[test]
fn merges_that_name_absent_tokens_are_refused() {
    for (merge, words) in [
        (json!("a x"), "names \"x\", which is no token"),
        (json!("b a"), "names \"ba\", which is no token"),
        (json!(["b", "b"]), "names \"bb\", which is no token"),
        (json!("ab"), "is not two texts and a space"),
    ] {
        check("/model/merges/0", merge, words);
    }
    check("/model/merges/0", json!(["a"]), "tokenizer.json");
}

/// B10.
#[test]
fn components_of_unknown_kinds_are_refused_by_name_with_the_known_ones() {
    for kind in ["WordPiece", "WordLevel", "Unigram", "Unheard"] {
        check(
            "/model/type",
            json!(kind),
            &format!("model.type = {kind:?} is not supported (known: BPE)"),
        );
    }
    for (key, known) in [
        ("pre_tokenizer", "ByteLevel"),
        ("decoder", "ByteLevel"),
        ("normalizer", "NFC"),
        ("post_processor", "TemplateProcessing"),
    ] {
        let mut file = file();
        file[key] = json!({"type": "Unheard"});
        let message = refusal(file.to_string().as_bytes());
        let beginning = format!("{key} = \"Unheard\" is not supported (known: ");
        assert!(message.starts_with(&beginning), "{message}");
        assert!(message.contains(known), "{message}");
    }
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
    let open = r#"{"normalizer":{"type":"Sequence","normalizers":["#;
    let deep = format!(
        "{open}{}",
        r#"{"type":"Sequence","normalizers":["#.repeat(100_000)
    );
    assert!(refusal(deep.as_bytes()).contains("recursion limit"));
    assert!(refusal("[".repeat(1_000_000).as_bytes()).contains("tokenizer.json"));
}

#[test]
fn what_is_no_text_or_no_object_is_refused() {
    let mut not_utf8 = file().to_string().replace("<s>", "<~>").into_bytes();
    let at = not_utf8.iter().position(|&byte| byte == b'~').unwrap();
    not_utf8[at] = 0xff;
    assert!(refusal(&not_utf8).contains("invalid unicode code point"));
    for json in ["", "null", "[]", "{}", "\u{feff}{}", "{\"model\": 1}"] {
        assert!(refusal(json.as_bytes()).starts_with("tokenizer key tokenizer.json: "));
    }
    let whole = file().to_string();
    for len in 0..whole.len() {
        refusal(&whole.as_bytes()[..len]);
    }
}
