//! What calls must look like, as a grammar: for requests that demand one, or whose tools are strict.
//!
//! The one idea: a syntax's markers as literals around one JSON schema, in which the name chooses the schema of the
//! arguments.
//!
//! Not here: compiling it. Source of the notation: llguidance's dialect of Lark.

use serde_json::{Value, json};

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
}

impl CallRules<'_> {
    /// The grammar of an answer that is calls and nothing else, in a syntax.
    ///
    /// `literal` gives a marker as the grammar spells it: a quoted text, or a control token.
    pub fn lark(&self, syntax: CallSyntax, literal: impl Fn(&str) -> String) -> String {
        let opener = syntax.opener().map(&literal).unwrap_or_default();
        self.rules(syntax, &opener, literal)
    }

    /// The same without the first opener, for an answer in which free text ends with it. A syntax without an opener has
    /// the same grammar as before.
    pub fn lark_after_opener(
        &self,
        syntax: CallSyntax,
        literal: impl Fn(&str) -> String,
    ) -> String {
        self.rules(syntax, "", literal)
    }

    fn rules(&self, syntax: CallSyntax, first: &str, literal: impl Fn(&str) -> String) -> String {
        let is_one = self.parallel == Parallel::One;
        let start = match syntax {
            CallSyntax::Hermes => {
                let (opener, closer) = (literal("<tool_call>"), literal("</tool_call>"));
                let call = format!(r#""\n" call "\n" {closer}"#);
                match is_one {
                    true => format!("{first} {call}"),
                    false => format!(r#"{first} {call} ("\n" {opener} {call})*"#),
                }
            }
            // Bare: an opener would make it code for an interpreter.
            CallSyntax::Llama3 | CallSyntax::Json if is_one => "call".to_owned(),
            CallSyntax::Llama3 => r#"call ("; " call)*"#.to_owned(),
            CallSyntax::Json => r#"call | "[" call (", " call)* "]""#.to_owned(),
            CallSyntax::Channels => return self.channel_rules(literal),
            CallSyntax::Mistral | CallSyntax::Granite if is_one => {
                format!(r#"{first} "[" call "]""#)
            }
            CallSyntax::Mistral | CallSyntax::Granite => {
                format!(r#"{first} "[" call (", " call)* "]""#)
            }
        };
        format!("start: {start}\ncall: %json {}\n", self.schema(syntax))
    }

    /// A message to one of the tools. There is one, because its end ends the answer.
    fn channel_rules(&self, literal: impl Fn(&str) -> String) -> String {
        let [channel, constrain, message] =
            ["<|channel|>", "<|constrain|>", "<|message|>"].map(literal);
        let mut rules = String::new();
        let mut names = Vec::new();
        for (number, (name, arguments)) in self.tools.iter().enumerate() {
            let header = json!(format!("commentary to=functions.{name} "));
            rules.push_str(&format!(
                "call{number}: {channel} {header} {constrain} \"json\" {message} arguments{number}\n\
                 arguments{number}: %json {arguments}\n"
            ));
            names.push(format!("call{number}"));
        }
        format!("start: {}\n{rules}", names.join(" | "))
    }

    /// An object per tool, told apart by its name.
    fn schema(&self, syntax: CallSyntax) -> Value {
        let key = match syntax {
            CallSyntax::Llama3 => "parameters",
            _ => "arguments",
        };
        let call = |(name, arguments): &(String, Value)| {
            json!({
                "type": "object",
                "properties": {"name": {"const": name}, key: arguments},
                "required": ["name", key],
                "additionalProperties": false,
            })
        };
        match self.tools {
            [only] => call(only),
            several => json!({"anyOf": several.iter().map(call).collect::<Vec<_>>()}),
        }
    }
}
