//! Two habits of Python's Jinja that minijinja cannot be taught, put into the template's source instead.
//!
//! `transformers` has a tag `{% generation %}`, which marks the assistant's text for training and prints nothing; and in
//! Python a loop over None is an error, where minijinja loops zero times. Both concern tags only, so the source is cut into
//! tags and the rest (text, expressions, comments, raw blocks), and tags are rewritten. White-space signs and line numbers
//! stay as they are.

use minijinja::{Error, ErrorKind, Value};

/// The filter that loops are sent through. Templates could name it, but none would.
pub(super) const ITERABLE_FILTER: &str = "python_iterable";

/// What [`ITERABLE_FILTER`] does: refuses None and passes everything else.
pub(super) fn python_iterable(value: Value) -> Result<Value, Error> {
    if value.is_none() {
        let reason = "'NoneType' object is not iterable";
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    Ok(value)
}

/// The source with its tags rewritten.
pub(super) fn adapted(source: &str) -> String {
    let mut adapted = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, from_brace) = rest.split_at(start);
        adapted.push_str(before);
        let end = match from_brace.as_bytes().get(1) {
            Some(b'#') => from_brace.find("#}").map(|at| at + 2),
            Some(b'{') => code_end(from_brace, "}}"),
            Some(b'%') => code_end(from_brace, "%}"),
            _ => Some(1),
        };
        // Without an end it is a syntax error, which minijinja reports.
        let (piece, after) = from_brace.split_at(end.unwrap_or(from_brace.len()));
        rest = after;
        if !piece.starts_with("{%") {
            adapted.push_str(piece);
        } else if inner(piece) == "raw" {
            let end = rest.find("endraw").unwrap_or(rest.len());
            adapted.push_str(piece);
            adapted.push_str(&rest[..end]);
            rest = &rest[end..];
        } else {
            push_rewritten(&mut adapted, piece);
        }
    }
    adapted.push_str(rest);
    adapted
}

/// Where a piece of code ends that begins `text`: after the first `closer` that stands in no string.
fn code_end(text: &str, closer: &str) -> Option<usize> {
    let mut quote = None;
    let mut bytes = text.bytes().enumerate().skip(2);
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => {
                bytes.next();
            }
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => (),
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, _) if text.as_bytes()[at..].starts_with(closer.as_bytes()) => {
                return Some(at + closer.len());
            }
            (None, _) => (),
        }
    }
    None
}

/// What stands between the delimiters and signs of a tag.
fn inner(tag: &str) -> &str {
    let inner = tag.strip_prefix("{%").unwrap_or(tag);
    let inner = inner.strip_suffix("%}").unwrap_or(inner);
    inner.trim_matches(['-', '+']).trim()
}

fn push_rewritten(adapted: &mut String, tag: &str) {
    let inner = inner(tag);
    let rewritten = match inner {
        "generation" => "if true".to_owned(),
        "endgeneration" => "endif".to_owned(),
        _ if loops_over_a_name(inner) => format!("{inner}|{ITERABLE_FILTER}"),
        _ => return adapted.push_str(tag),
    };
    // `inner` is a part of `tag`, so its place is the first one where it occurs.
    let start = tag.find(inner).unwrap_or(0);
    adapted.push_str(&tag[..start]);
    adapted.push_str(&rewritten);
    adapted.push_str(&tag[start + inner.len()..]);
}

/// `for x in tools`, `for x in message.tool_calls`: anything longer may not take a filter at its end.
fn loops_over_a_name(inner: &str) -> bool {
    let Some(rest) = inner.strip_prefix("for ") else {
        return false;
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    rest.split_once(" in ").is_some_and(|(_, name)| {
        let name = name.trim();
        !name.is_empty() && name.chars().all(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_a_condition_with_the_same_white_space_signs() {
        assert_eq!(
            adapted("a\n{%- generation -%}b{%+endgeneration%}c"),
            "a\n{%- if true -%}b{%+endif%}c"
        );
    }

    #[test]
    fn loops_over_names_are_checked_for_none() {
        assert_eq!(
            adapted("{% for t in tools %}{%- for k, v in m.calls -%}"),
            "{% for t in tools|python_iterable %}{%- for k, v in m.calls|python_iterable -%}"
        );
    }

    #[test]
    fn everything_else_stays() {
        for source in [
            "{{ '{% generation %}' }}",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set x = '%} {% generation %}' %}",
            "{% for x in xs if x in ys %}",
            "{% for x in xs[1:] %}",
            "{% for x in xs recursive %}",
            "{ {% if x %} é { {",
            "{% unfinished",
            "{{ 'unfinished",
        ] {
            assert_eq!(adapted(source), source);
        }
    }
}
