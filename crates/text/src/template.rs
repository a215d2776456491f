//! Chat templates: messages to prompt text.

/// Why a template cannot be used or a conversation not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template does not parse.
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
    /// Rendering took too many steps or gave too much text.
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
    /// Byte ranges of `text`, ascending, that are control-token text typed by a user.
    pub plain: Vec<std::ops::Range<usize>>,
}

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {}

impl ChatTemplate {
    /// Compiles a Jinja chat template as the `transformers` library understands it.
    /// `control_texts` are the texts of the vocabulary's control tokens.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`].
    pub fn compile(
        source: &str,
        bos: &str,
        eos: &str,
        control_texts: Vec<String>,
    ) -> Result<ChatTemplate, TemplateError> {
        let _ = (source, bos, eos, control_texts);
        unimplemented!()
    }
    /// Renders `messages` (OpenAI message objects). `extra` are further template
    /// variables (`tools`, `enable_thinking`, …), an object.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Refused`] and [`TemplateError::TooMuch`].
    pub fn render(
        &self,
        messages: &[serde_json::Value],
        add_generation_prompt: bool,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Rendered, TemplateError> {
        let _ = (messages, add_generation_prompt, extra);
        unimplemented!()
    }
}
