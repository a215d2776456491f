//! `fulcrum bench raw`: figures for scripts and people, and the refusals that `serve` has.

use serde_json::Value;
use testkit::tiny;

use crate::support::{Encoding, Tiny, stderr, stdout};

/// The levels of the contract.
const LEVELS: [&str; 4] = ["1", "8", "32", "64"];

fn expect_rate(figures: &Value, what: &str) {
    let rate = figures[what].as_f64();
    assert!(
        rate.is_some_and(|rate| rate.is_finite() && rate > 0.0),
        "{what}: {figures:#}"
    );
}

#[test]
fn json_has_every_figure_of_the_contract_and_its_share() {
    let tiny = Tiny::new();
    let output = tiny.run(&[
        "bench",
        "raw",
        "-m",
        tiny.model(),
        "--json",
        "--rounds",
        "1",
        "--threads",
        "1",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value =
        serde_json::from_str(&stdout(&output)).expect("one object and nothing else");
    for part in [&report, &report["share"]] {
        expect_rate(part, "prefill_512");
        let decode = part["decode"].as_object().expect("by level");
        assert!(decode.keys().eq(LEVELS), "{decode:?}");
        LEVELS
            .iter()
            .for_each(|level| expect_rate(&part["decode"], level));
    }
    expect_rate(&report["limits"], "int8_gmac_s");
    expect_rate(&report["limits"], "f32_gmac_s");
    expect_rate(&report["limits"], "read_gb_s");
    assert!(
        report["machine"]
            .as_str()
            .is_some_and(|it| it.contains("1 threads")),
        "{report:#}"
    );
    assert_eq!(report["rounds"], 1);
    assert_eq!(report["kv_type"], "f16");
}

#[test]
fn the_table_names_model_machine_and_weights_beside_each_figure() {
    let tiny = Tiny::new();
    let output = tiny.run(&[
        "bench",
        "raw",
        "-m",
        tiny.model(),
        "--rounds",
        "1",
        "--threads",
        "2",
        "--quantize",
        "q8_0",
    ]);
    // A quantised file is not quantised again, here as in `serve`.
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("Q4_0 already"),
        "{}",
        stderr(&output)
    );

    let path = tiny.path("wide.gguf");
    tiny::llama(Encoding::BF16).write(path.as_ref());
    let output = tiny.run(&[
        "bench",
        "raw",
        "-m",
        &path,
        "--rounds",
        "1",
        "--threads",
        "2",
        "--quantize",
        "q8_0",
    ]);
    let said = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for words in [
        "wide: weights take",
        "Q8_0",
        "2 threads",
        "int8",
        "prefill 512",
        "decode 64",
        "%",
        "bound by",
    ] {
        assert!(said.contains(words), "no {words} in\n{said}");
    }
}

#[test]
fn a_model_that_serve_refuses_is_refused_with_the_same_words() {
    let tiny = Tiny::new();
    let path = tiny.path("no-model.gguf");
    std::fs::write(&path, "no model").expect("it can be written");
    let refused = |arguments: &[&str]| {
        let output = tiny.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    };
    let measured = refused(&["bench", "raw", "-m", &path]);
    assert!(measured.contains("cannot open"), "{measured}");
    let served = refused(&["serve", "-m", &path, "--port", "0"]);
    let words = measured.trim().trim_start_matches("error: ");
    assert!(served.contains(words), "{served} against {measured}");
    assert!(refused(&["bench", "raw", "-m", "no/such/file"]).contains("there is no file"));
}

#[test]
fn a_context_too_short_for_the_prompt_is_an_error_that_says_so() {
    let tiny = Tiny::new();
    let path = tiny.path("short.gguf");
    tiny::llama(Encoding::Q4_0)
        .with("llama.context_length", 256_u32)
        .write(path.as_ref());
    let output = tiny.run(&["bench", "raw", "-m", &path, "--threads", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("context is 256 tokens"),
        "{}",
        stderr(&output)
    );
}
