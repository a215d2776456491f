//! What the forms let through, byte by byte, and what is refused.

use std::sync::Arc;

use serde_json::{Value, json};
use text::TokenId;

use super::*;

/// A token a byte, then some longer ones, two control tokens, and an end token.
struct Bytes {
    words: Vec<Vec<u8>>,
    end: [TokenId; 1],
}

const LONGER: &[&str] = &[
    "true", "\": \"", "\"}", "  ", "\n\n", "</think>", "é", "name",
];
const CONTROL: &[&str] = &["<tool_call>", "</s>"];

impl Bytes {
    fn new() -> Bytes {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        words.extend(LONGER.iter().map(|word| word.as_bytes().to_vec()));
        words.extend(CONTROL.iter().map(|_| Vec::new()));
        let end = [TokenId(words.len() as u32 - 1)];
        Bytes { words, end }
    }
}

impl Vocabulary for Bytes {
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.words.get(token.0 as usize).map(Vec::as_slice)
    }
    fn control_text(&self, token: TokenId) -> Option<&str> {
        let idx = (token.0 as usize).checked_sub(256 + LONGER.len())?;
        CONTROL.get(idx).copied()
    }
    fn end_tokens(&self) -> &[TokenId] {
        &self.end
    }
    fn vocab(&self) -> usize {
        self.words.len()
    }
}

fn compiler() -> Compiler {
    Compiler::new(Arc::new(Bytes::new()), Limits::STANDARD)
}

fn form(grammar: Grammar) -> Form {
    Form {
        grammar,
        white_space: WhiteSpace::Short,
        lead: Lead::Nothing,
    }
}

fn schema(schema: Value) -> Form {
    form(Grammar::JsonSchema(schema))
}

fn compile(form: &Form) -> Box<dyn Constraint> {
    compiler()
        .compile(form)
        .unwrap_or_else(|error| panic!("{form:?}: {error}"))
}

fn refusal(form: &Form) -> CompileError {
    compiler()
        .compile(form)
        .map(|_| ())
        .expect_err("must be refused")
}

/// Where a text leaves its constraint, or how far it is at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reached {
    Refused(usize),
    Open,
    Complete,
    Exhausted,
}
use Reached::{Complete, Exhausted, Open, Refused};

fn is_allowed(constraint: &mut Box<dyn Constraint>, token: u32) -> bool {
    let mut allowed = vec![0; Bytes::new().vocab().div_ceil(32)];
    match constraint.fill(&mut allowed) {
        Ok(()) => allowed[token as usize / 32] >> (token % 32) & 1 == 1,
        Err(_) => false,
    }
}

/// Feeds `text` a byte a token, asking each time whether it is allowed.
fn feed(constraint: &mut Box<dyn Constraint>, text: &str) -> Reached {
    for (idx, byte) in text.bytes().enumerate() {
        if constraint.is_exhausted() || !is_allowed(constraint, u32::from(byte)) {
            return Refused(idx);
        }
        constraint
            .accept(TokenId(u32::from(byte)))
            .expect("it was allowed");
    }
    let end = Bytes::new().end[0].0;
    assert_eq!(
        is_allowed(constraint, end),
        constraint.is_complete(),
        "{text}"
    );
    match (constraint.is_complete(), constraint.is_exhausted()) {
        (_, true) => Exhausted,
        (true, false) => Complete,
        (false, false) => Open,
    }
}

fn reach(form: &Form, text: &str) -> Reached {
    feed(&mut compile(form), text)
}

fn lets_through(form: &Form, texts: &[&str]) {
    for text in texts {
        let reached = reach(form, text);
        assert!(
            matches!(reached, Complete | Exhausted),
            "{text:?}: {reached:?}"
        );
    }
}

fn keeps_out(form: &Form, texts: &[&str]) {
    for text in texts {
        let reached = reach(form, text);
        assert!(
            matches!(reached, Refused(_) | Open),
            "{text:?}: {reached:?}"
        );
    }
}

#[test]
fn any_object_is_an_object() {
    let form = form(Grammar::JsonObject);
    lets_through(&form, &["{}", r#"{"a":[1,{"b":null}],"c":"é\n"}"#]);
    keeps_out(&form, &["[]", "1", "\"a\"", "{", "{\"a\"", " {}", "{}}"]);
}

#[test]
fn white_space_is_a_blank_or_a_line_with_its_indentation() {
    let object = form(Grammar::JsonObject);
    lets_through(
        &object,
        &[
            "{\"a\": 1, \"b\": 2}",
            "{\n  \"a\": [\n    1\n  ]\n}",
            "{\n\t\"a\":1}",
        ],
    );
    keeps_out(&object, &["{  \"a\":1}", "{\n\n\"a\":1}"]);
    let dense = Form {
        white_space: WhiteSpace::None,
        ..object
    };
    lets_through(&dense, &["{\"a\":1,\"b\":[2]}"]);
    keeps_out(&dense, &["{\"a\": 1}", "{ }"]);
}

#[test]
fn a_schema_is_followed() {
    let person = schema(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 4},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2}
        },
        "required": ["name", "age"],
        "additionalProperties": false
    }));
    lets_through(
        &person,
        &[
            r#"{"name":"Bo","age":7}"#,
            r#"{"name": "Bo", "age": 150, "tags": ["x", "y"]}"#,
        ],
    );
    keeps_out(
        &person,
        &[
            r#"{"name":"B","age":7}"#,
            r#"{"name":"Bonny","age":7}"#,
            r#"{"name":"Bo","age":151}"#,
            r#"{"name":"Bo","age":-1}"#,
            r#"{"name":"Bo","age":07}"#,
            r#"{"name":"Bo"}"#,
            r#"{"name":"Bo","age":7,"tags":["x","y","x"]}"#,
            r#"{"name":"Bo","age":7,"tags":["z"]}"#,
            r#"{"name":"Bo","age":7,"more":1}"#,
        ],
    );
}

#[test]
fn a_complete_document_ends_by_itself() {
    let form = schema(json!({"type": "object", "properties": {}, "additionalProperties": false}));
    assert_eq!(reach(&form, "{}"), Exhausted);
}

#[test]
fn unnamed_properties_are_there_only_if_the_schema_speaks_of_them() {
    let silent = json!({"properties": {"a": {"type": "integer"}}});
    lets_through(&schema(silent.clone()), &["{}", r#"{"a":1}"#]);
    keeps_out(&schema(silent), &[r#"{"b":1}"#, "1"]);
    let open = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"}});
    lets_through(&schema(open.clone()), &[r#"{"a":1,"b":true}"#]);
    keeps_out(&schema(open), &[r#"{"b":1}"#]);
    // What combines is left as it is: closing the parts would leave nothing of the whole.
    let combined = json!({"type": "object", "allOf": [
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
    ]});
    lets_through(&schema(combined), &[r#"{"a":1,"b":2}"#]);
}

#[test]
fn references_within_a_schema_are_followed_and_may_recurse() {
    let tree = schema(json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"]
        }}
    }));
    lets_through(
        &tree,
        &[r#"{"next":null}"#, r#"{"next":{"next":{"next":null}}}"#],
    );
    keeps_out(&tree, &[r#"{"next":1}"#, "null"]);
}

/// What pydantic makes of a tagged union.
#[test]
fn branches_of_one_of_that_exclude_each_other_are_alternatives() {
    let animal = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]});
    let tagged = schema(json!({
        "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "kind"},
        "$defs": {"cat": animal("cat"), "dog": animal("dog")}
    }));
    lets_through(&tagged, &[r#"{"kind":"cat"}"#, r#"{"kind":"dog"}"#]);
    keeps_out(&tagged, &[r#"{"kind":"cow"}"#]);
    let numbered = schema(json!({"oneOf": [{"const": 1}, {"const": 2}, {"type": "string"}]}));
    lets_through(&numbered, &["1", "2", "\"a\""]);
    keeps_out(&numbered, &["3", "12", "true"]);
    let versions = |number: i64, more: &str| json!({"properties": {"version": {"const": number}, more: {"type": "integer"}}, "required": ["version", more]});
    let versioned =
        schema(json!({"type": "object", "oneOf": [versions(1, "a"), versions(2, "b")]}));
    lets_through(
        &versioned,
        &[r#"{"version":1,"a":5}"#, r#"{"version":2,"b":5}"#],
    );
    keeps_out(
        &versioned,
        &[r#"{"version":1,"b":5}"#, r#"{"version":3,"a":5}"#],
    );
    let beside = schema(json!({
        "anyOf": [{"const": 1}, {"const": 3}],
        "oneOf": [{"const": 1}, {"const": 2}],
    }));
    lets_through(&beside, &["1"]);
    keeps_out(&beside, &["2", "3"]);
}

#[test]
fn branches_of_one_of_that_may_overlap_are_refused_with_what_to_do() {
    let nested = json!({"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "string"}, {"minimum": 5}]}}});
    let CompileError::Schema { path, reason } = refusal(&schema(nested)) else {
        panic!("it is the schema's fault");
    };
    assert_eq!(path, "properties.a.oneOf");
    assert!(
        reason.contains("[0] and [2]") && reason.contains("anyOf"),
        "{reason}"
    );
    assert!(!reason.contains("coerce"), "{reason}");
}

#[test]
fn what_stands_beside_alternatives_holds_for_all_of_them() {
    for keyword in ["anyOf", "oneOf"] {
        let kind =
            |kind: &str| json!({"properties": {"kind": {"const": kind}}, "required": ["kind"]});
        let form = schema(json!({
            "type": "object",
            "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["kind", "size"],
            keyword: [kind("cat"), kind("dog")],
        }));
        lets_through(
            &form,
            &[r#"{"kind":"cat","size":1}"#, r#"{"kind":"dog","size":1}"#],
        );
        keeps_out(&form, &[r#"{"kind":"cow","size":1}"#, r#"{"kind":"cat"}"#]);
    }
}

#[test]
fn tuples_of_either_draft_are_tuples() {
    for tuple in [
        json!({"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}],
            "additionalItems": false, "minItems": 2}),
        json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}],
            "items": false, "minItems": 2}),
    ] {
        lets_through(&schema(tuple.clone()), &["[1,true]"]);
        keeps_out(&schema(tuple), &["[1]", "[true,1]", "[1,true,1]"]);
    }
}

#[test]
fn what_a_schema_cannot_have_enforced_is_refused_with_its_path() {
    for (source, path) in [
        (
            json!({"properties": {"x": {"type": "string", "format": "color"}}}),
            "properties.x.format",
        ),
        (json!({"not": {"type": "string"}}), "not"),
        (json!({"if": true, "then": false}), "if"),
        (
            json!({"anyOf": [{"type": "array", "uniqueItems": true}]}),
            "anyOf[0].uniqueItems",
        ),
        (json!({"type": "object", "requierd": ["a"]}), "requierd"),
        (json!({"type": "text"}), "type"),
        (json!({"type": "string", "minLength": -1}), "minLength"),
        (json!({"type": "string", "pattern": 7}), "pattern"),
        (json!({"$ref": "https://example.com/schema.json"}), "$ref"),
        (json!({"$ref": "other.json#/a"}), "$ref"),
        (json!({"$ref": "#/$defs/none"}), "$ref"),
        (json!({"properties": {"a": 1}}), "properties.a"),
        (json!({"enum": []}), "enum"),
        (json!({"anyOf": []}), "anyOf"),
        (json!({"required": [1]}), "required"),
        (
            json!({"patternProperties": {"": true}}),
            "patternProperties.",
        ),
        (json!({"nullable": true}), "nullable"),
        (json!("string"), ""),
    ] {
        match refusal(&schema(source.clone())) {
            CompileError::Schema { path: at, .. } => assert_eq!(at, path, "{source}"),
            other => panic!("{source}: {other}"),
        }
    }
}

#[test]
fn what_only_describes_is_allowed_and_no_option_gets_in_with_it() {
    lets_through(
        &schema(json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/x",
            "title": "T", "description": "d", "default": 1, "examples": [1], "deprecated": true,
            "x-guidance": {"lenient": true}, "type": "integer", "uniqueItems": false
        })),
        &["1"],
    );
    let sneaked = json!({"x-guidance": {"coerce_one_of": true},
        "oneOf": [{"type": "integer"}, {"minimum": 5}]});
    refusal(&schema(sneaked));
}

/// Case F2.
#[test]
fn references_that_come_back_to_themselves_are_refused() {
    for source in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"anyOf": [{"type": "string"}, {"$ref": "#"}]}),
        json!({"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}),
    ] {
        let error = refusal(&schema(source.clone()));
        assert!(
            matches!(error, CompileError::Schema { .. }),
            "{source}: {error}"
        );
    }
}

#[test]
fn an_expression_is_matched_whole() {
    let expression = |regex: &str| form(Grammar::Regex(regex.to_owned()));
    for regex in [r"\d{3}-[a-z]+", r"^\d{3}-[a-z]+$"] {
        lets_through(&expression(regex), &["123-a", "123-abc"]);
        keeps_out(
            &expression(regex),
            &["123-", "12-a", "x123-a", "123-a ", "١٢٣-a"],
        );
    }
    assert_eq!(reach(&expression(r"a\$"), "a$"), Exhausted);
    assert_eq!(
        reach(&expression(r"\w+@\w+\.com\n"), "me@x.com\n"),
        Exhausted
    );
    lets_through(&expression("a/b|é"), &["a/b", "é"]);
}

#[test]
fn choices_are_the_only_answers() {
    let list = |choices: &[&str]| {
        form(Grammar::Choice(
            choices.iter().map(|c| (*c).to_owned()).collect(),
        ))
    };
    let choices = list(&["positive", "pos", "a \"b\"\n", "é.*"]);
    lets_through(&choices, &["positive", "pos", "a \"b\"\n", "é.*"]);
    keeps_out(&choices, &["posit", "é.", "neg"]);
    assert_eq!(reach(&choices, "pos"), Complete);
    assert_eq!(reach(&choices, "positive"), Exhausted);
    for choices in [&[][..], &[""], &["a", ""]] {
        refusal(&list(choices));
    }
}

#[test]
fn lark_is_followed_and_may_hold_schemas_and_control_tokens() {
    let lark = |text: &str| form(Grammar::Lark(text.to_owned()));
    let sum = lark("start: NUM (\"+\" NUM)*\nNUM: /[0-9]{1,3}/");
    lets_through(&sum, &["1", "12+345"]);
    keeps_out(&sum, &["+", "1+", "1234"]);
    let call = lark("start: <tool_call> \"\\n\" json\njson: %json {\"type\": \"integer\"}");
    let mut constraint = compile(&call);
    let tool_call = 256 + LONGER.len() as u32;
    assert!(
        !is_allowed(&mut constraint, u32::from(b'<')),
        "its name is no text"
    );
    assert!(is_allowed(&mut constraint, tool_call));
    constraint.accept(TokenId(tool_call)).expect("allowed");
    assert!(matches!(feed(&mut constraint, "\n12"), Complete));
    for wrong in [
        "",
        "begin: \"a\"",
        "start: missing",
        "start: \"a",
        "start: <no_such_token>",
        "%llguidance {\"allow_invalid_utf8\": true}\nstart: \"a\"",
    ] {
        refusal(&lark(wrong));
    }
}

#[test]
fn a_grammar_in_either_notation_is_recognised() {
    let gbnf = "# two rules\nroot ::= greeting \" \" name\ngreeting ::= \"hi\" | \"hello\"\nname ::= [A-Z] [a-z]*\n";
    assert!(matches!(
        Grammar::of_text(gbnf.to_owned()),
        Grammar::Gbnf(_)
    ));
    let form = form(Grammar::of_text(gbnf.to_owned()));
    lets_through(&form, &["hi Bo", "hello Anna", "hi X"]);
    keeps_out(&form, &["hey Bo", "hi bo", "hi"]);
    let lark = "start: \"::=\" | name\nname: \"a\"";
    assert!(matches!(
        Grammar::of_text(lark.to_owned()),
        Grammar::Lark(_)
    ));
}

#[test]
fn gbnf_reads_characters_and_not_the_longest_match() {
    let gbnf = |text: &str| form(Grammar::Gbnf(text.to_owned()));
    lets_through(
        &gbnf(r#"root ::= [a-z]+ "z" [0-9]{2,3}"#),
        &["az12", "zzz123"],
    );
    lets_through(
        &gbnf("root ::= (\"a\" |\n \"b\")+ # either\n  \nother ::= \"c\""),
        &["abba"],
    );
    lets_through(
        &gbnf(r#"root ::= "\x41\u00e9\t" [^\]\n"-]? ."#),
        &["Aé\tx!", "Aé\t\n"],
    );
    keeps_out(&gbnf(r#"root ::= "\x41" [^\]\n"-] "#), &["A]", "A\"", "A-"]);
    let nested = gbnf(
        "root ::= list\nlist ::= \"[\" ws (item (\",\" ws item)*)? \"]\" ws\nitem ::= list | [0-9]+ ws\nws ::= [ \\n]*",
    );
    lets_through(&nested, &["[]", "[1, [2,3 ], []]"]);
    keeps_out(&nested, &["[1,]", "[[1]", "1"]);
    for wrong in [
        "root := \"a\"",
        "root ::= missing",
        "other ::= \"a\"",
        "root ::= \"a",
        "root ::= [a",
        "root ::= [z-a]",
        "root ::= (\"a\"",
        "root ::= \"\\q\"",
        "root ::= <[5]>",
        "root ::= \"a\" )",
        "root ::= \"a\"{x}",
        "root ::= []",
    ] {
        let error = refusal(&gbnf(wrong));
        assert!(
            matches!(error, CompileError::Grammar { .. }),
            "{wrong}: {error}"
        );
    }
}

/// llama.cpp's grammar of JSON, as its users send it.
#[test]
fn the_common_json_grammar_works() {
    let text = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;
    let form = form(Grammar::Gbnf(text.to_owned()));
    lets_through(
        &form,
        &[
            "{}",
            "{\"a\": [1, -2.5e3, true, {\"b\\n\": null}], \"c\": \"é\"}",
        ],
    );
    keeps_out(&form, &["[]", "{\"a\"}", "{\"a\":01}"]);
}

#[test]
fn thinking_comes_first_and_is_free() {
    let form = Form {
        lead: Lead::Through("</think>".to_owned()),
        ..schema(json!({"type": "integer"}))
    };
    lets_through(&form, &["well {1} <think>\n</think>\n\n42", "</think>7"]);
    keeps_out(&form, &["42", "</think>", "</think>no", "hm </think"]);
}

#[test]
fn a_control_token_can_end_the_thinking() {
    let form = Form {
        lead: Lead::Through("<tool_call>".to_owned()),
        ..schema(json!({"type": "integer"}))
    };
    let mut constraint = compile(&form);
    assert_eq!(feed(&mut constraint, "hm"), Open);
    let control = 256 + LONGER.len() as u32;
    assert!(is_allowed(&mut constraint, control), "the token itself");
    constraint.accept(TokenId(control)).expect("allowed");
    assert!(matches!(feed(&mut constraint, "42"), Complete));
}

#[test]
fn a_block_of_thinking_may_come_first_or_not() {
    let form = Form {
        lead: Lead::Block {
            open: "<think>".to_owned(),
            close: "</think>".to_owned(),
        },
        ..schema(json!({"type": "integer"}))
    };
    lets_through(&form, &["42", "<think>well {1}</think>\n\n42"]);
    keeps_out(&form, &["well 42", "<think>42", "<think>x</think>no"]);
}

#[test]
fn free_text_is_free_until_a_marker_that_the_form_must_follow() {
    let text = Lead::Unless("[CALLS]".to_owned());
    let control = Lead::Unless("<tool_call>".to_owned());
    for lead in [text, control] {
        let form = Form {
            lead,
            ..schema(json!({"type": "integer"}))
        };
        lets_through(&form, &["anything [at] all", "{\"a\": 1}"]);
    }
    let form = Form {
        lead: Lead::Unless("[CALLS]".to_owned()),
        ..schema(json!({"type": "integer"}))
    };
    lets_through(&form, &["let me see. [CALLS] 42"]);
    keeps_out(&form, &["[CALLS]no", "see [CALLS]", "[CALLS]4 2"]);
}

#[test]
fn bounds_beyond_exact_arithmetic_are_refused_by_name() {
    for bound in [json!(i64::MIN), json!(-1e308), json!(u64::MAX)] {
        let refused = refusal(&schema(json!({"type": "integer", "minimum": bound})));
        assert!(
            matches!(&refused, CompileError::Schema { path, .. } if path == "minimum"),
            "{refused:?}"
        );
    }
    lets_through(
        &schema(json!({"type": "integer", "minimum": -9007199254740992_i64})),
        &["7"],
    );
}

#[test]
fn a_copy_goes_its_own_way() {
    let mut first = compile(&form(Grammar::Choice(vec![
        "ab".to_owned(),
        "ac".to_owned(),
    ])));
    assert_eq!(feed(&mut first, "a"), Open);
    let mut second = first.fork();
    assert_eq!(feed(&mut first, "b"), Exhausted);
    assert_eq!(feed(&mut second, "c"), Exhausted);
}

#[test]
fn a_form_is_compiled_once() {
    let compiler = compiler();
    let object = form(Grammar::JsonObject);
    for _ in 0..3 {
        compiler.compile(&object).expect("compiles");
    }
    assert_eq!(lock(&compiler.shared.cache).num_compiled(), 1);
}

mod hostile;
