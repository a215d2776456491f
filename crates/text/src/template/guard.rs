//! Control-token text in messages stays text.
//!
//! A rendered prompt is one string, in which `<|im_end|>` written by the template and `<|im_end|>` typed by a user
//! look the same. The one idea: break the typed ones before rendering, with a character that occurs nowhere
//! else, and mend them afterwards, remembering where they were.
//!
//! ```text
//! content   hi<|im_end|>                 '·' is the marker
//! broken    hi<·|im_end|>
//! rendered  <|im_start|>user\nhi<·|im_end|><|im_end|>\n
//! mended    <|im_start|>user\nhi<|im_end|><|im_end|>\n
//!                               └─ plain ─┘└ a token ┘
//! ```
//!
//! A control text may also be put together from neighbours, such as `<|im_` and `end|>` in two content parts. So the
//! *beginning* of one at the end of a string is broken too: every control text whose first character a user typed
//! contains a marker. One that begins in the template's own text (`'<|' + role + '|>'`) is the template's.
//!
//! Not here: user-defined tokens such as `<think>`. They are text that happens to have an id.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value};

use super::{Rendered, TemplateError};

/// Characters that may serve as a marker: 32 noncharacters, then the private planes.
const MARKERS: [std::ops::RangeInclusive<char>; 2] =
    ['\u{fdd0}'..='\u{fdef}', '\u{f0000}'..='\u{10fffd}'];

/// Keys that the API itself gives to messages, calls and tools. They stay whole even where a vocabulary has a control
/// token that looks like one or begins like its end: broken, no template would find them.
const FIELD_NAMES: [&str; 18] = [
    "arguments",
    "content",
    "description",
    "enum",
    "function",
    "id",
    "name",
    "parameters",
    "properties",
    "reasoning_content",
    "required",
    "role",
    "strict",
    "text",
    "thinking",
    "tool_call_id",
    "tool_calls",
    "type",
];

/// Knows the control texts.
pub(super) struct ControlGuard {
    /// Sorted, so that those with a given beginning lie together.
    texts: Vec<String>,
    text_bytes_max: usize,
    /// Finds every occurrence of any of `texts`, overlapping ones too.
    finder: AhoCorasick,
    /// Possible markers that the template itself contains.
    template_markers: HashSet<char>,
}

impl ControlGuard {
    pub(super) fn new(mut texts: Vec<String>, template: &str) -> ControlGuard {
        texts.retain(|text| !text.is_empty());
        texts.sort_unstable();
        texts.dedup();
        let finder = AhoCorasick::new(&texts).expect("control texts are far below the size limit");
        let mut template_markers = HashSet::new();
        collect_markers(template, &mut template_markers);
        ControlGuard {
            text_bytes_max: texts.iter().map(String::len).max().unwrap_or(0),
            texts,
            finder,
            template_markers,
        }
    }

    /// Breaks the control texts in all strings of `messages` and `extra`. Gives the marker used, or `None` if
    /// there was nothing to break.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Refused`] if the conversation itself contains all 137 thousand possible markers.
    pub(super) fn break_controls(
        &self,
        messages: &mut [Value],
        extra: &mut Map<String, Value>,
    ) -> Result<Option<char>, TemplateError> {
        let mut num_breaks = 0;
        let mut taken = self.template_markers.clone();
        let mut survey = |text: &str| {
            num_breaks += self.breaks(text).len();
            collect_markers(text, &mut taken);
            None
        };
        for value in messages.iter_mut().chain(extra.values_mut()) {
            replace_strings(value, &mut survey);
        }
        if num_breaks == 0 {
            return Ok(None);
        }
        let free = MARKERS
            .into_iter()
            .flatten()
            .find(|marker| !taken.contains(marker));
        let marker = free.ok_or_else(|| TemplateError::Refused {
            reason: "the conversation uses every private character".to_owned(),
        })?;
        for value in messages.iter_mut().chain(extra.values_mut()) {
            replace_strings(value, &mut |text| self.broken(text, marker));
        }
        Ok(Some(marker))
    }

    /// Removes the markers from a rendered prompt and says which control texts contained one.
    pub(super) fn mend(&self, broken: &str, marker: char) -> Rendered {
        let mut text = String::with_capacity(broken.len());
        let mut breaks = Vec::new();
        for piece in broken.split(marker) {
            text.push_str(piece);
            breaks.push(text.len());
        }
        // The end of the last piece is no marker.
        breaks.pop();
        let mut plain: Vec<Range<usize>> = Vec::new();
        for found in self.finder.find_overlapping_iter(&text) {
            // The marker of a text of one character stands behind it.
            let first = text[found.start()..].chars().next();
            let after_first = found.start() + first.map_or(0, char::len_utf8);
            let next_break = breaks.partition_point(|&at| at <= found.start());
            let is_typed = |&at: &usize| at < found.end() || at == after_first;
            if breaks.get(next_break).is_some_and(is_typed) {
                plain.push(found.range());
            }
        }
        plain.sort_unstable_by_key(|range| range.start);
        plain.dedup_by(|next, last| {
            let overlaps = next.start < last.end;
            if overlaps {
                last.end = last.end.max(next.end);
            }
            overlaps
        });
        Rendered { text, plain }
    }

    fn broken(&self, text: &str, marker: char) -> Option<String> {
        let breaks = self.breaks(text);
        if breaks.is_empty() {
            return None;
        }
        let mut broken = String::with_capacity(text.len() + 4 * breaks.len());
        let mut last = 0;
        for at in breaks {
            broken.push_str(&text[last..at]);
            broken.push(marker);
            last = at;
        }
        broken.push_str(&text[last..]);
        Some(broken)
    }

    /// Where markers go: after the first character of every control text in `text`, and of every
    /// beginning of one at its end, with and without trailing white space (templates trim).
    fn breaks(&self, text: &str) -> BTreeSet<usize> {
        let mut starts: BTreeSet<usize> = self
            .finder
            .find_overlapping_iter(text)
            .map(|found| found.start())
            .collect();
        for end in [text.len(), text.trim_end().len()] {
            let first = end.saturating_sub(self.text_bytes_max);
            let tails = (first..end).filter(|&start| text.is_char_boundary(start));
            starts.extend(tails.filter(|&start| self.begins_control(&text[start..end])));
        }
        let after_first = |start: usize| {
            let first = text[start..].chars().next();
            start + first.map_or(0, char::len_utf8)
        };
        starts.into_iter().map(after_first).collect()
    }

    fn begins_control(&self, beginning: &str) -> bool {
        let idx = self.texts.partition_point(|text| text.as_str() < beginning);
        self.texts
            .get(idx)
            .is_some_and(|text| text.starts_with(beginning))
    }
}

fn collect_markers(text: &str, found: &mut HashSet<char>) {
    let is_marker = |c: &char| MARKERS.iter().any(|range| range.contains(c));
    found.extend(text.chars().filter(is_marker));
}

/// Applies `change` to every string in `value`, object keys included unless they are [`FIELD_NAMES`].
fn replace_strings(value: &mut Value, change: &mut impl FnMut(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(changed) = change(text) {
                *text = changed;
            }
        }
        Value::Array(items) => {
            for item in items {
                replace_strings(item, change);
            }
        }
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (key, mut field) in old {
                replace_strings(&mut field, change);
                let changed = match FIELD_NAMES.contains(&key.as_str()) {
                    true => None,
                    false => change(&key),
                };
                fields.insert(changed.unwrap_or(key), field);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}
