//! What an answer may have to tell of its prompt.

use text::{SpecialText, TokenId};

use api::report::{Report, Told};

use crate::state::Serving;

/// One prompt; empty where nothing of it is asked for.
#[derive(Debug, Default)]
pub(crate) struct PromptFacts {
    pub ids: Vec<u32>,
    pub text: String,
}

impl PromptFacts {
    /// Keeps what `report` asks for. `typed` is the text the caller sent, if it sent one; else
    /// the text is that of the tokens, control tokens by their names.
    pub fn of(
        prompt: &[TokenId],
        typed: Option<&str>,
        report: &Report,
        serving: &Serving,
    ) -> PromptFacts {
        let asks = [report.token_ids, report.prompt_text, report.echo];
        if !asks.contains(&Told::Told) {
            return PromptFacts::default();
        }
        let decoded = || serving.tokenizer.decode(prompt, SpecialText::Parse);
        PromptFacts {
            ids: prompt.iter().map(|token| token.0).collect(),
            text: typed.map_or_else(decoded, str::to_owned),
        }
    }

    /// The ids, if asked for.
    pub fn told_ids(&self, report: &Report) -> Option<&[u32]> {
        (report.token_ids == Told::Told).then_some(&*self.ids)
    }

    /// The text, if asked for.
    pub fn told_text(&self, report: &Report) -> Option<&str> {
        (report.prompt_text == Told::Told).then_some(&*self.text)
    }
}

/// The ids of new tokens, if asked for.
pub(crate) fn told_tokens(tokens: &[TokenId], report: &Report) -> Option<Vec<u32>> {
    let ids = || tokens.iter().map(|token| token.0).collect();
    (report.token_ids == Told::Told).then(ids)
}
