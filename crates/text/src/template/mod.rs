//! Chat templates: messages to prompt text.
//!
//! A template is a Jinja program that comes with the model. `transformers` defines by its own renderer what
//! such a program may use; this module gives minijinja the same habits (`python.rs`, `tags.rs`), arranges messages in
//! the shape the template can read (`messages.rs`), and remembers which control-token texts were typed by a
//! user and not written by the template (`guard.rs`), so that a message can never forge a turn.
//!
//! A template is foreign code: it is bounded in size and depth before it is parsed (`bounds.rs`), and its rendering in
//! steps, memory and output, and in the size and depth of its values (`keep.rs`).
//!
//! Not here: which conversations the server accepts, and the tokens (`Tokenizer::encode_chat`).
//!
//! Source: `transformers` (`utils/chat_template_utils.py`), <https://jinja.palletsprojects.com>.

mod continued;
mod guard;
mod messages;
mod python;

mod tags;

mod bounds;
mod keep;

use crate::output::OutputSyntax;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::SystemTime;

use minijinja::{Environment, ErrorKind, syntax::SyntaxConfig};
use serde_json::{Map, Value, json};

use bounds::{NameKind, Named};
use guard::ControlGuard;
use messages::MessageShape;

/// Bounds on a template and on one rendering.
struct Limits {
    /// Bytes of a template's source. The longest we know has 17 thousand.
    source_bytes_max: usize,
    /// Depth of the syntax tree of an expression, its operators counted. Parsing, compiling and dropping it recurse as
    /// deep; all that these limits let through was measured to need less than 256 KiB of stack, an eighth of what a
    /// server's blocking threads have. People write a few dozen.
    expression_depth_max: usize,
    /// Brackets within one another, each of which counts several times against minijinja's own limit of 150.
    bracket_depth_max: usize,
    /// Depth of the blocks around a place, where each `elif` counts as one: it is parsed as a block in an `else`.
    block_depth_max: usize,
    /// Depth of a value. Messages from JSON are at most 128 deep.
    value_depth_max: usize,
    /// Items of a value, those of its items included.
    value_items_max: u64,
    /// Engine instructions, where 64 bytes of created text or lists also count as one. It bounds time (well below a
    /// second) and memory (128 MiB). A turn takes a few dozen steps in the templates we know.
    steps_max: u64,
    /// Bytes of the finished prompt, and of the texts in one value: four times what a context window of a million
    /// tokens holds.
    output_bytes_max: usize,
}

const LIMITS: Limits = Limits {
    source_bytes_max: 256 << 10,
    expression_depth_max: 256,
    bracket_depth_max: 32,
    block_depth_max: 128,
    value_depth_max: 160,
    value_items_max: 1_000_000,
    steps_max: 2_000_000,
    output_bytes_max: 16 << 20,
};

const TEMPLATE_NAME: &str = "chat template";

/// Why a template cannot be used or a conversation not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template does not parse, names what does not exist, or is nested too deeply.
    #[error("chat template, line {line}: {reason}")]
    Syntax {
        /// 1-based line.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// The template itself refused the conversation (`raise_exception`), or uses something undefined.
    #[error("chat template: {reason}")]
    Refused {
        /// The template's own words.
        reason: String,
    },
    /// The template is too long, or rendering took too many steps or gave too much text.
    #[error("chat template exceeds its limit of {limit}")]
    TooMuch {
        /// Which limit.
        limit: String,
    },
}

/// A rendered conversation that remembers which control-token texts came from messages
/// and not from the template.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The prompt text, as any other renderer of the template would give it.
    pub text: String,
    /// Byte ranges of `text`, ascending and disjoint, that are control-token text typed by a user.
    pub plain: Vec<Range<usize>>,
}

/// What a template is rendered with.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    /// OpenAI message objects.
    pub messages: &'a [Value],
    /// OpenAI tool objects. Without any, the template's `tools` is none.
    pub tools: &'a [Value],
    /// How the prompt ends.
    pub ending: PromptEnding,
    /// Further variables (`enable_thinking`, `documents`, …). They cannot replace the messages, the ending or, where
    /// there are any, the tools.
    pub variables: &'a Map<String, Value>,
}

/// How a prompt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptEnding {
    /// With the opening of the assistant's turn (`add_generation_prompt`).
    OpenTurn,
    /// After the last message.
    AfterMessages,
    /// Within the last message, whose text the model goes on with (`continue_final_message`).
    WithinFinalMessage,
}

/// Whether a conversation shows tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolsShown {
    /// None.
    None,
    /// At least one.
    Some,
}

/// A compiled template. Shared freely between threads.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// What conversations with tools are rendered with, if the model has another template for them.
    for_tools: Option<Box<ChatTemplate>>,
    /// Variables every rendering gets.
    constants: Map<String, Value>,
    guard: ControlGuard,
    shape: MessageShape,
    syntax: OutputSyntax,
    reads_tools: bool,
    reads_calls: bool,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("constants", &self.constants)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles a Jinja chat template as the `transformers` library understands it.
    ///
    /// `bos` and `eos` become `bos_token` and `eos_token`; an empty one stays undefined.
    /// `control_texts` are the texts of the vocabulary's control tokens. `strftime_now` tells the time in
    /// UTC; see [`ChatTemplate::with_clock`].
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`], and [`TemplateError::TooMuch`] for a source of more than 256 KiB.
    pub fn compile(
        source: &str,
        bos: &str,
        eos: &str,
        control_texts: Vec<String>,
    ) -> Result<ChatTemplate, TemplateError> {
        let environment = environment(source)?;
        let mut constants = Map::new();
        // `transformers` passes these two even if there are none: templates ask `is not none`.
        constants.insert("tools".to_owned(), Value::Null);
        constants.insert("documents".to_owned(), Value::Null);
        for (name, token) in [("bos_token", bos), ("eos_token", eos)] {
            if !token.is_empty() {
                constants.insert(name.to_owned(), token.into());
            }
        }
        let mut template = ChatTemplate {
            environment,
            for_tools: None,
            constants,
            guard: ControlGuard::new(control_texts, source),
            shape: MessageShape::AS_GIVEN,
            syntax: OutputSyntax::detect(source),
            reads_tools: source.contains("tools"),
            reads_calls: source.contains("tool_calls"),
        };
        template.shape = MessageShape::probe(|messages| {
            let variables = template.variables(messages.to_vec(), AddPrompt::No, &Map::new());
            template.evaluate(variables, None).ok()
        });
        Ok(template)
    }

    /// The same template, with another clock for `strftime_now`.
    pub fn with_clock(
        mut self,
        clock: impl Fn() -> SystemTime + Clone + Send + Sync + 'static,
    ) -> ChatTemplate {
        let for_tools = self.for_tools.take();
        self.for_tools = for_tools.map(|template| Box::new(template.with_clock(clock.clone())));
        python::set_clock(&mut self.environment, clock);
        self
    }

    /// The same template, but conversations with tools are rendered with `template`: some models come with a
    /// second one, called `tool_use`.
    pub fn with_tool_use(mut self, template: ChatTemplate) -> ChatTemplate {
        self.for_tools = Some(Box::new(template));
        self
    }

    /// The syntax of answers that the template teaches, to a conversation with tools or without.
    pub fn output_syntax(&self, tools: ToolsShown) -> OutputSyntax {
        match &self.for_tools {
            Some(for_tools) if tools == ToolsShown::Some => for_tools.syntax,
            _ => self.syntax,
        }
    }

    /// The same template, with another syntax of answers than the one it shows.
    pub fn with_output_syntax(
        mut self,
        change: impl Fn(OutputSyntax) -> OutputSyntax,
    ) -> ChatTemplate {
        self.syntax = change(self.syntax);
        if let Some(for_tools) = &mut self.for_tools {
            for_tools.syntax = change(for_tools.syntax);
        }
        self
    }

    /// Whether the template shows the calls of earlier turns to the model.
    pub fn reads_calls(&self) -> bool {
        self.for_tools.is_some() || self.reads_calls
    }

    /// Whether the template shows tools to the model.
    pub fn reads_tools(&self) -> bool {
        self.for_tools.is_some() || self.reads_tools
    }

    /// Renders a conversation.
    ///
    /// Everything [`ChatTemplate::render`] says about the shape of messages holds here, too.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Refused`] and [`TemplateError::TooMuch`]. The final message can only be continued if it has
    /// text, and the template writes that text as it is (but for white space around it).
    pub fn render_conversation(
        &self,
        conversation: &Conversation<'_>,
    ) -> Result<Rendered, TemplateError> {
        let mut variables = conversation.variables.clone();
        if !conversation.tools.is_empty() {
            variables.insert("tools".to_owned(), conversation.tools.into());
        }
        let template = match &self.for_tools {
            Some(for_tools) if !conversation.tools.is_empty() => for_tools,
            _ => self,
        };
        let opens_turn = conversation.ending == PromptEnding::OpenTurn;
        let rendered = template.render(conversation.messages, opens_turn, &variables)?;
        match conversation.ending {
            PromptEnding::WithinFinalMessage => continued::cut(rendered, conversation.messages),
            PromptEnding::OpenTurn | PromptEnding::AfterMessages => Ok(rendered),
        }
    }

    /// Renders `messages` (OpenAI message objects). `extra` are further template
    /// variables (`tools`, `enable_thinking`, …), an object.
    ///
    /// Content given as a list of text parts is joined by line breaks, as vLLM and llama.cpp do, unless the
    /// template reads lists itself. Null content becomes empty text unless the template knows null. Arguments
    /// of tool calls given as a JSON string become an object if the template prints objects as JSON.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Refused`] and [`TemplateError::TooMuch`].
    pub fn render(
        &self,
        messages: &[Value],
        add_generation_prompt: bool,
        extra: &Map<String, Value>,
    ) -> Result<Rendered, TemplateError> {
        let add_prompt = match add_generation_prompt {
            true => AddPrompt::Yes,
            false => AddPrompt::No,
        };
        let mut messages = self.shape.arrange(messages)?;
        let mut extra = extra.clone();
        let marker = self.guard.break_controls(&mut messages, &mut extra)?;
        let variables = self.variables(messages, add_prompt, &extra);
        let text = self.evaluate(variables, marker)?;
        Ok(match marker {
            Some(marker) => self.guard.mend(&text, marker),
            None => Rendered {
                text,
                plain: Vec::new(),
            },
        })
    }

    fn variables(
        &self,
        messages: Vec<Value>,
        add_prompt: AddPrompt,
        extra: &Map<String, Value>,
    ) -> Map<String, Value> {
        let mut variables = self.constants.clone();
        variables.extend(
            extra
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        variables.insert("messages".to_owned(), Value::Array(messages));
        let add_generation_prompt = json!(matches!(add_prompt, AddPrompt::Yes));
        variables.insert("add_generation_prompt".to_owned(), add_generation_prompt);
        variables
    }

    fn evaluate(
        &self,
        mut variables: Map<String, Value>,
        marker: Option<char>,
    ) -> Result<String, TemplateError> {
        if let Some(marker) = marker {
            variables.insert(
                python::MARKER_VARIABLE.to_owned(),
                marker.to_string().into(),
            );
        }
        let template = self
            .environment
            .get_template(TEMPLATE_NAME)
            .expect("compiled with the environment");
        let mut output = BoundedOutput(Vec::new());
        let context = minijinja::Value::from(minijinja::value::Serde(variables));
        template
            .render_captured_to(context, &mut output)
            .map_err(|error| render_error(&error))?;
        Ok(String::from_utf8(output.0).expect("minijinja writes UTF-8"))
    }
}

/// Whether the prompt ends with the opening of the assistant's turn.
#[derive(Clone, Copy)]
enum AddPrompt {
    Yes,
    No,
}

/// An environment with the habits of `transformers` and the one template in it.
fn environment(source: &str) -> Result<Environment<'static>, TemplateError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("default delimiters");
    environment.set_syntax(syntax.clone());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(LIMITS.steps_max));
    python::add_to(&mut environment);
    keep::add_to(&mut environment);
    let bounded = bounds::bounded(&tags::adapted(source), &syntax)?;
    for named in &bounded.names {
        check_known(&environment, named)?;
    }
    environment
        .add_template_owned(TEMPLATE_NAME, bounded.source)
        .map_err(|error| syntax_error(&error))?;
    Ok(environment)
}

fn check_known(environment: &Environment<'_>, named: &Named) -> Result<(), TemplateError> {
    let (question, kind) = match named.kind {
        NameKind::Filter => ("name is filter", "filter"),
        NameKind::Test => ("name is test", "test"),
    };
    let is_known = environment
        .compile_expression(question)
        .and_then(|question| question.eval(minijinja::context! { name => named.name.as_str() }))
        .map_err(|error| syntax_error(&error))?;
    match is_known.is_true() {
        true => Ok(()),
        false => Err(TemplateError::Syntax {
            line: named.line,
            reason: format!("unknown {kind}: {}", named.name),
        }),
    }
}

fn syntax_error(error: &minijinja::Error) -> TemplateError {
    TemplateError::Syntax {
        line: error.line().unwrap_or(1),
        reason: reason_of(error),
    }
}

fn render_error(error: &minijinja::Error) -> TemplateError {
    if let Some(message) = python::raised_message(error) {
        return TemplateError::Refused {
            reason: message.to_owned(),
        };
    }
    if let Some(limit) = keep::reached_limit(error) {
        let limit = limit.to_owned();
        return TemplateError::TooMuch { limit };
    }
    let limit = match error.kind() {
        ErrorKind::OutOfFuel => format!("{} steps", LIMITS.steps_max),
        ErrorKind::WriteFailure => output_limit(),
        _ => {
            let line = error.line().unwrap_or(0);
            let reason = format!("line {line}: {}", reason_of(error));
            return TemplateError::Refused { reason };
        }
    };
    TemplateError::TooMuch { limit }
}

fn reason_of(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn output_limit() -> String {
    format!("{} bytes of output", LIMITS.output_bytes_max)
}

/// Collects text up to the limit.
struct BoundedOutput(Vec<u8>);

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LIMITS.output_bytes_max {
            return Err(io::Error::other("output limit"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
