//! Answers under a constraint: what the engine does with any constraint, on one that lists the
//! answers it allows. Where constraints come from is tested in `grammars.rs`.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Constraint, ConstraintError, FinishReason, Request, StopCause, TokenId};

use crate::lab::*;

/// Allows exactly these token sequences.
#[derive(Clone, Debug)]
struct Listed {
    answers: Vec<Vec<u32>>,
    so_far: Vec<u32>,
    mishap: Option<(usize, Mishap)>,
}

/// What goes wrong when the answer has a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mishap {
    FillFails,
    FillPanics,
    AcceptFails,
}

impl Listed {
    fn new(answers: &[&str]) -> Listed {
        let tokens = |text: &&str| text.bytes().map(token_of).collect();
        Listed {
            answers: answers.iter().map(tokens).collect(),
            so_far: Vec::new(),
            mishap: None,
        }
    }

    fn next(&self) -> impl Iterator<Item = Option<u32>> {
        let so_far = &self.so_far;
        let fitting = self.answers.iter().filter(move |a| a.starts_with(so_far));
        fitting.map(move |answer| answer.get(so_far.len()).copied())
    }

    fn is_due(&self, mishap: Mishap) -> bool {
        self.mishap == Some((self.so_far.len(), mishap))
    }
}

impl Constraint for Listed {
    fn fill(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
        assert!(!self.is_due(Mishap::FillPanics), "as the test asked");
        if self.is_due(Mishap::FillFails) {
            return Err(ConstraintError {
                reason: "as the test asked".to_owned(),
            });
        }
        allowed.fill(0);
        for next in self.next() {
            let id = next.unwrap_or(END);
            allowed[id as usize / 32] |= 1 << (id % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        assert!(self.next().any(|next| next == Some(token.0)), "not allowed");
        if self.is_due(Mishap::AcceptFails) {
            return Err(ConstraintError {
                reason: "as the test asked".to_owned(),
            });
        }
        self.so_far.push(token.0);
        Ok(())
    }

    fn is_complete(&mut self) -> bool {
        self.next().any(|next| next.is_none())
    }

    fn is_exhausted(&mut self) -> bool {
        self.next().all(|next| next.is_none())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// The token of a letter.
fn token_of(letter: u8) -> u32 {
    match letter {
        b'a'..=b'z' => u32::from(letter - b'a') + 1,
        b' ' => 53,
        _ => panic!("no letter"),
    }
}

fn constrained(max_tokens: u32, answers: &[&str]) -> Request {
    Request {
        constraint: Some(Box::new(Listed::new(answers))),
        ..request(&prompt(5, 1), max_tokens)
    }
}

fn with_mishap(answers: &[&str], mishap: (usize, Mishap)) -> Request {
    let mut listed = Listed::new(answers);
    listed.mishap = Some(mishap);
    Request {
        constraint: Some(Box::new(listed)),
        ..request(&prompt(5, 1), 20)
    }
}

fn is_out_of_constraint(told: &Told) -> bool {
    matches!(told.finished.reason, FinishReason::OutOfConstraint { .. })
}

#[test]
fn an_answer_that_nothing_may_follow_stops_by_itself() {
    let told = Lab::new().start().ask(constrained(20, &["red", "green"]));
    assert!(
        ["red", "green"].contains(&told.text.as_str()),
        "{}",
        told.text
    );
    assert_eq!(
        told.finished.reason,
        FinishReason::Stop(StopCause::Exhausted)
    );
    assert_eq!(told.tokens.len(), told.text.len(), "no end token is needed");
}

#[test]
fn an_end_token_is_chosen_only_where_the_answer_is_complete() {
    // The model wants nothing but to end.
    let lab = Lab {
        script: Script::new(|_, row| {
            row.fill(0.0);
            row[END as usize] = 10.0;
        }),
        ..Lab::new()
    };
    let told = lab.start().ask(constrained(20, &["ab", "abcd"]));
    assert_eq!(told.text, "ab");
    assert_eq!(
        told.finished.reason,
        FinishReason::Stop(StopCause::EndToken)
    );
    assert_eq!(told.tokens.last(), Some(&END));
}

#[test]
fn a_limit_within_the_answer_is_called_one() {
    let told = Lab::new().start().ask(constrained(2, &["abcdef"]));
    assert_eq!(
        (told.text.as_str(), &told.finished.reason),
        ("ab", &FinishReason::Length)
    );
    // And a stop wins a tie.
    let told = Lab::new().start().ask(constrained(6, &["abcdef"]));
    assert_eq!(
        told.finished.reason,
        FinishReason::Stop(StopCause::Exhausted)
    );
}

#[test]
fn ignoring_end_tokens_goes_on_as_far_as_the_constraint_lets_it() {
    let ends_early = || Lab {
        script: Script::new(|_, row| {
            row.fill(0.0);
            row[END as usize] = 10.0;
        }),
        ..Lab::new()
    };
    let mut ignoring = constrained(20, &["ab", "abcd"]);
    ignoring.stop.ignore_eos = true;
    let mut at_least = constrained(20, &["ab", "abcd"]);
    at_least.stop.min_tokens = 3;
    for request in [ignoring, at_least] {
        let told = ends_early().start().ask(request);
        assert_eq!(told.text, "abcd");
        assert_eq!(
            told.finished.reason,
            FinishReason::Stop(StopCause::Exhausted)
        );
    }
}

#[test]
fn a_stop_id_stops_only_where_the_answer_is_complete() {
    let wants_b = || Lab {
        script: Script::new(|_, row| {
            row.fill(0.0);
            row[token_of(b'b') as usize] = 10.0;
        }),
        ..Lab::new()
    };
    let mut request = constrained(20, &["ac", "acde"]);
    request.stop.token_ids = vec![TokenId(token_of(b'b'))];
    let told = wants_b().start().ask(request);
    let cause = StopCause::TokenId(TokenId(token_of(b'b')));
    assert_eq!(
        (told.text.as_str(), told.finished.reason),
        ("ac", FinishReason::Stop(cause))
    );

    // An answer that cannot do without the stop id cannot be had.
    let mut request = constrained(20, &["abc"]);
    request.stop.token_ids = vec![TokenId(token_of(b'b'))];
    let told = wants_b().start().ask(request);
    assert!(is_out_of_constraint(&told), "{:?}", told.finished.reason);
}

#[test]
fn a_stop_string_stops_only_behind_a_complete_answer() {
    let ask = |answers: &[&str], stop: &str| {
        let mut request = constrained(20, answers);
        request.stop.strings = vec![stop.to_owned()];
        let told = Lab::new().start().ask(request);
        (told.text, told.finished.reason)
    };
    let stopped = |text: &str| FinishReason::Stop(StopCause::String(text.to_owned()));
    let exhausted = FinishReason::Stop(StopCause::Exhausted);
    // Inside, it is text like any other.
    assert_eq!(
        ask(&["abcabc"], "b"),
        ("abcabc".to_owned(), exhausted.clone())
    );
    assert_eq!(
        ask(&["abcabc"], "c"),
        ("abcabc".to_owned(), exhausted.clone())
    );
    assert_eq!(
        ask(&["ab", "abxyz"], "xy"),
        ("ab".to_owned(), stopped("xy"))
    );
    // Complete, but not where the stop string begins.
    assert_eq!(
        ask(&["ab", "abxyz"], "bxy"),
        ("abxyz".to_owned(), exhausted)
    );
}

#[test]
fn what_the_request_asks_for_on_top_never_breaks_the_constraint() {
    let bench = Lab::new().start();
    for bias in [100.0, 99.0] {
        for temperature in [0.0, 1.5] {
            let mut request = constrained(20, &["red", "green"]);
            request.sampling.temperature = temperature;
            request.sampling.seed = Some(7);
            request.sampling.logit_bias = vec![
                (TokenId(token_of(b'z')), bias),
                (TokenId(token_of(b'r')), 100.0),
                (TokenId(token_of(b'e')), 100.0),
                (TokenId(token_of(b'd')), 100.0),
            ];
            request.sampling.presence_penalty = 2.0;
            assert_eq!(bench.ask(request).text, "red");
        }
    }
    let mut impossible = constrained(20, &["red"]);
    impossible.sampling.logit_bias = vec![(TokenId(token_of(b'e')), -100.0)];
    let told = bench.ask(impossible);
    assert_eq!(told.text, "r");
    assert!(is_out_of_constraint(&told), "{:?}", told.finished.reason);
}

/// Allows what [`Listed`] does, but only finds out while a forward pass waits for it.
#[derive(Clone, Debug)]
struct Meeting {
    listed: Listed,
    /// Told by each forward pass when it has begun.
    begun: Arc<Mutex<Receiver<()>>>,
    /// Tells the forward pass that the mask is filled.
    filled: SyncSender<()>,
}

/// How long either side waits for the other before the test fails: far longer than any machine is busy elsewhere.
const GIVE_UP: Duration = Duration::from_secs(60);

impl Constraint for Meeting {
    fn fill(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
        let begun = self.begun.lock().expect("no panic under the lock");
        if begun.recv_timeout(GIVE_UP).is_err() {
            return Err(ConstraintError {
                reason: "no forward pass began while the mask was due".to_owned(),
            });
        }
        self.listed.fill(allowed)?;
        self.filled.send(()).expect("the runner listens");
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        self.listed.accept(token)
    }

    fn is_complete(&mut self) -> bool {
        self.listed.is_complete()
    }

    fn is_exhausted(&mut self) -> bool {
        self.listed.is_exhausted()
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// Each side waits for the other: the fill for a forward pass that has begun, the forward pass for a mask that is
/// filled. Whichever came first as a whole would wait in vain.
#[test]
fn masks_are_filled_while_the_forward_pass_runs() {
    let (tell_begun, begun) = sync_channel(1);
    let (filled, hear_filled) = sync_channel(1);
    let hear_filled = Mutex::new(hear_filled);
    let hashed = Script::hashed();
    let lab = Lab {
        script: Script::new(move |history, row| {
            tell_begun.send(()).expect("the constraint listens");
            let hear_filled = hear_filled.lock().expect("no panic under the lock");
            let heard = hear_filled.recv_timeout(GIVE_UP);
            heard.expect("the mask is filled before the forward pass returns");
            hashed.fill(history, row);
        }),
        ..Lab::new()
    };
    let mut request = constrained(20, &["abcdef"]);
    request.constraint = Some(Box::new(Meeting {
        listed: Listed::new(&["abcdef"]),
        begun: Arc::new(Mutex::new(begun)),
        filled,
    }));
    let bench = lab.start();
    let told = bench.ask(request);
    assert_eq!(
        told.finished.reason,
        FinishReason::Stop(StopCause::Exhausted)
    );
    assert_eq!(told.text, "abcdef");
    assert_eq!(bench.log.read(|happened| happened.batches.len()), 6);
}

/// Case F2: one answer's constraint is no trouble of others.
#[test]
fn a_constraint_that_fails_ends_its_own_answer_only() {
    let bench = Lab::new().start();
    let alone = bench.ask(request(&prompt(9, 2), 12)).tokens;
    for mishap in [Mishap::FillFails, Mishap::FillPanics, Mishap::AcceptFails] {
        for at in [0, 2] {
            let told = bench.ask_all(vec![
                request(&prompt(9, 2), 12),
                with_mishap(&["abcdef"], (at, mishap)),
                constrained(20, &["red"]),
            ]);
            assert_eq!(told[0].tokens, alone);
            assert!(is_out_of_constraint(&told[1]), "{mishap:?}");
            assert_eq!(told[2].text, "red");
        }
    }
}

#[test]
fn a_forward_pass_that_fails_leaves_the_masks_ready_for_the_next() {
    for accident in [Accident::Error, Accident::Panic] {
        let bench = Lab {
            accident: Some((2, accident)),
            ..Lab::new()
        }
        .start();
        let told = bench.ask(constrained(20, &["red"]));
        assert!(matches!(told.finished.reason, FinishReason::Failed { .. }));
        assert_eq!(bench.ask(constrained(20, &["red"])).text, "red");
    }
}

#[test]
fn copies_of_a_request_go_separate_ways() {
    let original = constrained(20, &["red", "green", "blue"]);
    let bench = Lab::new().start();
    let draws: Vec<Request> = (0..12)
        .map(|seed| {
            let mut copy = original.clone();
            copy.sampling.temperature = 2.0;
            copy.sampling.seed = Some(seed);
            copy
        })
        .collect();
    let texts: std::collections::BTreeSet<String> = bench
        .ask_all(draws)
        .into_iter()
        .map(|told| told.text)
        .collect();
    assert!(texts.len() > 1, "{texts:?}");
    assert!(
        texts
            .iter()
            .all(|text| ["red", "green", "blue"].contains(&text.as_str()))
    );
}

/// Case D1 for constrained answers: preempted or not, the text is the same.
#[test]
fn a_preempted_answer_goes_on_where_its_constraint_was() {
    let long = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    let requests = || -> Vec<Request> {
        (0..4)
            .map(|seed| Request {
                prompt: prompt(20, seed).into_iter().map(TokenId).collect(),
                ..constrained(60, &[long])
            })
            .collect()
    };
    let roomy = Lab::new().start();
    let tight = Lab {
        num_blocks: 10,
        ..Lab::new()
    }
    .start();
    let texts = |bench: &Bench| -> Vec<String> {
        bench
            .ask_all(requests())
            .into_iter()
            .map(|told| told.text)
            .collect()
    };
    assert_eq!(texts(&roomy), texts(&tight));
    let num_preemptions: u32 = tight.log.read(|happened| {
        happened
            .finished
            .iter()
            .map(|f| f.times.num_preemptions)
            .sum()
    });
    assert!(num_preemptions > 0, "the test is about preemption");
}
