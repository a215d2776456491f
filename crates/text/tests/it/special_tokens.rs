//! Control and user-defined tokens, BOS, end tokens, byte fallback, and the way back to text.

use serde_json::json;
use testkit::gguf::Builder;
use text::{SpecialText, TextEnds, TokenId, Tokenizer};

use crate::vocabularies::{
    BYTE, CONTROL, NORMAL, Tokens, UNKNOWN, USER_DEFINED, bpe, drawn, spm, tokenizer,
};

const SPECIALS: [(&str, i32); 5] = [
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<think>", USER_DEFINED),
    ("<|im_end|>!", CONTROL),
    ("<th", USER_DEFINED),
];

fn parts(tokenizer: &Tokenizer, text: &str, special: SpecialText) -> String {
    drawn(tokenizer, &tokenizer.encode(text, special))
}

#[test]
fn control_tokens_are_parsed_only_on_request_and_user_defined_ones_always() {
    let tokenizer = tokenizer(&bpe("gpt-2", &SPECIALS, &[]));
    let text = "a<think><|im_end|>b";
    assert_eq!(
        parts(&tokenizer, text, SpecialText::Parse),
        "a|<think>|<|im_end|>|b"
    );
    assert_eq!(
        parts(&tokenizer, text, SpecialText::AsText),
        "a|<think>|<|||i|m|_|e|n|d|||>|b"
    );
}

#[test]
fn the_longest_special_token_at_a_place_counts() {
    let tokenizer = tokenizer(&bpe("gpt-2", &SPECIALS, &[]));
    assert_eq!(
        parts(&tokenizer, "<|im_end|>!", SpecialText::Parse),
        "<|im_end|>!"
    );
    assert_eq!(parts(&tokenizer, "<thin", SpecialText::AsText), "<th|i|n");
}

/// A SentencePiece vocabulary as Phi-3 has it: turns, a tool's marker that is user-defined, and `</s>` that says so, too.
fn phi3(name: &str, architecture: &str) -> Tokenizer {
    let mut tokens = Tokens::default();
    tokens.push("<unk>", UNKNOWN);
    tokens.push("<s>", CONTROL);
    tokens.push("</s>", USER_DEFINED);
    for byte in 0..=255 {
        tokens.push(&format!("<0x{byte:02X}>"), BYTE);
    }
    for text in ["<|endoftext|>", "<|user|>", "<|end|>"] {
        tokens.push(text, CONTROL);
    }
    tokens.push("<|tool|>", USER_DEFINED);
    for piece in ["▁", "a", "b"] {
        tokens.push(piece, NORMAL);
    }
    let scores = vec![0.0_f32; tokens.texts.len()];
    let file = Builder::new()
        .with("general.name", name)
        .with("general.architecture", architecture)
        .with("tokenizer.ggml.model", "llama")
        .with("tokenizer.ggml.tokens", tokens.texts)
        .with("tokenizer.ggml.token_type", tokens.types)
        .with("tokenizer.ggml.scores", scores)
        .with("tokenizer.ggml.add_space_prefix", false)
        .with("tokenizer.ggml.bos_token_id", 1_u32)
        .with("tokenizer.ggml.unknown_token_id", 0_u32);
    tokenizer(&file)
}

/// Each token's text, with the white space it takes in front of an `a`.
const PHI3_TEXTS: [(&str, &str); 6] = [
    ("<|user|>\n a", "<|user|>|a"),
    ("<|end|> \t\n<|user|>\r\na", "<|end|>|<|user|>|a"),
    ("</s>\na", "</s>|a"),
    ("<|tool|> a", "<|tool|>|a"),
    ("<s> a", "<s>|▁|a"),
    ("<|endoftext|>\na", "<|endoftext|>|<0x0A>|a"),
];

#[test]
fn special_tokens_of_phi3_take_the_white_space_behind_them() {
    for (name, architecture) in [
        ("Phi-3-mini-4k-instruct", "llama"),
        ("my Phi3 finetune", "phi3"),
        ("Phi 3.5 Mini Instruct", "phi3"),
    ] {
        let tokenizer = phi3(name, architecture);
        for (text, expected) in PHI3_TEXTS {
            let actual = parts(&tokenizer, text, SpecialText::Parse);
            assert_eq!(actual, expected, "{name}: {text:?}");
        }
        // Before a token it stays, and so does what follows the text of one that nobody parses.
        assert_eq!(
            parts(&tokenizer, "a <|end|>", SpecialText::Parse),
            "a|▁|<|end|>"
        );
        let typed = parts(&tokenizer, "<|user|> a", SpecialText::AsText);
        assert!(typed.ends_with("<0x3E>|▁|a"), "{typed}");
    }
}

#[test]
fn special_tokens_of_other_models_leave_white_space_alone() {
    let llama = phi3("Llama 2", "llama");
    for (text, expected) in [
        ("<|user|> a", "<|user|>|▁|a"),
        ("<|end|>\na", "<|end|>|<0x0A>|a"),
        ("<|tool|> a", "<|tool|>|▁|a"),
    ] {
        assert_eq!(parts(&llama, text, SpecialText::Parse), expected);
    }
    // Phi-4 mini: the same architecture with a byte-level vocabulary.
    let file = bpe("gpt-2", &SPECIALS, &[]).with("general.architecture", "phi3");
    let byte_level = tokenizer(&file);
    assert_eq!(
        parts(&byte_level, "<|im_start|> a", SpecialText::Parse),
        "<|im_start|>|Ġ|a"
    );
}

/// The same tokens in both kinds of file give the same ids.
#[test]
fn phi3_reads_the_same_from_a_gguf_file_and_from_a_folder() {
    let gguf = phi3("Phi-3-mini-4k-instruct", "phi3");
    let mut vocab = serde_json::Map::new();
    let mut added = Vec::new();
    for id in 0..gguf.vocab() {
        let token = TokenId(id as u32);
        let content = gguf.token_text(token).expect("no id is left out");
        vocab.insert(content.to_owned(), id.into());
        let is_plain = ["<unk>", "<s>", "<|endoftext|>"].contains(&content);
        if content.starts_with('<') && !content.starts_with("<0x") {
            added.push(json!({
                "id": id, "content": content, "special": content != "</s>" && content != "<|tool|>",
                "lstrip": false, "rstrip": !is_plain, "single_word": false, "normalized": false,
            }));
        }
    }
    let file = json!({
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
        ]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", "byte_fallback": true},
    });
    let folder = Tokenizer::from_json(file.to_string().as_bytes(), &TextEnds::default());
    let folder = folder.expect("it is sound");
    for (text, _) in PHI3_TEXTS {
        for special in [SpecialText::Parse, SpecialText::AsText] {
            let (of_gguf, of_folder) = (gguf.encode(text, special), folder.encode(text, special));
            assert_eq!(of_gguf, of_folder, "{text:?} {special:?}");
        }
    }
}

/// Case B9: neither merges nor whole words of the vocabulary spell a control token.
#[test]
fn no_merge_makes_a_control_token() {
    let lines = ["e n", "en d"].map(str::to_owned).to_vec();
    for pre in ["gpt-2", "llama-bpe"] {
        // The second merge spells the control token.
        let merges = [("e".to_owned(), "n".to_owned())];
        let file = bpe(pre, &[("end", CONTROL)], &merges);
        let tokenizer = tokenizer(&file.with("tokenizer.ggml.merges", lines.clone()));
        assert_eq!(parts(&tokenizer, "end", SpecialText::AsText), "en|d");
        assert_eq!(parts(&tokenizer, "end", SpecialText::Parse), "end");
    }
    let file = spm(&["<", "s", ">", "<s", "s>"]);
    let tokenizer = tokenizer(&file.with("tokenizer.ggml.add_space_prefix", false));
    assert_eq!(parts(&tokenizer, "<s>", SpecialText::AsText), "<s|>");
    assert_eq!(parts(&tokenizer, "<s>", SpecialText::Parse), "<s>");
}

/// Case B8.
#[test]
fn bos_follows_the_files_rule_and_is_never_doubled() {
    let file = bpe("gpt-2", &SPECIALS, &[]).with("tokenizer.ggml.bos_token_id", 0_u32);
    let with_rule = |add: bool| tokenizer(&file.clone().with("tokenizer.ggml.add_bos_token", add));
    let encoded = |tokenizer: &Tokenizer, text: &str, special: SpecialText| {
        drawn(tokenizer, &tokenizer.encode_with_bos(text, special))
    };
    let adds = with_rule(true);
    assert_eq!(encoded(&adds, "a", SpecialText::AsText), "<|im_start|>|a");
    assert_eq!(encoded(&adds, "", SpecialText::AsText), "<|im_start|>");
    assert_eq!(
        encoded(&adds, "<|im_start|>a", SpecialText::Parse),
        "<|im_start|>|a"
    );
    assert_eq!(
        encoded(&adds, "<|im_start|>", SpecialText::AsText),
        "<|im_start|>|<|||i|m|_|s|t|a|r|t|||>"
    );
    assert_eq!(encoded(&with_rule(false), "a", SpecialText::AsText), "a");
}

/// B8: what llama.cpp assumes for files that do not say.
#[test]
fn without_a_rule_in_the_file_sentencepiece_and_llama_3_add_bos_and_gpt_2_does_not() {
    let starts_with_bos = |file: &testkit::gguf::Builder| {
        let tokenizer = tokenizer(file);
        tokenizer.encode_with_bos("a", SpecialText::AsText).first() == tokenizer.bos().as_ref()
    };
    let with_bos = |pre: &str| bpe(pre, &SPECIALS, &[]).with("tokenizer.ggml.bos_token_id", 0_u32);
    assert!(starts_with_bos(&spm(&["a"])));
    assert!(starts_with_bos(&with_bos("llama-bpe")));
    assert!(starts_with_bos(&with_bos("tekken")));
    for pre in ["gpt-2", "smollm", "qwen2", "dbrx", "gpt-4o", "deepseek-llm"] {
        assert!(!starts_with_bos(&with_bos(pre)), "{pre}");
    }
}

#[test]
fn answers_end_at_eos_eot_and_well_known_control_texts() {
    let specials = [
        ("<eos>", CONTROL),
        ("<turn>", CONTROL),
        ("<|eot_id|>", CONTROL),
        ("<|im_end|>", USER_DEFINED),
        ("<|end|>", NORMAL),
        ("<other>", CONTROL),
    ];
    let tokenizer = tokenizer(
        &bpe("gpt-2", &specials, &[])
            .with("tokenizer.ggml.eos_token_id", 0_u32)
            .with("tokenizer.ggml.eot_token_id", 1_u32),
    );
    assert_eq!(tokenizer.eos(), Some(TokenId(0)));
    assert_eq!(
        drawn(&tokenizer, tokenizer.end_tokens()),
        "<eos>|<turn>|<|im_end|>|<|eot_id|>"
    );
    assert!(
        tokenizer.is_control(TokenId(3)),
        "an end of turn is no text"
    );
    assert!(!tokenizer.is_control(TokenId(4)));
}

#[test]
fn the_end_of_a_message_is_not_the_end_of_the_answer_where_return_exists() {
    let specials = [
        ("<|end|>", CONTROL),
        ("<|return|>", CONTROL),
        ("<|call|>", CONTROL),
    ];
    let tokenizer = tokenizer(&bpe("gpt-2", &specials, &[]));
    assert_eq!(
        drawn(&tokenizer, tokenizer.end_tokens()),
        "<|return|>|<|call|>"
    );
}

#[test]
fn a_character_without_a_token_falls_back_to_its_bytes() {
    let tokenizer = tokenizer(&spm(&["▁", "h", "i", "hi", "▁hi"]));
    let tokens = tokenizer.encode("hi é", SpecialText::AsText);
    assert_eq!(drawn(&tokenizer, &tokens), "▁hi|▁|<0xC3>|<0xA9>");
    assert_eq!(tokenizer.decode(&tokens, SpecialText::AsText), "hi é");
    assert_eq!(tokenizer.token_bytes(tokens[2]), Some(&b"\xc3"[..]));
}

#[test]
fn unknown_characters_in_a_row_are_one_unknown_token_where_there_are_no_byte_tokens() {
    let file = spm(&["a"]).with("tokenizer.ggml.add_space_prefix", false);
    // Bytes become ordinary text tokens.
    let types: Vec<i32> = [2, 3, 3]
        .into_iter()
        .chain([NORMAL; 256])
        .chain([NORMAL])
        .collect();
    assert_eq!(BYTE, 6);
    let tokenizer = tokenizer(&file.with("tokenizer.ggml.token_type", types));
    assert_eq!(
        parts(&tokenizer, "aéèaé", SpecialText::AsText),
        "a|<unk>|a|<unk>"
    );
}

#[test]
fn the_space_that_encoding_puts_before_text_is_taken_away_by_decoding() {
    let tokenizer = tokenizer(&spm(&["▁", "a", "▁a"]));
    for text in ["a", " a", "  a ", "a</s>a</s> a"] {
        let tokens = tokenizer.encode(text, SpecialText::Parse);
        assert_eq!(tokenizer.decode(&tokens, SpecialText::Parse), text);
    }
    assert_eq!(
        parts(&tokenizer, "a</s>a", SpecialText::Parse),
        "▁a|</s>|▁a"
    );
}

#[test]
fn decoding_leaves_out_control_tokens_and_mends_what_is_not_utf8() {
    let tokenizer = tokenizer(&bpe("gpt-2", &SPECIALS, &[]));
    let mut tokens = tokenizer.encode("é<|im_end|>", SpecialText::Parse);
    assert_eq!(tokenizer.decode(&tokens, SpecialText::AsText), "é");
    assert_eq!(tokenizer.decode(&tokens, SpecialText::Parse), "é<|im_end|>");
    assert_eq!(
        tokenizer.decode(&tokens[..1], SpecialText::AsText),
        "\u{fffd}"
    );
    tokens.push(TokenId(u32::MAX));
    assert_eq!(tokenizer.decode(&tokens, SpecialText::AsText), "é");
    assert_eq!(tokenizer.token_bytes(TokenId(u32::MAX)), None);
    assert_eq!(
        tokenizer.token_text(TokenId(tokenizer.vocab() as u32)),
        None
    );
    assert_eq!(tokenizer.token_bytes(TokenId(0)), Some(&b""[..]));
}
