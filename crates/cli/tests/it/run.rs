//! `fulcrum run`, one prompt at a time.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::{Tiny, fulcrum, stderr, stdout};

#[test]
fn the_same_question_gets_the_same_answer_on_stdout() {
    let tiny = Tiny::new();
    let ask = || {
        tiny.run(&[
            "run",
            "--model",
            tiny.model(),
            "--temperature",
            "0",
            "--max-tokens",
            "8",
            "hello",
        ])
    };
    let (first, second) = (ask(), ask());
    assert!(first.status.success(), "{}", stderr(&first));
    assert!(!first.stdout.is_empty());
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn the_types_of_the_weights_are_told_beside_the_answer_and_not_in_it() {
    let tiny = Tiny::new();
    let output = tiny.run(&["run", "-m", tiny.model(), "--max-tokens", "4", "hello"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let words = stderr(&output);
    for part in ["weights take ", "(Q4_0: ", "as the file has them"] {
        assert!(words.contains(part), "no {part:?} in {words}");
    }
    assert!(!stdout(&output).contains("weights"), "{}", stdout(&output));
}

#[test]
fn a_prompt_may_come_through_a_pipe() {
    let tiny = Tiny::new();
    let mut child = fulcrum(tiny.folder.path())
        .args([
            "run",
            "--model",
            tiny.model(),
            "--temperature",
            "0",
            "--max-tokens",
            "8",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child
        .stdin
        .take()
        .expect("it was piped")
        .write_all(b"hello")
        .expect("the binary reads");
    let piped = child.wait_with_output().expect("the binary ends");
    let typed = tiny.run(&[
        "run",
        "--model",
        tiny.model(),
        "--temperature",
        "0",
        "--max-tokens",
        "8",
        "hello",
    ]);
    assert!(piped.status.success(), "{}", stderr(&piped));
    assert_eq!(stdout(&piped), stdout(&typed));
}

#[test]
fn settings_out_of_range_are_refused_before_the_model_is_loaded() {
    let tiny = Tiny::new();
    for flags in [
        ["--temperature", "9"],
        ["--temperature", "NaN"],
        ["--top-p", "0"],
    ] {
        let output = tiny.run(&["run", "--model", tiny.model(), flags[0], flags[1], "hello"]);
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        assert!(stderr(&output).contains(flags[0]), "{}", stderr(&output));
    }
}

#[test]
fn a_chat_template_of_ones_own_is_used_and_a_broken_one_is_refused_at_the_start() {
    let tiny = Tiny::new();
    for (source, words) in [
        ("{{ raise_exception('my own words') }}", "my own words"),
        ("\n{% if %}", "line 2"),
    ] {
        let path = tiny.path("own.jinja");
        std::fs::write(&path, source).expect("it can be written");
        let output = tiny.run(&["run", "-m", tiny.model(), "--chat-template", &path, "hi"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let absent = tiny.path("absent.jinja");
    let output = tiny.run(&["run", "-m", tiny.model(), "--chat-template", &absent, "hi"]);
    assert!(
        stderr(&output).contains("cannot read"),
        "{}",
        stderr(&output)
    );
}
