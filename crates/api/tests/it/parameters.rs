//! Parameters common to both endpoints.

use api::params::{Delivery, EndTokens, MatchedStop, StreamUsage, TopK};

use crate::{chat, chat_refused};

#[test]
fn max_completion_tokens_wins_over_max_tokens() {
    let limit = chat(r#","max_tokens":5,"max_completion_tokens":7"#)
        .unwrap()
        .generation
        .ending
        .max_tokens;
    let limit = limit.unwrap();
    assert_eq!(
        (limit.num_tokens, limit.param),
        (7, "max_completion_tokens")
    );
    let limit = chat(r#","max_tokens":5"#)
        .unwrap()
        .generation
        .ending
        .max_tokens
        .unwrap();
    assert_eq!((limit.num_tokens, limit.param), (5, "max_tokens"));
}

/// Cases A8 and F7.
#[test]
fn an_answer_limit_that_is_no_positive_32_bit_integer_is_refused() {
    for value in [
        "0",
        "-1",
        "1.5",
        "1e30",
        "4294967296",
        "9223372036854775808",
        "\"ten\"",
        "[]",
    ] {
        assert_eq!(
            chat_refused(&format!(r#","max_tokens":{value}"#)),
            "max_tokens"
        );
    }
}

/// Case F7.
#[test]
fn stops_are_bounded_in_number_and_length_and_never_empty() {
    for (value, param) in [
        (r#""""#, "stop"),
        (r#"["a",""]"#, "stop[1]"),
        (r#"["a","b","c","d","e"]"#, "stop"),
        ("7", "stop"),
        (r#"["a",7]"#, "stop[1]"),
        (r#""123456789012345678901234567890123""#, "stop"),
    ] {
        assert_eq!(
            chat_refused(&format!(r#","stop":{value}"#)),
            param,
            "{value}"
        );
    }
    let many = vec!["\"x\""; 100_000].join(",");
    assert_eq!(chat_refused(&format!(r#","stop":[{many}]"#)), "stop");
    let read = |value: &str| {
        chat(&format!(r#","stop":{value}"#))
            .unwrap()
            .generation
            .ending
            .stops
    };
    assert_eq!(read("null"), Vec::<String>::new());
    assert_eq!(read("[]"), Vec::<String>::new());
    assert_eq!(read(r#""a""#), ["a"]);
    assert_eq!(read(r#"["a","b"]"#), ["a", "b"]);
}

/// Case D5.
#[test]
fn logit_bias_keys_are_ids_as_only_one_text_can_write_them() {
    for key in ["-1", "abc", " 5", "+5", "05", "", "5.0", "4294967296"] {
        assert_eq!(
            chat_refused(&format!(r#","logit_bias":{{"{key}":1}}"#)),
            "logit_bias",
            "{key:?}"
        );
    }
    for value in ["1e9", "\"NaN\"", "-100.5", "null"] {
        assert_eq!(
            chat_refused(&format!(r#","logit_bias":{{"5":{value}}}"#)),
            "logit_bias.5"
        );
    }
    assert_eq!(chat_refused(r#","logit_bias":[5]"#), "logit_bias");
    let many: Vec<String> = (0..100_000).map(|id| format!("\"{id}\":1")).collect();
    assert_eq!(
        chat_refused(&format!(r#","logit_bias":{{{}}}"#, many.join(","))),
        "logit_bias"
    );
    let read = chat(r#","logit_bias":{"0":-100,"7":2.5}"#)
        .unwrap()
        .generation
        .sampling
        .logit_bias;
    assert_eq!(
        read.into_iter().collect::<Vec<_>>(),
        [(0, -100.0), (7, 2.5)]
    );
}

/// Case D2.
#[test]
fn seeds_are_signed_64_bit_numbers() {
    let seed = |value: &str| {
        chat(&format!(r#","seed":{value}"#)).map(|read| read.generation.sampling.seed)
    };
    assert_eq!(seed("0").unwrap(), Some(0));
    assert_eq!(seed("-1").unwrap(), Some(-1));
    assert_eq!(seed("9223372036854775807").unwrap(), Some(i64::MAX));
    assert_eq!(seed("null").unwrap(), None);
    for value in [
        "9223372036854775808",
        "18446744073709551616",
        "1.5",
        "\"7\"",
    ] {
        assert_eq!(seed(value).expect_err(value).param(), Some("seed"));
    }
}

#[test]
fn top_k_of_minus_one_and_zero_keep_all() {
    let top_k = |value: &str| {
        chat(&format!(r#","top_k":{value}"#))
            .unwrap()
            .generation
            .sampling
            .top_k
    };
    assert_eq!(top_k("-1"), Some(TopK::All));
    assert_eq!(top_k("0"), Some(TopK::All));
    assert_eq!(top_k("40"), Some(TopK::Keep(40)));
    assert_eq!(top_k("null"), None);
    assert_eq!(chat_refused(r#","top_k":-2"#), "top_k");
}

#[test]
fn stream_usage_is_told_only_when_asked_for() {
    let delivery = |more: &str| chat(more).unwrap().generation.delivery;
    assert_eq!(delivery(""), Delivery::Whole);
    assert_eq!(
        delivery(r#","stream":true"#),
        Delivery::Stream(StreamUsage::Never)
    );
    let options = |options: &str| format!(r#","stream":true,"stream_options":{options}"#);
    assert_eq!(
        delivery(&options("{}")),
        Delivery::Stream(StreamUsage::Never)
    );
    assert_eq!(
        delivery(&options(r#"{"include_usage":false}"#)),
        Delivery::Stream(StreamUsage::Never)
    );
    assert_eq!(
        delivery(&options(r#"{"include_usage":true}"#)),
        Delivery::Stream(StreamUsage::AtEnd)
    );
    assert_eq!(
        delivery(&options(
            r#"{"include_usage":true,"continuous_usage_stats":true}"#
        )),
        Delivery::Stream(StreamUsage::InEveryChunk)
    );
    assert_eq!(
        chat_refused(r#","stream_options":{"include_usage":true}"#),
        "stream_options"
    );
    assert_eq!(chat_refused(&options("7")), "stream_options");
    assert_eq!(
        chat_refused(&options(r#"{"include_usage":1}"#)),
        "stream_options.include_usage"
    );
    assert_eq!(
        chat_refused(&options(r#"{"continuous_usage_stats":true}"#)),
        "stream_options.continuous_usage_stats"
    );
    assert_eq!(
        chat_refused(&options(r#"{"include_obfuscation":true}"#)),
        "stream_options.include_obfuscation"
    );
}

#[test]
fn min_tokens_may_not_exceed_the_answer_limit() {
    assert_eq!(
        chat_refused(r#","min_tokens":6,"max_tokens":5"#),
        "min_tokens"
    );
    assert_eq!(
        chat(r#","min_tokens":5,"max_tokens":5"#)
            .unwrap()
            .generation
            .ending
            .min_tokens,
        5
    );
}

#[test]
fn endings_are_read_as_asked() {
    let more = r#","ignore_eos":true,"include_stop_str_in_output":true,"stop_token_ids":[3,4]"#;
    let ending = chat(more).unwrap().generation.ending;
    assert_eq!(ending.end_tokens, EndTokens::Ignored);
    assert_eq!(ending.matched_stop, MatchedStop::Kept);
    assert_eq!(ending.stop_token_ids, [3, 4]);
    for value in ["[-1]", "[1.0]", "[4294967296]", "[\"3\"]"] {
        assert_eq!(
            chat_refused(&format!(r#","stop_token_ids":{value}"#)),
            "stop_token_ids[0]"
        );
    }
    assert_eq!(
        chat_refused(r#","stop_token_ids":[1,2,3,4,5]"#),
        "stop_token_ids"
    );
}
