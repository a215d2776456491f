//! What a request allows, and the names of control tokens.

use engine::{AdmitError, ControlText, Fault, FinishReason, StopCause, TokenId};

use crate::lab::*;

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

#[test]
fn only_allowed_tokens_are_chosen_and_an_end_token_is_not_one_of_itself() {
    let bench = Lab::new().start();
    for seed in 0..20 {
        let mut asked = seeded(&prompt(20, seed), 30, seed);
        asked.sampling.allowed = Some(ids(&[3, 9, 40]));
        // The bias of another does not get past it, and a ban of one of them holds.
        asked.sampling.logit_bias = vec![(TokenId(11), 90.0), (TokenId(9), -100.0)];
        let told = bench.ask(asked);
        assert_eq!(told.finished.reason, FinishReason::Length);
        assert!(told.tokens.iter().all(|token| [3, 40].contains(token)));
    }
    let mut asked = request(&prompt(20, 1), 30);
    asked.sampling.allowed = Some(ids(&[END]));
    let told = bench.ask(asked.clone());
    assert_eq!(told.tokens, [END]);
    // All that is allowed ends the answer, so `min_tokens` has nothing to hold on to (case D5).
    asked.stop.min_tokens = 5;
    assert_eq!(bench.ask(asked).tokens, [END]);
}

#[test]
fn min_tokens_holds_among_allowed_tokens() {
    let bench = Lab::new().start();
    let mut asked = request(&prompt(20, 1), 30);
    asked.sampling.allowed = Some(ids(&[END, 5]));
    asked.sampling.logit_bias = vec![(TokenId(END), 50.0)];
    asked.stop.min_tokens = 4;
    assert_eq!(bench.ask(asked).tokens, [5, 5, 5, 5, END]);
}

#[test]
fn rules_that_leave_no_token_are_refused() {
    let bench = Lab::new().start();
    let plain = || request(&prompt(5, 1), 3);
    let mut none = plain();
    none.sampling.allowed = Some(Vec::new());
    let mut unknown = plain();
    unknown.sampling.allowed = Some(ids(&[VOCAB as u32]));
    let mut banned = plain();
    banned.sampling.allowed = Some(ids(&[4]));
    banned.sampling.logit_bias = vec![(TokenId(4), -100.0)];
    let mut bad = plain();
    bad.sampling.allowed = Some(ids(&[4]));
    bad.sampling.bad_words = vec![ids(&[4])];
    let mut forced = plain();
    forced.sampling.allowed = Some(ids(&[4]));
    forced.sampling.logit_bias = vec![(TokenId(5), 100.0)];
    for asked in [none, unknown, banned, bad, forced] {
        let refusal = bench.try_submit(asked).unwrap_err();
        assert_eq!(refusal, AdmitError::NothingAllowed);
        assert_eq!(refusal.fault(), Fault::Caller);
    }
}

#[test]
fn a_bad_word_is_never_said_but_its_beginning_is() {
    let bench = Lab::new().start();
    let free = Script::hashed().greedy(&prompt(20, 1), 30);
    for (from, len) in [(0, 1), (0, 2), (7, 3), (12, 1)] {
        let word = &free[from..from + len];
        let mut asked = request(&prompt(20, 1), 30);
        asked.sampling.bad_words = vec![ids(word)];
        let told = bench.ask(asked);
        assert!(told.tokens.windows(len).all(|it| it != word));
        assert_eq!(told.tokens[..from + len - 1], free[..from + len - 1]);
    }
}

#[test]
fn an_answer_that_bad_words_leave_nothing_ends_instead_of_saying_one() {
    let bench = Lab::new().start();
    let mut asked = request(&prompt(20, 1), 30);
    asked.sampling.allowed = Some(ids(&[4]));
    asked.sampling.bad_words = vec![ids(&[4, 4, 4])];
    let told = bench.ask(asked);
    assert_eq!(told.tokens, [4, 4]);
    let reason = told.finished.reason;
    assert!(matches!(reason, FinishReason::OutOfConstraint { .. }));
}

#[test]
fn control_tokens_have_text_if_it_is_wanted_and_end_tokens_only_where_they_end_nothing() {
    let bench = Lab {
        script: Script::saying(3, vec![1, TOOL, 2, END_2, 3]),
        ..Lab::new()
    }
    .start();
    let mut asked = request(&prompt(3, 1), 5);
    assert_eq!(bench.ask(asked.clone()).text, "ab");
    asked.control_text = ControlText::Shown;
    let told = bench.ask(asked.clone());
    assert_eq!(told.text, "a<tool>b");
    assert_eq!(
        told.finished.reason,
        FinishReason::Stop(StopCause::EndToken)
    );
    asked.stop.ignore_eos = true;
    assert_eq!(bench.ask(asked.clone()).text, "a<tool>b<stop>c");
    asked.stop.strings = vec!["ool>b".to_owned()];
    assert_eq!(bench.ask(asked).text, "a<t");
}
