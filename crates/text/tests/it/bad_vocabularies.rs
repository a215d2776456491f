//! Vocabularies that contradict themselves are refused with the key at fault, never with a panic.

use testkit::gguf::Builder;

use crate::vocabularies::{CONTROL, bpe, spm, try_tokenizer};

fn small_bpe() -> Builder {
    bpe(
        "gpt-2",
        &[("<s>", CONTROL)],
        &[("a".to_owned(), "b".to_owned())],
    )
}

fn check(file: &Builder, message: &str) {
    let error = try_tokenizer(file).expect_err(message).to_string();
    assert_eq!(error, message);
}

fn replaced<T: Clone>(items: &[T], idx: usize, item: T) -> Vec<T> {
    let mut items = items.to_vec();
    items[idx] = item;
    items
}

/// B10. Such files have other arrays, so nothing else is looked at before.
#[test]
fn another_kind_of_tokenizer_is_refused_by_name_before_its_arrays_are_read() {
    for kind in ["t5", "bert", "rwkv", "plamo2", "gemma4", "no_vocab"] {
        check(
            &Builder::new().with("tokenizer.ggml.model", kind),
            &format!("tokenizer.ggml.model = {kind:?} is not supported (known: gpt2, llama)"),
        );
    }
}

/// B10.
#[test]
fn an_unknown_pre_tokenizer_is_refused_with_the_known_ones() {
    for name in ["default", "falcon", "unheard-of", "Qwen2", ""] {
        let error = try_tokenizer(&small_bpe().with("tokenizer.ggml.pre", name)).unwrap_err();
        let beginning = format!("tokenizer.ggml.pre = {name:?} is not supported (known: gpt-2, ");
        assert!(error.to_string().starts_with(&beginning), "{error}");
    }
}

#[test]
fn a_missing_key_is_named() {
    for key in ["model", "pre", "tokens", "token_type", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        check(
            &small_bpe().without(&key),
            &format!("tokenizer key {key}: missing"),
        );
    }
    check(
        &spm(&["a"]).without("tokenizer.ggml.scores"),
        "tokenizer key tokenizer.ggml.scores: missing",
    );
}

#[test]
fn arrays_that_do_not_fit_the_tokens_are_refused() {
    check(
        &small_bpe().with("tokenizer.ggml.token_type", vec![1_i32; 9]),
        "tokenizer key tokenizer.ggml.token_type: has 9 elements for 258 tokens",
    );
    check(
        &spm(&["a"]).with("tokenizer.ggml.scores", vec![0_f32; 261]),
        "tokenizer key tokenizer.ggml.scores: has 261 elements for 260 tokens",
    );
    check(
        &small_bpe().with("tokenizer.ggml.token_type", replaced(&[1_i32; 258], 7, 9)),
        "tokenizer key tokenizer.ggml.token_type: token 7 has type 9, which is not 1 to 6",
    );
    check(
        &spm(&["a"]).with(
            "tokenizer.ggml.scores",
            replaced(&[0_f32; 260], 4, f32::NAN),
        ),
        "tokenizer key tokenizer.ggml.scores: the score of token 4 is not a number",
    );
    check(
        &small_bpe()
            .with("tokenizer.ggml.tokens", Vec::<String>::new())
            .with("tokenizer.ggml.token_type", Vec::<i32>::new()),
        "tokenizer key tokenizer.ggml.tokens: is empty",
    );
}

#[test]
fn a_key_of_another_type_is_refused() {
    for (key, file) in [
        (
            "tokens",
            small_bpe().with("tokenizer.ggml.tokens", vec![1_u32]),
        ),
        (
            "token_type",
            small_bpe().with("tokenizer.ggml.token_type", "x"),
        ),
        ("merges", small_bpe().with("tokenizer.ggml.merges", 5_u32)),
        ("model", small_bpe().with("tokenizer.ggml.model", 5_u32)),
        (
            "bos_token_id",
            small_bpe().with("tokenizer.ggml.bos_token_id", "one"),
        ),
        (
            "add_bos_token",
            small_bpe().with("tokenizer.ggml.add_bos_token", 1_u32),
        ),
    ] {
        let error = try_tokenizer(&file).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("tokenizer key tokenizer.ggml.{key}: ")),
            "{error}"
        );
    }
}

#[test]
fn token_ids_out_of_range_are_refused() {
    for key in ["bos", "eos", "unknown", "eot", "eom"] {
        let key = format!("tokenizer.ggml.{key}_token_id");
        check(
            &small_bpe().with(&key, 258_u32),
            &format!("tokenizer key {key}: 258 is not an index into 258 tokens"),
        );
        check(
            &small_bpe().with(&key, -1_i32),
            &format!("tokenizer key {key}: -1 is not an index into 258 tokens"),
        );
    }
    check(
        &small_bpe().with("tokenizer.ggml.add_bos_token", true),
        "tokenizer key tokenizer.ggml.bos_token_id: missing, but BOS is to be added",
    );
}

#[test]
fn the_same_text_for_two_tokens_is_refused() {
    check(
        &spm(&["a", "b", "a"]),
        "tokenizer key tokenizer.ggml.tokens: tokens 259 and 261 are both \"a\"",
    );
}

#[test]
fn merges_that_are_no_pairs_or_name_unknown_tokens_are_refused() {
    for (line, complaint) in [
        ("ab", "is not two texts and a space"),
        ("a xyz", "names \"xyz\", which is no token"),
        ("b a", "names \"ba\", which is no token"),
    ] {
        let lines = vec!["a b".to_owned(), line.to_owned()];
        check(
            &small_bpe().with("tokenizer.ggml.merges", lines),
            &format!("tokenizer key tokenizer.ggml.merges: merge 1 ({line:?}) {complaint}"),
        );
    }
}

#[test]
fn a_byte_token_must_say_which_byte() {
    for text in ["<0xZZ>", "<0x1>", "<0x+1>", "<0x001>", "41"] {
        let file = spm(&[text]);
        let types: Vec<i32> = [2, 3, 3].into_iter().chain([6; 257]).collect();
        check(
            &file.with("tokenizer.ggml.token_type", types),
            &format!(
                "tokenizer key tokenizer.ggml.token_type: token 259 is of type byte, but its text is {text:?}"
            ),
        );
    }
}

#[test]
fn sentencepiece_needs_a_token_for_every_byte_or_for_the_unknown() {
    let types: Vec<i32> = [3, 3, 3].into_iter().chain([1; 257]).collect();
    check(
        &spm(&["a"])
            .with("tokenizer.ggml.token_type", types)
            .without("tokenizer.ggml.unknown_token_id"),
        "tokenizer key tokenizer.ggml.unknown_token_id: missing, and there is not a token for each byte either",
    );
}

#[test]
fn a_vocabulary_of_control_tokens_only_is_refused() {
    for kind in [2, CONTROL, 5] {
        check(
            &small_bpe().with("tokenizer.ggml.token_type", vec![kind; 258]),
            "tokenizer key tokenizer.ggml.token_type: no token stands for ordinary text: \
             all are control, unknown or unused",
        );
    }
}

#[test]
fn a_control_token_of_thousands_of_characters_is_refused() {
    let file = |num_bytes| {
        let text = "<".repeat(num_bytes);
        bpe("gpt-2", &[(&text, CONTROL)], &[])
    };
    check(
        &file(10_000),
        "tokenizer key tokenizer.ggml.tokens: token 0 is a control token of 10000 bytes, at most 512 are supported",
    );
    try_tokenizer(&file(512)).unwrap();
}
