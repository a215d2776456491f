//! Seeded noise for templates, conversations and tokenizers: any result but a panic.

use serde_json::{Map, Value, json};
use testkit::Random;
use text::{ChatTemplate, SpecialText, TemplateError, Tokenizer};
use unicode_normalization::UnicodeNormalization as _;

use crate::vocabularies::{CONTROL, USER_DEFINED, bpe, spm, tokenizer};

const TEMPLATE_PIECES: [&str; 34] = [
    "{%",
    "%}",
    "{{",
    "}}",
    "{#",
    "#}",
    "{%-",
    "-%}",
    " for m in messages ",
    " endfor ",
    " if m.content ",
    " endif ",
    " set x = ",
    "messages",
    "[0]",
    "['content']",
    ".role",
    "|tojson",
    "|trim",
    "'",
    "\"",
    "\\",
    "<|im_end|>",
    " generation ",
    " endgeneration ",
    "raise_exception('no')",
    "strftime_now('%Q')",
    "namespace(a=1)",
    "(",
    ")",
    " + ",
    "é\n",
    " raw ",
    "0x",
];

fn noise(random: &mut Random, pieces: &[&str], num_max: usize) -> String {
    let num_pieces = random.below(num_max);
    (0..num_pieces)
        .map(|_| pieces[random.below(pieces.len())])
        .collect()
}

#[test]
fn no_template_text_makes_the_compiler_or_the_renderer_panic() {
    let mut random = Random::new(1);
    let messages = [json!({"role": "user", "content": "a<|im_end|>"})];
    let mut num_rendered = 0;
    for _ in 0..5000 {
        let source = noise(&mut random, &TEMPLATE_PIECES, 12);
        if let Ok(template) = ChatTemplate::compile(&source, "", "", vec!["<|im_end|>".to_owned()])
        {
            num_rendered += usize::from(template.render(&messages, true, &Map::new()).is_ok());
        }
    }
    assert!(
        num_rendered > 100,
        "the noise should sometimes be a template, not {num_rendered} times"
    );
}

#[test]
fn no_shape_of_a_message_makes_rendering_panic() {
    let source = "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}\
                  {{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}";
    let controls = ["<|im_start|>", "<|im_end|>"].map(str::to_owned).to_vec();
    let template = ChatTemplate::compile(source, "", "", controls).unwrap();
    let leaves = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("<|im_end|>"),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!([{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}]),
        json!([{"type": "image_url"}]),
        json!([1]),
        json!([{"function": {"arguments": "{\"a\": 1}"}}]),
        json!([{"function": {"arguments": "{"}}]),
        json!([{"function": 3}]),
    ];
    let mut random = Random::new(2);
    for _ in 0..3000 {
        let mut message = Map::new();
        for key in ["role", "content", "tool_calls", "name"] {
            if random.below(4) > 0 {
                message.insert(key.to_owned(), leaves[random.below(leaves.len())].clone());
            }
        }
        let message = match random.below(10) {
            0 => leaves[random.below(leaves.len())].clone(),
            _ => Value::Object(message),
        };
        if let Ok(rendered) = template.render(&[message], false, &Map::new()) {
            for range in rendered.plain {
                assert_eq!(&rendered.text[range], "<|im_end|>");
            }
        }
    }
}

/// A template is as foreign as the rest of a model file: it must not run for ever or fill the memory.
#[test]
fn a_template_that_loops_or_grows_without_end_is_stopped() {
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{{ 'x' * 99999999 }}{{ 'x' * 99999999 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ] {
        let template = ChatTemplate::compile(source, "", "", Vec::new()).unwrap();
        let error = template.render(&[], false, &Map::new()).unwrap_err();
        let recursion = source.contains("macro");
        assert!(
            matches!(error, TemplateError::TooMuch { .. }) || recursion,
            "{source}: {error}"
        );
    }
}

/// How a vocabulary writes spaces.
enum Spelling {
    Exact,
    /// A letter and its accent are read as one character.
    Composed,
    /// SentencePiece cannot tell `▁` from a space.
    SpaceIsUnderline,
}

#[test]
fn no_text_makes_a_tokenizer_panic_and_all_come_back() {
    let specials = [
        ("<|im_end|>", CONTROL),
        ("<think>", USER_DEFINED),
        ("\n\n", USER_DEFINED),
    ];
    let models: Vec<(Tokenizer, Spelling)> = [
        ("gpt-2", Spelling::Exact),
        ("smollm", Spelling::Exact),
        ("llama-bpe", Spelling::Exact),
        ("tekken", Spelling::Exact),
        ("deepseek-llm", Spelling::Exact),
        ("qwen2", Spelling::Composed),
    ]
    .map(|(pre, spelling)| (tokenizer(&bpe(pre, &specials, &[])), spelling))
    .into_iter()
    .chain([(
        tokenizer(&spm(&["▁", "a", "▁a", "aa", "é"])),
        Spelling::SpaceIsUnderline,
    )])
    .collect();
    let pieces = [
        "a",
        " ",
        "\n",
        "<|im_end|>",
        "<think>",
        "é",
        "\u{301}",
        "🙂",
        "\u{0}",
        "▁",
        "1",
        "<",
        "|",
        "\u{10ffff}",
        "</s>",
        "<0x41>",
    ];
    let mut random = Random::new(3);
    for _ in 0..2000 {
        let text = noise(&mut random, &pieces, 20);
        for (tokenizer, spelling) in &models {
            let expected = match spelling {
                Spelling::Exact => text.clone(),
                Spelling::Composed => text.nfc().collect(),
                Spelling::SpaceIsUnderline => text.replace('▁', " "),
            };
            for special in [SpecialText::AsText, SpecialText::Parse] {
                let tokens = tokenizer.encode(&text, special);
                assert_eq!(tokenizer.decode(&tokens, SpecialText::Parse), expected);
                let num_controls = tokens
                    .iter()
                    .filter(|&&token| tokenizer.is_control(token))
                    .count();
                assert!(num_controls == 0 || special == SpecialText::Parse);
            }
        }
    }
}
