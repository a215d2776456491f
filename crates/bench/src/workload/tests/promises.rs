//! Shares, classes, bursts and their order are as declared.

use std::collections::HashSet;

use super::*;

/// Shared over all prompt tokens, as a server without a template and with a perfect cache would count them.
fn measured_share(workload: &Workload) -> f64 {
    let vocabulary = bare_vocabulary();
    let (mut shared, mut all) = (0.0, 0.0);
    for number in 0..4000 {
        for turn in &ask(workload, number, &vocabulary).turns {
            // The opener is the template's.
            let new = (fake_count(&turn.text) - 1) as f64;
            shared += turn.num_shared_tokens as f64;
            all += turn.num_shared_tokens as f64 + new;
        }
    }
    shared / all
}

#[test]
fn the_declared_share_is_the_share_that_is_asked() {
    let of_turns = "turns = { distribution = \"uniform\", min = 1, max = 6 }";
    let cases = [
        "prompt = 100".to_owned(),
        "prompt = 50\nshared_prefix = { tokens = 800 }".to_owned(),
        "prompt = 300\nshared_prefix = { tokens = 200, groups = 3, share = 0.4 }".to_owned(),
        format!(
            "prompt = 80\nfollow_up = 20\n{of_turns}\nshared_prefix = {{ tokens = 100, share = 0.5 }}"
        ),
        format!("prompt = 80\n{of_turns}\nhistory = \"none\"\nshared_prefix = {{ tokens = 100 }}"),
    ];
    for case in cases {
        let workload = of_class(&format!("{case}\noutput = 40"));
        let declared = workload.classes[0].shared_share.expect("known");
        let measured = measured_share(&workload);
        assert!(
            (declared - measured).abs() < 0.01,
            "{case}: declared {declared}, asked {measured}"
        );
    }
    assert_eq!(
        of_class("prompt = 50\noutput = 1\nshared_prefix = { tokens = 150 }").classes[0]
            .shared_share,
        Some(0.75)
    );
}

#[test]
fn a_share_that_depends_on_the_servers_answers_is_not_claimed() {
    let output = "output = { distribution = \"fixed\", value = 9, exact = false }";
    let turns = of_class(&format!("prompt = 50\nturns = 2\n{output}"));
    assert_eq!(turns.classes[0].shared_share, None);
    let single = of_class(&format!("prompt = 50\n{output}"));
    assert_eq!(single.classes[0].shared_share, Some(0.0));
}

#[test]
fn conversations_of_a_group_share_their_prefix_and_groups_do_not() {
    let workload = of_class(
        "prompt = 30\noutput = 1\nshared_prefix = { tokens = 64, groups = 4, share = 0.5 }",
    );
    let vocabulary = fake_vocabulary();
    let systems: Vec<_> = (0..2000)
        .map(|number| ask(&workload, number, &vocabulary).system)
        .collect();
    let with: Vec<_> = systems.iter().flatten().collect();
    let share = with.len() as f64 / 2000.0;
    // Five standard errors.
    assert!((share - 0.5).abs() < 0.056, "{share}");
    let different: HashSet<_> = with.iter().collect();
    assert_eq!(different.len(), 4);
    assert!(
        with.iter().all(|text| fake_count(text) == 65),
        "64 words and the opener"
    );
}

#[test]
fn lengths_stay_within_their_clip_and_have_their_median() {
    let workload = Workload::named("mixed").expect("shipped");
    let vocabulary = bare_vocabulary();
    let (mut prompts, mut outputs) = (Vec::new(), Vec::new());
    for number in 0..4000 {
        let turn = &ask(&workload, number, &vocabulary).turns[0];
        prompts.push(turn.num_prompt_tokens.expect("exact"));
        outputs.push(turn.num_output_tokens.expect("given"));
        assert_eq!(turn.output, OutputLength::Exact);
    }
    prompts.sort_unstable();
    outputs.sort_unstable();
    assert_eq!((prompts[0], prompts[3999]), (32, 1024));
    assert_eq!((outputs[0], outputs[3999]), (16, 256));
    // The standard error of a lognormal median is 1.25 * sigma / sqrt(n): 1.6 % and 1.2 %.
    assert!(
        (prompts[2000] as f64 / 160.0 - 1.0).abs() < 0.08,
        "{}",
        prompts[2000]
    );
    assert!(
        (outputs[2000] as f64 / 80.0 - 1.0).abs() < 0.06,
        "{}",
        outputs[2000]
    );
}

#[test]
fn every_distribution_draws_what_it_is_called() {
    let mean = |lines: &str| {
        let workload = of_class(&format!(
            "output = 1\nprompt = {{ unit = \"words\", {lines} }}"
        ));
        let words = |number| ask(&workload, number, &bare_vocabulary()).turns[0].num_prompt_tokens;
        (0..2000).filter_map(words).sum::<u64>() as f64 / 2000.0
    };
    for (lines, expected) in [
        ("distribution = \"fixed\", value = 70", 70.0),
        ("distribution = \"uniform\", min = 10, max = 90", 50.0),
        (
            "distribution = \"normal\", mean = 200, deviation = 20",
            200.0,
        ),
        // The mean of a lognormal: median * exp(sigma² / 2).
        (
            "distribution = \"lognormal\", median = 100, sigma = 0.5",
            113.3,
        ),
        (
            "distribution = \"empirical\", values = [100, 10], weights = [1, 3]",
            32.5,
        ),
    ] {
        let drawn = mean(lines);
        assert!((drawn / expected - 1.0).abs() < 0.07, "{lines}: {drawn}");
    }
}

#[test]
fn a_quantile_never_falls_and_stays_within_its_clip() {
    let distributions = [
        ("uniform", "min = 3, max = 70"),
        ("normal", "mean = 20, deviation = 300, min = 5, max = 90"),
        ("lognormal", "median = 20, sigma = 4, min = 5, max = 9000"),
        (
            "empirical",
            "values = [9, 3, 3, 700], weights = [0.1, 0, 2, 1], min = 4, max = 600",
        ),
    ];
    for (name, keys) in distributions {
        let workload = of_class(&format!(
            "output = 1\nprompt = {{ distribution = \"{name}\", {keys} }}"
        ));
        let Origin::Drawn(drawn) = &workload.plans[0].origin else {
            panic!("drawn");
        };
        let distribution = &drawn.prompt.distribution;
        let (min, max) = distribution.bounds();
        let drawn: Vec<u64> = (0..1000)
            .map(|idx| distribution.whole(f64::from(idx) / 1000.0))
            .collect();
        assert!(drawn.is_sorted(), "{name}");
        assert!(
            drawn.iter().all(|num| (min..=max).contains(&(*num as f64))),
            "{name}"
        );
    }
}

const TWO_CLASSES: &str = "version = 1\nname = \"two\"
[[class]]\nname = \"a\"\nshare = 3\nprompt = 20\noutput = 1\nbody = { priority = 2 }\nheaders = { X-Tier = \"gold\" }
[[class]]\nname = \"b\"\nshare = 1\nprompt = 30\noutput = 2\nslo = \"ttft:p95<1s\"\n";

#[test]
fn classes_come_in_their_shares_with_their_own_fields() {
    let workload = parsed(TWO_CLASSES);
    let vocabulary = fake_vocabulary();
    let asked: Vec<_> = (0..4000)
        .map(|number| ask(&workload, number, &vocabulary))
        .collect();
    let share = asked
        .iter()
        .filter(|conversation| conversation.class == 0)
        .count() as f64
        / 4000.0;
    assert!((share - 0.75).abs() < 0.035, "{share}");
    for conversation in &asked {
        let is_first = conversation.class == 0;
        assert_eq!(conversation.body.get("priority").is_some(), is_first);
        assert_eq!(conversation.headers.len(), usize::from(is_first));
        assert_eq!(
            conversation.turns[0].num_output_tokens,
            Some(if is_first { 1 } else { 2 })
        );
    }
    assert_eq!(workload.classes[1].slo.objectives.len(), 1);
    assert_eq!(workload.classes[0].share, 0.75);
}

#[test]
fn bursts_come_when_declared_and_are_of_their_class() {
    let vocabulary = fake_vocabulary();
    let every = parsed(
        &format!("{TWO_CLASSES}[[burst]]\nclass = \"b\"\nsize = 3\nevery = 20\n")
            .replace("share = 1", "share = 0"),
    );
    for number in 0..200 {
        let in_burst = number % 20 >= 17;
        assert_eq!(
            ask(&every, number, &vocabulary).class,
            usize::from(in_burst),
            "{number}"
        );
    }
    let random = parsed(
        &format!("{TWO_CLASSES}[[burst]]\nclass = \"b\"\nsize = 5\nprobability = 0.1\n")
            .replace("share = 1", "share = 0"),
    );
    let classes: Vec<usize> = (0..5000)
        .map(|number| ask(&random, number, &vocabulary).class)
        .collect();
    for group in classes.chunks(5) {
        assert!(
            group.iter().all(|class| class == &group[0]),
            "a burst is not torn apart"
        );
    }
    let share = classes.iter().sum::<usize>() as f64 / 5000.0;
    assert!((share - 0.1).abs() < 0.048, "{share}");
}

#[test]
fn a_class_with_its_own_arrivals_has_its_own_numbers_and_no_share_of_the_others() {
    let workload = parsed(&TWO_CLASSES.replace(
        "share = 1",
        "arrivals = { process = \"poisson\", rate = 2 }",
    ));
    let vocabulary = fake_vocabulary();
    assert_eq!(
        workload.classes[1].arrivals,
        Some(Process::Poisson { rate: 2.0 })
    );
    for idx in 0..100 {
        assert_eq!(ask(&workload, idx, &vocabulary).class, 0);
        let own = ask(&workload, Workload::own_number(1, idx), &vocabulary);
        assert_eq!((own.class, own.number), (1, Workload::own_number(1, idx)));
    }
    assert_eq!(
        workload.conversation(Workload::own_number(2, 0), 1, &vocabulary),
        None
    );
    assert_eq!(workload.conversation(u64::MAX, 1, &vocabulary), None);
}

#[test]
fn later_turns_repeat_what_was_said_and_claim_no_total() {
    let workload = of_class(
        "prompt = 50\nfollow_up = 30\noutput = 20\nturns = 3\nthink = 1.5\nshared_prefix = { tokens = 100 }",
    );
    let vocabulary = bare_vocabulary();
    let turns = ask(&workload, 0, &vocabulary).turns;
    let told: Vec<_> = turns
        .iter()
        .map(|turn| (turn.num_shared_tokens, turn.num_prompt_tokens, turn.think_s))
        .collect();
    assert_eq!(
        told,
        [(100, Some(150), 0.0), (170, None, 1.5), (220, None, 1.5)]
    );
}

#[test]
fn separate_questions_of_one_user_repeat_the_prefix_only() {
    let workload = of_class(
        "prompt = 50\noutput = 20\nturns = 2\nhistory = \"none\"\nshared_prefix = { tokens = 100 }",
    );
    let conversation = ask(&workload, 0, &bare_vocabulary());
    assert_eq!(conversation.history, History::None);
    let told: Vec<_> = conversation
        .turns
        .iter()
        .map(|turn| (turn.num_shared_tokens, turn.num_prompt_tokens))
        .collect();
    assert_eq!(told, [(100, Some(150)), (100, Some(150))]);
}
