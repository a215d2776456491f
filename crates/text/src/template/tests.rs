//! Templates in small: our own, each for one habit.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::*;

fn compile(source: &str) -> ChatTemplate {
    ChatTemplate::compile(source, "<s>", "</s>", Vec::new()).unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// What `source` makes of `messages` and the variable `v`.
fn rendered_with(source: &str, messages: Value, v: Value) -> Result<String, TemplateError> {
    let extra = object(json!({"v": v}));
    let rendered = compile(source).render(messages.as_array().unwrap(), true, &extra)?;
    Ok(rendered.text)
}

fn rendered(source: &str, v: Value) -> String {
    rendered_with(source, json!([]), v).unwrap()
}

#[test]
fn a_syntax_error_names_its_line() {
    for (source, line) in [
        ("a\n{% if %}", 2),
        ("a\n\n{% endfor %}", 3),
        ("{% generation %}\n{% if x %}", 2),
        ("{{ 'open", 1),
    ] {
        let error = ChatTemplate::compile(source, "", "", Vec::new()).unwrap_err();
        let TemplateError::Syntax {
            line: found,
            reason,
        } = error
        else {
            panic!("{source:?}: {error}");
        };
        assert_eq!(found, line, "{source:?}: {reason}");
    }
}

#[test]
fn the_words_of_raise_exception_are_the_error() {
    let source = "{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}";
    let error = rendered_with(source, json!([]), json!(null)).unwrap_err();
    assert_eq!(error.to_string(), "chat template: roles must alternate");
}

#[test]
fn other_failures_name_the_line_and_what_went_wrong() {
    for (source, words) in [
        ("\n{{ nothing.at.all }}", "line 2: undefined value"),
        ("{{ 'a' + v }}", "line 1: invalid operation"),
        (
            "{% for x in v %}{% endfor %}",
            "'NoneType' object is not iterable",
        ),
        ("{{ v | unheard_of }}", "unknown filter"),
        ("{{ nothing | tojson }}", "the value is undefined"),
        ("{{ strftime_now('%') }}", "strftime_now"),
    ] {
        let refused = |source: &str| rendered_with(source, json!([]), json!(null));
        // An unknown filter is found when compiling or rendering.
        let error = match ChatTemplate::compile(source, "", "", Vec::new()) {
            Ok(_) => refused(source).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(words), "{source:?}: {error}");
    }
}

#[test]
fn blocks_leave_no_white_space_and_one_last_newline_is_dropped() {
    assert_eq!(
        rendered("a\n  {% if true %}\nb\n  {% endif %}\nc\n\n", json!(0)),
        "a\nb\nc\n"
    );
}

#[test]
fn what_is_not_given_is_undefined_and_prints_nothing() {
    let source = "{{ tools is none }}{{ documents is none }}{{ enable_thinking is defined }}[{{ enable_thinking }}]{{ bos_token }}";
    assert_eq!(rendered(source, json!(0)), "TrueTrueFalse[]<s>");
    let bare = ChatTemplate::compile("{{ bos_token is defined }}", "", "", Vec::new()).unwrap();
    assert_eq!(bare.render(&[], true, &Map::new()).unwrap().text, "False");
}

#[test]
fn extra_variables_reach_the_template_but_cannot_replace_the_messages() {
    let extra =
        object(json!({"enable_thinking": false, "messages": 1, "add_generation_prompt": false}));
    let template =
        compile("{{ enable_thinking }} {{ messages | length }} {{ add_generation_prompt }}");
    assert_eq!(
        template.render(&[], true, &extra).unwrap().text,
        "False 0 True"
    );
}

#[test]
fn values_print_as_in_python() {
    assert_eq!(
        rendered("{{ v }}", json!({"a": [1, 2.0, null, true], "b": "it's"})),
        r#"{'a': [1, 2.0, None, True], 'b': "it's"}"#
    );
}

#[test]
fn tojson_is_pythons_json_dumps() {
    for (source, v, expected) in [
        (
            "{{ v | tojson }}",
            json!({"b": [1, "é<'&\"\n\u{7f}"], "a": {}}),
            "{\"b\": [1, \"é<'&\\\"\\n\u{7f}\"], \"a\": {}}",
        ),
        (
            "{{ v | tojson }}",
            json!([1.0, 1e16, 1e-5, 0.0001, 123456789.125, -0.0]),
            "[1.0, 1e+16, 1e-05, 0.0001, 123456789.125, -0.0]",
        ),
        (
            "{{ v | tojson }}",
            json!([1e22, 1.5e300, 1e15]),
            "[1e+22, 1.5e+300, 1000000000000000.0]",
        ),
        (
            "{{ v | tojson(indent=2) }}",
            json!({"a": [], "b": [1, {"c": null}]}),
            "{\n  \"a\": [],\n  \"b\": [\n    1,\n    {\n      \"c\": null\n    }\n  ]\n}",
        ),
        (
            "{{ v | tojson(sort_keys=true) }}",
            json!({"b": 1, "a": {"d": 1, "c": 2}}),
            "{\"a\": {\"c\": 2, \"d\": 1}, \"b\": 1}",
        ),
        (
            "{{ v | tojson(separators=(',', ':')) }}",
            json!({"a": [1, 2]}),
            "{\"a\":[1,2]}",
        ),
        (
            "{{ v | tojson(ensure_ascii=true) }}",
            json!("é🙂"),
            "\"\\u00e9\\ud83d\\ude42\"",
        ),
        ("{{ v | tojson(indent='-') }}", json!([1]), "[\n-1\n]"),
        ("{{ v | tojson }}", json!(null), "null"),
    ] {
        assert_eq!(rendered(source, v), expected, "{source}");
    }
    assert!(rendered_with("{{ v | tojson(indent=1000000) }}", json!([]), json!([1])).is_err());
    assert!(rendered_with("{{ v | tojson(unheard_of=1) }}", json!([]), json!([1])).is_err());
}

/// B9: escaping to ASCII must not make the marker permanent.
#[test]
fn a_control_text_escaped_to_ascii_is_mended() {
    let controls = vec!["<|é|>".to_owned(), "<|e|>".to_owned()];
    let template = ChatTemplate::compile(
        "{{ messages[0].content | tojson(ensure_ascii=true) }}",
        "",
        "",
        controls,
    )
    .unwrap();
    let message = json!({"role": "user", "content": "<|e|> <|é|>"});
    let rendered = template.render(&[message], true, &Map::new()).unwrap();
    assert_eq!(rendered.text, "\"<|e|> <|\\u00e9|>\"");
    assert_eq!(rendered.plain, std::slice::from_ref(&(1..6)));
}

/// B11.
#[test]
fn strftime_now_tells_the_given_time_in_any_format() {
    let template =
        compile("{{ strftime_now('%d %b %Y|%Y-%m-%d|%B %d, %Y|%H:%M:%S|%A|%j|%y|%-d|%%') }}")
            .with_clock(|| SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_596_805));
    assert_eq!(
        template.render(&[], true, &Map::new()).unwrap().text,
        "05 Mar 2024|2024-03-05|March 05, 2024|00:00:05|Tuesday|065|24|5|%"
    );
}

/// B11.
#[test]
fn python_methods_loop_controls_and_generation_tags_work() {
    let source = "{% for m in messages %}{% if loop.index0 == 2 %}{% break %}{% endif %}\
                  {% generation %}{{ m.content.split('</think>')[-1].lstrip('\n').upper() }}{% endgeneration %}\
                  {% for k, v in m.items() %}{{ k }}={{ m.get('none', 'x') }};{% endfor %}{% endfor %}";
    let messages = json!([{"content": "a</think>\nb"}, {"content": "c"}, {"content": "d"}]);
    assert_eq!(
        rendered_with(source, messages, json!(0)).unwrap(),
        "Bcontent=x;Ccontent=x;"
    );
}

const TEXT_ONLY: &str = "{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}";
const PARTS_ONLY: &str =
    "{% for m in messages %}[{% for p in m.content %}{{ p.text }}{% endfor %}]{% endfor %}";
const EITHER: &str = "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}\
                      {% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}]{% endfor %}";

#[test]
fn parts_are_joined_by_lines_unless_the_template_reads_them_itself() {
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    let text = json!([{"role": "user", "content": "a"}]);
    for (source, from_parts) in [
        (TEXT_ONLY, "[a\nb]"),
        (PARTS_ONLY, "[ab]"),
        (EITHER, "[ab]"),
    ] {
        assert_eq!(
            rendered_with(source, parts.clone(), json!(0)).unwrap(),
            from_parts
        );
        assert_eq!(
            rendered_with(source, text.clone(), json!(0)).unwrap(),
            "[a]"
        );
    }
}

#[test]
fn a_part_that_is_not_text_is_refused_by_its_type() {
    let message =
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    let error = rendered_with(TEXT_ONLY, message, json!(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chat template: a content part of type \"image_url\" is not text"
    );
}

#[test]
fn null_content_is_empty_text_unless_the_template_knows_null() {
    let message = json!([{"role": "assistant", "content": null}]);
    let knows =
        "{% for m in messages %}{{ 'nothing' if m.content is none else m.content }}{% endfor %}";
    assert_eq!(
        rendered_with(TEXT_ONLY, message.clone(), json!(0)).unwrap(),
        "[]"
    );
    assert_eq!(
        rendered_with(
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            message.clone(),
            json!(0)
        )
        .unwrap(),
        ""
    );
    assert_eq!(rendered_with(knows, message, json!(0)).unwrap(), "nothing");
}

#[test]
fn tool_call_arguments_are_an_object_where_the_template_prints_json() {
    let call = json!({"function": {"name": "f", "arguments": "{\"a\": \"é\"}"}});
    let messages = json!([{"role": "assistant", "content": "", "tool_calls": [call]}]);
    let loops = |arguments: &str| {
        format!(
            "{{% for m in messages %}}{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}\
             {{{{ {arguments} }}}}{{% endfor %}}{{% endfor %}}"
        )
    };
    let rendered =
        |arguments: &str| rendered_with(&loops(arguments), messages.clone(), json!(0)).unwrap();
    assert_eq!(rendered("c.function.arguments | tojson"), "{\"a\": \"é\"}");
    assert_eq!(
        rendered("'<' + c.function.arguments + '>'"),
        "<{\"a\": \"é\"}>"
    );
}

/// A control token may be spelled like a key, or begin like the end of one.
#[test]
fn the_keys_of_messages_are_found_whatever_the_control_tokens_are() {
    let controls = vec!["content".to_owned(), "t>".to_owned(), "e".to_owned()];
    let source = "{{ messages[0]['role'] + ': ' + messages[0]['content'] }}";
    let template = ChatTemplate::compile(source, "", "", controls).unwrap();
    let message = json!({"role": "user", "content": "content"});
    let rendered = template.render(&[message], true, &Map::new()).unwrap();
    assert_eq!(rendered.text, "user: content");
    // What was typed is still no token.
    assert_eq!(rendered.plain, [2..3, 6..13]);
}

const TURNS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}{{ '<assistant>' if add_generation_prompt }}{{ tools | tojson if tools else '' }}";

fn ending_in(source: &str, ending: PromptEnding, last: Value) -> Result<String, TemplateError> {
    let messages = [
        json!({"role": "user", "content": "hi"}),
        json!({"role": "assistant", "content": last}),
    ];
    let conversation = Conversation {
        messages: &messages,
        tools: &[],
        ending,
        variables: &Map::new(),
    };
    let rendered = compile(source).render_conversation(&conversation)?;
    Ok(rendered.text)
}

#[test]
fn a_final_message_is_continued_right_behind_its_text() {
    let ending = PromptEnding::WithinFinalMessage;
    let source = TURNS.replace(" | trim", "");
    for (source, last, expected) in [
        (TURNS, json!(" Sure: "), "<user>hi</user><assistant>Sure:"),
        (
            &*source,
            json!(" Sure: "),
            "<user>hi</user><assistant> Sure: ",
        ),
        (&*source, json!("hi"), "<user>hi</user><assistant>hi"),
    ] {
        assert_eq!(ending_in(source, ending, last).unwrap(), expected);
    }
    for (source, last, words) in [
        (TURNS, json!(null), "it has no text"),
        (
            "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
            json!("sure"),
            "as it is",
        ),
    ] {
        let error = ending_in(source, ending, last).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_two_other_endings_are_with_and_without_an_open_turn() {
    let ending = |ending| ending_in(TURNS, ending, json!("yes")).unwrap();
    let closed = "<user>hi</user><assistant>yes</assistant>";
    assert_eq!(ending(PromptEnding::AfterMessages), closed);
    assert_eq!(
        ending(PromptEnding::OpenTurn),
        format!("{closed}<assistant>")
    );
}

#[test]
fn a_conversation_with_tools_is_rendered_with_the_template_for_tools() {
    let template = compile("plain {{ tools is none }}")
        .with_tool_use(compile("{{ tools | map(attribute='type') | join }}"));
    let tools = [json!({"type": "function"})];
    let rendered = |tools: &[Value]| {
        let conversation = Conversation {
            messages: &[],
            tools,
            ending: PromptEnding::OpenTurn,
            variables: &Map::new(),
        };
        template.render_conversation(&conversation).unwrap().text
    };
    assert_eq!(rendered(&[]), "plain True");
    assert_eq!(rendered(&tools), "function");
}
