//! Prompts have the length they claim, and nothing in common by accident.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;
use text::{ChatTemplate, SpecialText, Tokenizer};

use super::*;

#[test]
fn a_conversation_is_the_same_in_any_order_of_asking() {
    let vocabulary = fake_vocabulary();
    let workloads: Vec<Workload> = Workload::names()
        .map(|name| Workload::named(name).expect(name))
        .collect();
    proptest!(ProptestConfig::with_cases(64), |(
        which in 0..workloads.len(), numbers in prop::collection::vec(0_u64..2000, 1..6), seed: u64
    )| {
        let workload = &workloads[which];
        let of = |number: &u64| workload.conversation(*number, seed, &vocabulary);
        let forth: Vec<_> = numbers.iter().map(of).collect();
        let mut back: Vec<_> = numbers.iter().rev().map(of).collect();
        back.reverse();
        prop_assert_eq!(forth, back);
    });
}

#[test]
fn a_prompt_has_as_many_tokens_as_it_claims_with_and_without_a_prefix() {
    let vocabulary = fake_vocabulary();
    for name in Workload::names() {
        let workload = Workload::named(name).expect(name);
        for number in 0..50 {
            let conversation = ask(&workload, number, &vocabulary);
            let counted = fake_chat_count(&first_chat(&conversation));
            assert_eq!(
                conversation.turns[0].num_prompt_tokens,
                Some(counted),
                "{name} {number}"
            );
        }
    }
}

/// Case E9: the lengths that other tools missed.
#[test]
fn a_length_in_tokens_is_hit_template_included_and_a_prefix_comes_on_top() {
    let vocabulary = fake_vocabulary();
    for tokens in [16, 1000, 8192] {
        let workload = of_class(&format!("prompt = {tokens}\noutput = 1"));
        let counted = fake_chat_count(&first_chat(&ask(&workload, 3, &vocabulary)));
        assert_eq!(counted, tokens);
    }
    let workload = of_class("shared_prefix = { tokens = 750 }\nprompt = 750\noutput = 1");
    let conversation = ask(&workload, 3, &vocabulary);
    assert_eq!(fake_chat_count(&first_chat(&conversation)), 1500);
    assert_eq!(conversation.turns[0].num_shared_tokens, 750);
}

#[test]
fn a_length_in_words_leaves_the_template_aside() {
    let workload =
        of_class("prompt = { distribution = \"fixed\", value = 50, unit = \"words\" }\noutput = 1");
    let vocabulary = fake_vocabulary();
    let turn = &ask(&workload, 0, &vocabulary).turns[0];
    assert_eq!(
        turn.num_prompt_tokens,
        Some(50 + vocabulary.overhead().user)
    );
}

#[test]
fn a_prompt_shorter_than_the_template_says_what_it_really_has() {
    let workload = of_class("prompt = 1\noutput = 1");
    let vocabulary = fake_vocabulary();
    let conversation = ask(&workload, 0, &vocabulary);
    let counted = fake_chat_count(&first_chat(&conversation));
    assert_eq!(conversation.turns[0].num_prompt_tokens, Some(counted));
    assert!(counted > 1);
    let warnings = workload.warnings_with(&vocabulary);
    assert_eq!(warnings[0].code, "prompt_shorter_than_template");
}

#[test]
fn an_estimate_claims_no_length_and_says_so() {
    let workload = Workload::named("mixed").expect("shipped");
    let vocabulary = Vocabulary::estimate();
    assert_eq!(
        ask(&workload, 0, &vocabulary).turns[0].num_prompt_tokens,
        None
    );
    assert_eq!(
        workload.warnings_with(&vocabulary)[0].code,
        "lengths_estimated"
    );
    assert!(workload.warnings_with(&fake_vocabulary()).is_empty());
}

#[test]
fn no_two_prompts_begin_alike_not_even_short_ones() {
    let workload = of_class(
        "prompt = { distribution = \"uniform\", min = 2, max = 12, unit = \"words\" }\noutput = 1\nturns = 3\nhistory = \"none\"",
    );
    let vocabulary = fake_vocabulary();
    let beginning =
        |text: &str| -> Vec<String> { text.split(' ').take(3).map(str::to_owned).collect() };
    let mut seen = HashSet::new();
    let mut first_words = HashSet::new();
    for number in 0..5000 {
        let conversation = ask(&workload, number, &vocabulary);
        assert!(
            seen.insert(beginning(&conversation.turns[0].text)),
            "{number}"
        );
        if number < vocabulary.words().len() as u64 {
            let first = beginning(&conversation.turns[0].text)[1].clone();
            assert!(first_words.insert(first), "{number} begins as another does");
        }
        let texts: HashSet<&str> = conversation
            .turns
            .iter()
            .map(|turn| turn.text.as_str())
            .collect();
        assert_eq!(texts.len(), 3, "{number}");
    }
}

#[test]
fn another_salt_gives_other_words_of_the_same_lengths() {
    let workload = Workload::named("chat").expect("shipped");
    let (left, right) = (fake_vocabulary(), fake_vocabulary().with_salt(5));
    for number in 0..100 {
        let (left, right) = (
            ask(&workload, number, &left),
            ask(&workload, number, &right),
        );
        assert_ne!(left.system, right.system);
        assert_eq!(left.turns.len(), right.turns.len());
        for (left, right) in left.turns.iter().zip(&right.turns) {
            assert_ne!(left.text, right.text);
            assert_eq!(fake_count(&left.text), fake_count(&right.text));
            assert_eq!(left.num_output_tokens, right.num_output_tokens);
            assert_eq!(left.think_s, right.think_s);
        }
    }
}

#[test]
fn another_seed_gives_other_lengths() {
    let workload = Workload::named("mixed").expect("shipped");
    let vocabulary = fake_vocabulary();
    let lengths = |seed| -> Vec<_> {
        let of = |number| workload.conversation(number, seed, &vocabulary);
        (0..20)
            .filter_map(of)
            .map(|conversation| conversation.turns[0].num_prompt_tokens)
            .collect()
    };
    assert_ne!(lengths(1), lengths(2));
}

#[test]
fn words_that_are_several_tokens_are_left_out_with_their_group() {
    let odd = Vocabulary::candidates()[3];
    let count =
        |text: &String| fake_count(text) + u64::from(text.split(' ').any(|word| word == odd));
    let counts: Vec<u64> = Vocabulary::probes().iter().map(count).collect();
    let vocabulary = Vocabulary::from_counts(&counts, Source::Server).expect("others");
    assert!(!vocabulary.words().contains(&odd));
    assert_eq!(vocabulary.words().len(), Vocabulary::candidates().len() - 8);
}

#[test]
fn counts_that_make_no_vocabulary_are_refused() {
    let probes = Vocabulary::probes();
    // One token per character, as for a tokenizer of bytes.
    let counts: Vec<u64> = probes.iter().map(|text| text.len() as u64).collect();
    let error = Vocabulary::from_counts(&counts, Source::Server).expect_err("no words");
    assert!(matches!(
        error,
        VocabularyError::TooFewWords { num_words: 0 }
    ));
    let error = Vocabulary::from_counts(&counts[1..], Source::Server).expect_err("too few counts");
    assert!(matches!(error, VocabularyError::NumCounts { .. }));
    let error = fake_vocabulary()
        .with_chat_counts([20, 10, 10])
        .expect_err("shrinks");
    assert!(matches!(error, VocabularyError::Template { .. }));
}

/// Case E9, with the tokenizers and templates of real models.
#[test]
fn prompts_are_exact_for_real_tokenizers_as_plain_text_and_as_chat() {
    for name in ["smollm2-135m", "gemma3-270m"] {
        let Some(path) = testkit::real_model(name) else {
            continue;
        };
        let gguf = formats::gguf::Gguf::open(&path).expect("a model");
        let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
        let plain = Vocabulary::from_tokenizer(&tokenizer, None).expect("words");
        assert!(
            plain.words().len() > 2000,
            "{name}: {}",
            plain.words().len()
        );
        for tokens in [16, 1000, 8192] {
            let workload = of_class(&format!("prompt = {tokens}\noutput = 1"));
            let text = &ask(&workload, 9, &plain).turns[0].text;
            let counted = tokenizer.encode_with_bos(text, SpecialText::AsText).len();
            assert_eq!(counted, tokens, "{name}");
        }
        let template = template_of(&gguf, &tokenizer);
        let chat = Vocabulary::from_tokenizer(&tokenizer, Some(&template)).expect("a template");
        for lines in [
            "prompt = 300",
            "prompt = 750\nshared_prefix = { tokens = 750 }",
        ] {
            let workload = of_class(&format!("{lines}\noutput = 1"));
            for number in 0..20 {
                let conversation = ask(&workload, number, &chat);
                let messages: Vec<_> = first_chat(&conversation)
                    .iter()
                    .map(|message| json!({"role": message.role.name(), "content": *message.text}))
                    .collect();
                let rendered = template
                    .render(&messages, true, &serde_json::Map::new())
                    .expect("renders");
                let counted = tokenizer.encode_chat(&rendered).len() as u64;
                assert_eq!(
                    conversation.turns[0].num_prompt_tokens,
                    Some(counted),
                    "{name}"
                );
            }
        }
    }
}

/// For a model that came without one.
const PLAIN_TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>\n\
    {{ message['content'] | trim }}\n{% endfor %}<assistant>\n";

fn template_of(gguf: &formats::gguf::Gguf, tokenizer: &Tokenizer) -> ChatTemplate {
    let own: Option<&str> = gguf.find("tokenizer.chat_template").expect("a text");
    let source = own.unwrap_or(PLAIN_TEMPLATE);
    let text_of = |token| tokenizer.token_text(token).unwrap_or_default().to_owned();
    let bos = tokenizer.bos().map(text_of).unwrap_or_default();
    let eos = tokenizer.eos().map(text_of).unwrap_or_default();
    ChatTemplate::compile(source, &bos, &eos, tokenizer.control_texts()).expect("compiles")
}
