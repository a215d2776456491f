//! Regular expressions and lists of choices as Lark, and what every text is checked for first.

use super::Limits;
use super::error::CompileError;

fn refused(reason: impl Into<String>) -> CompileError {
    CompileError::Grammar {
        reason: reason.into(),
    }
}

/// A grammar of what `regex` matches from its first to its last character.
pub(super) fn regex(regex: &str, limits: &Limits) -> Result<String, CompileError> {
    expect_regex_bounded(regex, limits)?;
    Ok(format!("start: /{}/\n", unanchored(regex)))
}

/// As much of a regular expression as costs before its compiler can count.
pub(super) fn expect_regex_bounded(regex: &str, limits: &Limits) -> Result<(), CompileError> {
    if regex.is_empty() {
        return Err(refused("is empty"));
    }
    if regex.len() > limits.regex_bytes_max {
        let max = limits.regex_bytes_max;
        return Err(refused(format!(
            "has {} bytes, at most {max} are allowed",
            regex.len()
        )));
    }
    expect_shallow(regex, limits)?;
    expect_small_counts(regex, limits)
}

/// An expression is matched whole anyway: `^` in front and `$` at the end say nothing. Classes such as
/// `\d` are read as JavaScript and JSON Schema read them, in ASCII.
fn unanchored(regex: &str) -> String {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let regex = match regex.strip_suffix('$') {
        // Not an escaped one: an even number of backslashes stands before it.
        Some(rest) if (rest.len() - rest.trim_end_matches('\\').len()) % 2 == 0 => rest,
        _ => regex,
    };
    llguidance::regex_to_lark(regex, "dw")
}

/// A grammar of exactly `choices`.
pub(super) fn choice(choices: &[String], limits: &Limits) -> Result<String, CompileError> {
    let num_bytes: usize = choices.iter().map(String::len).sum();
    if choices.is_empty() || choices.iter().any(String::is_empty) {
        return Err(refused("must be a list of at least one text, none empty"));
    }
    if choices.len() > limits.num_choices_max {
        let max = limits.num_choices_max;
        return Err(refused(format!(
            "has {} choices, at most {max} are allowed",
            choices.len()
        )));
    }
    if num_bytes > limits.choices_bytes_max {
        let max = limits.choices_bytes_max;
        return Err(refused(format!(
            "has {num_bytes} bytes, at most {max} are allowed"
        )));
    }
    let quoted = choices
        .iter()
        .map(|choice| serde_json::Value::from(choice.as_str()).to_string());
    let quoted: Vec<String> = quoted.collect();
    // One terminal: as single texts in a rule, one that begins like another would never end.
    Ok(format!(
        "start: CHOICE\nCHOICE: {}\n",
        quoted.join("\n  | ")
    ))
}

/// Refuses a grammar of a size or depth that could hurt, whatever its notation.
pub(super) fn expect_bounded(text: &str, limits: &Limits) -> Result<(), CompileError> {
    if text.trim().is_empty() {
        return Err(refused("is empty"));
    }
    if text.len() > limits.grammar_bytes_max {
        let max = limits.grammar_bytes_max;
        return Err(refused(format!(
            "has {} bytes, at most {max} are allowed",
            text.len()
        )));
    }
    expect_shallow(text, limits)?;
    expect_small_counts(text, limits)
}

/// As [`expect_bounded`], for Lark: and nothing in it may soften what the grammar says.
pub(super) fn expect_sound(text: &str, limits: &Limits) -> Result<(), CompileError> {
    expect_bounded(text, limits)?;
    for word in ["%llguidance", "x-guidance"] {
        if text.contains(word) {
            return Err(refused(format!("must not contain {word}")));
        }
    }
    Ok(())
}

/// Brackets within brackets. Those in texts and classes count too: a bound need not know the notation.
fn expect_shallow(text: &str, limits: &Limits) -> Result<(), CompileError> {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => (),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        is_escaped = byte == b'\\' && !is_escaped;
        if depth > limits.nesting_max {
            let max = limits.nesting_max;
            return Err(refused(format!("is nested more than {max} levels deep")));
        }
    }
    Ok(())
}

/// The numbers of `{m,n}`, and how they multiply where one stands within another.
fn expect_small_counts(text: &str, limits: &Limits) -> Result<(), CompileError> {
    for (start, _) in text.match_indices('{') {
        let inner: &str = &text[start + 1..];
        let Some(end) = inner.find('}') else {
            continue;
        };
        let counts = inner[..end].split(',').map(str::trim);
        for count in counts.filter(|c| !c.is_empty() && c.bytes().all(|b| b.is_ascii_digit())) {
            if count
                .parse::<u64>()
                .map_or(true, |count| count > limits.count_max)
            {
                let max = limits.count_max;
                return Err(refused(format!("repeats more than {max} times")));
            }
        }
    }
    Ok(())
}
