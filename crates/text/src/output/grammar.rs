//! What calls must look like, as a grammar: for requests that demand one, or whose tools are strict.
//!
//! The one idea: a syntax's markers and the words around a name are literals, spaced as templates write them, and only the
//! arguments are left to their schema.
//!
//! Not here: compiling it. Source of the notation: llguidance's dialect of Lark.

use serde_json::Value;

use super::CallSyntax;

/// Whether several calls may follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// One call.
    One,
    /// One or more.
    Several,
}

/// The tools that may be called.
#[derive(Clone, Copy, Debug)]
pub struct CallRules<'a> {
    /// Name and schema of the arguments, at least one.
    pub tools: &'a [(String, Value)],
    /// How many calls there may be.
    pub parallel: Parallel,
    /// The words of the family.
    pub syntax: CallSyntax,
}

/// Where in an answer calls stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPlace {
    /// They are all of it.
    Whole,
    /// Free text comes first and ends with the syntax's opener.
    AfterOpener,
    /// They are all of it, or it is free text that cannot be taken for them.
    WholeOrText,
}

impl CallRules<'_> {
    /// The grammar of calls.
    ///
    /// `literal` gives a marker as the grammar spells it: a quoted text, or a control token.
    pub fn lark(&self, place: CallPlace, literal: impl Fn(&str) -> String) -> String {
        let several = self.parallel == Parallel::Several;
        let opener = match (place, self.syntax.opener()) {
            (CallPlace::AfterOpener, _) | (_, None) => String::new(),
            (_, Some(opener)) => literal(opener),
        };
        let calls = match self.syntax {
            CallSyntax::Hermes => {
                let (open, close) = (literal("<tool_call>"), literal("</tool_call>"));
                // What comes before a call in free text brings its own white space.
                let first = match place {
                    CallPlace::AfterOpener => format!(r#"call "\n" {close}"#),
                    _ => format!(r#"{opener} "\n" call "\n" {close}"#),
                };
                match several {
                    true => format!(r#"{first} ("\n" {open} "\n" call "\n" {close})*"#),
                    false => first,
                }
            }
            // Bare: an opener would make it code for an interpreter.
            CallSyntax::Llama3 if several => r#"call ("; " call)*"#.to_owned(),
            CallSyntax::Json if several => r#"(call | "[" call (", " call)* "]")"#.to_owned(),
            CallSyntax::Llama3 | CallSyntax::Json => "call".to_owned(),
            // One message, whose end ends the answer; its name is in its header.
            CallSyntax::Channels => "call".to_owned(),
            CallSyntax::Mistral | CallSyntax::Granite if several => {
                format!(r#"{opener} "[" call (", " call)* "]""#)
            }
            CallSyntax::Mistral | CallSyntax::Granite => format!(r#"{opener} "[" call "]""#),
        };
        let start = match place {
            // Text that begins like a call would have to be one.
            CallPlace::WholeOrText => {
                format!("start: {calls} | TEXT\nTEXT: /[ \\n]*[^ \\n{{\\[](?s:.*)/\n")
            }
            CallPlace::Whole | CallPlace::AfterOpener => format!("start: {calls}\n"),
        };
        let names: Vec<String> = (0..self.tools.len())
            .map(|idx| format!("call{idx}"))
            .collect();
        let mut lark = format!("{start}call: {}\n", names.join(" | "));
        for (idx, (name, arguments)) in self.tools.iter().enumerate() {
            lark += &format!("arguments{idx}: %json {arguments}\n");
            if self.syntax == CallSyntax::Channels {
                let [channel, constrain, message] =
                    ["<|channel|>", "<|constrain|>", "<|message|>"].map(&literal);
                let to = Value::from(format!("commentary to=functions.{name} "));
                lark += &format!(
                    "call{idx}: {channel} {to} {constrain} \"json\" {message} arguments{idx}\n"
                );
                continue;
            }
            let head = format!(
                r#"{{"name": {}, "{}": "#,
                Value::from(name.as_str()),
                self.key()
            );
            lark += &format!("call{idx}: {} arguments{idx} \"}}\"\n", Value::from(head));
        }
        lark
    }

    fn key(&self) -> &'static str {
        match self.syntax {
            CallSyntax::Llama3 => "parameters",
            _ => "arguments",
        }
    }
}
