//! Templates made to break a server: whatever they do to the stack, the memory or the clock, there is an error instead.
//!
//! Each runs on a stack of 2 MiB, as a server's blocking threads have, and without optimisation in the usual
//! test run, where a stack frame is several times as large.

use serde_json::{Map, json};
use text::{ChatTemplate, TemplateError};

/// The stack of a blocking thread of tokio, and of a thread that Rust starts.
const STACK_BYTES: usize = 2 << 20;

/// What comes of compiling and rendering `source`.
fn outcome(source: &str) -> Result<String, TemplateError> {
    let source = source.to_owned();
    let render = move || {
        let template = ChatTemplate::compile(&source, "<s>", "</s>", vec!["<|end|>".to_owned()])?;
        let message = json!({"role": "user", "content": "hi"});
        let rendered = template.render(&[message], true, &Map::new())?;
        Ok(rendered.text)
    };
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(render)
        .unwrap()
        .join()
        .expect("no panic")
}

fn refused(source: &str) -> TemplateError {
    match outcome(source) {
        Err(error) => error,
        Ok(text) => panic!("{source:.200}: rendered {} bytes", text.len()),
    }
}

/// `first`, then `link` many times, then `last`.
fn chain(first: &str, link: &str, last: &str, num_links: usize) -> String {
    format!("{first}{}{last}", link.repeat(num_links))
}

const EXPRESSION_CHAINS: [(&str, &str, &str); 20] = [
    ("{{ ", "-", "1 }}"),
    ("{{ ", "not ", "1 }}"),
    ("{{ 1", "+1", " }}"),
    ("{{ 1", "~1", " }}"),
    ("{{ 1", "**1", " }}"),
    ("{{ 1", " and 1", " }}"),
    ("{{ 1", " or 1", " }}"),
    ("{{ 1", " is odd", " }}"),
    ("{{ x", ".a", " }}"),
    ("{{ x", "[0]", " }}"),
    ("{{ x", "()", " }}"),
    ("{{ x", "[1:]", " }}"),
    ("{{ 1", "|string", " }}"),
    ("{{ 1", " if 1 else 1", " }}"),
    ("{{ 1", " in 1", " }}"),
    ("{{ 1", " < 1", " }}"),
    ("{% set x = 1", "+1", " %}"),
    ("{% for x in 1", "+1", " %}{% endfor %}"),
    ("{% if 1", "+1", " %}{% endif %}"),
    ("{{ [1, (2", "+1", ")] }}"),
];

#[test]
fn a_long_chain_of_operators_is_a_syntax_error_and_not_the_end_of_the_stack() {
    for (first, link, last) in EXPRESSION_CHAINS {
        let error = refused(&chain(first, link, last, 20_000));
        assert!(
            matches!(&error, TemplateError::Syntax { line: 1, reason } if reason.starts_with("more than")),
            "{first}{link}: {error}"
        );
    }
}

/// The bound itself must leave room on the stack.
#[test]
fn the_longest_chains_that_are_accepted_fit_the_stack() {
    for (first, link, last) in EXPRESSION_CHAINS {
        let is_too_long = |num_links: &usize| {
            let error = outcome(&chain(first, link, last, *num_links)).err();
            matches!(error, Some(TemplateError::Syntax { reason, .. }) if reason.starts_with("more than"))
        };
        let longest = (1..2000).find(is_too_long).unwrap() - 1;
        assert!(longest >= 60, "{first}{link}: only {longest}");
    }
}

#[test]
fn deep_blocks_and_brackets_are_syntax_errors() {
    for (first, link, last) in [
        ("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
        ("", "{% if 0 %}", ""),
        ("", "{% for x in [] %}", ""),
        ("", "{% set x %}", ""),
        ("", "{% with %}", ""),
        ("{{ ", "(", ""),
        ("{{ ", "[", ""),
        ("{{ ", "{1:", ""),
        ("{{ ", "x(", ""),
        ("{{ ", "x[", ""),
        ("{{ ", "-(", ""),
        ("{{ ", "[1+", ""),
    ] {
        for num_links in [10, 30, 33, 60, 100, 127, 129, 200, 20_000] {
            let error = outcome(&chain(first, link, last, num_links)).err();
            let is_refused = matches!(
                error,
                Some(TemplateError::Syntax { .. } | TemplateError::TooMuch { .. })
            );
            assert!(is_refused || num_links <= 127, "{first}{link}: {error:?}");
        }
    }
}

#[test]
fn what_begins_in_a_string_a_comment_or_raw_text_is_no_code() {
    let dashes = "-".repeat(1000);
    for source in [
        format!("{{{{ '{dashes}' }}}}"),
        format!("{{% raw %}} endraw {{{{ {dashes} {{% endraw %}}"),
        format!("{{# {dashes} #}}"),
        dashes.clone(),
    ] {
        outcome(&source).unwrap_or_else(|error| panic!("{source:.60}: {error}"));
    }
    // Here the braces do not end the code, nor the word the raw text.
    for source in [
        format!("{{{{ {{'a': {{}}}}, {dashes}1 }}}}"),
        format!("{{% raw %}} endraw {{{{ ' {{% endraw %}}{{{{ {dashes}1 }}}}"),
    ] {
        assert!(
            matches!(refused(&source), TemplateError::Syntax { .. }),
            "{source:.60}"
        );
    }
}

#[test]
fn a_template_of_megabytes_is_refused_unread() {
    let error = refused(&"y".repeat(20_000_000));
    assert_eq!(
        error.to_string(),
        "chat template exceeds its limit of 262144 bytes of template"
    );
}

/// Printing, comparing and dropping a value recurse as deep as it is.
#[test]
fn values_do_not_nest_without_end() {
    let in_loop = |body: &str, end: &str| {
        format!(
            "{{% set ns = namespace(s=[]) %}}{{% for i in range(90000) %}}{body}{{% endfor %}}{end}"
        )
    };
    for source in [
        in_loop("{% set ns.s = [ns.s] %}", "{{ ns.s }}"),
        in_loop("{% set ns.s = [ns.s] %}", "ok"),
        in_loop("{% set ns.s = [ns.s] %}", "{{ ns.s|tojson }}"),
        in_loop("{% set ns.s = [ns.s] %}", "{{ ns.s == ns.s }}"),
        in_loop("{% set ns.s = ns.s, 1 %}", "ok"),
        in_loop("{% set ns.s = (ns.s,) %}", "ok"),
        in_loop("{% set ns.s = {'a': ns.s} %}", "ok"),
        in_loop("{% set ns.s = dict(a=ns.s) %}", "ok"),
        in_loop("{% set ns.s = namespace(a=ns.s) %}", "ok"),
        in_loop("{% set ns.s = [ns.s]|list|batch(2)|list %}", "ok"),
        in_loop("{% set ns.s = [[[[[[[[[[ns.s]]]]]]]]]] if true else 1 %}", "ok"),
        in_loop("{% with x = [ns.s] %}{% set ns.s = x %}{% endwith %}", "ok"),
        in_loop("{% set ns.s = true and [ns.s] %}", "ok"),
        in_loop("{% set a, ns.s = [[1], [ns.s]] %}", "ok"),
        in_loop("{% set x %}{{ ns.s }}{% endset %}{% set ns.s = [ns.s, ns] %}", "ok"),
        format!("{{% set x = [] %}}{}", "{% set x = [[[[x]]]] %}".repeat(4000)),
        format!("{{% set x = [] %}}{}", "{% set x = x, 1 %}".repeat(4000)),
        "{% macro f(x, n) %}{{ f([[[[[[[[[[x]]]]]]]]]], n - 1) if n else x }}{% endmacro %}{{ f([], 40) }}".to_owned(),
        "{% for x in [[]] recursive %}{{ loop([[[[[[[[[[x]]]]]]]]]]) }}{% endfor %}".to_owned(),
    ] {
        let error = refused(&source);
        assert!(
            matches!(error, TemplateError::TooMuch { .. } | TemplateError::Refused { .. }),
            "{source:.120}: {error}"
        );
    }
}

#[test]
fn no_value_contains_itself() {
    for keep in [
        "{% set ns.x = ns %}",
        "{% set ns.x = [ns] %}",
        "{% set ns.x = {'a': (ns,)} %}",
        "{% set m = ns %}{% set ns.x = m %}",
        "{% set ns.x = ns if true else 1 %}",
        "{% set ns.x = namespace(y=ns) %}",
        "{% set l = [ns] %}{% set ns.x = l %}",
        "{% set ns.x, y = ns, 1 %}",
        "{% set ns.x = dict(y=ns) %}",
        "{% set ns.x = [ns]|first %}",
        "{% set ns.x | default(ns, true) %}{% endset %}",
        "{% for l in [1] %}{% set ns.x = loop %}{% endfor %}",
        "{% for l in [[ns]] %}{% set ns.x = l %}{% endfor %}",
        "{% macro f(a) %}{% set ns.x = a %}{% endmacro %}{{ f(ns) }}",
        "{% with a = ns %}{% set ns.x = a %}{% endwith %}",
    ] {
        for print in ["{{ ns }}", "{{ ns|tojson }}", "{{ ns == ns.x }}", ""] {
            refused(&format!("{{% set ns = namespace() %}}{keep}{print}"));
        }
    }
}

/// Steps that grow what a variable holds, each cheaper than what it makes.
#[test]
fn lists_and_texts_do_not_grow_for_nothing() {
    let in_loop = |body: &str, end: &str| {
        format!(
            "{{% set ns = namespace(s=[1,2], t='ab', d={{}}) %}}{{% for i in range(60) %}}{body}{{% endfor %}}{end}"
        )
    };
    let with = |expression: &str| {
        let opens = format!("{{% with x = {expression} %}}").repeat(60);
        format!(
            "{{% set x = [1, 2] %}}{opens}{{{{ x|length }}}}{}",
            "{% endwith %}".repeat(60)
        )
    };
    for source in [
        in_loop("{% set ns.s = ns.s + ns.s %}", "{{ ns.s|length }}"),
        in_loop("{% set ns.s = ns.s + ns.s %}", "ok"),
        in_loop("{% set ns.s = (ns.s + ns.s)[:] %}", "ok"),
        in_loop("{% set ns.s = [ns.s, ns.s] %}", "{{ ns.s }}"),
        in_loop("{% set ns.s = ns.s * 2 %}", "{{ ns.s|length }}"),
        in_loop("{% set ns.s = ns.s|batch(1)|list + ns.s|list %}", "ok"),
        in_loop("{% set ns.t = ns.t ~ ns.t %}", "ok"),
        in_loop("{% set ns.t = ns.t * 2 %}", "ok"),
        in_loop("{% set ns.t = [ns.t, ns.t]|join %}", "ok"),
        in_loop("{% set ns.t = ns.t|replace('a', ns.t) %}", "ok"),
        in_loop("{% set ns.t = '%s%s'|format(ns.t, ns.t) %}", "ok"),
        in_loop(
            "{% set ns.d = {'a': ns.d, 'b': ns.d} %}",
            "{{ ns.d|tojson }}",
        ),
        with("x + x"),
        with("[x, x]"),
        with("x * 10"),
        "{% macro f(x, n) %}{{ f(x + x, n - 1) if n else x|length }}{% endmacro %}{{ f([1], 40) }}"
            .to_owned(),
        "{{ 'a' * 10**9 }}".to_owned(),
        "{% set x = [1] * 10**8 %}".to_owned(),
        "{{ ([1] * 10**8)|length }}".to_owned(),
        "{% for x in [[1] * 10**8] %}{{ x|length }}{% endfor %}".to_owned(),
        "{% set x %}{{ ['aaaaaaaa'] * 10**8 }}{% endset %}".to_owned(),
        "{{ range(10**12)|list|length }}".to_owned(),
        "{{ ('a' * 10**6 ~ ' ') * 100 }}".to_owned(),
        "{{ ['a' * 10**6] * 1000 }}".to_owned(),
        "{{ (['a' * 10**6] * 1000)|tojson }}".to_owned(),
        "{{ (['a' * 10**6] * 1000)|join }}".to_owned(),
        "{{ (['a'] * 100000)|join('b' * 10**6) }}".to_owned(),
        "{{ ('b' * 10**6).join(['a'] * 100000) }}".to_owned(),
        "{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}".to_owned(),
        "{{ ('a' * 10**5)|replace('', 'b' * 10**5) }}".to_owned(),
        "{{ 'a'|indent(10**9, true) }}".to_owned(),
        "{{ ('a\n' * 10**5)|indent(10**5) }}".to_owned(),
        "{{ '%1000000000d'|format(1) }}".to_owned(),
        "{{ '%.1000000000f'|format(1.0) }}".to_owned(),
        "{{ '%*d'|format(10**9, 1) }}".to_owned(),
        "{{ '{:>1000000000}'.format(1) }}".to_owned(),
        "{{ '{:.1000000000f}'.format(1.0) }}".to_owned(),
        "{{ ('{0}' * 10**5).format('b' * 10**6) }}".to_owned(),
        "{{ ('{a}' * 10**5).format(a='b' * 10**6) }}".to_owned(),
        "{{ ('%(a)s' * 10**5)|format(a='b' * 10**6) }}".to_owned(),
        "{{ '{:>{}}'.format(1, 10**9) }}".to_owned(),
        "{{ ('{:>9000}' * 10**5).format(1) }}".to_owned(),
        "{{ [1]|batch(10**9, 'x')|list|length }}".to_owned(),
        "{{ [1]|slice(10**9)|list|length }}".to_owned(),
        "{{ [1]|slice(10**9, 'x')|list|length }}".to_owned(),
        "{{ 1|tojson(indent='a' * 10**6) ~ [[[1] * 1000] * 1000]|tojson(indent='a' * 10**6) }}"
            .to_owned(),
        "{{ ([1] * 100000)|tojson(separators=('a' * 10**6, ':')) }}".to_owned(),
        "{{ ([1] * 1000)|pprint|length * 'a' * 10**6 }}".to_owned(),
        "{{ ('a' * 10**6)|list|map('replace', 'a', 'b' * 10**6)|list|length }}".to_owned(),
    ] {
        let error = refused(&source);
        assert!(
            !matches!(error, TemplateError::Syntax { .. }),
            "{source:.120}: {error}"
        );
    }
}

#[test]
fn the_calls_that_are_accepted_fit_the_stack() {
    let deepest = "{% macro f(x) %}{% for a in [1] %}{% set y = f([x])|trim|upper %}{{ y }}{% endfor %}{% endmacro %}";
    let error = refused(&format!("{deepest}{{{{ f([]) }}}}"));
    assert!(error.to_string().contains("recursion"), "{error}");
    // Each call prints what is as deep as a value may be.
    let print = "{% macro f(x, n) %}{{ x|tojson }}{{ x }}{{ x == [x] }}{{ f(x, n - 1) if n }}{% endmacro %}";
    let nest = "{% set ns = namespace(s=[]) %}{% for i in range(140) %}{% set ns.s = [ns.s] %}{% endfor %}";
    outcome(&format!("{print}{nest}{{{{ f(ns.s, 20) }}}}")).unwrap();
}

#[test]
fn ordinary_work_with_lists_and_namespaces_goes_on() {
    for (source, expected) in [
        (
            "{% set ns = namespace(l=[], d={}) %}{% for i in range(3) %}{% set ns.l = ns.l + [i] %}{% set ns.d = dict(ns.d, a=i) %}{% endfor %}{{ ns.l }}{{ ns.d }}",
            "[0, 1, 2]{'a': 2}",
        ),
        ("{% set x = 1, 2 %}{{ x }}{{ (3,) }}", "(1, 2)(3,)"),
        ("{% set a, b = 1 + 1, [2] %}{{ a }}{{ b }}", "2[2]"),
        (
            "{% for a in [1, 2] + [3] if a + 1 > 2 %}{{ a }}{% endfor %}",
            "23",
        ),
        ("{% for a in [[1]]recursive %}{{ a }}{% endfor %}", "[1]"),
        ("{%for a in([1]+[2])if(a+1)%}{{a}}{%endfor%}", "12"),
        ("{% for a in [1, 2, 3][::-1] %}{{ a }}{% endfor %}", "321"),
        (
            "{% with a = [1] + [2], b = 3 * 2 %}{{ a }}{{ b }}{% endwith %}",
            "[1, 2]6",
        ),
        (
            "{% macro f(a, b=[1] + [2]) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call f(0) %}x{% endcall %}",
            "0[1, 2]x",
        ),
        (
            "{{ [1, 2]|map('string')|join('-') }}{{ {'a': [1] + [2]} }}",
            "1-2{'a': [1, 2]}",
        ),
        (
            "{% filter upper %}a{% endfilter %}{% set x | upper %}b{% endset %}{{ x }}",
            "AB",
        ),
        ("{{ [1] + [2] if false else 'a' 'b' }}", "ab"),
        (
            "{{ dict(**{'a': 1}) }}{{ [3, 4]|batch(*[1 + 1])|list }}",
            "{'a': 1}[[3, 4]]",
        ),
        ("{{ x is undefined }}{{ (x|default([])) + [1] }}", "True[1]"),
        (
            "{% do range(2) %}{% set x = range(3) %}{{ x|length }}{% if x + [] %}y{% endif %}",
            "3y",
        ),
        ("{{ {'a': {'b': {}}} }}", "{'a': {'b': {}}}"),
        (
            "{{ namespace(a=[1]).a }}{{ dict(a=1)['a'] }}{{ [[1, 2], [3]][0][1:] }}",
            "[1]1[2]",
        ),
    ] {
        assert_eq!(
            outcome(source).map_err(|error| error.to_string()),
            Ok(expected.to_owned()),
            "{source}"
        );
    }
}

/// B11.
#[test]
fn names_that_no_environment_knows_are_told_when_the_template_is_compiled() {
    for (source, line, words) in [
        (
            "a\n{% if false %}{{ x|unheard_of }}{% endif %}",
            2,
            "unknown filter: unheard_of",
        ),
        ("{{ x is\nnot unheard_of }}", 1, "unknown test: unheard_of"),
        (
            "\n\n{% include 'other' %}",
            3,
            "`include`: a chat template has no other templates",
        ),
        (
            "{% import 'other' as x %}",
            1,
            "`import`: a chat template has no other templates",
        ),
        (
            "{% from 'other' import x %}",
            1,
            "`from`: a chat template has no other templates",
        ),
        (
            "{% extends 'other' %}",
            1,
            "`extends`: a chat template has no other templates",
        ),
    ] {
        let error = ChatTemplate::compile(source, "", "", Vec::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("chat template, line {line}: {words}")
        );
    }
}
