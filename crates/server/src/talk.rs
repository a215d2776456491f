//! A conversation's answer: how tools are shown to the model, which parser reads what it says, and what it must
//! look like if calls are demanded or strict.
//!
//! The one idea: all of it follows from the syntax that the model's template teaches ([`OutputSyntax`]). A template that
//! knows no tools gets them in words, and its model answers in plain JSON.
//!
//! Not here: reading the request (`api::tools`), compiling a grammar (`demand.rs`).

use api::chat::{ChatRequest, Message, Reasoning, Role, Turn};
use api::tools::{ParallelCalls, Strictness, Tool, ToolChoice, Tools};
use engine::constrain::{self, CompileError, Grammar, Lead, WhiteSpace};
use serde_json::{Value, json};
use text::output::{self, CallPlace, CallRules, OutputSyntax, Parallel, Wanted};
use text::{ChatTemplate, Rendered, ToolsShown};

use crate::demand::{Demand, Part, joined};
use crate::errors::Refusal;
use crate::parse::{OutputParser, ReasoningParts};
use crate::state::Serving;

/// How the answer to one conversation is read.
pub(crate) struct Talk<'a> {
    pub serving: &'a Serving,
    pub request: &'a ChatRequest,
    syntax: OutputSyntax,
}

/// What a template cannot say of tools, said in words.
const TOOLS_IN_WORDS: &str = "You can call functions. To call one, answer with nothing but a JSON object \
{\"name\": <function>, \"arguments\": <object>}; to call several, with a list of such objects. Functions:";

impl<'a> Talk<'a> {
    pub fn new(
        serving: &'a Serving,
        template: &ChatTemplate,
        request: &'a ChatRequest,
    ) -> Talk<'a> {
        let shown = match request.tools.offered.is_empty() {
            true => ToolsShown::None,
            false => ToolsShown::Some,
        };
        Talk {
            serving,
            request,
            syntax: template.output_syntax(shown),
        }
    }

    /// The tools as the template gets them, and the messages with them in words where it does not read them.
    pub fn shown(template: &ChatTemplate, request: &ChatRequest) -> (Vec<Value>, Vec<Message>) {
        let definitions = request
            .tools
            .offered
            .iter()
            .map(|tool| tool.definition.clone());
        let definitions: Vec<Value> = definitions.collect();
        let mut messages = request.messages.clone();
        if !template.reads_calls() {
            messages.iter_mut().for_each(tell_calls);
        }
        if definitions.is_empty() || template.reads_tools() {
            return (definitions, messages);
        }
        let listed: Vec<String> = definitions
            .iter()
            .map(|tool| tool["function"].to_string())
            .collect();
        let words = format!("{TOOLS_IN_WORDS}\n{}", listed.join("\n"));
        match messages
            .first_mut()
            .filter(|first| first.role == Role::System)
        {
            Some(system) => system.content = format!("{}\n\n{words}", system.content),
            // Not every template knows a system message, so the first turn of the user carries it.
            None => match messages
                .iter_mut()
                .find(|message| message.role == Role::User)
            {
                Some(first) => first.content = format!("{words}\n\n{}", first.content),
                None => messages.insert(0, system(words)),
            },
        }
        (Vec::new(), messages)
    }

    /// What reads the answer to a rendered prompt.
    pub fn parser(&self, prompt: &Rendered) -> OutputParser {
        let tools = &self.request.tools;
        if tools.offered.is_empty() && self.syntax.reasoning.markers().is_none() {
            return OutputParser::default();
        }
        let wanted = Wanted {
            tools: tools.offered.iter().map(|tool| tool.name.clone()).collect(),
            num_calls_max: (tools.parallel == ParallelCalls::One).then_some(1),
            starts_in_reasoning: self.starts_in_reasoning(prompt),
        };
        let reasoning = match self.request.reasoning {
            Reasoning::Told => ReasoningParts::Told,
            Reasoning::Dropped => ReasoningParts::Dropped,
        };
        OutputParser::new(output::OutputParser::new(self.syntax, wanted), reasoning)
    }

    /// Whether control tokens must have text, because a marker is one of them.
    pub fn needs_control_text(&self) -> bool {
        let is_control = |marker| self.control_token(marker).is_some();
        let tells_calls = !self.request.tools.offered.is_empty();
        let tells_reasoning = self.syntax.reasoning.markers().is_some();
        (tells_calls || tells_reasoning) && self.syntax.markers().any(is_control)
    }

    fn starts_in_reasoning(&self, prompt: &Rendered) -> bool {
        self.request.turn == Turn::Opened && self.syntax.opens_reasoning(&prompt.text)
    }

    /// What the answer must look like, by its format or by its tools.
    pub fn demand(&self, prompt: &Rendered) -> Result<Option<Demand>, Refusal> {
        let tools = &self.request.tools;
        let mut demand = Demand::of(self.request.generation.constraint.as_ref());
        if !tools.are_enforced() {
            if let Some(demand) = &mut demand {
                demand.form.lead = self.lead(prompt);
            }
            return Ok(demand);
        }
        if let Some(demand) = demand {
            let reason = "cannot be combined with tools that are required or strict".to_owned();
            return Err(Refusal::ForModel {
                param: demand.param,
                reason,
            });
        }
        let place = match (tools.choice, self.syntax.calls.opener()) {
            (ToolChoice::Required, _) => CallPlace::Whole,
            (ToolChoice::Auto, Some(_)) if !self.syntax.calls.may_be_bare() => {
                CallPlace::AfterOpener
            }
            (ToolChoice::Auto, _) => CallPlace::WholeOrText,
        };
        let lead = match (place, self.syntax.calls.opener()) {
            (CallPlace::AfterOpener, Some(opener)) => Lead::Unless(opener.to_owned()),
            _ => self.lead(prompt),
        };
        let parts = self.parts(tools)?;
        let schemas: Vec<(String, Value)> = parts
            .iter()
            .map(|part| (part.tool.clone(), part.schema.clone()))
            .collect();
        let rules = CallRules {
            tools: &schemas,
            parallel: match tools.parallel {
                ParallelCalls::Allowed => Parallel::Several,
                ParallelCalls::One => Parallel::One,
            },
            syntax: self.syntax.calls,
        };
        Ok(Some(Demand {
            param: "tools".to_owned(),
            form: constrain::Form {
                grammar: Grammar::Parts(rules.lark(place, |marker| self.literal(marker))),
                white_space: WhiteSpace::Short,
                lead,
            },
            parts,
        }))
    }

    /// Reasoning that may stand before what is demanded.
    fn lead(&self, prompt: &Rendered) -> Lead {
        let Some((open, close)) = self.syntax.reasoning.markers() else {
            return Lead::Nothing;
        };
        let (open, close) = (open.to_owned(), close.to_owned());
        if self.starts_in_reasoning(prompt) {
            Lead::Through(close)
        } else if self.request.turn != Turn::Opened || prompt.text.trim_end().ends_with(&close) {
            // The template closed the block: there is no thinking this time.
            Lead::Nothing
        } else {
            Lead::Block { open, close }
        }
    }

    /// The schema of each tool's arguments, as a grammar takes it.
    fn parts(&self, tools: &Tools) -> Result<Vec<Part>, Refusal> {
        let any = json!({"type": "object"});
        let limits = constrain::Limits::STANDARD;
        let schema = |tool: &Tool| {
            let is_free = tools.choice == ToolChoice::Auto && tool.strictness == Strictness::Told;
            let own = tool
                .parameters
                .as_ref()
                .filter(|_| !is_free)
                .unwrap_or(&any);
            match constrain::part_schema(&of_object(tool.index, own)?, &limits) {
                Ok(schema) => Ok(Part {
                    param: format!("tools[{}].function.parameters", tool.index),
                    tool: tool.name.clone(),
                    schema,
                }),
                Err(error) => Err(refused(tool, &error)),
            }
        };
        tools.offered.iter().map(schema).collect()
    }

    /// A marker as a grammar spells it.
    fn literal(&self, marker: &str) -> String {
        match self.control_token(marker) {
            Some(id) => format!("<[{id}]>"),
            None => Value::from(marker).to_string(),
        }
    }

    fn control_token(&self, marker: &str) -> Option<u32> {
        let tokens = self
            .serving
            .tokenizer
            .encode(marker, text::SpecialText::Parse);
        match tokens.as_slice() {
            [token] if self.serving.tokenizer.is_control(*token) => Some(token.0),
            _ => None,
        }
    }
}

/// Puts the calls of an earlier turn into words, as its model would have said them.
fn tell_calls(message: &mut Message) {
    let calls = std::mem::take(&mut message.tool_calls);
    let call = |call: &Value| {
        let function = &call["function"];
        let arguments = match &function["arguments"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!(
            "{{\"name\": {}, \"arguments\": {arguments}}}",
            function["name"]
        )
    };
    let words: Vec<String> = calls.iter().map(call).collect();
    let said = (!message.content.is_empty()).then(|| message.content.clone());
    message.content = said.into_iter().chain(words).collect::<Vec<_>>().join("\n");
}

/// Arguments are an object, whatever else their schema says; one that says otherwise is of nothing.
fn of_object(index: usize, schema: &Value) -> Result<Value, Refusal> {
    let mut schema = schema.clone();
    let is_object = match schema.get("type") {
        None => {
            schema["type"] = "object".into();
            true
        }
        Some(kind) => kind == "object",
    };
    match is_object {
        true => Ok(schema),
        false => Err(Refusal::ForModel {
            param: format!("tools[{index}].function.parameters.type"),
            reason: "must be \"object\": arguments have names".to_owned(),
        }),
    }
}

fn system(content: String) -> Message {
    Message {
        role: Role::System,
        content,
        name: None,
        tool_call_id: None,
        tool_calls: Vec::new(),
        reasoning: None,
    }
}

fn refused(tool: &Tool, error: &CompileError) -> Refusal {
    let place = format!("tools[{}].function.parameters", tool.index);
    match error {
        CompileError::Schema { path, reason } => Refusal::ForModel {
            param: joined(&place, path),
            reason: reason.clone(),
        },
        other => Refusal::ForModel {
            param: place,
            reason: format!("of {:?} {other}", tool.name),
        },
    }
}
