//! A syntax of answers that flags ask for, in place of the one that the chat template shows.

use anyhow::bail;
use text::output::{CallSyntax, OutputSyntax, ReasoningSyntax};

use crate::open::TextSide;

/// A syntax of answers that was asked for, in place of the one that the chat template shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskedSyntax {
    /// How reasoning is told from the answer.
    pub reasoning: Option<ReasoningSyntax>,
    /// How tools are called.
    pub calls: Option<CallSyntax>,
}

impl TextSide {
    /// The same, with another syntax of answers.
    ///
    /// # Errors
    ///
    /// If there is no chat template, so that no conversation could be answered in it.
    pub fn with_syntax(mut self, asked: AskedSyntax) -> anyhow::Result<TextSide> {
        let flag = match asked {
            AskedSyntax {
                reasoning: Some(_), ..
            } => "--reasoning-parser",
            AskedSyntax { calls: Some(_), .. } => "--tool-call-parser",
            AskedSyntax { .. } => return Ok(self),
        };
        let Some(template) = self.template.take() else {
            bail!("{flag}: this model has no chat template, so there are no chats to read it in");
        };
        self.template = Some(template.with_output_syntax(|shown| OutputSyntax {
            reasoning: asked.reasoning.unwrap_or(shown.reasoning),
            calls: asked.calls.unwrap_or(shown.calls),
        }));
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use formats::gguf::Gguf;
    use model::Source;
    use text::Tokenizer;

    use super::*;
    use crate::open;

    #[test]
    fn a_syntax_that_is_asked_for_replaces_its_half_of_what_the_template_shows() {
        let file = testkit::tiny::llama(testkit::encode::Encoding::Q4_0).build();
        let file = Source::Gguf(Gguf::parse(file.bytes).expect("the tiny model is sound"));
        let syntax = |reasoning, calls| {
            let text = open::text_side(&file).expect("the tiny model has texts");
            let text = text
                .with_syntax(AskedSyntax { reasoning, calls })
                .expect("the tiny model has a chat template");
            let template = text.template.expect("it is still there");
            template.output_syntax(text::ToolsShown::Some)
        };
        let shown = syntax(None, None);
        let granite = syntax(Some(ReasoningSyntax::Granite), None);
        assert_eq!(
            (granite.reasoning, granite.calls),
            (ReasoningSyntax::Granite, shown.calls)
        );
        let mistral = syntax(None, Some(CallSyntax::Mistral));
        assert_eq!(
            (mistral.reasoning, mistral.calls),
            (shown.reasoning, CallSyntax::Mistral)
        );
    }

    #[test]
    fn a_syntax_for_a_model_without_a_chat_template_is_refused_by_its_flag() {
        let text = || TextSide {
            tokenizer: Arc::new(Tokenizer::without_text(8, &[])),
            template: None,
        };
        assert!(text().with_syntax(AskedSyntax::default()).is_ok());
        for (asked, flag) in [
            (
                AskedSyntax {
                    reasoning: Some(ReasoningSyntax::Think),
                    calls: None,
                },
                "--reasoning-parser",
            ),
            (
                AskedSyntax {
                    reasoning: None,
                    calls: Some(CallSyntax::Hermes),
                },
                "--tool-call-parser",
            ),
        ] {
            let refusal = text().with_syntax(asked).err().expect("it is refused");
            assert!(refusal.to_string().contains(flag), "{refusal}");
        }
    }
}
