//! Our splitting and merging against the `tokenizers` crate, given the same vocabulary as a `tokenizer.json`.

use serde_json::{Value, json};
use testkit::Random;
use text::{SpecialText, TokenId};
use unicode_normalization::UnicodeNormalization as _;

use crate::vocabularies::{bpe, byte_letters, tokenizer};

/// The letters that DeepSeek's `tokenizer.json` lists.
const DEEPSEEK_LETTERS: &str = "\
    \u{41}-\u{5a}\u{61}-\u{7a}\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\
    \u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\
    \u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\
    \u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\
    \u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\
    \u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\
    \u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\
    \u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\
    \u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\
    \u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\
    \u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\
    \u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\
    \u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\
    \u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}\
";

/// What the vocabularies' own `tokenizer.json` files say about splitting.
fn reference_pre_tokenizer(pre: &str) -> Value {
    let split = |regex: &str| {
        json!([
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ])
    };
    let gpt_2 = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let steps = match pre {
        "gpt-2" | "olmo" => json!([gpt_2]),
        "smollm" | "starcoder" | "refact" => json!([digits, gpt_2]),
        "llama-bpe" | "dbrx" | "smaug-bpe" => split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" => split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "qwen35" => split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "tekken" => split(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "gpt-4o" | "llama4" => split(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "deepseek-llm" => {
            let isolated = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
            json!([
                isolated("[\r\n]"),
                isolated(&format!(r"\s?[{DEEPSEEK_LETTERS}]+")),
                isolated(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
                isolated(r"\s+$"),
                isolated("[一-龥\u{800}-一가-\u{d7ff}]+"),
                digits,
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ])
        }
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
    const UNITS: [&str; 33] = [
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
        "ABc",
        "\u{301}",
        "/",
        "ʔ",
        "„",
        "。",
        "한",
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
    let takes_whole_words = ["llama-bpe", "tekken"].contains(&pre);
    let composes = ["olmo", "qwen2", "qwen35"].contains(&pre);
    let reference = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": composes.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": reference_pre_tokenizer(pre),
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": merges.iter().map(|(left, right)| format!("{left} {right}")).collect::<Vec<_>>(),
            "ignore_merges": takes_whole_words,
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
        let read = match composes {
            true => text.nfc().collect(),
            false => text.to_owned(),
        };
        assert_eq!(ours.decode(&tokens, SpecialText::AsText), read);
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

/// B10, F10. Mistral Nemo, Phi 4 mini.
#[test]
fn ids_of_vocabularies_that_cut_at_capital_letters_equal_the_reference() {
    for pre in ["tekken", "gpt-4o", "llama4"] {
        check_against_reference(pre);
    }
}

/// B10, F10. StarCoder 2, Granite.
#[test]
fn ids_of_vocabularies_that_cut_digits_first_equal_the_reference() {
    for pre in ["starcoder", "refact"] {
        check_against_reference(pre);
    }
}

/// B10, F10. OLMo 2, Phi 4, StableLM 2.
#[test]
fn ids_of_vocabularies_that_merge_every_word_equal_the_reference() {
    for pre in ["dbrx", "smaug-bpe", "deepseek-r1-qwen", "stablelm2"] {
        check_against_reference(pre);
    }
}

/// B10, F10.
#[test]
fn ids_of_vocabularies_that_compose_text_equal_the_reference() {
    for pre in ["olmo", "qwen35"] {
        check_against_reference(pre);
    }
}

/// B10. What a GGUF file of Qwen 2 does not say, but its `tokenizer.json`.
#[test]
fn qwen2_reads_a_letter_and_its_accent_as_one_letter() {
    let qwen = tokenizer(&bpe("qwen2", &[], &[]));
    let gpt = tokenizer(&bpe("gpt-2", &[], &[]));
    let [typed, composed] = ["e\u{301}", "é"];
    let encode = |tokenizer: &text::Tokenizer, text| tokenizer.encode(text, SpecialText::AsText);
    assert_eq!(encode(&qwen, typed), encode(&qwen, composed));
    assert_ne!(encode(&gpt, typed), encode(&gpt, composed));
    assert_eq!(
        qwen.decode(&encode(&qwen, typed), SpecialText::AsText),
        composed
    );
    assert_eq!(gpt.decode(&encode(&gpt, typed), SpecialText::AsText), typed);
}

/// B10, F10. A sequence of cuts, each of what the one before has left and found.
#[test]
fn ids_of_vocabularies_that_cut_several_times_equal_the_reference() {
    check_against_reference("deepseek-llm");
}
