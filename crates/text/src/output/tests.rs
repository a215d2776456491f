//! Answers of each family, whole and cut everywhere.

use proptest::prelude::*;

use super::*;

fn tools() -> Vec<String> {
    ["get_weather", "now"].map(String::from).to_vec()
}

fn parse_pieces<'a>(
    syntax: OutputSyntax,
    wanted: &Wanted,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Part> {
    let mut parser = OutputParser::new(syntax, wanted.clone());
    let mut parts: Vec<Part> = Vec::new();
    for piece in pieces {
        parts.extend(parser.push(piece));
    }
    parts.extend(parser.finish());
    joined(parts)
}

/// Neighbours of one kind as one part.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(Part::Content(said)), Part::Content(more))
            | (Some(Part::Reasoning(said)), Part::Reasoning(more)) => said.push_str(&more),
            (
                Some(Part::CallArguments { index, json }),
                Part::CallArguments {
                    index: other,
                    json: more,
                },
            ) if *index == other => json.push_str(&more),
            (_, part) => all.push(part),
        }
    }
    all
}

/// Parses `text` whole and letter by letter, which must agree.
fn parse(syntax: OutputSyntax, wanted: &Wanted, text: &str) -> Vec<Part> {
    let whole = parse_pieces(syntax, wanted, [text]);
    let ends: Vec<usize> = text
        .char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .collect();
    let letters = ends.windows(2).map(|pair| &text[pair[0]..pair[1]]);
    let cut = parse_pieces(syntax, wanted, letters);
    assert_eq!(cut, whole, "letter by letter: {text:?}");
    whole
}

fn calls(calls: CallSyntax) -> OutputSyntax {
    let reasoning = ReasoningSyntax::None;
    OutputSyntax { reasoning, calls }
}

fn thinking() -> OutputSyntax {
    OutputSyntax {
        reasoning: ReasoningSyntax::Think,
        calls: CallSyntax::Hermes,
    }
}

fn offering() -> Wanted {
    Wanted {
        tools: tools(),
        ..Wanted::default()
    }
}

fn content(text: &str) -> Part {
    Part::Content(text.to_owned())
}

fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.to_owned())
}

fn call(index: usize, name: &str, json: &str) -> [Part; 3] {
    let name = name.to_owned();
    let json = json.to_owned();
    [
        Part::CallBegin { index, name },
        Part::CallArguments { index, json },
        Part::CallEnd { index },
    ]
}

fn has_end(parts: &[Part]) -> bool {
    parts
        .iter()
        .any(|part| matches!(part, Part::CallEnd { .. }))
}

#[test]
fn a_call_between_tags_is_told_apart_from_what_is_said() {
    let arguments = r#"{"city": "Zürich \"x\" } ]"}"#;
    let text = format!(
        "Let me look.\n<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {arguments}}}\n</tool_call>"
    );
    let mut expected = vec![content("Let me look.")];
    expected.extend(call(0, "get_weather", arguments));
    assert_eq!(
        parse(calls(CallSyntax::Hermes), &offering(), &text),
        expected
    );
}

#[test]
fn several_calls_have_their_own_numbers() {
    let text = r#"<tool_call>
{"name": "now", "arguments": {}}
</tool_call>
<tool_call>
{"arguments": {"a": [1, {}]}, "name": "get_weather"}
</tool_call>
"#;
    let expected = [
        call(0, "now", "{}"),
        call(1, "get_weather", r#"{"a": [1, {}]}"#),
    ]
    .concat();
    assert_eq!(
        parse(calls(CallSyntax::Hermes), &offering(), text),
        expected
    );
}

#[test]
fn every_family_has_its_own_words_for_the_same_call() {
    let expected = [
        call(0, "now", r#"{"zone": 1}"#),
        call(1, "get_weather", "{}"),
    ]
    .concat();
    let one = r#"{"name": "now", "arguments": {"zone": 1}}"#;
    let two = r#"{"name": "get_weather", "arguments": {}}"#;
    let llama = |text: String| text.replace("arguments", "parameters");
    let cases = [
        (CallSyntax::Llama3, llama(format!("{one}; {two}"))),
        (
            CallSyntax::Llama3,
            llama(format!("<|python_tag|>{one};{two}")),
        ),
        (CallSyntax::Mistral, format!("[TOOL_CALLS][{one}, {two}]")),
        (CallSyntax::Mistral, format!("[TOOL_CALLS] [{one},{two}]")),
        (
            CallSyntax::Mistral,
            r#"[TOOL_CALLS]now[ARGS]{"zone": 1}[TOOL_CALLS]get_weather[ARGS]{}"#.to_owned(),
        ),
        (
            CallSyntax::Mistral,
            r#"[TOOL_CALLS]now{"zone": 1}get_weather{}"#.to_owned(),
        ),
        (CallSyntax::Granite, format!("<|tool_call|>[{one}, {two}]")),
        (CallSyntax::Json, format!("[{one}, {two}]")),
        (CallSyntax::Json, format!("\n{one}\n{two}")),
    ];
    for (syntax, text) in cases {
        let parts = parse(calls(syntax), &offering(), &text);
        assert_eq!(parts, expected, "{syntax:?} {text:?}");
    }
}

#[test]
fn arguments_in_a_string_are_taken_out_of_it_and_none_are_an_empty_object() {
    let text = r#"{"name": "now", "arguments": "{\"a\": 1}"}"#;
    let parts = parse(calls(CallSyntax::Json), &offering(), text);
    assert_eq!(parts, call(0, "now", r#"{"a": 1}"#));
    let parts = parse(calls(CallSyntax::Json), &offering(), r#"{"name": "now"}"#);
    assert_eq!(parts, call(0, "now", "{}"));
}

#[test]
fn what_is_no_call_is_content_and_nothing_is_lost() {
    for text in [
        "<tool_call>\n{\"name\": \"rm_rf\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>not json</tool_call>",
        "<tool_call>",
        "a <tool b",
        "a < b, [1, 2]",
        "<tool_call>\n{\"name\": 7}\n</tool_call> and on",
        r#"{"answer": 42}"#,
    ] {
        let parts = parse(calls(CallSyntax::Hermes), &offering(), text);
        assert_eq!(parts, [content(text)], "{text:?}");
    }
    let bob = r#"{"name": "Bob", "arguments": {}}"#;
    for text in [r#"{"answer": 42}"#, "[1, 2, 3]", "[", "{", bob, "  {x}"] {
        let parts = parse(calls(CallSyntax::Json), &offering(), text);
        assert_eq!(parts, [content(text)], "{text:?}");
    }
}

#[test]
fn without_tools_calls_are_content_and_nothing_is_held_back() {
    let text = r#"<tool_call>{"name": "now"}"#;
    let mut parser = OutputParser::new(calls(CallSyntax::Hermes), Wanted::default());
    assert_eq!(parser.push(text), [content(text)]);
}

#[test]
fn a_call_that_breaks_off_never_ends() {
    let text = r#"<tool_call>{"name": "now", "arguments": {"zone": "Eur"#;
    let parts = parse(calls(CallSyntax::Hermes), &offering(), text);
    let [begin, arguments, _] = call(0, "now", r#"{"zone": "Eur"#);
    assert_eq!(parts[..2], [begin, arguments]);
    assert!(!has_end(&parts));
}

#[test]
fn broken_arguments_do_not_end_a_call() {
    for arguments in [r#"{"a": }"#, r#"{"a" 1}"#, "[1]", "7", "null"] {
        let text = format!(r#"<tool_call>{{"name": "now", "arguments": {arguments}}}</tool_call>"#);
        let parts = parse(calls(CallSyntax::Hermes), &offering(), &text);
        assert!(!has_end(&parts), "{arguments}");
    }
}

#[test]
fn arguments_are_passed_on_as_they_come() {
    let mut parser = OutputParser::new(calls(CallSyntax::Hermes), offering());
    assert_eq!(parser.push(r#"<tool_call>{"name": "now", "arg"#), []);
    let begun = parser.push(r#"uments": {"zo"#);
    let [begin, arguments, _] = call(0, "now", r#"{"zo"#);
    assert_eq!(begun, [begin, arguments]);
    let [_, more, _] = call(0, "now", r#"ne": 1"#);
    assert_eq!(parser.push(r#"ne": 1"#), [more]);
}

#[test]
fn reasoning_is_split_off_without_the_white_space_around_it() {
    let text = "<think>\nHm, 1 < 2.\n\nSo.\n</think>\n\nYes.";
    let expected = [reasoning("Hm, 1 < 2.\n\nSo."), content("Yes.")];
    assert_eq!(parse(thinking(), &Wanted::default(), text), expected);
    let opened = Wanted {
        starts_in_reasoning: true,
        ..Wanted::default()
    };
    assert_eq!(
        parse(thinking(), &opened, &text["<think>".len()..]),
        expected
    );
}

#[test]
fn an_empty_block_is_no_reasoning_and_an_open_one_is_nothing_else() {
    let read = |text| parse(thinking(), &Wanted::default(), text);
    assert_eq!(read("<think>\n\n</think>\n\nYes."), [content("Yes.")]);
    assert_eq!(read("<think>\nHm, "), [reasoning("Hm,")]);
    assert_eq!(read("No <think> here."), [content("No <think> here.")]);
    assert_eq!(read("<thi"), [content("<thi")]);
}

#[test]
fn a_call_may_follow_reasoning() {
    let text = r#"<think>x</think>
<tool_call>{"name": "now", "arguments": {}}</tool_call>"#;
    let mut expected = vec![reasoning("x")];
    expected.extend(call(0, "now", "{}"));
    assert_eq!(parse(thinking(), &offering(), text), expected);
}

#[test]
fn a_prompt_that_ends_in_an_open_block_is_seen() {
    assert!(thinking().opens_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!thinking().opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(!calls(CallSyntax::Hermes).opens_reasoning("<think>"));
}

#[test]
fn a_grammar_has_the_markers_and_the_schema_of_every_tool() {
    let tools = [
        ("f".to_owned(), serde_json::json!({"type": "object"})),
        ("g".to_owned(), serde_json::json!({})),
    ];
    let quoted = |marker: &str| format!("{marker:?}");
    let rules = |syntax, parallel, tools| CallRules {
        tools,
        parallel,
        syntax,
    };
    let lark = rules(CallSyntax::Hermes, Parallel::Several, &tools).lark(CallPlace::Whole, quoted);
    assert!(
        lark.starts_with(r#"start: "<tool_call>" "\n" call "\n" "</tool_call>" ("\n""#),
        "{lark}"
    );
    assert!(
        lark.contains(r#"call1: "{\"name\": \"g\", \"arguments\": " arguments1 "}""#),
        "{lark}"
    );
    assert!(
        lark.contains(r#"arguments0: %json {"type":"object"}"#),
        "{lark}"
    );
    let one = rules(CallSyntax::Llama3, Parallel::One, &tools[..1]);
    assert!(
        one.lark(CallPlace::Whole, quoted)
            .starts_with("start: call\n")
    );
    assert!(
        one.lark(CallPlace::Whole, quoted)
            .contains(r#"\"parameters\""#)
    );
    let after = rules(CallSyntax::Mistral, Parallel::One, &tools[..1]);
    assert!(
        !after
            .lark(CallPlace::AfterOpener, quoted)
            .contains("TOOL_CALLS")
    );
}

const GOOD: &str = r#"{"name": "now", "arguments": {"a": 1}}"#;
const UNKNOWN: &str = r#"{"name": "nope", "arguments": {}}"#;

fn good(index: usize) -> [Part; 3] {
    call(index, "now", r#"{"a": 1}"#)
}

fn channels() -> OutputSyntax {
    OutputSyntax {
        reasoning: ReasoningSyntax::Channels,
        calls: CallSyntax::Channels,
    }
}

#[test]
fn a_call_behind_one_that_is_refused_is_read() {
    for refused in [
        UNKNOWN,
        r#"{"x": 1}"#,
        r#"{"name": "now", "arguments": 7}"#,
        "{}",
    ] {
        let refused = format!("<tool_call>{refused}</tool_call>");
        let text = format!("{refused}\n<tool_call>{GOOD}</tool_call>");
        let mut expected = vec![content(&refused)];
        expected.extend(good(0));
        let parts = parse(calls(CallSyntax::Hermes), &offering(), &text);
        assert_eq!(parts, expected, "{refused}");
    }
}

#[test]
fn nothing_of_a_call_that_began_is_content() {
    let begun = |json: &str| call(0, "now", json)[..2].to_vec();
    let cases = [
        (r#"{"name": "now", "arguments": {"a": "lo"#, r#"{"a": "lo"#),
        (
            r#"{"name": "now", "arguments": {"a" 1}}</tool_call>"#,
            r#"{"a" 1}"#,
        ),
        (
            r#"{"name": "now", "arguments": {"a": 1}</tool_call>"#,
            r#"{"a": 1}"#,
        ),
        (
            r#"{"name": "now", "arguments": {"a": </tool_call>"#,
            r#"{"a": "#,
        ),
        (
            r#"{"name": "now", "arguments": "{\"a\": \"\u00e9\u00"#,
            "{\"a\": \"é",
        ),
    ];
    for (text, json) in cases {
        let text = format!("<tool_call>{text}");
        let parts = parse(calls(CallSyntax::Hermes), &offering(), &text);
        assert_eq!(parts, begun(json), "{text}");
        let mut parser = OutputParser::new(calls(CallSyntax::Hermes), offering());
        parser.push(&text);
        parser.finish();
        assert!(parser.has_broken_call(), "{text}");
    }
}

#[test]
fn what_follows_a_broken_call_is_read_as_ever() {
    let broken = r#"<tool_call>{"name": "now", "arguments": {"a" 1}}</tool_call>"#;
    let text = format!("{broken} So. <tool_call>{GOOD}</tool_call>");
    let mut expected = call(0, "now", r#"{"a" 1}"#)[..2].to_vec();
    expected.push(content(" So."));
    expected.extend(good(1));
    assert_eq!(
        parse(calls(CallSyntax::Hermes), &offering(), &text),
        expected
    );
}

#[test]
fn a_sound_call_is_not_a_broken_one() {
    let mut parser = OutputParser::new(calls(CallSyntax::Json), offering());
    parser.push(GOOD);
    parser.finish();
    assert_eq!((parser.num_calls(), parser.has_broken_call()), (1, false));
}

#[test]
fn a_call_that_began_may_say_more_than_its_arguments() {
    let text = r#"{"name": "now", "arguments": {"a": 1}, "why": "so"}"#;
    assert_eq!(parse(calls(CallSyntax::Json), &offering(), text), good(0));
}

#[test]
fn a_long_run_of_white_space_is_told_and_not_held() {
    for (syntax, begin, more) in [
        (calls(CallSyntax::Hermes), "a", 5000),
        (thinking(), "<think>a", 5000),
        (calls(CallSyntax::Json), "", 5000),
        (calls(CallSyntax::Hermes), "<tool_call>", 5000),
    ] {
        let mut parser = OutputParser::new(syntax, offering());
        parser.push(begin);
        let told: usize = (0..more).map(|_| parser.push("\n").len()).sum();
        assert!(told > 0, "{begin:?}");
        assert!(
            parser.push("\n").len() + parser.window.len() <= 2,
            "{begin:?}"
        );
        let text = format!(
            "{begin}{} b<tool_call>{GOOD}</tool_call>",
            "\n".repeat(5000)
        );
        parse(syntax, &offering(), &text);
    }
}

#[test]
fn held_white_space_is_not_looked_at_again() {
    for (syntax, begin) in [
        (calls(CallSyntax::Hermes), "a"),
        (thinking(), "<think>a"),
        (thinking(), ""),
        (calls(CallSyntax::Json), ""),
    ] {
        let mut parser = OutputParser::new(syntax, offering());
        parser.push(begin);
        for _ in 0..1000 {
            parser.push("\n");
            assert_eq!(parser.window, "", "{begin:?}");
        }
    }
}

#[test]
fn messages_in_channels_are_reasoning_content_and_calls() {
    let text = "<|channel|>analysis<|message|>hmm<|end|><|start|>assistant<|channel|>final<|message|>Hi <b";
    let both = [reasoning("hmm"), content("Hi <b")];
    assert_eq!(parse(channels(), &offering(), text), both);
    for direct in ["<|channel|>final<|message|>Hi <b", "Hi <b"] {
        assert_eq!(parse(channels(), &offering(), direct), both[1..]);
    }
    let headers = [
        "<|channel|>commentary to=functions.now <|constrain|>json<|message|>",
        " to=functions.now<|channel|>commentary json<|message|>",
    ];
    for header in headers {
        let text = format!(
            "<|channel|>analysis<|message|>hmm<|end|><|start|>assistant{header}{{\"a\": 1}}<|call|>"
        );
        let mut expected = vec![reasoning("hmm")];
        expected.extend(good(0));
        assert_eq!(parse(channels(), &offering(), &text), expected);
        let first = format!("{header}{{\"a\": 1}}<|call|>");
        assert_eq!(parse(channels(), &offering(), &first), good(0));
    }
}

#[test]
fn a_message_to_nobody_is_content_without_its_header() {
    let text = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>commentary to=functions.nope<|message|>{}<|call|>";
    assert_eq!(parse(channels(), &offering(), text), [content("Wait.{}")]);
    assert_eq!(parse(channels(), &offering(), "<|channel|>anal"), []);
}

#[test]
fn the_tags_around_an_answer_are_no_content() {
    let syntax = OutputSyntax {
        reasoning: ReasoningSyntax::ThinkAndRespond,
        calls: CallSyntax::Granite,
    };
    let text = "<think>hmm</think>\n<response>\nHi <b>\n</response>\n";
    let expected = [reasoning("hmm"), content("Hi <b>")];
    for wanted in [Wanted::default(), offering()] {
        assert_eq!(parse(syntax, &wanted, text), expected);
        let alone = parse(syntax, &wanted, "<response>Hi</response>");
        assert_eq!(alone, [content("Hi")]);
    }
}

#[test]
fn a_call_may_have_an_id() {
    let text = r#"[TOOL_CALLS]now[CALL_ID]abc123def[ARGS]{"a": 1}"#;
    let twice = format!("{text}{text}");
    let parts = parse(calls(CallSyntax::Mistral), &offering(), &twice);
    assert_eq!(parts, [good(0), good(1)].concat());
    let text = "[TOOL_CALLS]now[CALL_ID]";
    let parts = parse(calls(CallSyntax::Mistral), &offering(), text);
    assert_eq!(parts, [content(text)]);
}

#[test]
fn what_follows_the_last_call_wanted_is_dropped() {
    let wanted = Wanted {
        num_calls_max: Some(1),
        ..offering()
    };
    let text = format!("<tool_call>{GOOD}</tool_call><tool_call>{GOOD}</tool_call> So.");
    assert_eq!(parse(calls(CallSyntax::Hermes), &wanted, &text), good(0));
    let mut parser = OutputParser::new(calls(CallSyntax::Hermes), wanted);
    parser.push("Look: ");
    assert!(!parser.is_done());
    parser.push(&text);
    assert!(parser.is_done());
}

#[test]
fn reasoning_within_one_push_is_noticed() {
    let mut parser = OutputParser::new(thinking(), Wanted::default());
    parser.push("<think>x</think>Yes");
    assert!(parser.took_reasoning() && !parser.is_reasoning());
    parser.push(", no");
    assert!(!parser.took_reasoning());
    let mut parser = OutputParser::new(channels(), Wanted::default());
    parser.push("<|channel|>analysis<|message|>x<|end|>");
    assert!(parser.took_reasoning() && !parser.is_reasoning());
    parser.push("<|start|>assistant<|channel|>final<|message|>Yes");
    assert!(!parser.took_reasoning());
}

#[test]
fn a_template_with_channels_or_a_response_is_recognised() {
    let detected = OutputSyntax::detect("{{ '<|start|>assistant<|channel|>final<|message|>' }}");
    assert_eq!(detected, channels());
    let granite = OutputSyntax::detect("<think></think> <response></response> <|tool_call|>");
    assert_eq!(granite.reasoning, ReasoningSyntax::ThinkAndRespond);
}

#[test]
fn a_grammar_of_channels_has_a_header_for_every_tool() {
    let tools = [("f".to_owned(), serde_json::json!({"type": "object"}))];
    let rules = CallRules {
        tools: &tools,
        parallel: Parallel::One,
        syntax: CallSyntax::Channels,
    };
    let lark = rules.lark(CallPlace::Whole, |marker| marker.to_owned());
    let expected = "call0: <|channel|> \"commentary to=functions.f \" <|constrain|> \"json\" <|message|> arguments0\n";
    assert!(lark.contains(expected), "{lark}");
}

const PIECES: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<|tool_call|>",
    r#"{"name": "now", "arguments": {"a": 1}}"#,
    r#"{"name": "no"}"#,
    GOOD,
    UNKNOWN,
    "<tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call>",
    "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}}</tool_call>",
    r#"{"name": "now", "arguments": {"a" 1}}"#,
    r#"{"name": "now", "arguments": "{\"b\": 1}"}"#,
    r#"{"name": "now", "arguments": 7 }"#,
    r#"{"name": "now", "arguments": {"#,
    r#"{"key": 1, "name": "now"}"#,
    r#""name": "get_weather","#,
    "now[CALL_ID]id[ARGS]",
    "<response>",
    "</response>",
    "<|channel|>",
    "analysis<|message|>",
    "commentary to=functions.now<|message|>",
    "<|end|><|start|>assistant",
    "<|call|>",
    "now",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    " \n",
    "é😀",
    ",;:",
    "text",
];

const SYNTAXES: &[OutputSyntax] = {
    use ReasoningSyntax::{Channels, Think, ThinkAndRespond};
    const fn syntax(reasoning: ReasoningSyntax, calls: CallSyntax) -> OutputSyntax {
        OutputSyntax { reasoning, calls }
    }
    &[
        syntax(Think, CallSyntax::Hermes),
        syntax(ReasoningSyntax::None, CallSyntax::Hermes),
        syntax(Think, CallSyntax::Llama3),
        syntax(Think, CallSyntax::Mistral),
        syntax(ThinkAndRespond, CallSyntax::Granite),
        syntax(ReasoningSyntax::None, CallSyntax::Json),
        syntax(Channels, CallSyntax::Channels),
    ]
};

proptest! {
    /// Whatever a model says, where it is cut changes nothing.
    #[test]
    fn cuts_change_nothing(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..12),
        cuts in proptest::collection::vec(0usize..400, 0..8),
        syntax in proptest::sample::select(SYNTAXES),
        num_calls_max in proptest::sample::select(vec![None, None, Some(0), Some(1), Some(2)]),
        starts_in_reasoning: bool,
    ) {
        let text = pieces.concat();
        let wanted = Wanted { tools: tools(), num_calls_max, starts_in_reasoning };
        let whole = parse(syntax, &wanted, &text);
        let mut ends: Vec<usize> = cuts.into_iter().chain([0, text.len()]).collect();
        ends.retain(|&end| text.is_char_boundary(end));
        ends.sort_unstable();
        let cut = parse_pieces(syntax, &wanted, ends.windows(2).map(|pair| &text[pair[0]..pair[1]]));
        prop_assert_eq!(cut, whole);
    }
}
