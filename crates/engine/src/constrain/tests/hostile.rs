//! Case F2: forms made to stop a server. Each is refused or compiled without meeting a generous time
//! limit (a hang fails the test), in bounded memory, and costs an answer nothing but its own end.

use super::*;

/// The outcome, after the first tokens of an answer were chosen from it.
fn attempt(form: &Form) -> Result<(), CompileError> {
    let limits = Limits {
        // So that a slow machine proves nothing.
        compile: Duration::from_secs(60),
        ..Limits::STANDARD
    };
    let compiler = Compiler::new(Arc::new(Bytes::new()), limits);
    let mut constraint = compiler.compile(form)?;
    let mut allowed = vec![0_u32; Bytes::new().vocab().div_ceil(32)];
    for _ in 0..20 {
        if constraint.is_exhausted() || constraint.fill(&mut allowed).is_err() {
            break;
        }
        let first = allowed.iter().enumerate().find(|(_, word)| **word != 0);
        let (idx, word) = first.expect("a mask that is not an error lets something through");
        let token = TokenId(idx as u32 * 32 + word.trailing_zeros());
        if constraint.accept(token).is_err() {
            break;
        }
    }
    Ok(())
}

fn name_of(form: &Form) -> String {
    format!("{form:?}").chars().take(150).collect()
}

fn is_refused(form: &Form) {
    match attempt(form) {
        Err(
            CompileError::Schema { reason, .. }
            | CompileError::Grammar { reason }
            | CompileError::TooComplex { reason },
        ) => {
            assert!(reason.len() < 500, "{}: {reason}", name_of(form));
            assert!(!reason.contains('\n'), "{}: {reason}", name_of(form));
        }
        other => panic!("{}: {other:?}", name_of(form)),
    }
}

/// Compiled or refused, but not overdue.
fn ends(form: &Form) {
    use CompileError::{Busy, TooSlow, Unavailable};
    let outcome = attempt(form);
    let is_overdue = matches!(
        outcome,
        Err(TooSlow { .. } | Busy { .. } | Unavailable { .. })
    );
    assert!(!is_overdue, "{}: {outcome:?}", name_of(form));
}

/// Most memory this process ever had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn regex(text: &str) -> Form {
    form(Grammar::Regex(text.to_owned()))
}

fn lark(text: &str) -> Form {
    form(Grammar::Lark(text.to_owned()))
}

fn gbnf(text: &str) -> Form {
    form(Grammar::Gbnf(text.to_owned()))
}

/// A chain of rules, each made by `link` from its number.
fn chain(start: &str, num_links: usize, link: impl Fn(usize) -> String) -> String {
    let links: String = (0..num_links).map(link).collect();
    format!("{start}{links}")
}

#[test]
fn hostile_expressions_are_refused_or_end() {
    let deep = "(".repeat(8000) + &")".repeat(8000);
    let long = "a".repeat(Limits::STANDARD.regex_bytes_max + 1);
    let stars = format!("a{}", "*".repeat(10_000));
    for text in [
        "",
        "^+a$",
        "(?<=x)*",
        "(?=a)b",
        r"(a)\1",
        "(a",
        "a)",
        "[a",
        "*a",
        "a{1,100000000}",
        "a{99999999999999999999}",
        r"(?-u:\xff)",
        &deep,
        &long,
        &stars,
    ] {
        is_refused(&regex(text));
    }
    let optional = "a?".repeat(8000);
    for text in [
        "(a*)*",
        "(a|a)*b",
        "((a*)*)*",
        "(x+x+)+y",
        "(a{1,1000}){1,1000}",
        "((a{100}){100}){100}",
        "(a|b)*a(a|b){30}",
        r"[\s\S]{50000}",
        "(?:a?){5000}a{5000}",
        r"\p{L}{1000}",
        "(.{0,1000}a){50}",
        "(.*)(.*)(.*)(.*)(.*)x",
        &optional,
    ] {
        ends(&regex(text));
    }
    assert!(peak_mib() < 500, "{} MiB", peak_mib());
}

#[test]
fn hostile_grammars_are_refused_or_end() {
    let doubling = |name: &str| {
        chain(&format!("start: {name}0\n"), 40, |idx| {
            format!("{name}{idx}: {name}{} {name}{}\n", idx + 1, idx + 1)
        }) + &format!("{name}40: \"b\"\n")
    };
    for text in [
        "start: start",
        "start: a\na: b\nb: a",
        "start: T\nT: T",
        &format!("start: T\nT: {}\"a\"", "~ ".repeat(30_000)),
        &format!("start: {}\"a\"{}", "(".repeat(90), ")".repeat(90)),
        &format!("start: {}\"a\"{}", "(".repeat(30_000), ")".repeat(30_000)),
        &doubling("T"),
        "start: %json {\"a\":",
        "start: %json {\"type\":\"string\", \"x-guidance\": {\"lenient\": true}}",
        &"a".repeat(Limits::STANDARD.grammar_bytes_max + 1),
    ] {
        is_refused(&lark(text));
    }
    let rules = chain("start: r0\n", 2500, |idx| {
        format!("r{idx}: \"a\" r{}\n", idx + 1)
    });
    let terminals = chain("start: T0\n", 2500, |idx| {
        format!("T{idx}: \"a\" T{}?\n", idx + 1)
    });
    for text in [
        "start: start \"a\" | \"a\"",
        "start: a a a a a a a a\na: b b b b b b\nb: \"x\"?",
        "start: start start | \"a\" | \"\"",
        "start: (\"a\" b){90000}\nb: \"c\" | \"d\" b",
        "start: ((b{1000}){1000}){1000}\nb: \"c\" | \"d\" b",
        &format!("{rules}r2500: \"b\"\n"),
        &format!("{terminals}T2500: \"b\"\n"),
        &doubling("r"),
        &format!("start: {}", "%json {\"type\":\"object\"} ".repeat(1000)),
    ] {
        ends(&lark(text));
    }
    assert!(peak_mib() < 500, "{} MiB", peak_mib());
}

#[test]
fn hostile_gbnf_is_refused_or_ends() {
    for text in [
        "root ::= root",
        "root ::= a\na ::= b\nb ::= a",
        "root ::= ((((",
        "::=",
        "root ::= \"a\"{1,100000000}",
        &format!("root ::= {}", "(".repeat(30_000)),
    ] {
        is_refused(&gbnf(text));
    }
    let rules = chain("root ::= r0\n", 2000, |idx| {
        format!("r{idx} ::= \"a\" r{}\n", idx + 1)
    });
    ends(&gbnf(&format!("{rules}r2000 ::= \"b\"\n")));
    ends(&gbnf("root ::= root \"a\" | \"a\""));
    assert!(peak_mib() < 500, "{} MiB", peak_mib());
}

#[test]
fn hostile_schemas_are_refused() {
    let leaf = json!({"type": "string"});
    let nested = (0..100).fold(leaf, |inner, _| json!({"items": inner}));
    for source in [
        json!({"maxItems": u64::MAX}),
        json!({"minLength": 1_000_000_000}),
        json!({"maxLength": 1e300}),
        json!({"pattern": "a{1,100000000}"}),
        json!({"pattern": "("}),
        json!({"patternProperties": {"(?<=x)*": true}}),
        json!({"multipleOf": 999_983}),
        json!({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}),
        json!({"type": "integer", "minimum": 5, "maximum": 4}),
        json!(false),
        nested,
    ] {
        is_refused(&schema(source));
    }
    assert!(peak_mib() < 500, "{} MiB", peak_mib());
}

#[test]
fn schemas_that_multiply_end() {
    let defs = |body: fn(Value) -> Value| {
        let next = |idx: usize| json!({"$ref": format!("#/$defs/d{}", idx + 1)});
        let all = (0..30).map(|idx| (format!("d{idx}"), body(next(idx))));
        let mut defs: serde_json::Map<String, Value> = all.collect();
        defs.insert("d30".to_owned(), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let properties: serde_json::Map<String, Value> = (0..3000)
        .map(|idx| (format!("value {idx}"), json!({"type": "string"})))
        .collect();
    let alternatives = |idx: usize| {
        let branch = |name: &str| json!({"required": [format!("{name}{idx}")]});
        json!({"anyOf": [branch("a"), branch("b"), branch("c")]})
    };
    for source in [
        json!({"type": "array", "minItems": 100_000}),
        json!({"type": "object", "minProperties": 100_000}),
        json!({"type": "string", "maxLength": 100_000}),
        json!({"type": "string", "pattern": "^(a|b)*a(a|b){30}$", "minLength": 1000}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        json!({"type": "integer", "multipleOf": 49_999}),
        json!({"allOf": (0..12).map(alternatives).collect::<Vec<_>>()}),
        json!({"type": "object", "properties": properties}),
        defs(|next| json!({"properties": {"l": next, "r": next}, "required": ["l", "r"]})),
        defs(|next| json!({"allOf": [next, next]})),
    ] {
        ends(&schema(source));
    }
    assert!(peak_mib() < 500, "{} MiB", peak_mib());
}

/// Whether branches exclude each other is searched within a bound, whatever they refer to.
#[test]
fn branches_that_take_long_to_compare_are_refused() {
    let layer = |idx: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", idx + 1)});
        (format!("d{idx}"), json!({"anyOf": vec![next; 10]}))
    };
    let mut layers: serde_json::Map<String, Value> = (0..12).map(layer).collect();
    let integer = json!({"type": "integer", "required": ["a", "b"], "properties": {"a": {}}});
    layers.insert("d12".to_owned(), integer);
    let deep = json!({"$ref": "#/$defs/d0"});
    let source = json!({"oneOf": [deep, {"anyOf": [{"type": "string"}, deep]}], "$defs": layers});
    is_refused(&schema(source));
    let constants: Vec<Value> = (0..2000).map(|number| json!({"const": number})).collect();
    is_refused(&schema(json!({"oneOf": constants})));
    ends(&schema(json!({"oneOf": &constants[..500]})));
}

#[test]
fn a_list_may_be_as_long_as_its_bound_and_no_longer() {
    let names =
        |num: usize| -> Vec<String> { (0..num).map(|idx| format!("value {idx}")).collect() };
    let max = Limits::STANDARD.num_choices_max;
    for num in [max - 1, max] {
        attempt(&schema(json!({"enum": names(num)}))).expect("within its bound");
        attempt(&form(Grammar::Choice(names(num)))).expect("within its bound");
    }
    for num in [max + 1, 1_000_000] {
        is_refused(&schema(json!({"enum": names(num)})));
        is_refused(&form(Grammar::Choice(names(num))));
    }
}

#[test]
fn an_overdue_compile_is_abandoned_and_keeps_its_place() {
    let limits = Limits {
        compile: Duration::ZERO,
        wait: Duration::ZERO,
        num_compiling_max: 1,
        ..Limits::STANDARD
    };
    let compiler = Compiler::new(Arc::new(Bytes::new()), limits);
    let place = Place::take(&compiler.shared).expect("nothing is being compiled");
    let busy = compiler.compile(&regex("a+")).map(|_| ());
    assert_eq!(busy, Err(CompileError::Busy { num_compiling: 1 }));
    drop(place);
    let overdue = compiler.compile(&regex(&"a?".repeat(8000))).map(|_| ());
    let limit = Duration::ZERO;
    assert_eq!(overdue, Err(CompileError::TooSlow { limit }));
}
