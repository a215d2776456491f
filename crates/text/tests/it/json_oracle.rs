//! Tokenizers from `tokenizer.json` against the `tokenizers` crate, given the same file.
//!
//! Each file is made here: one for each component, and the components as the families of models combine them.

use serde_json::{Value, json};
use testkit::Random;
use text::{SpecialText, TextEnds, TokenId, Tokenizer};

use crate::vocabularies::byte_letters;

/// Fragments that texts are made of, and that merges are drawn from.
const UNITS: [&str; 36] = [
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
    "ﬁ",
    "Å",
    "ǅ",
    "<s>",
    "</s>",
    "<tool>",
    "<mask>",
    "word",
    "▁",
    "\u{1d165}",
];

fn nasty_text(random: &mut Random) -> String {
    let num_units = random.below(25);
    (0..num_units)
        .map(|_| UNITS[random.below(UNITS.len())])
        .collect()
}

/// Any characters. Of the later planes just an old block: the reference knows an older Unicode.
fn random_unicode(random: &mut Random) -> String {
    let num_characters = random.below(20);
    (0..num_characters)
        .filter_map(|_| {
            let (start, len) = [
                (0, 0x80),
                (0, 0x800),
                (0, 0x2000),
                (0x4e00, 0x1000),
                (0x1_d400, 0x200),
            ][random.below(5)];
            char::from_u32(start + random.below(len) as u32)
        })
        .collect()
}

/// What a test varies; the rest is the same for all.
struct Case {
    name: &'static str,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    /// Words start as letters of bytes, and not as characters.
    letters: bool,
    /// Further fields of the model.
    model: Value,
}

const BYTE_LEVEL: &str =
    r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}"#;

fn byte_level() -> Value {
    serde_json::from_str(BYTE_LEVEL).unwrap()
}

impl Case {
    fn letters(name: &'static str, normalizer: Value, pre_tokenizer: Value) -> Case {
        Case {
            name,
            normalizer,
            pre_tokenizer,
            post_processor: Value::Null,
            decoder: byte_level(),
            letters: true,
            model: json!({}),
        }
    }

    fn characters(name: &'static str, normalizer: Value, pre_tokenizer: Value) -> Case {
        Case {
            name,
            normalizer,
            pre_tokenizer,
            post_processor: Value::Null,
            decoder: json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
            ]}),
            letters: false,
            model: json!({"byte_fallback": true, "unk_token": "<unk>", "fuse_unk": true}),
        }
    }

    fn file(&self) -> Value {
        let (vocab, merges) = self.vocab();
        let mut model = json!({"type": "BPE", "vocab": vocab, "merges": merges});
        let further = self.model.as_object().unwrap().clone();
        model.as_object_mut().unwrap().extend(further);
        let mut num_tokens = vocab.len();
        let added = [
            ("<unk>", json!({"special": true})),
            ("<s>", json!({"special": true})),
            ("</s>", json!({"special": true, "rstrip": self.letters})),
            ("<tool>", json!({})),
            ("<mask>", json!({"lstrip": true, "special": true})),
            ("word", json!({"single_word": true})),
            ("ab", json!({"normalized": true})),
            ("Å", json!({"normalized": true, "rstrip": true})),
        ]
        .map(|(text, attributes)| {
            // What is in the vocabulary already keeps its id.
            let id = vocab.get(text).cloned().unwrap_or_else(|| {
                num_tokens += 1;
                json!(num_tokens - 1)
            });
            added_token(&id, text, &attributes)
        });
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": added,
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "post_processor": self.post_processor,
            "decoder": self.decoder,
            "model": model,
        })
    }

    /// Symbols and random joins of them, with the merges that make these.
    fn vocab(&self) -> (serde_json::Map<String, Value>, Vec<Value>) {
        let mut random = Random::named(11, self.name);
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
        let letter = |byte: u8| byte_letters()[usize::from(byte)].to_string();
        let mut parts: Vec<String> = if self.letters {
            tokens.extend((0..=255).map(letter));
            // Merges of rare bytes would never apply.
            "abest '12\n\tST.é語\u{301}don▁w"
                .bytes()
                .map(letter)
                .collect()
        } else {
            let used = "abest '12\n\tSTdonw.▁é語x():>-<\u{301}f".chars();
            let used: Vec<String> = used.map(String::from).collect();
            tokens.extend(used.iter().cloned());
            used
        };
        if self.model["byte_fallback"] == true {
            tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        }
        // The older form of merges has no place for a space in a text.
        let are_lines = self.letters && random.below(2) == 0;
        let mut merges = Vec::new();
        while merges.len() < 1500 {
            let [left, right] = [(); 2].map(|()| parts[random.below(parts.len())].clone());
            let joined = format!("{left}{right}");
            if joined.chars().count() <= 6 && !tokens.contains(&joined) {
                merges.push(match are_lines {
                    true => json!(format!("{left} {right}")),
                    false => json!([left, right]),
                });
                tokens.push(joined.clone());
                parts.push(joined);
            }
        }
        let vocab = tokens.into_iter().zip(0..);
        let vocab = vocab.map(|(text, id): (_, u32)| (text, id.into()));
        (vocab.collect(), merges)
    }

    fn check(&self) {
        let file = self.file().to_string();
        let reference: tokenizers::Tokenizer = file.parse().unwrap();
        let mut plain_reference = reference.clone();
        plain_reference.set_encode_special_tokens(true);
        let ours = Tokenizer::from_json(file.as_bytes(), &TextEnds::default())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let ids = |tokens: Vec<TokenId>| tokens.iter().map(|token| token.0).collect::<Vec<_>>();
        let check = |text: &str| {
            let label = format!("{} {text:?}", self.name);
            let expected = |reference: &tokenizers::Tokenizer, special| {
                reference
                    .encode_fast(text, special)
                    .unwrap()
                    .get_ids()
                    .to_vec()
            };
            let parsed = ids(ours.encode(text, SpecialText::Parse));
            assert_eq!(parsed, expected(&reference, false), "{label} parsed");
            let plain = ids(ours.encode(text, SpecialText::AsText));
            assert_eq!(plain, expected(&plain_reference, false), "{label} as text");
            let with_bos = ids(ours.encode_with_bos(text, SpecialText::AsText));
            assert_eq!(
                with_bos,
                expected(&plain_reference, true),
                "{label} with BOS"
            );
        };
        let mut random = Random::named(12, self.name);
        for _ in 0..400 {
            check(&nasty_text(&mut random));
            // Of unassigned characters the two libraries of Unicode tables make different things under NFKC and NFKD.
            if !["nfkc", "nfkd", "all"].contains(&self.name) {
                check(&random_unicode(&mut random));
            }
        }
        for unit in ["a", " ", "\n", ".", "1", "語", "a\u{301}", "ab ", " \n"] {
            check(&unit.repeat(2000));
            check(&format!("{}b", unit.repeat(2000)));
        }
    }
}

fn added_token(id: &Value, content: &str, attributes: &Value) -> Value {
    let mut token = json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": false,
    });
    let attributes = attributes.as_object().unwrap().clone();
    token.as_object_mut().unwrap().extend(attributes);
    token
}

fn sequence(key: &str, steps: Value) -> Value {
    json!({"type": "Sequence", key: steps})
}

fn split(regex: &str, behavior: &str, invert: bool) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert})
}

fn split_then_letters(regex: &str) -> Value {
    let letters = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    sequence(
        "pretokenizers",
        json!([split(regex, "Isolated", false), letters]),
    )
}

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

fn begin_with_bos() -> Value {
    json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})
}

/// B10, F10.
#[test]
fn byte_level_families_give_the_ids_of_the_reference() {
    let digits = json!({"type": "Digits", "individual_digits": true});
    let mut llama_3 = Case::letters("llama3", Value::Null, split_then_letters(LLAMA_3));
    llama_3.model = json!({"ignore_merges": true});
    llama_3.post_processor = sequence("processors", json!([byte_level(), begin_with_bos()]));
    for case in [
        Case::letters("gpt2", Value::Null, byte_level()),
        Case::letters(
            "starcoder2",
            Value::Null,
            sequence("pretokenizers", json!([digits, byte_level()])),
        ),
        Case::letters("qwen2", json!({"type": "NFC"}), split_then_letters(QWEN_2)),
        Case::letters("tekken", Value::Null, split_then_letters(TEKKEN)),
        Case::letters("cl100k", Value::Null, split_then_letters(CL100K)),
        llama_3,
    ] {
        case.check();
    }
}

/// B10, F10.
#[test]
fn families_with_byte_fallback_give_the_ids_of_the_reference() {
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = sequence(
        "normalizers",
        json!([{"type": "Prepend", "prepend": "▁"}, space]),
    );
    let metaspace = |scheme: &str, split: bool| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split});
    let merged = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    let mut llama_2 = Case::characters("llama2 legacy", prepend, Value::Null);
    llama_2.post_processor = begin_with_bos();
    let mut without_fallback = Case::characters("no fallback", space.clone(), Value::Null);
    without_fallback.model = json!({"unk_token": "<unk>", "fuse_unk": true});
    let mut unfused = Case::characters("unfused", space.clone(), Value::Null);
    unfused.model = json!({"unk_token": "<unk>"});
    let mut dropped = Case::characters("dropped", space.clone(), Value::Null);
    dropped.model = json!({});
    for case in [
        llama_2,
        Case::characters("llama2 new", Value::Null, metaspace("first", false)),
        Case::characters("always", Value::Null, metaspace("always", true)),
        Case::characters("never", Value::Null, metaspace("never", true)),
        Case::characters(
            "old form",
            Value::Null,
            json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}),
        ),
        Case::characters("gemma", space, merged),
        without_fallback,
        unfused,
        dropped,
    ] {
        case.check();
    }
}

/// B10.
#[test]
fn every_kind_of_step_gives_the_ids_of_the_reference() {
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    let replace =
        json!({"type": "Replace", "pattern": {"Regex": r"\d+|\s+(?!\S)"}, "content": "1"});
    for (name, normalizer) in [
        ("nfd", json!({"type": "NFD"})),
        ("nfkc", json!({"type": "NFKC"})),
        ("nfkd", json!({"type": "NFKD"})),
        ("lowercase", json!({"type": "Lowercase"})),
        ("strip", strip.clone()),
        ("replace", replace.clone()),
        (
            "all",
            sequence(
                "normalizers",
                json!([{"type": "NFKC"}, strip, replace, {"type": "Lowercase"}]),
            ),
        ),
    ] {
        Case::letters(name, normalizer, byte_level()).check();
    }
    let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let mut steps = vec![
        ("prefix", sequence("pretokenizers", json!([prefixed]))),
        (
            "digits",
            json!({"type": "Digits", "individual_digits": false}),
        ),
        ("whitespace", json!({"type": "Whitespace"})),
        ("whitespace split", json!({"type": "WhitespaceSplit"})),
        (
            "punctuation",
            json!({"type": "Punctuation", "behavior": "Contiguous"}),
        ),
        ("bert", json!({"type": "BertPreTokenizer"})),
        (
            "delimiter",
            json!({"type": "CharDelimiterSplit", "delimiter": "a"}),
        ),
    ];
    for behavior in [
        "Removed",
        "Isolated",
        "MergedWithPrevious",
        "MergedWithNext",
        "Contiguous",
    ] {
        for invert in [false, true] {
            steps.push((behavior, split(r"[a1 ]", behavior, invert)));
        }
    }
    for (name, step) in steps {
        let pre_tokenizer = match name {
            "prefix" => step,
            _ => sequence("pretokenizers", json!([step, byte_level()])),
        };
        Case::letters(name, Value::Null, pre_tokenizer).check();
    }
    // Letters that are cut once more.
    let digits = json!({"type": "Digits", "individual_digits": true});
    let mut falcon = Case::letters(
        "falcon",
        Value::Null,
        sequence("pretokenizers", json!([byte_level(), digits])),
    );
    falcon.decoder = byte_level();
    falcon.check();
}
