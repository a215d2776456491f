//! The end of a prompt within its last message.
//!
//! A template knows only finished messages. So the conversation is rendered as if it ended, and everything behind the
//! last message's text is cut off: what closes the turn, and white space if the template trimmed it.
//!
//! Source: `continue_final_message` of `transformers` (`utils/chat_template_utils.py`).

use serde_json::Value;

use super::{Rendered, TemplateError};

/// Cuts `rendered` behind the text of the last message.
pub(super) fn cut(mut rendered: Rendered, messages: &[Value]) -> Result<Rendered, TemplateError> {
    let refused = |reason: &str| TemplateError::Refused {
        reason: format!("the final message cannot be continued: {reason}"),
    };
    let text = messages
        .last()
        .and_then(|message| final_text(message.get("content")?))
        .filter(|text| !text.trim().is_empty())
        .ok_or_else(|| refused("it has no text"))?;
    let start = rendered
        .text
        .rfind(text.trim())
        .ok_or_else(|| refused("the template does not write its text as it is"))?;
    let untrimmed = text.trim_start();
    let kept = match rendered.text[start..].starts_with(untrimmed) {
        true => untrimmed,
        false => text.trim(),
    };
    let end = start + kept.len();
    rendered.text.truncate(end);
    // What a user typed and was cut in two is text on this side, too.
    rendered.plain.retain_mut(|range| {
        range.end = range.end.min(end);
        range.start < range.end
    });
    Ok(rendered)
}

/// The text, or the last one of several parts.
fn final_text(content: &Value) -> Option<&str> {
    match content {
        Value::String(text) => Some(text),
        Value::Array(parts) => parts
            .iter()
            .rev()
            .find_map(|part| part.get("text")?.as_str()),
        _ => None,
    }
}
