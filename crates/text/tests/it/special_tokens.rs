//! Control and user-defined tokens, BOS, end tokens, byte fallback, and the way back to text.

use text::{SpecialText, TokenId, Tokenizer};

use crate::vocabularies::{BYTE, CONTROL, NORMAL, USER_DEFINED, bpe, drawn, spm, tokenizer};

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

/// B9: neither merges nor whole words of the vocabulary spell a control token.
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

/// B8.
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
