//! Our splitting and merging against the `tokenizers` crate, given the same vocabulary as a `tokenizer.json`.

use serde_json::{Value, json};
use testkit::Random;
use text::{SpecialText, TokenId};

use crate::vocabularies::{bpe, byte_letters, tokenizer};

/// What the vocabularies' own `tokenizer.json` files say about splitting.
fn reference_pre_tokenizer(pre: &str) -> Value {
    let split = |regex: &str| {
        json!([
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ])
    };
    let gpt_2 = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let steps = match pre {
        "gpt-2" => json!([gpt_2]),
        "smollm" => json!([{"type": "Digits", "individual_digits": true}, gpt_2]),
        "llama-bpe" => split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "qwen2" => split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        other => panic!("no reference for {other}"),
    };
    json!({"type": "Sequence", "pretokenizers": steps})
}

/// Merges that often apply to the texts of [`nasty_text`]: random pairs of what there is already.
fn random_merges(random: &mut Random) -> Vec<(String, String)> {
    let letters = byte_letters();
    let used = "abest '12\n\tST.é語\u{301}";
    let mut parts: Vec<String> = used
        .bytes()
        .map(|byte| letters[usize::from(byte)].to_string())
        .collect();
    parts.sort();
    parts.dedup();
    let mut known: std::collections::HashSet<String> =
        letters.iter().map(char::to_string).collect();
    let mut merges = Vec::new();
    while merges.len() < 1500 {
        let [left, right] = [(); 2].map(|()| parts[random.below(parts.len())].clone());
        let joined = format!("{left}{right}");
        if joined.chars().count() <= 6 && known.insert(joined.clone()) {
            parts.push(joined);
            merges.push((left, right));
        }
    }
    merges
}

fn nasty_text(random: &mut Random) -> String {
    const UNITS: [&str; 26] = [
        "a",
        "b",
        "es",
        "test",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "1",
        "22",
        "12345",
        "'s",
        "'T",
        "don't",
        ".",
        "->",
        "(x):",
        "é",
        "e\u{301}",
        "語",
        "👩\u{200d}👧",
        "\u{a0}",
        "\u{3000}",
        "٣",
        "ſ",
    ];
    let num_units = random.below(30);
    (0..num_units)
        .map(|_| UNITS[random.below(UNITS.len())])
        .collect()
}

fn check_against_reference(pre: &str) {
    let mut random = Random::named(7, pre);
    let merges = random_merges(&mut random);
    let ours = tokenizer(&bpe(pre, &[], &merges));
    let vocab: serde_json::Map<String, Value> = (0..ours.vocab() as u32)
        .map(|id| (ours.token_text(TokenId(id)).unwrap().to_owned(), id.into()))
        .collect();
    let reference = json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": reference_pre_tokenizer(pre),
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": merges.iter().map(|(left, right)| format!("{left} {right}")).collect::<Vec<_>>(),
            "ignore_merges": pre == "llama-bpe",
        },
    });
    let reference: tokenizers::Tokenizer = reference.to_string().parse().unwrap();
    let check = |text: &str| {
        let expected = reference.encode_fast(text, false).unwrap();
        let ids: Vec<u32> = ours
            .encode(text, SpecialText::AsText)
            .iter()
            .map(|token| token.0)
            .collect();
        assert_eq!(ids, expected.get_ids(), "{pre} {text:?}");
        let tokens: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
        assert_eq!(ours.decode(&tokens, SpecialText::AsText), text);
    };
    for _ in 0..600 {
        check(&nasty_text(&mut random));
    }
    for unit in [
        "a", " ", "\n", ".", "1", "語", "\u{301}", "a\u{301}", "Zm9vYmE", " \n", "\t", "ab ",
    ] {
        check(&unit.chars().cycle().take(5000).collect::<String>());
        check(&format!(
            "{}b",
            unit.chars().cycle().take(5000).collect::<String>()
        ));
    }
}

/// B10, F10.
#[test]
fn gpt_2_ids_equal_the_reference_on_nasty_and_on_long_text() {
    check_against_reference("gpt-2");
}

/// B10, F10.
#[test]
fn smollm_ids_equal_the_reference_on_nasty_and_on_long_text() {
    check_against_reference("smollm");
}

/// B10, F10.
#[test]
fn llama_bpe_ids_equal_the_reference_on_nasty_and_on_long_text() {
    check_against_reference("llama-bpe");
}

/// B10, F10.
/// Case B10.
#[test]
fn qwen2_ids_equal_the_reference_on_nasty_and_on_long_text() {
    check_against_reference("qwen2");
}
